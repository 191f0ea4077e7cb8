#include "test.h"

/* A call with its sides as they are multiplied, and room for what it computes. */
typedef struct {
  side q, d;
  plaid_pairs pairs;
  int64_t n, normalize;
  float *weights;
} problem;

static void make_pairs(problem *p, int64_t kind, int64_t nq, int64_t nd) {
  memset(&p->pairs, 0, sizeof p->pairs);
  p->pairs.kind = kind;
  if (kind == PLAID_OWN) {
    p->pairs.count = nq > 0 ? nd / nq : 0;
  } else if (kind == PLAID_LISTED) {
    int64_t n = nq * nd > 0 ? below(12) : 0;
    int32_t *queries = guarded(4 * n), *docs = guarded(4 * n);
    for (int64_t i = 0; i < n; i++) {
      queries[i] = (int32_t)below(nq);
      docs[i] = (int32_t)below(nd);
    }
    p->pairs.count = n;
    p->pairs.queries = queries;
    p->pairs.docs = docs;
  }
  p->n = count_pairs(&p->pairs, nq, nd);
}

static int describe(char *to, const char *name, const plaid_batch *b) {
  return sprintf(to, "%s: type %d%s%s, %dx%d%s%s%s of dim %d, %d apart; ", name, (int)b->type, b->scales != NULL ? " scaled" : "",
                 b->zeros != NULL ? " zeros" : "", (int)b->items, (int)b->longest, b->offsets != NULL ? " packed" : "",
                 b->lengths != NULL ? " lengths" : "", b->mask != NULL ? " masked" : "", (int)b->dim, (int)b->stride);
}

static void make_problem(problem *p, int64_t type_q, int64_t type_d, int64_t dim_q, int64_t dim_d) {
  int64_t kind = below(3), nq = below(5), nd = kind == PLAID_OWN ? nq * below(4) : below(6);
  make_side(&p->q, (int)below(LAYOUTS), type_q, nq, below(20), dim_q);
  make_side(&p->d, (int)below(LAYOUTS), type_d, nd, below(40), dim_d);
  make_pairs(p, kind, nq, nd);
  p->normalize = below(2);
  p->weights = NULL;
  if (below(2)) {
    p->weights = guarded(4 * p->q.b.rows);
    for (int64_t i = 0; i < p->q.b.rows; i++) {
      p->weights[i] = (float)uniform();
    }
  }
  int n = describe(test_context, "q", &p->q.b);
  n += describe(test_context + n, "d", &p->d.b);
  snprintf(test_context + n, sizeof test_context - (size_t)n, "pairs of kind %d%s%s", (int)kind, p->normalize ? ", normalized" : "",
           p->weights != NULL ? ", weights" : "");
}

static plaid_place processor(void) {
  plaid_place place;
  memset(&place, 0, sizeof place);
  place.device = -1;
  place.threads = below(4);
  return place;
}

static double dot(const side *q, const side *d, int64_t s, int64_t t) {
  double sum = 0;
  for (int64_t j = 0; j < q->b.dim; j++) {
    sum += q->values[s * q->b.dim + j] * d->values[t * d->b.dim + j];
  }
  return sum;
}

/* check_scores compares with plain loops; argmax may be that of a product as large but for rounding. */
static void check_scores(const problem *p, const side *q, const side *d, const float *scores, const int32_t *argmax) {
  for (int64_t i = 0; i < p->n; i++) {
    int64_t a, b;
    double score = 0, size = 1;
    pair_at(&p->pairs, d->b.items, i, &a, &b);
    for (int64_t s = 0; s < q->b.longest; s++) {
      int64_t row = q->first[a] + s, best_t = -1, got = argmax != NULL ? argmax[i * q->b.longest + s] : -1;
      double best = -INFINITY;
      for (int64_t t = 0; t < d->count[b] && s < q->count[a] && q->token[row]; t++) {
        double v = d->token[d->first[b] + t] ? dot(q, d, row, d->first[b] + t) : -INFINITY;
        if (v > best) {
          best = v;
          best_t = t;
        }
      }
      if (argmax != NULL) {
        CHECK((got < 0) == (best_t < 0) && got < d->count[b], "pair %d: argmax of row %d is %d, not %d", (int)i, (int)s,
              (int)got, (int)best_t);
        CHECK(got < 0 || (d->token[d->first[b] + got] && dot(q, d, row, d->first[b] + got) > best - 1e-4),
              "pair %d: row %d won for row %d, not %d", (int)i, (int)got, (int)s, (int)best_t);
      }
      if (best_t >= 0) {
        double w = p->weights != NULL ? p->weights[row] : 1;
        score += w * best;
        size += fabs(w * best);
      }
    }
    CHECK(fabs(scores[i] - score) <= 1e-5 * looseness() * size, "pair %d scores %g, not %g", (int)i, scores[i], score);
  }
}

/* check_gradient compares a gradient of a side with that of plain loops. */
static void check_gradient(const char *name, const side *s, const void *got, int64_t type, const double *want, double most) {
  double rounding = type == PLAID_F32 ? 0 : type == PLAID_F16 ? 1.0 / 1024 : 1.0 / 128;
  for (int64_t i = 0; i < s->b.rows * s->b.dim; i++) {
    double v = value_of(got, type, i);
    if (!s->token[i / s->b.dim]) {
      CHECK(v == 0, "%s of row %d, which is no token, is %g", name, (int)(i / s->b.dim), v);
      continue;
    }
    CHECK(fabs(v - want[i]) <= 1e-5 * looseness() * (1 + most) + rounding * (fabs(want[i]) + 1e-3), "%s of row %d, dimension %d is %g, not %g",
          name, (int)(i / s->b.dim), (int)(i % s->b.dim), v, want[i]);
  }
}

static double through_norm(const side *s, const side *unit, double *g) {
  int64_t dim = s->b.dim;
  double most = 0;
  for (int64_t r = 0; r < s->b.rows; r++) {
    double along = 0, square = 0;
    for (int64_t j = 0; j < dim; j++) {
      along += g[r * dim + j] * unit->values[r * dim + j];
      square += s->values[r * dim + j] * s->values[r * dim + j];
    }
    for (int64_t j = 0; j < dim; j++) {
      double v = (g[r * dim + j] - along * unit->values[r * dim + j]) / sqrt(square);
      most = fmax(most, square > 0 ? fabs(g[r * dim + j]) / sqrt(square) : 0);
      g[r * dim + j] = square > 0 ? v : 0;
    }
  }
  return most;
}

static double largest(const double *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs(x[i]));
  }
  return most;
}

/* constant reports whether a GPU has no gradients by a type. */
static int constant(int64_t type) { return looseness() > 1 && type >= PLAID_I8; }

static void check_gradients(const problem *p, const side *q, const side *d, const int32_t *argmax) {
  plaid_error e = new_error();
  plaid_gradient_call c;
  int64_t dim = q->b.dim, nq = q->b.rows * dim, nd = d->b.rows * dim;
  double *wq = guarded(8 * nq), *wd = guarded(8 * nd), most_q, most_d;
  float *upstream = guarded(4 * p->n);
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.place = processor();
  c.q = p->q.b;
  c.d = p->d.b;
  c.pairs = p->pairs;
  c.weights = p->weights;
  c.normalize = p->normalize;
  c.argmax = argmax;
  c.dq_type = 1 + below(3);
  c.dd_type = 1 + below(3);
  c.dq = constant(q->b.type) ? NULL : guarded(nq * (c.dq_type == PLAID_F32 ? 4 : 2));
  c.dd = constant(d->b.type) ? NULL : guarded(nd * (c.dd_type == PLAID_F32 ? 4 : 2));
  for (int64_t i = 0; i < p->n; i++) {
    upstream[i] = (float)uniform();
  }
  if (below(3)) {
    c.upstream = upstream;
  }
  CHECK(do_gradients(&c, &e) == PLAID_OK, "%s", e.message);
  for (int64_t i = 0; i < p->n; i++) {
    int64_t a, b;
    pair_at(&p->pairs, d->b.items, i, &a, &b);
    for (int64_t s = 0; s < q->b.longest; s++) {
      int64_t t = argmax[i * q->b.longest + s], row = q->first[a] + s, other = d->first[b] + t;
      if (t < 0) {
        continue;
      }
      double w = (c.upstream != NULL ? upstream[i] : 1) * (p->weights != NULL ? p->weights[row] : 1);
      for (int64_t j = 0; j < dim; j++) {
        wq[row * dim + j] += w * d->values[other * dim + j];
        wd[other * dim + j] += w * q->values[row * dim + j];
      }
    }
  }
  most_q = p->normalize ? through_norm(&p->q, q, wq) : largest(wq, nq);
  most_d = p->normalize ? through_norm(&p->d, d, wd) : largest(wd, nd);
  if (c.dq != NULL) {
    check_gradient("dq", &p->q, c.dq, c.dq_type, wq, most_q);
  }
  if (c.dd != NULL) {
    check_gradient("dd", &p->d, c.dd, c.dd_type, wd, most_d);
  }
}

void test_scores(int rounds) {
  for (int round = 0; round < rounds; round++) {
    problem p;
    plaid_score_call c;
    plaid_error e = new_error();
    int64_t bytes = -1, dim = 1 + below(70);
    make_problem(&p, 1 + below(5), 1 + below(5), dim, dim);
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.place = processor();
    c.q = p.q.b;
    c.d = p.d.b;
    c.pairs = p.pairs;
    c.weights = p.weights;
    c.normalize = p.normalize;
    c.scores = guarded(4 * p.n);
    c.argmax = below(4) ? guarded(4 * p.n * c.q.longest) : NULL;
    CHECK(do_score(&c, &e) == PLAID_OK && e.code == PLAID_OK && e.message[0] == 0, "%s", e.message);
    if (looseness() == 1) {
      CHECK(plaid_score_workspace(&c, &bytes, &e) == PLAID_OK && bytes == 0, "%d bytes", (int)bytes);
    }
    side q = p.normalize ? with_unit_rows(&p.q) : p.q, d = p.normalize ? with_unit_rows(&p.d) : p.d;
    check_scores(&p, &q, &d, c.scores, c.argmax);
    if (c.argmax != NULL) {
      check_gradients(&p, &q, &d, c.argmax);
    }
    release_all();
  }
}

void test_heads(int rounds) {
  for (int round = 0; round < rounds; round++) {
    problem p;
    plaid_head_call c;
    plaid_error e = new_error();
    side w;
    int64_t dim = 1 + below(40), hidden = 1 + below(60);
    make_problem(&p, 1 + below(5), 1 + below(5), dim, hidden);
    make_side(&w, PADDED, 1 + below(3), 1, dim, hidden);
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.place = processor();
    c.q = p.q.b;
    c.d = p.d.b;
    c.pairs = p.pairs;
    c.query_weights = p.weights;
    c.normalize = p.normalize;
    c.head = w.b.data;
    c.head_type = w.b.type;
    float *bias = guarded(4 * dim);
    for (int64_t j = 0; j < dim; j++) {
      bias[j] = (float)uniform();
    }
    c.bias = below(2) ? bias : NULL;
    c.scores = guarded(4 * p.n);
    CHECK(do_head(&c, &e) == PLAID_OK, "%s", e.message);
    side d = p.d;
    d.b.dim = dim;
    d.values = guarded(8 * d.b.rows * dim);
    for (int64_t r = 0; r < d.b.rows; r++) {
      for (int64_t j = 0; j < dim && d.token[r]; j++) {
        double v = c.bias != NULL ? bias[j] : 0;
        for (int64_t k = 0; k < hidden; k++) {
          v += w.values[j * hidden + k] * p.d.values[r * hidden + k];
        }
        d.values[r * dim + j] = v;
      }
    }
    d = p.normalize ? with_unit_rows(&d) : d; // what the head makes; the queries stay
    check_scores(&p, &p.q, &d, c.scores, NULL);
    release_all();
  }
}

static double distance(int64_t metric, const side *x, const side *y, int64_t r, int64_t s) {
  double sum = 0;
  for (int64_t j = 0; j < x->b.dim; j++) {
    double v = x->values[r * x->b.dim + j] - y->values[s * x->b.dim + j];
    sum += metric == PLAID_L1 ? fabs(v) : v * v;
  }
  return sum;
}

/* one_way is the sum, or mean, of the distances of the tokens of an item to the nearest of another;
   nearest, of the library, may be another row that is as near but for rounding. */
static double one_way(const plaid_chamfer_call *c, const side *x, const side *y, int64_t a, int64_t b, const int32_t *nearest) {
  double sum = 0;
  int64_t n = 0;
  for (int64_t s = 0; s < x->b.longest; s++) {
    double best = INFINITY;
    int64_t row = x->first[a] + s;
    for (int64_t t = 0; t < y->count[b] && s < x->count[a] && x->token[row]; t++) {
      if (y->token[y->first[b] + t]) {
        best = fmin(best, distance(c->metric, x, y, row, y->first[b] + t));
      }
    }
    CHECK((nearest[s] < 0) == (best == INFINITY) && nearest[s] < y->count[b], "row %d: nearest is %d", (int)s, nearest[s]);
    if (nearest[s] >= 0) {
      double got = distance(c->metric, x, y, row, y->first[b] + nearest[s]);
      CHECK(got <= best + 1e-4 * (1 + best), "row %d: %g is nearest, not %g", (int)s, got, best);
      sum += best;
      n++;
    }
  }
  return c->mean && n > 0 ? sum / (double)n : sum;
}

static void pull(const plaid_chamfer_call *c, const side *x, const side *y, int64_t a, int64_t b, const int32_t *nearest,
                 double up, double *gx, double *gy) {
  int64_t dim = x->b.dim, n = 0;
  for (int64_t s = 0; s < x->b.longest; s++) {
    n += nearest[s] >= 0;
  }
  for (int64_t s = 0; s < x->b.longest; s++) {
    int64_t r = x->first[a] + s, t = y->first[b] + nearest[s];
    for (int64_t j = 0; j < dim && nearest[s] >= 0; j++) {
      double v = x->values[r * dim + j] - y->values[t * dim + j];
      v = (c->metric == PLAID_L1 ? (double)((v > 0) - (v < 0)) : 2 * v) * (c->mean ? up / (double)n : up);
      gx[r * dim + j] += v;
      gy[t * dim + j] -= v;
    }
  }
}

void test_chamfer(int rounds) {
  for (int round = 0; round < rounds; round++) {
    problem p;
    plaid_chamfer_call c;
    plaid_chamfer_gradient_call g;
    plaid_error e = new_error();
    int64_t dim = 1 + below(10), a, b;
    make_problem(&p, 1 + below(5), 1 + below(5), dim, dim);
    memset(&c, 0, sizeof c);
    memset(&g, 0, sizeof g);
    c.size = sizeof c;
    g.size = sizeof g;
    g.place = c.place = processor();
    g.q = c.q = p.q.b;
    g.d = c.d = p.d.b;
    g.pairs = c.pairs = p.pairs;
    g.metric = c.metric = below(2);
    g.mean = c.mean = below(2);
    c.distances = guarded(4 * p.n);
    g.nearest_q = c.nearest_q = guarded(4 * p.n * c.q.longest);
    g.nearest_d = c.nearest_d = guarded(4 * p.n * c.d.longest);
    CHECK(do_chamfer(&c, &e) == PLAID_OK, "%s", e.message);
    g.dq_type = 1 + below(3);
    g.dd_type = 1 + below(3);
    int64_t nq = p.q.b.rows * dim, nd = p.d.b.rows * dim;
    g.dq = constant(p.q.b.type) ? NULL : guarded(nq * (g.dq_type == PLAID_F32 ? 4 : 2));
    g.dd = constant(p.d.b.type) ? NULL : guarded(nd * (g.dd_type == PLAID_F32 ? 4 : 2));
    CHECK(do_chamfer_gradients(&g, &e) == PLAID_OK, "%s", e.message);
    double *wq = guarded(8 * nq), *wd = guarded(8 * nd);
    for (int64_t i = 0; i < p.n; i++) {
      pair_at(&p.pairs, p.d.b.items, i, &a, &b);
      const int32_t *to_d = c.nearest_q + i * c.q.longest, *to_q = c.nearest_d + i * c.d.longest;
      double want = one_way(&c, &p.q, &p.d, a, b, to_d) + one_way(&c, &p.d, &p.q, b, a, to_q);
      CHECK(fabs(c.distances[i] - want) <= 1e-4 * (1 + want), "pair %d: %g, not %g", (int)i, c.distances[i], want);
      pull(&c, &p.q, &p.d, a, b, to_d, 1, wq, wd);
      pull(&c, &p.d, &p.q, b, a, to_q, 1, wd, wq);
    }
    if (g.dq != NULL) {
      check_gradient("dq", &p.q, g.dq, g.dq_type, wq, largest(wq, nq));
    }
    if (g.dd != NULL) {
      check_gradient("dd", &p.d, g.dd, g.dd_type, wd, largest(wd, nd));
    }
    release_all();
  }
}
