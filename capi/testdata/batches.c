#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

static uint64_t state = 88172645463325252u;

char test_context[512];

void seed(uint64_t n) { state ^= n * 0x9e3779b97f4a7c15u; }

uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

int64_t below(int64_t n) { return (int64_t)(next_random() % (uint64_t)n); }

double uniform(void) { return (double)(int64_t)next_random() / 9223372036854775808.0; }

static struct {
  void *p;
  size_t bytes;
  char *start; /* the part that the test uses */
  int64_t room;
} areas[4096];
static int area_count;

void *guarded(int64_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t room = ((size_t)bytes + page - 1) / page * page;
  char *p = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED && area_count < 4096, "no memory");
  if (room > 0) {
    CHECK(mprotect(p + page, room, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  areas[area_count].p = p;
  areas[area_count].room = bytes;
  areas[area_count].start = p + page + room - bytes;
  areas[area_count++].bytes = room + 2 * page;
  return p + page + room - bytes;
}

int area_of(const void *p) {
  for (int i = 0; i < area_count; i++) {
    if ((const char *)p >= areas[i].start && (const char *)p <= areas[i].start + areas[i].room) {
      return i;
    }
  }
  FAIL("%p is in no area", p);
}

void *area(int i, int64_t *bytes) {
  *bytes = areas[i].room;
  return areas[i].start;
}

void release_all(void) {
  while (area_count > 0) {
    area_count--;
    munmap(areas[area_count].p, areas[area_count].bytes);
  }
}

static double half_value(uint16_t v) {
  double sign = v >> 15 ? -1 : 1, fraction = v & 1023;
  int exponent = v >> 10 & 31;
  if (exponent == 31) {
    return fraction != 0 ? NAN : sign * INFINITY;
  }
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double e4m3_value(uint8_t v) {
  double sign = v >> 7 ? -1 : 1, fraction = v & 7;
  int exponent = v >> 3 & 15;
  if ((v & 127) == 127) {
    return NAN;
  }
  return sign * (exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10));
}

double value_of(const void *data, int64_t type, int64_t i) {
  float f;
  uint32_t bits;
  switch (type) {
    case PLAID_F32:
      return ((const float *)data)[i];
    case PLAID_F16:
      return half_value(((const uint16_t *)data)[i]);
    case PLAID_BF16:
      bits = (uint32_t)((const uint16_t *)data)[i] << 16;
      memcpy(&f, &bits, 4);
      return f;
    case PLAID_I8:
      return ((const int8_t *)data)[i];
  }
  return e4m3_value(((const uint8_t *)data)[i]);
}

static void set_random(void *data, int64_t type, int64_t i) {
  float f = (float)uniform();
  uint32_t bits;
  switch (type) {
    case PLAID_F32:
      ((float *)data)[i] = f;
      return;
    case PLAID_F16: /* 2^-7 to nearly 2 */
      ((uint16_t *)data)[i] = (uint16_t)(next_random() & 0x83ff) | (uint16_t)((8 + below(8)) << 10);
      return;
    case PLAID_BF16:
      memcpy(&bits, &f, 4);
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
      return;
    case PLAID_I8:
      ((int8_t *)data)[i] = (int8_t)(below(256) - 128);
      return;
  }
  ((uint8_t *)data)[i] = (uint8_t)(next_random() & 0xb7); /* up to 1.875 */
}

static void set_nan(void *data, int64_t type, int64_t i) {
  switch (type) {
    case PLAID_F32:
      ((float *)data)[i] = NAN;
      return;
    case PLAID_F16:
    case PLAID_BF16:
      ((uint16_t *)data)[i] = 0x7fff;
      return;
    case PLAID_E4M3:
      ((uint8_t *)data)[i] = 0x7f;
  }
}

static int64_t size_of(int64_t type) { return type == PLAID_F32 ? 4 : type <= PLAID_BF16 ? 2 : 1; }

/* place decides where the rows of the items are, and which of them are tokens. */
static void place(side *s, int layout, int64_t longest) {
  plaid_batch *b = &s->b;
  int64_t items = b->items, next = layout == PACKED ? below(3) : 0;
  int32_t *offsets = guarded(4 * (items + 1)), *lengths = guarded(4 * items);
  int holes = (int)below(2);
  uint8_t *mask;
  b->longest = longest;
  b->stride = longest + (items > 1 ? below(2) * below(4) : 0);
  b->mask_stride = longest + below(2) * below(3);
  b->rows = layout == PACKED ? 0 : items > 0 ? (items - 1) * b->stride + longest + below(3) : below(3);
  mask = guarded(items > 0 ? (items - 1) * b->mask_stride + longest : 0);
  if (items > 0) {
    memset(mask, 1, (size_t)((items - 1) * b->mask_stride + longest)); /* between items, too */
  }
  for (int64_t i = 0; i < items; i++) {
    int64_t n = below(4) == 0 ? 0 : below(longest + 1);
    s->first[i] = layout == PACKED ? next : i * b->stride;
    s->count[i] = layout == PADDED ? longest : layout == MASK ? longest : n;
    lengths[i] = (int32_t)n;
    offsets[i] = (int32_t)next;
    next += n;
    for (int64_t j = 0; j < longest && layout == MASK; j++) {
      mask[i * b->mask_stride + j] = (uint8_t)(j < n && (!holes || below(3) > 0) ? 1 + below(255) : 0);
    }
  }
  offsets[items] = (int32_t)next;
  if (layout == PACKED) {
    b->rows = next + below(3);
    b->offsets = offsets;
    b->stride = 0;
  }
  if (layout == LENGTHS) {
    b->lengths = lengths;
  }
  if (layout == MASK) {
    b->mask = mask;
  } else {
    b->mask_stride = 0;
  }
  s->token = guarded(b->rows);
  if (b->rows > 0) {
    memset(s->token, 0, (size_t)b->rows);
  }
  for (int64_t i = 0; i < items; i++) {
    for (int64_t j = 0; j < s->count[i]; j++) {
      s->token[s->first[i] + j] = layout != MASK || mask[i * b->mask_stride + j] != 0;
    }
  }
}

void make_side(side *s, int layout, int64_t type, int64_t items, int64_t longest, int64_t dim) {
  memset(s, 0, sizeof *s);
  s->b.type = type;
  s->b.dim = dim;
  s->b.items = items;
  s->first = guarded(8 * items);
  s->count = guarded(8 * items);
  place(s, layout, longest);
  int64_t rows = s->b.rows;
  void *data = guarded(rows * dim * size_of(type));
  float *scales = guarded(4 * rows);
  int8_t *zeros = guarded(rows);
  s->values = guarded(8 * rows * dim);
  s->b.data = data;
  if (type >= PLAID_I8 && below(3) > 0) {
    s->b.scales = scales;
  }
  if (type == PLAID_I8 && below(2) > 0) {
    s->b.zeros = zeros;
  }
  for (int64_t r = 0; r < rows; r++) {
    scales[r] = (float)(uniform() / (type == PLAID_I8 ? 128 : 1));
    scales[r] = looseness() > 1 ? fabsf(scales[r]) : scales[r];
    zeros[r] = (int8_t)(below(256) - 128);
    for (int64_t j = 0; j < dim; j++) {
      int64_t i = r * dim + j;
      if (!s->token[r]) { /* must not be looked at */
        set_nan(data, type, i);
        s->values[i] = 0;
        continue;
      }
      set_random(data, type, i);
      s->values[i] = value_of(data, type, i);
      s->values[i] -= s->b.zeros != NULL ? zeros[r] : 0;
      s->values[i] *= s->b.scales != NULL ? scales[r] : 1;
    }
  }
}

side with_unit_rows(const side *s) {
  side unit = *s;
  int64_t dim = s->b.dim;
  unit.values = guarded(8 * s->b.rows * dim);
  for (int64_t r = 0; r < s->b.rows; r++) {
    double square = 0;
    for (int64_t j = 0; j < dim; j++) {
      square += s->values[r * dim + j] * s->values[r * dim + j];
    }
    for (int64_t j = 0; j < dim; j++) {
      unit.values[r * dim + j] = square > 0 ? s->values[r * dim + j] / sqrt(square) : 0;
    }
  }
  return unit;
}

plaid_error new_error(void) {
  plaid_error e;
  memset(&e, 0xff, sizeof e);
  e.size = sizeof e;
  return e;
}

int64_t count_pairs(const plaid_pairs *p, int64_t nq, int64_t nd) {
  return p->kind == PLAID_ALL ? nq * nd : p->kind == PLAID_OWN ? nq * p->count : p->count;
}

void pair_at(const plaid_pairs *p, int64_t nd, int64_t i, int64_t *q, int64_t *d) {
  if (p->kind == PLAID_LISTED) {
    *q = p->queries[i];
    *d = p->docs[i];
  } else {
    *q = i / (p->kind == PLAID_ALL ? nd : p->count);
    *d = p->kind == PLAID_ALL ? i % nd : i;
  }
}
