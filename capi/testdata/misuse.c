/* Calls that do not fit, calls from many threads, and calls after a fork. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* Two queries of 3 rows and 3 packed documents, and room for all that calls write. */
static float q_data[6 * 4], d_data[5 * 4], scores[16], dq[6 * 4], dd[5 * 4], floats[256];
static int32_t offsets[4] = {0, 2, 2, 5}, lengths[2] = {3, 1}, argmax[64], nearest[64], listed[2] = {0, 1};
static uint8_t mask[8] = {1, 1, 0, 1, 1, 1, 1, 1};

static plaid_batch queries(void) {
  plaid_batch b;
  memset(&b, 0, sizeof b);
  b.data = q_data;
  b.type = PLAID_F32;
  b.dim = 4;
  b.items = 2;
  b.rows = 6;
  b.stride = b.longest = 3;
  return b;
}

static plaid_batch documents(void) {
  plaid_batch b;
  memset(&b, 0, sizeof b);
  b.data = d_data;
  b.offsets = offsets;
  b.type = PLAID_F32;
  b.dim = 4;
  b.items = 3;
  b.rows = 5;
  b.longest = 3;
  return b;
}

static plaid_score_call good_score(void) {
  plaid_score_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.device = -1;
  c.q = queries();
  c.d = documents();
  c.scores = scores;
  c.argmax = argmax;
  return c;
}

static plaid_gradient_call good_gradient(void) {
  plaid_gradient_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.device = -1;
  c.q = queries();
  c.d = documents();
  c.argmax = argmax;
  c.dq = dq;
  c.dd = dd;
  c.dq_type = c.dd_type = PLAID_F32;
  return c;
}

static plaid_chamfer_call good_chamfer(void) {
  plaid_chamfer_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.device = -1;
  c.q = queries();
  c.d = documents();
  c.distances = scores;
  c.nearest_q = argmax;
  c.nearest_d = nearest;
  return c;
}

static plaid_chamfer_gradient_call good_chamfer_gradient(void) {
  plaid_chamfer_gradient_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.device = -1;
  c.q = queries();
  c.d = documents();
  c.nearest_q = argmax;
  c.nearest_d = nearest;
  c.dq = dq;
  c.dd = dd;
  c.dq_type = c.dd_type = PLAID_F32;
  return c;
}

static plaid_head_call good_head(void) {
  plaid_head_call c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place.device = -1;
  c.q = queries();
  c.d = documents();
  c.head = floats;
  c.head_type = PLAID_F32;
  c.scores = scores;
  return c;
}

static void expect(const char *what, int got, const plaid_error *e, int code, const char *text) {
  CHECK(got == code && e->code == code, "%s: code %d (%d in the error), not %d: %s", what, got, (int)e->code, code, e->message);
  CHECK(strstr(e->message, text) != NULL, "%s: the message is \"%s\", without \"%s\"", what, e->message, text);
  CHECK(memchr(e->message, 0, sizeof e->message) != NULL, "%s: the message has no end", what);
}

/* REFUSED changes a good call, and checks the error. */
#define REFUSED(kind, function, change, code, text)   \
  do {                                                \
    plaid_##kind##_call c = good_##kind();            \
    plaid_error e = new_error();                      \
    change;                                           \
    expect(#change, function(&c, &e), &e, code, text); \
  } while (0)
#define BAD_SCORE(change, text) REFUSED(score, plaid_score, change, PLAID_ERR_ARGUMENT, text)
#define BAD_GRADIENT(change, text) REFUSED(gradient, plaid_gradients, change, PLAID_ERR_ARGUMENT, text)

static void refused_batches(void) {
  BAD_SCORE(c.q.type = 0, "q.type is 0");
  BAD_SCORE(c.d.type = 6, "d.type is 6");
  BAD_SCORE(c.q.dim = 0, "q.dim is 0");
  BAD_SCORE(c.q.dim = 4097, "q.dim is 4097");
  BAD_SCORE(c.q.dim = 3, "q.dim is 3 and d.dim 4");
  BAD_SCORE(c.q.items = -1, "q.items is -1");
  BAD_SCORE(c.q.items = (int64_t)1 << 40, "q.items is 1099511627776");
  BAD_SCORE(c.q.items = 3, "q.rows is 6; 3 items of 3 rows, 3 apart, have 9");
  BAD_SCORE(c.q.rows = -6, "q.rows is -6");
  BAD_SCORE(c.q.rows = INT64_MAX, "q.rows is 9223372036854775807");
  BAD_SCORE(c.q.rows = (int64_t)1 << 44, "q.data would have");
  BAD_SCORE(c.q.stride = -3, "q.stride is -3");
  BAD_SCORE(c.q.stride = 2, "q.stride is 2, less than q.longest, 3");
  BAD_SCORE((c.q.items = 1 << 30, c.q.stride = (int64_t)1 << 40), "q.stride would have");
  BAD_SCORE(c.q.longest = -1, "q.longest is -1");
  BAD_SCORE(c.q.data = NULL, "q.data is NULL; want 24 elements");
  BAD_SCORE(c.q.data = (char *)q_data + 2, "which is not aligned to 4 bytes");
  BAD_SCORE(c.q.scales = floats, "q.scales is for int8 and e4m3");
  BAD_SCORE((c.q.type = PLAID_I8, c.q.scales = (float *)((char *)floats + 1)), "q.scales is 0x");
  BAD_SCORE((c.q.type = PLAID_E4M3, c.q.zeros = (int8_t *)mask), "q.zeros is for int8");
  BAD_SCORE((c.q.lengths = lengths, c.q.mask = mask), "both q.lengths and q.mask");
  BAD_SCORE(c.d.lengths = lengths, "d.offsets is given together with d.lengths or mask");
  BAD_SCORE((c.q.mask = mask, c.q.mask_stride = 2), "q.mask_stride is 2, less than q.longest, 3");
  BAD_SCORE((c.q.mask = mask, c.q.mask_stride = -2), "q.mask_stride is -2");
  BAD_SCORE((lengths[1] = 4, c.q.lengths = lengths), "q.lengths[1] is 4; want 0 to q.longest, 3");
  BAD_SCORE((lengths[1] = -1, c.q.lengths = lengths), "q.lengths[1] is -1");
  lengths[1] = 1;
  BAD_SCORE(offsets[0] = -1, "d.offsets[0] is -1");
  offsets[0] = 0;
  BAD_SCORE(offsets[2] = 1, "d.offsets[2] is 1, less than the offset before it, 2");
  offsets[2] = 2;
  BAD_SCORE((c.d.longest = 4, offsets[3] = 6), "d.offsets[3] is 6, more than d.rows, 5");
  offsets[3] = 5;
  BAD_SCORE(c.d.longest = 2, "d.offsets[3] is 5: item 2 has 3 rows, more than d.longest, 2");
}

static void refused_calls(void) {
  BAD_SCORE(c.size = 8, "size is 8; this library knows calls of 320 bytes");
  BAD_SCORE(c.pairs.kind = 3, "pairs.kind is 3");
  BAD_SCORE(c.pairs.count = 2, "pairs.count is 2; want 0");
  BAD_SCORE(c.pairs.docs = listed, "pairs.queries or pairs.docs is given");
  BAD_SCORE((c.pairs.kind = PLAID_OWN, c.pairs.count = 2), "d.items is 3; 2 queries with 2 documents of their own have 4");
  BAD_SCORE((c.pairs.kind = PLAID_OWN, c.pairs.count = -2), "pairs.count is -2");
  BAD_SCORE((c.pairs.kind = PLAID_LISTED, c.pairs.count = -2), "pairs.count is -2");
  BAD_SCORE((c.pairs.kind = PLAID_LISTED, c.pairs.count = 2), "pairs.queries is NULL; want 2 elements");
  BAD_SCORE((c.pairs.kind = PLAID_LISTED, c.pairs.count = 2, c.pairs.queries = c.pairs.docs = listed, listed[1] = 2),
            "query 2 of pair 1 is not in 0..1");
  BAD_SCORE((c.pairs.kind = PLAID_LISTED, c.pairs.count = 2, c.pairs.queries = c.pairs.docs = listed, listed[1] = -1),
            "query -1 of pair 1");
  listed[1] = 1;
  BAD_SCORE(c.scores = NULL, "scores is NULL; want 6 elements");
  BAD_SCORE(c.scores = (float *)((char *)scores + 1), "scores is 0x");
  BAD_SCORE(c.argmax = (int32_t *)((char *)argmax + 1), "argmax is 0x");
  BAD_SCORE(c.weights = (float *)((char *)floats + 1), "weights is 0x");
  BAD_SCORE(c.place.threads = -1, "place.threads is -1");
  BAD_SCORE((c.q.rows = (int64_t)1 << 40, c.q.data = (void *)4096), "memory at 0x");
  BAD_SCORE(c.scores = (float *)4096, "memory at 0x1000");
  REFUSED(score, plaid_score, c.place.device = 4096, PLAID_ERR_DEVICE, "");
  REFUSED(gradient, plaid_gradients, c.place.device = 4096, PLAID_ERR_DEVICE, "");
  REFUSED(chamfer, plaid_chamfer, c.place.device = 4096, PLAID_ERR_DEVICE, "");
  REFUSED(chamfer_gradient, plaid_chamfer_gradients, c.place.device = 4096, PLAID_ERR_DEVICE, "");
  REFUSED(head, plaid_head, c.place.device = 4096, PLAID_ERR_DEVICE, "");

  BAD_GRADIENT(c.argmax = NULL, "argmax is NULL; want 18 elements");
  BAD_GRADIENT(argmax[0] = 2, "row 2 wins in pair 0");
  BAD_GRADIENT(argmax[0] = -2, "row -2 wins in pair 0");
  argmax[0] = -1;
  BAD_GRADIENT(c.dq_type = PLAID_I8, "dq_type is 4");
  BAD_GRADIENT(c.dd_type = 0, "dd_type is 0");
  BAD_GRADIENT(c.dd = (char *)dd + 2, "dd is 0x");
  BAD_GRADIENT(c.upstream = (float *)((char *)floats + 2), "upstream is 0x");
  REFUSED(chamfer, plaid_chamfer, c.metric = 2, PLAID_ERR_ARGUMENT, "metric is 2");
  REFUSED(chamfer, plaid_chamfer, c.distances = NULL, PLAID_ERR_ARGUMENT, "distances is NULL");
  REFUSED(chamfer_gradient, plaid_chamfer_gradients, c.metric = -1, PLAID_ERR_ARGUMENT, "metric is -1");
  REFUSED(chamfer_gradient, plaid_chamfer_gradients, c.nearest_d = NULL, PLAID_ERR_ARGUMENT, "nearest_d is NULL");
  REFUSED(chamfer_gradient, plaid_chamfer_gradients, nearest[0] = 9, PLAID_ERR_ARGUMENT, "row 9 wins");
  nearest[0] = -1;
  REFUSED(head, plaid_head, c.head_type = PLAID_I8, PLAID_ERR_ARGUMENT, "head_type is 4");
  REFUSED(head, plaid_head, c.head = NULL, PLAID_ERR_ARGUMENT, "head is NULL; want 16 elements");
  REFUSED(head, plaid_head, c.bias = (float *)((char *)floats + 1), PLAID_ERR_ARGUMENT, "bias is 0x");
}

void test_refusals(void) {
  plaid_error e = new_error();
  plaid_score_call c = good_score();
  char name[32];
  int64_t bytes;
  for (int i = 0; i < 64; i++) {
    argmax[i] = nearest[i] = -1;
  }
  refused_batches();
  refused_calls();
  for (int i = 0; i < 64; i++) {
    CHECK(argmax[i] == -1, "a refused call wrote its results");
  }
  expect("NULL", plaid_score(NULL, &e), &e, PLAID_ERR_ARGUMENT, "call is NULL");
  expect("odd", plaid_score((plaid_score_call *)((char *)&c + 1), &e), &e, PLAID_ERR_ARGUMENT, "not aligned");
  expect("bytes", plaid_score_workspace(&c, NULL, &e), &e, PLAID_ERR_ARGUMENT, "bytes is NULL");
  expect("name", plaid_backend(NULL, 32, &e), &e, PLAID_ERR_ARGUMENT, "bytes is 32");
  expect("name", plaid_backend(name, 3, &e), &e, PLAID_ERR_ARGUMENT, "bytes is 3");
  CHECK(plaid_backend(name, 32, &e) == PLAID_OK && strlen(name) > 2, "the name is %s", name);
  c.q.data = NULL; /* which is not looked at for the size of a workspace */
  c.scores = NULL;
  CHECK(plaid_score_workspace(&c, &bytes, &e) == PLAID_OK, "%s", e.message);
  c.q.type = 7;
  CHECK(plaid_score(&c, NULL) == PLAID_ERR_ARGUMENT, "without an error");
  CHECK(plaid_score(NULL, NULL) == PLAID_ERR_ARGUMENT, "without anything");
  c = good_score();
  e.size = 7;
  e.message[0] = 'x';
  CHECK(plaid_score(&c, &e) == PLAID_ERR_ARGUMENT && e.message[0] == 'x', "an error of another size");
  CHECK(plaid_score(&c, NULL) == PLAID_OK, "without an error");
  CHECK(plaid_maxsim_version() == PLAID_MAXSIM_VERSION, "version %d", (int)plaid_maxsim_version());
}

enum { THREADS = 8, CALLS = 300 };

static void *many_calls(void *unused) {
  float got[6], dq_got[24];
  int32_t rows[18];
  (void)unused;
  for (int i = 0; i < CALLS; i++) {
    plaid_error e = new_error();
    plaid_score_call c = good_score();
    c.scores = got;
    c.argmax = rows;
    CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
    CHECK(memcmp(got, scores, sizeof got) == 0, "scores differ");
    plaid_gradient_call g = good_gradient();
    g.argmax = rows;
    g.dq = dq_got;
    g.dd = NULL;
    CHECK(plaid_gradients(&g, &e) == PLAID_OK, "%s", e.message);
    CHECK(memcmp(dq_got, dq, sizeof dq) == 0, "gradients differ");
    c.q.type = 9;
    CHECK(plaid_score(&c, &e) == PLAID_ERR_ARGUMENT, "a bad call passed");
  }
  return NULL;
}

void test_threads(void) {
  pthread_t threads[THREADS];
  plaid_error e = new_error();
  for (int i = 0; i < 24; i++) {
    q_data[i] = (float)uniform();
    d_data[i % 20] = (float)uniform();
  }
  plaid_score_call c = good_score();
  CHECK(plaid_score(&c, &e) == PLAID_OK, "%s", e.message);
  plaid_gradient_call g = good_gradient();
  g.dd = NULL;
  CHECK(plaid_gradients(&g, &e) == PLAID_OK, "%s", e.message);
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&threads[i], NULL, many_calls, NULL) == 0, "no thread");
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
}

/* in_child makes every call in a fork, which must end. */
static void in_child(void) {
  plaid_error e = new_error();
  plaid_score_call s = good_score();
  plaid_gradient_call g = good_gradient();
  plaid_chamfer_call c = good_chamfer();
  plaid_chamfer_gradient_call h = good_chamfer_gradient();
  plaid_head_call f = good_head();
  char name[32];
  int64_t bytes;
  alarm(20);
  int codes[] = {plaid_score(&s, &e), plaid_gradients(&g, &e), plaid_chamfer(&c, &e), plaid_chamfer_gradients(&h, &e),
                 plaid_head(&f, &e), plaid_backend(name, 32, &e), plaid_score_workspace(&s, &bytes, &e), plaid_score(&s, NULL)};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    CHECK(codes[i] == PLAID_ERR_FORKED, "call %d after a fork: %d", (int)i, codes[i]);
  }
  CHECK(strstr(e.message, "fork") != NULL, "%s", e.message);
  CHECK(plaid_maxsim_version() == PLAID_MAXSIM_VERSION, "version");
  _exit(0);
}

void test_fork(void) {
  plaid_error e = new_error();
  plaid_score_call c = good_score();
  plaid_head_call f = good_head();
  int status;
  pid_t child = fork();
  if (child == 0) {
    in_child();
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
  CHECK(plaid_score(&c, &e) == PLAID_OK, "after a fork: %s", e.message);
  CHECK(plaid_head(&f, &e) == PLAID_OK, "after a fork: %s", e.message);
  plaid_forked();
  CHECK(plaid_score(&c, &e) == PLAID_ERR_FORKED, "plaid_forked changed nothing");
}
