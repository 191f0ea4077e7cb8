// encoder.cuh: the interface of the kernels of the text encoder, which are a module
// separate from plaid.cu and dense/dense.cu. As there, a kernel takes ONE struct
// by value, mirrored field for field by the host.
//
//   encoder_embed         ids -> embeddings, normed; _wide
//   encoder_gemm_E_nN     rows · weightsᵀ with an epilogue E: tiles of 128 × N  (sm_90a)
//   encoder_tile_E_mM     the same: tiles of 16 × 16, 32 × 32, 128 × 64  (any device)
//   encoder_turn          norms of heads, rotary positions
//   encoder_attention_dD  softmax(Q·Kᵀ·scale)·V of texts one behind the other
//   encoder_conv          a gated convolution of texts one behind the other
//   encoder_norm          residual + norm; _post, _wide
//   encoder_head_mM       a dense head, in float32
//   encoder_unit          rows -> unit vectors
//
// # Rows
//
// Tokens of all texts lie one behind the other, without padding. A matrix of f16 with
// R rows and C columns (activations and weights alike) is TILED: R is rounded up to
// 64 (activations: to 128), C to 64, and element (r, c) lies at byte
//
//   ((r/64)·(C/64) + c/64)·8192 + (r%64)·128 + ((c%64/8) ^ (r%8))·16 + (c%8)·2
//
// This is how tensor cores want a block of 64 × 64 in shared memory, so that blocks
// are copied whole, and written whole. Columns that were added are zero: the host's
// weights, biases, gammas have zeros there, and the host clears activations once.
// What rows have that were added is of no interest.
//
// # The same bits
//
// An element of a product is one chain of sums over k in steps of 16, in every
// tile; keys are taken in blocks of 64 from a text's first on. So vectors do not
// depend on what else is in a batch, nor on the tiles the host chooses.
#pragma once
#include <cstdint>
#include <cuda_fp16.h>

namespace plaid {

// Epilogues E:
//   bias    product + bias
//   rotary  the same; pairs of columns below turned are turned by the row's position: heads
//           of 64 dimensions
//   gelu    x·Φ of x = product + bias, Φ a polynomial whose coefficients are the curve: of
//           GELU 2e-4 off at most (common.cuh)
//   silu    (c₀x + c₁)·σ + c₃, with σ = 1 / (1 + 2^(c₂x)) and c the curve
//   geglu   gelu(x) · gate
//   swiglu  silu(x) · gate
// rotary, geglu and swiglu take the weights' rows interleaved by 8: 8 rows of the one
// half and 8 of the other in turn. Of rotary halves are those of a head of queries or
// keys, of the others the rows that the activation is applied to and the gates.
//
// encoder_gemm_E_nN: grid (blocks that fill the device: an SM has two of N = 128, else
// one; at most tiles), block 288 for N = 128, else 384, shared memory 213120, 114736,
// 221264, 229440 for N of 64, 128, 192, 256. n is a multiple of N; rotary has no 128, geglu
// and swiglu have 128 and 256, silu has none.
// encoder_tile_E_m16: grid (n/16, ceil(rows/16)), block 128, shared memory 4096·stages;
// stages: at most k/64, 48, and what a block may have. Only the harness launches them.
// encoder_tile_E_m32: grid (n/32, ceil(rows/32)), block 128, shared memory 8192·stages,
// at most 24.
// encoder_tile_E_m128: grid (n/64, ceil(rows/128)), block 128, shared memory 73728;
// stages is 3.
struct EncoderGemmParams {
  const uint8_t *a;            // tiled [rows][k]
  const uint8_t *w;            // tiled [n][k]
  const float *bias;           // [n] or null
  uint8_t *out;                // tiled [rows][n]; of gates [rows][n/2]
  const uint32_t *positions;   // rotary: [rows]
  const float *angles;         // rotary: [position][32][2]: cosine, sine
  uint32_t rows, n, k;         // n, k: multiples of 64
  uint32_t turned;             // rotary: columns, a multiple of 64
  uint32_t stages;             // encoder_tile
  float curve[7];              // of an activation
};

// encoder_head_m16, _m128, and _m32, which only the harness launches: as encoder_tile.
// y = activation(a·wᵀ + bias) + residual.
struct EncoderHeadParams {
  const uint8_t *a;            // tiled [rows][k]
  const uint8_t *w;            // tiled [n][k]
  const float *bias;           // [n] or null
  const float *add;            // [rows][n] or null: a residual with a weight
  const uint8_t *add_half;     // tiled [rows][n] or null: a residual without
  float *out;                  // [rows][n] or null
  uint8_t *out_half;           // tiled [rows][n] or null: for the next head
  uint32_t rows, n, k;
  uint32_t activation;         // 0 identity, 1 ReLU, 2 GELU, 3 SiLU, 4 tanh, 5 GELU by tanh
  uint32_t stages;
  uint32_t reserved;
};

// encoder_embed, and _wide for a width over 1,024, up to 2,560: grid (ceil(rows/8)), block
// 256. Tables are f16, in rows of width values.
struct EncoderEmbedParams {
  const uint32_t *ids;         // [rows]
  const uint32_t *positions;   // [rows]: rows of places
  const uint16_t *words;       // [vocabulary][width]
  const uint16_t *places;      // [positions][width] or null; types are added in by the host
  const float *gamma, *beta;   // [width]; or null: no norm, beta alone: zeros
  uint8_t *x;                  // out tiled [rows][width]
  float *stream;               // out [rows][width] or null
  float epsilon;
  uint32_t rows, hidden, width;  // width: hidden, rounded up to 64
  uint32_t rms;                // 1: the mean is not subtracted
  uint32_t reserved;
};

// encoder_norm: any grid, two blocks an SM and at most ceil(rows/8) are best, block 256. Without a stream (BERT):
// x = norm(x + delta). With one (ModernBERT): stream += delta, x = norm(stream). encoder_norm_post
// norms delta first (Gemma). encoder_norm_wide does either, for a width over 1,024, up to 2,560.
struct EncoderNormParams {
  const uint8_t *delta;        // tiled [rows][width] or null: 0
  uint8_t *x;                  // tiled [rows][width]
  float *stream;               // [rows][width] or null
  const float *gamma, *beta;   // [width]; or null: no norm, beta alone: zeros
  const float *post, *post_beta;  // those of delta
  float epsilon, post_epsilon;
  uint32_t rows, hidden, width;
  uint32_t rms;                // 1: the mean is not subtracted
  uint32_t fresh;              // 1: the stream begins with delta
  uint32_t reserved;
};

// encoder_turn: grid (ceil(rows·(heads + key_heads)·lanes/256)), block 256, lanes: size/16, rounded
// up to a power of two. Of heads of queries, then of keys, each has its first size of D columns
// normed, and then turned; rotary halves are interleaved by 8, also those of gammas.
struct EncoderTurnParams {
  uint8_t *qkv;                // tiled [rows][columns]
  const uint32_t *positions;   // [rows]
  const float *angles;         // [position][size/2][2]: cosine, sine; or null
  const float *query, *query_beta, *key, *key_beta;  // [size] or null
  float epsilon;
  uint32_t rows, columns, heads, key_heads;
  uint32_t size, stride;       // stride: D, size at least
  uint32_t rms;                // 1: the mean is not subtracted
};

// A part of the queries of a text: up to 64. The text's ceil(length/64) parts have the
// same size, except for rounding to 16.
struct EncoderSpan {
  uint32_t first;              // row of the text's first token
  uint32_t length;             // its tokens
  uint32_t attended;           // as many of them, from the first on, are attended to
  uint32_t part;               // which one
};

// encoder_attention_dD: grid (spans, heads), block 128, shared memory 101376 for D = 256, else
// none. D: columns of a head: 16, 32, 48, 64, 96, 128, 256. Head h has columns h·D of
// queries, keys + h/share·D of keys, and values begin `values` columns behind keys.
struct EncoderAttentionParams {
  const uint8_t *qkv;          // tiled [rows][columns]
  uint8_t *out;                // tiled [rows][width]
  const EncoderSpan *spans;
  const float *relative;       // [heads][2·zero + 1] or null: added to a product, before scale: of a
                               // key d places behind its query, at zero + d
  float scale;
  uint32_t columns, width;     // width: heads·D, rounded up to 64
  uint32_t keys;               // heads·D
  uint32_t values;             // a multiple of 64
  uint32_t share;              // heads of queries that share one of keys
  uint32_t before, after;      // how far a token attends; 1 << 30: to all
  uint32_t zero;               // relative: 63 more than the longest text
  uint32_t reserved;
};

// encoder_conv: grid (spans, ceil(width/256)), block 256. u = in · x; v = Σ weights[j] · u of the token before − j
// places in front, of those of the text; out = (v + bias) · out.
struct EncoderConvParams {
  const uint8_t *in;           // tiled [rows][3·width]: in, out, x
  uint8_t *out;                // tiled [rows][width]
  const EncoderSpan *spans;
  const float *weights;        // [taps][width]
  const float *bias;           // [width] or null
  const float *nothing;        // [3·width] or null, zeros: for rows that are not attended to
  uint32_t width, taps, before;
  uint32_t all;                // 1: all rows are as if they were attended to
};

// encoder_unit: grid (ceil(count/8)), block 256. A vector is divided by its
// length, or by 1e-12 if that is more.
struct EncoderUnitParams {
  const float *in;             // [..][stride] or null
  const uint8_t *in_half;      // tiled [..][stride], where in is null
  const uint32_t *kept;        // [count]: rows that are wanted, or null: the first count
  float *out;                  // [count][dim] or null
  uint16_t *out_half;          // f16 [count][dim] or null
  uint32_t *bad;               // the smallest row (of in) whose length is not finite; all ones before
  uint32_t count, dim, stride; // stride: dim, rounded up to 64
  uint32_t reserved;
};

}  // namespace plaid
