// dense.cu: the device code for plain token vectors, one module.
#include "any.cuh"
#include "chamfer.cuh"
#include "chamferexact.cuh"
#include "chamferfew.cuh"
#include "chamfergrad.cuh"
#include "chamferproduct.cuh"
#include "fill.cuh"
#include "grad.cuh"
#include "pack.cuh"
#include "project.cuh"
#include "rank.cuh"
#ifdef PLAID_SM90A
#include "batch.cuh"
#include "chamferwide.cuh"
#include "head.cuh"

namespace plaid {

#define PLAID_ROWS_OF(NAME, T, V)                                                            \
  PLAID_DENSE_ROWS(NAME, T, 32, V, (V <= 2 && T::kFormat != kE4M3 && T::kFormat != kSplit && T::kFormat != kF32 ? 5 : 4)) \
  PLAID_DENSE_ROWS(NAME, T, 64, V, 3)

PLAID_ROWS_OF(f16, F16, 1)
PLAID_ROWS_OF(f16, F16, 2)
PLAID_ROWS_OF(f16, F16, 3)
PLAID_ROWS_OF(f16, F16, 4)
PLAID_ROWS_OF(bf16, BF16, 1)
PLAID_ROWS_OF(bf16, BF16, 2)
PLAID_ROWS_OF(bf16, BF16, 3)
PLAID_ROWS_OF(bf16, BF16, 4)
PLAID_ROWS_OF(i8, I8, 1)
PLAID_ROWS_OF(i8, I8, 2)
PLAID_ROWS_OF(e4m3, E4M3, 1)
PLAID_ROWS_OF(e4m3, E4M3, 2)
PLAID_ROWS_OF(split, Split, 2)
PLAID_ROWS_OF(split, Split, 4)
PLAID_ROWS_OF(f32, F32, 1)
PLAID_ROWS_OF(f32, F32, 2)
PLAID_ROWS_OF(f32, F32, 3)
PLAID_ROWS_OF(f32, F32, 4)

#define PLAID_BATCHES_OF(NAME, T)    \
  PLAID_DENSE_BATCH(NAME, T, 4, 2, 8) \
  PLAID_DENSE_BATCH(NAME, T, 4, 4, 8) \
  PLAID_DENSE_BATCH(NAME, T, 6, 2, 6) \
  PLAID_DENSE_BATCH(NAME, T, 6, 4, 8) \
  PLAID_DENSE_BATCH(NAME, T, 8, 2, 5) \
  PLAID_DENSE_BATCH(NAME, T, 8, 4, 8) \
  PLAID_DENSE_BATCH(NAME, T, 16, 2, 6)

PLAID_BATCHES_OF(f16, F16)
PLAID_BATCHES_OF(bf16, BF16)
PLAID_DENSE_BATCH(i8, I8, 2, 2, 8)
PLAID_DENSE_BATCH(i8, I8, 2, 4, 8)
PLAID_DENSE_BATCH(i8, I8, 4, 2, 8)
PLAID_DENSE_BATCH(i8, I8, 4, 4, 8)
PLAID_DENSE_BATCH(i8, I8, 8, 2, 5)
PLAID_DENSE_BATCH(i8, I8, 8, 4, 8)
PLAID_DENSE_BATCH(split, Split, 8, 2, 5)
PLAID_DENSE_BATCH(split, Split, 16, 2, 6)

}  // namespace plaid
#endif
