/* Random batches and their values, for all tests of the library. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plaid_maxsim.h"

#define FAIL(...)                                                    \
  do {                                                               \
    fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, test_context); \
    fprintf(stderr, __VA_ARGS__);                   \
    fputc('\n', stderr);                            \
    exit(1);                                        \
  } while (0)

#define CHECK(condition, ...) \
  do {                        \
    if (!(condition)) {       \
      FAIL(__VA_ARGS__);      \
    }                         \
  } while (0)

extern char test_context[512]; /* what is tried */

/* Random numbers. */
void seed(uint64_t n);
uint64_t next_random(void);
int64_t below(int64_t n);   /* 0 to n-1 */
double uniform(void);       /* -1 to 1 */

/* Memory that ends where the next byte may not be read or written; release_all frees all of it. */
void *guarded(int64_t bytes);
void release_all(void);
int area_of(const void *p); /* the number of the guarded memory that has p */
void *area(int i, int64_t *bytes);

/* A batch, and its values for the loops of the tests. */
typedef struct {
  plaid_batch b;
  double *values;         /* [rows][dim] */
  unsigned char *token;   /* [rows] */
  int64_t *first, *count; /* [items]: rows of an item */
} side;

enum { PACKED, PADDED, LENGTHS, MASK, LAYOUTS };

void make_side(side *s, int layout, int64_t type, int64_t items, int64_t longest, int64_t dim);
side with_unit_rows(const side *s); /* with each row divided by its length */
double value_of(const void *data, int64_t type, int64_t i);

/* The calls of the library, on the processor or, after use_device, on GPU 0 and its memory. */
void use_device(void);
double looseness(void); /* how many times the error of the processor is right */
int do_score(const plaid_score_call *call, plaid_error *error);
int do_gradients(const plaid_gradient_call *call, plaid_error *error);
int do_chamfer(const plaid_chamfer_call *call, plaid_error *error);
int do_chamfer_gradients(const plaid_chamfer_gradient_call *call, plaid_error *error);
int do_head(const plaid_head_call *call, plaid_error *error);

plaid_error new_error(void);
int64_t count_pairs(const plaid_pairs *p, int64_t nq, int64_t nd);
void pair_at(const plaid_pairs *p, int64_t nd, int64_t i, int64_t *q, int64_t *d);

void test_scores(int rounds);
void test_chamfer(int rounds);
void test_heads(int rounds);
void test_refusals(void);
void test_threads(void);
void test_fork(void);

#endif
