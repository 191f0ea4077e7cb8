/* Calls on GPU 0: all memory that a call names goes to the GPU, and comes back after it. */
#include <dlfcn.h>

#include "test.h"

typedef unsigned long long device_pointer;

static struct {
  int (*init)(unsigned);
  int (*retain)(void **, int);
  int (*set_current)(void *);
  int (*allocate)(device_pointer *, size_t);
  int (*release)(device_pointer);
  int (*to_device)(device_pointer, const void *, size_t);
  int (*to_host)(void *, device_pointer, size_t);
  int (*new_stream)(void **, unsigned);
  int (*wait)(void *);
  int (*wait_for_all)(void);
} cuda;

static int used;
static void *stream;
static device_pointer copies[4096], work; /* of each area; and the workspace */
static int64_t shifts[4096];

double looseness(void) { return used ? 10 : 1; }

static void *function(void *library, const char *name) {
  void *f = dlsym(library, name);
  CHECK(f != NULL, "the driver has no %s", name);
  return f;
}

/* use_device ends the program with 77 where there is no GPU. */
void use_device(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
  if (library == NULL) {
    exit(77);
  }
  *(void **)&cuda.init = function(library, "cuInit");
  *(void **)&cuda.retain = function(library, "cuDevicePrimaryCtxRetain");
  *(void **)&cuda.set_current = function(library, "cuCtxSetCurrent");
  *(void **)&cuda.allocate = function(library, "cuMemAlloc_v2");
  *(void **)&cuda.release = function(library, "cuMemFree_v2");
  *(void **)&cuda.to_device = function(library, "cuMemcpyHtoD_v2");
  *(void **)&cuda.to_host = function(library, "cuMemcpyDtoH_v2");
  *(void **)&cuda.new_stream = function(library, "cuStreamCreate");
  *(void **)&cuda.wait = function(library, "cuStreamSynchronize");
  *(void **)&cuda.wait_for_all = function(library, "cuCtxSynchronize");
  if (cuda.init(0) != 0 || cuda.retain(&context, 0) != 0) {
    exit(77);
  }
  CHECK(cuda.set_current(context) == 0 && cuda.new_stream(&stream, 1) == 0, "no stream");
  used = 1;
}

/* moved is the address of p on the GPU, to which the area of p is copied first. */
static void *moved(const void *p) {
  int64_t bytes;
  if (p == NULL) {
    return NULL;
  }
  int i = area_of(p);
  char *start = area(i, &bytes);
  if (copies[i] == 0) {
    shifts[i] = 4 * below(2); /* aligned to an element alone, now and then */
    CHECK(cuda.allocate(&copies[i], (size_t)bytes + 16) == 0, "no memory");
    CHECK(bytes == 0 || cuda.to_device(copies[i] + (device_pointer)shifts[i], start, (size_t)bytes) == 0, "copy");
  }
  return (void *)(uintptr_t)(copies[i] + (device_pointer)shifts[i] + (device_pointer)((const char *)p - start));
}

static void move_batch(plaid_batch *b) {
  b->data = moved(b->data);
  b->scales = moved(b->scales);
  b->zeros = moved(b->zeros);
  b->offsets = moved(b->offsets);
  b->lengths = moved(b->lengths);
  b->mask = moved(b->mask);
}

static void move_pairs(plaid_pairs *p) {
  p->queries = moved(p->queries);
  p->docs = moved(p->docs);
}

static void give_room(plaid_place *place, int64_t bytes) {
  CHECK(cuda.allocate(&work, (size_t)bytes + 1) == 0, "no room of %lld bytes", (long long)bytes);
  place->workspace = (void *)(uintptr_t)work;
  place->workspace_bytes = bytes;
}

/* fetch waits, and brings back all that was copied. */
static void fetch(int code) {
  CHECK(cuda.wait(stream) == 0, "the kernels failed");
  for (int i = 0; i < 4096; i++) {
    int64_t bytes;
    if (copies[i] != 0) {
      void *start = area(i, &bytes);
      CHECK(code != PLAID_OK || bytes == 0 || cuda.to_host(start, copies[i] + (device_pointer)shifts[i], (size_t)bytes) == 0, "copy");
      CHECK(cuda.release(copies[i]) == 0, "release");
      copies[i] = 0;
    }
  }
  if (work != 0) {
    CHECK(cuda.release(work) == 0, "release");
    work = 0;
  }
}

/* ON_DEVICE defines do_NAME; move moves the arrays of the call itself. */
#define ON_DEVICE(name, type, move)                       \
  int do_##name(const type *call, plaid_error *error) {   \
    type c = *call;                                       \
    int64_t bytes;                                        \
    int code;                                             \
    if (!used) {                                          \
      return plaid_##name(call, error);                   \
    }                                                     \
    move_batch(&c.q);                                     \
    move_batch(&c.d);                                     \
    move_pairs(&c.pairs);                                 \
    move;                                                 \
    cuda.wait_for_all(); /* for the copies */             \
    c.place.device = 0;                                   \
    c.place.stream = stream;                              \
    code = plaid_##name##_workspace(&c, &bytes, error);   \
    if (code == PLAID_OK) {                               \
      give_room(&c.place, bytes);                         \
      code = plaid_##name(&c, error);                     \
    }                                                     \
    fetch(code);                                          \
    return code;                                          \
  }

ON_DEVICE(score, plaid_score_call, {
  c.weights = moved(c.weights);
  c.scores = moved(c.scores);
  c.argmax = moved(c.argmax);
})
ON_DEVICE(gradients, plaid_gradient_call, {
  c.weights = moved(c.weights);
  c.argmax = moved(c.argmax);
  c.upstream = moved(c.upstream);
  c.dq = moved(c.dq);
  c.dd = moved(c.dd);
})
ON_DEVICE(chamfer, plaid_chamfer_call, {
  c.distances = moved(c.distances);
  c.nearest_q = moved(c.nearest_q);
  c.nearest_d = moved(c.nearest_d);
})
ON_DEVICE(chamfer_gradients, plaid_chamfer_gradient_call, {
  c.nearest_q = moved(c.nearest_q);
  c.nearest_d = moved(c.nearest_d);
  c.upstream = moved(c.upstream);
  c.dq = moved(c.dq);
  c.dd = moved(c.dd);
})
ON_DEVICE(head, plaid_head_call, {
  c.query_weights = moved(c.query_weights);
  c.head = moved(c.head);
  c.bias = moved(c.bias);
  c.scores = moved(c.scores);
})
