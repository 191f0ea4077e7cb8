/*
 * libcuda.so.1 without a GPU, for tests of the way to the driver: one device of compute capability
 * 9.0, whose memory is the host's and whose kernels do nothing. It counts calls by name, and can
 * make them fail (fake_*).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 0x1000, INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900 };
enum { NAMES = 64 };

static struct {
  _Atomic(const char *) name;
  atomic_long calls;
  atomic_int result; /* of the next calls */
} functions[NAMES];
static _Thread_local void *current;
static _Thread_local int mode; /* 2: a capture forbids the thread nothing */
static atomic_int captured;    /* streams */
static _Atomic(uint64_t) captured_stream;

static int slot(const char *name) {
  for (int i = 0; i < NAMES; i++) {
    const char *empty = NULL, *n = functions[i].name;
    if (n == NULL && atomic_compare_exchange_strong(&functions[i].name, &empty, name)) {
      return i;
    }
    n = functions[i].name;
    if (n == name || strcmp(n, name) == 0) {
      return i;
    }
  }
  abort();
}

/* CALL counts a call, and returns from it where it is to fail. */
#define CALL                                             \
  do {                                                   \
    static atomic_int at = -1;                           \
    int i = at;                                          \
    if (i < 0) {                                         \
      at = i = slot(__func__);                           \
    }                                                    \
    atomic_fetch_add_explicit(&functions[i].calls, 1, memory_order_relaxed); \
    if (functions[i].result != 0) {                      \
      return functions[i].result;                        \
    }                                                    \
  } while (0)
#define IN_CONTEXT                    \
  do {                                \
    CALL;                             \
    if (current != (void *)CONTEXT) { \
      return INVALID_CONTEXT;         \
    }                                 \
  } while (0)
/* What a capture forbids a thread that is not relaxed. */
#define UNSAFE                        \
  do {                                \
    IN_CONTEXT;                       \
    if (captured && mode != 2) {      \
      return CAPTURE_UNSUPPORTED;     \
    }                                 \
  } while (0)

/* fake_calls is how often a function was called, all of them for "". */
long fake_calls(const char *name) {
  long n = 0;
  for (int i = 0; i < NAMES && functions[i].name != NULL; i++) {
    if (name[0] == 0 || strcmp(functions[i].name, name) == 0) {
      n += functions[i].calls;
    }
  }
  return n;
}

/* fake_fail makes a function return a result from now on; 0: it works. */
void fake_fail(const char *name, int result) { functions[slot(name)].result = result; }

int cuInit(unsigned flags) { CALL; return flags == 0 ? 0 : INVALID_VALUE; }
int cuDriverGetVersion(int *version) { CALL; *version = 13000; return 0; }
int cuDeviceGetCount(int *n) { CALL; *n = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { CALL; *device = ordinal; return ordinal == 0 ? 0 : 101; }
int cuDeviceGetName(char *name, int n, int device) {
  CALL;
  (void)device;
  strncpy(name, "no device", (size_t)n);
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { CALL; (void)device; *bytes = (size_t)140 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  CALL;
  (void)device;
  switch (attribute) {
    case 16: *value = 132; return 0;    /* multiprocessors */
    case 75: *value = 9; return 0;      /* capability */
    case 76: *value = 0; return 0;
    case 97: *value = 232448; return 0; /* shared memory of a block */
  }
  return INVALID_VALUE;
}
int cuDeviceGetPCIBusId(char *id, int n, int device) {
  CALL;
  (void)device;
  strncpy(id, "0000:00:00.0", (size_t)n);
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { CALL; (void)device; *context = (void *)CONTEXT; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { CALL; (void)device; return 0; }
int cuCtxSetCurrent(void *context) { CALL; current = context; return 0; }
int cuCtxGetCurrent(void **context) { CALL; *context = current; return 0; }
int cuMemGetInfo_v2(size_t *available, size_t *total) {
  IN_CONTEXT;
  *available = *total = (size_t)140 << 30;
  return 0;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *keys, void **values) {
  UNSAFE;
  (void)image, (void)n, (void)keys, (void)values;
  *module = (void *)0x2000;
  return 0;
}
int cuModuleUnload(void *module) { IN_CONTEXT; (void)module; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  IN_CONTEXT;
  (void)module;
  *function = strdup(name);
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  IN_CONTEXT;
  (void)function, (void)attribute, (void)value;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  IN_CONTEXT;
  (void)function, (void)threads, (void)shared;
  *blocks = 2;
  return 0;
}

/* The kernel that was launched last, and its parameters. */
static _Thread_local const char *last;
static _Thread_local unsigned char last_parameters[4096];
const char *fake_kernel(void) { return last; }
const void *fake_parameters(void) { return last_parameters; }

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  IN_CONTEXT;
  (void)shared, (void)stream;
  if (gx == 0 || gy == 0 || gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024 || parameters != NULL ||
      extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL || *(size_t *)extra[3] > sizeof last_parameters) {
    return INVALID_VALUE;
  }
  last = function;
  memcpy(last_parameters, extra[1], *(size_t *)extra[3]);
  return 0;
}
int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
  IN_CONTEXT;
  (void)config, (void)parameters, (void)extra;
  last = function;
  return 0;
}

int cuMemAlloc_v2(uint64_t *p, size_t bytes) {
  UNSAFE;
  *p = (uint64_t)(uintptr_t)aligned_alloc(512, (bytes + 511) / 512 * 512);
  return *p == 0 ? 2 : 0;
}
int cuMemFree_v2(uint64_t p) { UNSAFE; free((void *)(uintptr_t)p); return 0; }
int cuMemHostAlloc(void **p, size_t bytes, unsigned flags) { UNSAFE; (void)flags; *p = malloc(bytes); return 0; }
int cuMemFreeHost(void *p) { UNSAFE; free(p); return 0; }
static int copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { UNSAFE; return copy((void *)(uintptr_t)to, from, n); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { UNSAFE; return copy(to, (void *)(uintptr_t)from, n); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream) {
  IN_CONTEXT;
  (void)stream;
  return copy((void *)(uintptr_t)to, from, n);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream) {
  IN_CONTEXT;
  (void)stream;
  return copy(to, (void *)(uintptr_t)from, n);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream) {
  IN_CONTEXT;
  (void)stream;
  return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *stream) {
  IN_CONTEXT;
  (void)stream;
  memset((void *)(uintptr_t)to, value, n);
  return 0;
}

static atomic_uintptr_t handle = 0x10000;
static void *new_handle(void) { return (void *)atomic_fetch_add(&handle, 16); }

int cuCtxSynchronize(void) { UNSAFE; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { IN_CONTEXT; (void)flags; *stream = new_handle(); return 0; }
int cuStreamDestroy_v2(void *stream) { IN_CONTEXT; (void)stream; return 0; }
int cuStreamSynchronize(void *stream) { UNSAFE; (void)stream; return 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  IN_CONTEXT;
  (void)stream, (void)event, (void)flags;
  return 0;
}
int cuEventCreate(void **event, unsigned flags) { IN_CONTEXT; (void)flags; *event = new_handle(); return 0; }
int cuEventDestroy_v2(void *event) { IN_CONTEXT; (void)event; return 0; }
int cuEventRecord(void *event, void *stream) { IN_CONTEXT; (void)event, (void)stream; return 0; }
int cuEventSynchronize(void *event) { UNSAFE; (void)event; return 0; }
int cuEventElapsedTime(float *ms, void *from, void *to) { IN_CONTEXT; (void)from, (void)to; *ms = 1; return 0; }

/* One stream is captured at a time. */
int cuStreamBeginCapture_v2(void *stream, int how) {
  IN_CONTEXT;
  (void)how;
  captured_stream = (uint64_t)(uintptr_t)stream;
  captured++;
  return 0;
}
int cuStreamEndCapture(void *stream, void **graph) {
  IN_CONTEXT;
  (void)stream;
  captured--;
  captured_stream = 0;
  *graph = new_handle();
  return 0;
}
int cuStreamIsCapturing(void *stream, int *status) {
  IN_CONTEXT;
  *status = captured && captured_stream == (uint64_t)(uintptr_t)stream;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int *m) {
  CALL;
  int before = mode;
  mode = *m;
  *m = before;
  return 0;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
  IN_CONTEXT;
  (void)graph, (void)flags;
  *exec = new_handle();
  return 0;
}
int cuGraphDestroy(void *graph) { IN_CONTEXT; (void)graph; return 0; }
int cuGraphExecDestroy(void *exec) { IN_CONTEXT; (void)exec; return 0; }
int cuGraphLaunch(void *exec, void *stream) { IN_CONTEXT; (void)exec, (void)stream; return 0; }
