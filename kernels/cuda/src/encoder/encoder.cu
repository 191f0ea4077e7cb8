// encoder.cu: the device code of the text encoder, one module.
#include "attention.cuh"
#include "mix.cuh"
#include "rows.cuh"
#include "tile.cuh"
#ifdef PLAID_SM90A
#include "gemm.cuh"
#endif
