// dense.cuh: what the host must know of the kernels for plain token vectors, a
// module of its own beside plaid.cu. As there, a kernel takes ONE struct by
// value, mirrored field for field by the host.
//
//   dense_pack       vectors as they come -> rows                (queries, documents)
//   dense_rows_*     rows -> scores: documents on the rows of the product (sm_90a)
//   dense_batch_*    the same: query tokens on the rows                   (sm_90a)
//   dense_any        the same: any device, any two types
//   dense_sum        sums of groups -> scores
//   dense_grad_query, dense_grad_docs, dense_push, dense_lengths   gradients
//   dense_rank       scores -> the best documents so far
//   dense_join       maxima of segments of documents -> scores
//   dense_project_*  hidden states -> token vectors
//   dense_head_*     hidden states -> scores                               (sm_90a)
//   dense_chamfer_*  Chamfer distances and their gradients          (chamfer.cuh)
//
// # Rows
//
// Tokens lie packed: masked ones are left out by the host. A row is row_bytes
// long, a multiple of 64, filled up with zeros, in one of these formats:
//
//   f16, bf16   two bytes a dimension
//   i8, e4m3    one byte a dimension
//   f32         four bytes a dimension (gradients, dense_any)
//   split       float32 as the sum of two f16, hi and lo, 32 dimensions of one and
//               then of the other; the row is scaled by a power of two so that its
//               largest value lies in [2^14, 2^15), which leaves 22 bits of the
//               larger values; products are hi·hi + hi·lo + lo·hi
//
// A format may have a float for each row, its scale: of quantised types, of split,
// and with normalisation the inverse length besides.
//
// # Work
//
// A GROUP is some tokens of one query: up to 16 for dense_batch (the rows of a
// warp), up to 32 or 64 for dense_rows, up to 32 for the others. An ITEM is a
// document that is not empty. A UNIT is a run of items for one group, or for
// dense_batch for some groups one after another; a block does a unit. The sum of
// a group's maxima goes to out[group.out + item.pos].
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace plaid {

constexpr int kF32 = 1, kF16 = 2, kBF16 = 3, kI8 = 4, kE4M3 = 5;  // as in kernels/maxsim
constexpr int kSplit = 6;
constexpr int kCompressed = 7;  // a source of dense_pack: tokens as an index keeps them
constexpr int kPullShared = 58880;

struct DenseItem {
  uint64_t begin;                   // first row
  uint32_t len;                     // rows, at least 1
  uint32_t pos;                     // where the results go
};

struct DenseGroup {
  uint64_t out;                     // place of the sums: out + pos
  uint64_t arg;                     // place of the argmaxima: arg + pos · arg_pitch + token of the group
  uint32_t row;                     // first row of the queries
  uint32_t count;                   // tokens
  uint32_t arg_pitch;
  uint32_t reserved;
};

struct DenseUnit {
  uint32_t group, groups;           // first, and how many (dense_batch; else 1)
  uint32_t begin, end;              // items
  DenseItem first;                  // item begin: the first rows are loaded one step sooner
};

// What tokens of kCompressed are decoded with; see kernels.Codec.
struct DenseCodec {
  const uint8_t *centroids;         // [k][dim]
  const float *centroid_scale;      // [k] or null: 1
  const float *dim_scale;           // [dim] or null: 1
  const float *weights;             // [2^nbits]
  float factor;                     // of a stored 1
  uint32_t nbits, residual_bytes;   // of a token
  uint32_t code_bytes;              // 2 or 4
  uint32_t centroid_type;           // 1 bfloat16, 2 float16, 3 float32
  uint32_t reserved;
};

// dense_pack: grid (ceil(n/8)), block 256: a warp a row. Formats: split or kF32 of any
// source; kF16 of kF16, of kI8 (x − zero) and of kE4M3; else the type itself. The
// source is where it was staged; the output is that of the whole operand from the
// first of these rows on.
struct DensePackParams {
  const uint8_t *in;                // [n][dim]; of kCompressed the codes, [n]
  const float *scales;              // [n] or null: 1
  const int8_t *zeros;              // [n] or null
  uint8_t *rows;                    // out [n][row_bytes]
  float *scale;                     // out [n] or null: what a row is to be multiplied with
  float *unit;                      // out [n] or null: the same for a vector of length 1
  float *inverse;                   // out [n] or null: 1/length, 0 of zero vectors
  uint32_t n, dim, source, format;
  uint32_t row_bytes;
  uint32_t reserved;
  const uint8_t *residuals;         // of kCompressed: [n][residual_bytes]
  const int16_t *factors;           // of kCompressed: [n]
  DenseCodec codec;
};

// dense_weights: grid (ceil(n/256)), block 256: out = weights · scale, each 1 where null.
struct DenseWeightsParams {
  const float *weights, *scale;     // [n] or null
  float *out;                       // [n]
  uint32_t n;
  uint32_t reserved;
};

// dense_rows_TYPE_nN_vV[_arg]: grid (units/teams), block 128·teams, shared memory
// N·row_bytes (e4m3: 2·N·row_bytes) + teams·32·N, or teams·64·N with _arg. A team does
// a unit, those of a block of one group; units without items fill a block. TYPE:
// f16, bf16, i8, e4m3, split. N: query tokens of a group at most, 32 or 64. row_bytes
// is a multiple of 64·V; V is 1 to 4 for f16 and bf16, 1 or 2 for i8 and e4m3, 2 or 4
// for split. Queries of e4m3 documents are f16 rows.
//
// dense_batch_TYPE_sS_gG[_arg]: grid (units), block 128·(G+1), shared memory
// stages·(64·row_bytes + 256 + 16), with row_bytes rounded up to 128. TYPE_sS_gG and
// stages: as listed in dense.cu. S is row_bytes/32; a unit has up to 4·G groups.
//
// dense_any: grid (units), block 128, no shared memory.
struct DenseParams {
  const uint8_t *docs;
  const float *doc_scale;           // a row, or null: 1
  const uint8_t *queries;
  const float *weights;             // a query row: its weight times its scale
  const DenseItem *items;
  const DenseGroup *groups;
  const DenseUnit *units;
  float *out;
  int32_t *arg;                     // or null without _arg
  uint32_t row_bytes, query_bytes;
  uint32_t doc_format, query_format;  // dense_any
  uint32_t dim;                     // dense_any
  uint32_t reserved;
  float *top;                       // with arg, or null: the maxima, placed as argmaxima
};

// dense_sum: grid (n, ceil(longest count/256)), block 256: out[i] = Σ_k part[k·count + i],
// k < groups, in this order.
struct DenseSumParams {
  const float *part;
  float *out;
  const uint64_t *part_at, *out_at; // [n]
  const uint32_t *groups;           // [n]
  const uint32_t *count;            // [n]
};

// Gradients. Rows are those of the forward pass, or float32 ones. An entry is an
// argmax of a pair: its coefficient is upstream · weight, which is rounded, and
// contributions are added by fused multiplications in the order of pairs and then
// of query tokens.
//
// dense_grad_query_FORMAT, of the documents: grid (ceil(rows/4)), block 128: a warp a
// query row.
// dense_grad_docs_FORMAT, of the queries: grid (docs, ceil(longest/64)), block 256, shared memory
// kPullShared: 64 rows a block.
// dense_push: grid (groups, ceil(pairs of a group/8)), block 256; out is zero before.
// Then dense_lengths, through the normalisation: grid (ceil(rows/8)), block 256.
struct DenseGradParams {
  const uint8_t *docs;
  const float *doc_scale;
  const float *doc_inverse;         // not null: through the normalisation
  const uint8_t *queries;
  const float *query_scale;
  const float *query_inverse;
  const float *weights;             // a query row, or null: 1
  const float *upstream;            // or null: 1
  const int32_t *arg;
  const DenseGroup *groups;         // out is the place of the upstream values
  const DenseItem *items;           // [docs]
  const uint2 *pairs;               // or null: all; x: item (grad_docs: group), y: pos
  const uint64_t *pair_first;       // [groups + 1] (grad_docs: [docs + 1]), of pairs
  const uint32_t *row_group;        // dense_grad_query: the group of a query row
  float *out;                       // [rows][dim]
  uint32_t row_bytes, query_bytes;
  uint32_t doc_format, query_format;
  uint32_t dim, rows, n_docs, n_groups;
};

// dense_rank: grid (queries), block 1024. best is zero before the first piece.
struct DenseRankParams {
  const float *scores;              // [queries][n]
  const DenseItem *items;           // of the piece: pos is the place of a score
  uint64_t *best;                   // [queries][k] keys so far, in no order; 0: none
  uint64_t *list;                   // [queries][n + k], for the block
  uint32_t n, n_items, k;
  uint32_t first;                   // document of place 0
};

// A pair whose document was cut into segments.
struct DenseJoin {
  uint64_t first;                   // place of the first segment's maxima, in pitches
  uint64_t out;
  uint32_t segments;                // 0: the document has no tokens
  uint32_t row, count;              // of the query
  uint32_t reserved;
};

// dense_join: grid (pairs), block 1024.
struct DenseJoinParams {
  const float *top;                 // [segments][pitch]
  const int32_t *arg;               // [segments][pitch]
  const float *weights;             // a query row
  const DenseJoin *joins;           // [pairs]
  float *out;
  int32_t *out_arg;                 // [pairs][pitch], or null
  uint32_t pitch;
  uint32_t segment;                 // rows of a segment
};

// dense_project_TYPE_nN: grid (blocks, ceil(dim/N)), block 512: out = hidden ·
// weightsᵀ, scaled, plus bias. TYPE: f16, bf16, split, of both operands. N: 64, 96 or
// 128 dimensions of a block. Weights are as dense_lay has laid them for N columns. A
// block takes 256 rows at a time, its tiles in turn. Shared memory: 98400 + 8·N, and
// 128·N for each 128 bytes of a row, or for six of them at least.
// dense_project_any: grid (ceil(rows/64), ceil(dim/32)), block 128.
struct DenseProjectParams {
  const uint8_t *hidden;
  const float *hidden_scale;        // a row, or null: 1
  const uint8_t *weights;           // [dim] rows
  const float *weight_scale;        // a row, or null: 1
  const float *bias;                // [dim], or null
  float *out;                       // [rows][dim], or null: split rows, of up to N dimensions
  uint8_t *rows_out;                // out [rows][out_bytes]
  float *scale;                     // out [rows]
  float *unit;                      // out [rows], or null; as of dense_pack
  uint32_t rows, dim;
  uint32_t row_bytes, weight_bytes;
  uint32_t hidden_format, weight_format;  // dense_project_any
  uint32_t hidden_dim;              // dense_project_any
  uint32_t out_bytes;
};

// dense_head_TYPE_nN: grid (units/4), block 512: the scores of what dense_project_TYPE_nN
// makes, of up to N dimensions and up to 32 tokens of a query, whose rows are of format
// split; documents are hidden states. Units of a block have one group, as in
// dense_rows. Shared memory: as there, and 132·N + 4096.
struct DenseHeadParams {
  DenseProjectParams head;          // without rows and results
  DenseParams score;                // without documents and results but out
  uint32_t normalize;               // token vectors
  uint32_t reserved;
};

// dense_lay: grid (ceil(row_bytes/128), ceil(dim/columns)), block 256. For each block of
// columns and each 128 bytes of a row, 16 bytes of all columns one after another, and
// eight times so.
struct DenseLayParams {
  const uint8_t *weights;           // [dim] rows
  uint8_t *out;                     // [blocks of columns][chunks][8][columns] of 16 bytes
  uint32_t dim, weight_bytes, columns;
  uint32_t reserved;
};

}  // namespace plaid
