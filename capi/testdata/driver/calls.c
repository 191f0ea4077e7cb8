/* Calls on the GPU of kernels/cuda/internal/driver/testdata/libcuda.c, which has none: the calls that reach the driver. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plaid_maxsim.h"

#define CHECK(condition, ...)                                                                      \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition), fprintf(stderr, __VA_ARGS__); \
      fputc('\n', stderr);                                                                         \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static struct {
  long (*calls)(const char *);
  void (*fail)(const char *, int);
  const unsigned char *(*parameters)(void);
  int (*set_current)(void *), (*current)(void **), (*begin)(void *, int), (*end)(void *, void **);
} fake;

static void *find(const char *name) {
  static void *library;
  void *f;
  if (library == NULL) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
  }
  CHECK(library != NULL, "%s", dlerror());
  f = dlsym(library, name);
  CHECK(f != NULL, "%s", name);
  return f;
}

#define STREAM ((void *)0x7000)
#define ADDRESS(n) ((void *)(uintptr_t)((uint64_t)(n) << 32))

static plaid_batch batch(int64_t items, int64_t rows, int n) {
  plaid_batch b;
  memset(&b, 0, sizeof b);
  b.data = ADDRESS(n);
  b.type = PLAID_F16;
  b.dim = 128;
  b.items = items;
  b.rows = items * rows;
  b.stride = b.longest = rows;
  return b;
}

static plaid_score_call score_call(int64_t docs, int n) {
  plaid_score_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.stream = STREAM;
  c.q = batch(1, 32, n);
  c.d = batch(docs, 300, n + 1);
  c.scores = ADDRESS(n + 2);
  c.argmax = ADDRESS(n + 3);
  return c;
}

static plaid_gradient_call gradient_call(int64_t docs, int n) {
  plaid_score_call s = score_call(docs, n);
  plaid_gradient_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place = s.place;
  c.q = s.q;
  c.d = s.d;
  c.argmax = s.argmax;
  c.dq = ADDRESS(n + 4);
  c.dd = ADDRESS(n + 5);
  c.dq_type = c.dd_type = PLAID_F16;
  return c;
}

static plaid_error new_error(void) {
  plaid_error e;
  memset(&e, 0, sizeof e);
  e.size = sizeof e;
  return e;
}

/* given reports whether the kernel that this thread launched last has an address among its parameters. */
static int given(const void *address) {
  for (int i = 0; i < 4096; i += 8) {
    if (memcmp(fake.parameters() + i, &address, 8) == 0) {
      return 1;
    }
  }
  return 0;
}

/* Errors of the driver have a code and a message, and leave nothing locked. The first calls of all open the device. */
static void test_failures(void) {
  static const struct {
    const char *name;
    int result, code;
  } cases[] = {
      {"cuInit", 3, PLAID_ERR_DEVICE},
      {"cuDeviceGetCount", 100, PLAID_ERR_DEVICE},
      {"cuDeviceGetAttribute", 1, PLAID_ERR_DEVICE},
      {"cuCtxGetCurrent", 4, PLAID_ERR_DEVICE},
      {"cuDevicePrimaryCtxRetain", 2, PLAID_ERR_MEMORY},
      {"cuCtxSetCurrent", 1, PLAID_ERR_DEVICE},
      {"cuModuleLoadDataEx", 209, PLAID_ERR_UNSUPPORTED},
      {"cuStreamCreate", 1, PLAID_ERR_DEVICE},
      {"cuModuleGetFunction", 500, PLAID_ERR_DEVICE},
      {"cuStreamIsCapturing", 1, PLAID_ERR_DEVICE},
      {"cuMemAlloc_v2", 2, PLAID_ERR_MEMORY},
      {"cuMemcpyHtoDAsync_v2", 1, PLAID_ERR_DEVICE},
      {"cuStreamSynchronize", 700, PLAID_ERR_DEVICE},
      {"cuLaunchKernel", 719, PLAID_ERR_DEVICE},
      {"cuLaunchKernel", 701, PLAID_ERR_DEVICE},
  };
  plaid_score_call c = score_call(7, 1);
  plaid_error e = new_error();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char want[64];
    int code;
    fake.fail(cases[i].name, cases[i].result);
    code = plaid_score(&c, &e);
    fake.fail(cases[i].name, 0);
    snprintf(want, sizeof want, "CUDA error %d", cases[i].result);
    CHECK(code == cases[i].code && strstr(e.message, want) != NULL, "%s: %d, %s", cases[i].name, code, e.message);
  }
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
  CHECK(fake.calls("cuDevicePrimaryCtxRetain") - fake.calls("cuDevicePrimaryCtxRelease_v2") == 2,
        "the context is held by its device alone, and by the call that got none");
}

/* A call of a shape that was there before is one launch, and takes and waits for nothing. */
static void test_repeated(void) {
  plaid_score_call c = score_call(100, 1);
  plaid_gradient_call g = gradient_call(100, 1);
  plaid_error e = new_error();
  CHECK(plaid_score(&c, &e) == PLAID_OK && plaid_gradients(&g, &e) == PLAID_OK, "%s", e.message);
  for (int i = 0; i < 3; i++) {
    long all = fake.calls(""), launches = fake.calls("cuLaunchKernel"), contexts = fake.calls("cuCtxGetCurrent");
    CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
    CHECK(fake.calls("cuLaunchKernel") == launches + 1 && fake.calls("cuCtxGetCurrent") == contexts + 1, "score");
    CHECK(fake.calls("") == all + 3, "%ld", fake.calls("") - all); /* and whether the stream is captured */
    CHECK(given(c.scores) && given(c.argmax) && given(c.q.data) && given(c.d.data), "parameters");
    CHECK(plaid_gradients(&g, &e) == PLAID_OK, "%s", e.message);
    CHECK(fake.calls("cuLaunchKernel") == launches + 2 && fake.calls("") == all + 5, "%ld", fake.calls("") - all);
    CHECK(given(g.dq) && given(g.dd) && given(g.argmax), "parameters");
  }
}

/* A first call may be of a stream that is captured. */
static void test_capture(void) {
  plaid_score_call c = score_call(19, 1);
  plaid_error e = new_error();
  void *graph;
  long allocations = fake.calls("cuMemAlloc_v2");
  CHECK(fake.begin(STREAM, 0) == 0, "capture");
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
  CHECK(fake.calls("cuMemAlloc_v2") == allocations + 1, "tables");
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
  CHECK(fake.end(STREAM, &graph) == 0, "capture");
  long all = fake.calls(""); /* the tables stay for good: no call asks again whether the stream is captured */
  CHECK(plaid_score(&c, &e) == PLAID_OK && fake.calls("") == all + 2, "%ld", fake.calls("") - all);
}

/* Data that are not aligned to 16 bytes may need a workspace that others do not. */
static void test_alignment(void) {
  plaid_score_call c = score_call(100, 1);
  plaid_error e = new_error();
  int64_t bytes;
  CHECK(plaid_score_workspace(&c, &bytes, &e) == PLAID_OK && bytes == 0, "%lld", (long long)bytes);
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
  c.d.data = (const char *)c.d.data + 2;
  CHECK(plaid_score(&c, &e) == PLAID_ERR_MEMORY && strstr(e.message, "workspace") != NULL, "%s", e.message);
  CHECK(plaid_score_workspace(&c, &bytes, &e) == PLAID_OK && bytes > 0, "%lld", (long long)bytes);
  c.place.workspace = ADDRESS(9);
  c.place.workspace_bytes = bytes;
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
}

/* Any thread may call; each has the context afterwards that it had before, and its own parameters. */
static void *calls_of_thread(void *number) {
  int n = (int)(intptr_t)number;
  plaid_error e = new_error();
  void *before = n % 2 == 0 ? NULL : (void *)0x1000, *after;
  CHECK(fake.set_current(before) == 0, "context");
  for (int i = 0; i < 300; i++) {
    plaid_score_call c = score_call(30 + i % 5, 10 * n);
    plaid_gradient_call g = gradient_call(30 + i % 5, 10 * n);
    CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
    CHECK(given(c.scores) && given(c.d.data), "parameters of another thread");
    CHECK(plaid_gradients(&g, &e) == PLAID_OK, "%s", e.message);
    CHECK(given(g.dd) && given(g.argmax), "parameters of another thread");
    CHECK(fake.current(&after) == 0 && after == before, "%p", after);
  }
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[8];
  long launches = fake.calls("cuLaunchKernel");
  for (int i = 0; i < 8; i++) {
    CHECK(pthread_create(&threads[i], NULL, calls_of_thread, (void *)(intptr_t)(i + 1)) == 0, "thread");
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK(fake.calls("cuLaunchKernel") == launches + 8 * 300 * 2, "%ld", fake.calls("cuLaunchKernel") - launches);
}

/* time_calls prints the least microseconds of a call, of many. */
static void time_calls(void) {
  plaid_score_call c = score_call(100, 1);
  plaid_gradient_call g = gradient_call(100, 1);
  for (int kind = 0; kind < 2; kind++) {
    double best = 1e9;
    for (int round = 0; round < 400; round++) {
      struct timespec from, to;
      clock_gettime(CLOCK_MONOTONIC, &from);
      for (int i = 0; i < 1000; i++) {
        CHECK((kind == 0 ? plaid_score(&c, NULL) : plaid_gradients(&g, NULL)) == PLAID_OK, "call");
      }
      clock_gettime(CLOCK_MONOTONIC, &to);
      double us = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
      best = us < best ? us : best;
    }
    printf("%s: %.2f us\n", kind == 0 ? "score" : "gradients", best);
  }
}

/* calls [time] */
int main(int argc, char **argv) {
  (void)argv;
  *(void **)&fake.calls = find("fake_calls");
  *(void **)&fake.fail = find("fake_fail");
  *(void **)&fake.parameters = find("fake_parameters");
  *(void **)&fake.set_current = find("cuCtxSetCurrent");
  *(void **)&fake.current = find("cuCtxGetCurrent");
  *(void **)&fake.begin = find("cuStreamBeginCapture_v2");
  *(void **)&fake.end = find("cuStreamEndCapture");
  test_failures();
  fake.set_current((void *)0x1000); /* as torch has it */
  test_repeated();
  test_capture();
  test_alignment();
  test_threads();
  if (argc > 1) {
    time_calls();
  }
  return 0;
}
