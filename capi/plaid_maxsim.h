/*
 * plaid_maxsim.h: MaxSim over plain token vectors, its gradients, Chamfer distances
 * and fused heads, on the processor and on NVIDIA GPUs.
 *
 *     MaxSim(Q, D) = sum over tokens s of Q of weight_s * max over tokens t of D of <q_s, d_t>
 *
 * Every function may be called from any thread, returns PLAID_OK or an error code, and
 * writes a message into the plaid_error of the call. No pointer is used after a call returns,
 * except to memory of a GPU, which the kernels that were put into the stream use: there the
 * rules of the stream apply. A process that was forked from one that has used the library
 * gets PLAID_ERR_FORKED.
 *
 * Structs begin with their size in bytes, which the caller sets: a library that knows a
 * struct of another size answers PLAID_ERR_ARGUMENT. All other fields that are not used
 * are zero.
 *
 * On the processor (device < 0) pointers are to host memory, and a call returns when its
 * results are there. On a GPU they are to memory of that GPU, offsets, lengths, masks and
 * indices included. The work is put into the stream of the call, in the primary context of
 * the device, and the call does not wait for it. Nothing is allocated in the stream: calls
 * that need memory for the time of their work take it from the workspace of the call
 * (plaid_*_workspace says how much). The stream may be one that is being captured.
 */
#ifndef PLAID_MAXSIM_H
#define PLAID_MAXSIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAID_MAXSIM_VERSION 1

/* Error codes. */
enum {
  PLAID_OK = 0,
  PLAID_ERR_ARGUMENT = 1,    /* sizes, strides, offsets or pointers that do not fit */
  PLAID_ERR_UNSUPPORTED = 2, /* not done by this device, or for these types */
  PLAID_ERR_DEVICE = 3,      /* no driver, no such device, or the device failed */
  PLAID_ERR_MEMORY = 4,      /* the workspace is too small, or memory is full */
  PLAID_ERR_FORKED = 5,      /* the process is a fork of one that used the library */
  PLAID_ERR_INTERNAL = 6     /* a fault of the library, with its stack in the message */
};

/* Types of elements. */
enum { PLAID_F32 = 1, PLAID_F16 = 2, PLAID_BF16 = 3, PLAID_I8 = 4, PLAID_E4M3 = 5 };

/* Kinds of pairs. */
enum {
  PLAID_ALL = 0,   /* each query with each document: [q.items][d.items] */
  PLAID_OWN = 1,   /* query i with documents i*count to (i+1)*count: [q.items][count] */
  PLAID_LISTED = 2 /* queries[i] with documents[i]: [count] */
};

/* Metrics of Chamfer distances. */
enum { PLAID_L2_SQUARED = 0, PLAID_L1 = 1 };

typedef struct {
  int64_t size;
  int64_t code;
  char message[1008]; /* ends with a zero */
} plaid_error;

/*
 * Token vectors and how they are cut into items (queries, documents, sets of points).
 *
 * Packed: offsets [items+1] are rows of data; item i has rows offsets[i] to offsets[i+1].
 * Padded: item i has `longest` rows from row i*stride on; of these the first lengths[i],
 * or those whose byte of mask [items][mask_stride] is not 0, are its tokens.
 */
typedef struct {
  const void *data;        /* [rows][dim], rows one after another, aligned to the element */
  const float *scales;     /* [rows], the factor of each row, on a GPU not negative; NULL: 1 */
  const int8_t *zeros;     /* [rows], of PLAID_I8, subtracted before; NULL: 0 */
  const int32_t *offsets;  /* packed; NULL: padded */
  const int32_t *lengths;  /* padded; NULL: all rows */
  const uint8_t *mask;     /* padded, instead of lengths; NULL: all rows */
  int64_t mask_stride;     /* bytes from item to item */
  int64_t type, dim;
  int64_t items, rows;
  int64_t stride;          /* padded: rows from item to item */
  int64_t longest;         /* rows of an item; packed: no item has more */
} plaid_batch;

/* Which query meets which document. */
typedef struct {
  int64_t kind, count;
  const int32_t *queries, *docs; /* [count], of PLAID_LISTED */
} plaid_pairs;

/* Where the work is done. */
typedef struct {
  int64_t device;          /* -1: the processor; else the number of a GPU */
  void *stream;            /* CUstream */
  void *workspace;         /* memory of the GPU, aligned to 256 bytes */
  int64_t workspace_bytes;
  int64_t threads;         /* of the processor. 0 means all */
} plaid_place;

typedef struct {
  int64_t size;
  plaid_place place;
  plaid_batch q, d;
  plaid_pairs pairs;
  const float *weights;    /* [q.rows]; NULL: 1. Rows that are not tokens count 0. */
  int64_t normalize;       /* not 0: vectors are divided by their length first */
  float *scores;           /* out, [pairs] */
  int32_t *argmax;         /* out, [pairs][q.longest], or NULL: the row of the document that won, from
                              its first on; -1 where the row of the query is not a token, or the
                              document has none */
} plaid_score_call;

/* Gradients of the scores of a plaid_score_call, of the same q, d, pairs, weights and normalize. */
typedef struct {
  int64_t size;
  plaid_place place;
  plaid_batch q, d;
  plaid_pairs pairs;
  const float *weights;
  int64_t normalize;
  const int32_t *argmax;
  const float *upstream;   /* [pairs], the derivative of the loss by each score; NULL: 1 */
  void *dq, *dd;           /* out, as q.data and d.data lie, all rows of each; or NULL */
  int64_t dq_type, dd_type; /* PLAID_F32, PLAID_F16 or PLAID_BF16 */
} plaid_gradient_call;

/* Chamfer distances of q (points x) and d (points y). */
typedef struct {
  int64_t size;
  plaid_place place;
  plaid_batch q, d;
  plaid_pairs pairs;
  int64_t metric, mean;    /* mean: of each direction, instead of the sum */
  float *distances;        /* out, [pairs] */
  int32_t *nearest_q;      /* out, [pairs][q.longest], or NULL: the nearest row of d */
  int32_t *nearest_d;      /* out, [pairs][d.longest], or NULL */
} plaid_chamfer_call;

typedef struct {
  int64_t size;
  plaid_place place;
  plaid_batch q, d;
  plaid_pairs pairs;
  int64_t metric, mean;
  const int32_t *nearest_q, *nearest_d;
  const float *upstream;
  void *dq, *dd;
  int64_t dq_type, dd_type;
} plaid_chamfer_gradient_call;

/* Scores of d.data, hidden states [rows][h], whose token vectors are W h + b. */
typedef struct {
  int64_t size;
  plaid_place place;
  plaid_batch q, d;
  plaid_pairs pairs;
  const float *query_weights;
  int64_t normalize;       /* not 0: these token vectors are divided by their length first; q stays */
  const void *head;        /* W, [q.dim][d.dim], of head_type */
  int64_t head_type;
  const float *bias;       /* [q.dim], or NULL */
  float *scores;
} plaid_head_call;

/* The version of this header that the library was built with, and its tiers and GPUs. */
int64_t plaid_maxsim_version(void);
int plaid_backend(char *name, int64_t bytes, plaid_error *error); /* the processor's tier, such as avx512 */

int plaid_score(const plaid_score_call *call, plaid_error *error);
int plaid_gradients(const plaid_gradient_call *call, plaid_error *error);
int plaid_chamfer(const plaid_chamfer_call *call, plaid_error *error);
int plaid_chamfer_gradients(const plaid_chamfer_gradient_call *call, plaid_error *error);
int plaid_head(const plaid_head_call *call, plaid_error *error);

/*
 * Returns the least number of bytes of workspace for a call. It depends on the shapes, and on whether the data are
 * aligned to 16 bytes (other data may need more), not on the values behind the pointers. It is 0 on the processor. On
 * a GPU the call has all arrays that it will be made with.
 */
int plaid_score_workspace(const plaid_score_call *call, int64_t *bytes, plaid_error *error);
int plaid_gradients_workspace(const plaid_gradient_call *call, int64_t *bytes, plaid_error *error);
int plaid_chamfer_workspace(const plaid_chamfer_call *call, int64_t *bytes, plaid_error *error);
int plaid_chamfer_gradients_workspace(const plaid_chamfer_gradient_call *call, int64_t *bytes, plaid_error *error);
int plaid_head_workspace(const plaid_head_call *call, int64_t *bytes, plaid_error *error);

/* Called in the child of a fork: every later call is PLAID_ERR_FORKED. Needs no Go code of its own. */
void plaid_forked(void);

#ifdef __cplusplus
}
#endif
#endif
