// dense.cuh: the interface of the kernels for plain token vectors, which are a module
// separate from plaid.cu. As there, a kernel takes ONE struct by
// value, mirrored field for field by the host.
//
//   dense_pack       vectors as they come -> rows                (queries, documents)
//   dense_prepare    the same of queries, with their weights, and of a head
//   dense_fill       lengths, masks, offsets, lists -> who does what
//   dense_rows_*     rows -> scores: documents on the rows of the product (sm_90a)
//   dense_batch_*    the same: query tokens on the rows                   (sm_90a)
//   dense_any        the same: any device, any two types
//   dense_sum        sums of groups -> scores
//   dense_grad_*     gradients; dense_lists for them
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
// # Launches
//
// dense_pack, dense_prepare, dense_weights and dense_fill let the next launch begin at once, and
// end after the one in front. dense_fill, dense_any, dense_rows, dense_batch and dense_head may
// begin before the one in front has ended (../follow.cuh), if it is one of those four, of the
// same call, whose first launch waits for all before it: what such a launch writes before it
// waits was last in use by an earlier call.
//
// # Work
//
// A GROUP is some tokens of one query, or none: up to 16 for dense_batch (the rows of a
// warp), up to 32 or 64 for dense_rows, up to 32 for the others. An ITEM is a
// document, whose score is 0 if it has no tokens. A UNIT is a run of items for one group, or for
// dense_batch for some groups one after another; a block does a unit. The sum of
// a group's maxima goes to out[group.out + item.pos].
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include "../follow.cuh"

namespace plaid {

constexpr int kF32 = 1, kF16 = 2, kBF16 = 3, kI8 = 4, kE4M3 = 5;  // as in kernels/maxsim
constexpr int kSplit = 6;
constexpr int kCompressed = 7;  // a source of dense_pack: tokens as an index keeps them
constexpr int kPullShared = 50336;
constexpr int kAllPairs = 0, kOwnPairs = 1, kListedPairs = 2;

struct DenseItem {
  uint64_t begin;                   // first row
  uint32_t len;                     // rows; with kHoles above, those that the mask has are tokens
  uint32_t pos;                     // where the results go
};

constexpr uint32_t kHoles = 1u << 31, kRows = kHoles - 1;  // of DenseItem.len

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
// first of these rows on. With columns the rows, of kF16, kBF16 or kSplit, lie as the right
// operand of products: for each block of columns 16 bytes of all of them one after another; there
// are rows of zeros up to a multiple of columns, and warps for them.
struct DensePackParams {
  const uint8_t *in;                // [n][dim]; of kCompressed the codes, [n]
  const float *scales;              // [n] or null: 1
  const int8_t *zeros;              // [n] or null
  uint8_t *rows;                    // out [n][row_bytes], or null
  float *scale;                     // out [n] or null: the factor of a row
  float *unit;                      // out [n] or null: the same for a vector of length 1
  float *inverse;                   // out [n] or null: 1/length, 0 of zero vectors
  uint32_t n, dim, source, format;
  uint32_t row_bytes;               // with columns a multiple of 128
  uint32_t columns;                 // or 0
  const uint8_t *residuals;         // of kCompressed: [n][residual_bytes]
  const int16_t *factors;           // of kCompressed: [n]
  DenseCodec codec;
};

// dense_weights: grid (ceil(n/256)), block 256: out = weights · scale, each 1 where null. With
// lengths or a mask, −0 for rows that are no tokens: rows are those of items stride apart, which
// have the first `lengths` rows, or those of the mask.
struct DenseWeightsParams {
  const float *weights, *scale;     // [n] or null
  float *out;                       // [n]
  uint32_t n, stride;
  const int32_t *lengths;           // or null
  const uint8_t *mask;              // or null
  uint64_t mask_stride;
  uint32_t items, longest;
};

// dense_prepare: grid (first_blocks and those of head), block 256: dense_pack of the rows of a query
// and then of the weights of a head, and dense_weights of those of the query.
struct DensePrepareParams {
  DensePackParams side[2];          // n = 0: the side is not wanted
  DenseWeightsParams weights;       // or out is null
  uint32_t first_blocks;            // of side[0]
  uint32_t reserved;
};

// A pair whose document was cut into segments.
struct DenseJoin {
  uint64_t first;                   // place of the first segment's maxima, in pitches
  uint64_t out;
  uint32_t segments;                // 0: the document has no tokens
  uint32_t row, count;              // of the query
  uint32_t reserved;
};

// dense_fill: grid (enough warps for items and units, and threads for groups and joins), block
// 256: the tables of a call whose lengths, masks, offsets or lists are on the device. Item e is
// of document e / segments, or of that of the pair, from row segment · (e % segments) on. Group i
// is part i % per_query of query i / per_query, or of that of the pair. What is not asked for is
// null or 0; indices and offsets out of range have no tokens.
struct DenseFillParams {
  const int32_t *d_offsets, *d_lengths;
  const uint8_t *d_mask;
  uint8_t *row_mask;                // out [rows], where the mask is not a byte a row
  const int32_t *q_offsets;
  const int32_t *pair_q, *pair_d;   // [pairs]: each with units of its own
  const DenseUnit *units_in;        // [units]; with runs, begin and end are numbers of runs
  const DenseGroup *groups_in;      // [groups]: the places of results
  DenseItem *items;                 // out
  DenseGroup *groups;               // out
  DenseUnit *units;                 // out
  DenseJoin *joins;                 // out: one a pair
  uint64_t d_stride, d_mask_stride, q_stride;
  uint32_t d_items, d_longest, q_items, q_longest;
  uint32_t n_items, n_groups, n_units, n_joins;
  uint32_t segment, segments;       // rows of a segment, and segments of a document
  uint32_t tokens, per_query;       // of a group at most; groups of a query
  uint32_t unit_groups, arg_pitch;  // of pairs
  uint32_t runs;                    // of about as many tokens, of packed documents; or 0
  uint32_t join_docs, join_pitch;   // documents of a query, and how far apart their results are
  uint32_t d_rows, q_rows;          // of all documents, and of all queries
  uint32_t reserved;
};

// dense_rows_TYPE_nN_vV[_arg]: grid (units/teams), block 128·teams, shared memory
// N·row_bytes (e4m3, f32: 2·N·row_bytes) + teams·32·N, or teams·64·N with _arg. A team does
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
  const float *weights;             // a query row: its weight times its scale; -0: no token
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
  const uint8_t *mask;              // a row; of items with holes
};

#ifdef __CUDACC__
// The scale of rows that are not tokens, NaN: no product with it is the largest.
#define kNone __int_as_float(0x7fffffff)

__device__ __forceinline__ bool is_token(const DenseParams &p, const DenseItem &item, uint64_t row) {
  return int32_t(item.len) > 0 || (item.len & kHoles && p.mask[row]);
}
// counts reports whether a maximum is of a token.
__device__ __forceinline__ bool counts(float best) { return best > __int_as_float(0xff800000); }
// is_query reports whether a weight is of a token.
__device__ __forceinline__ bool is_query(float weight) { return __float_as_uint(weight) != 0x80000000u; }
#endif

// dense_sum: grid (n, ceil(longest count/256)), block 256: out[i] = Σ_k part[k·count + i],
// k < groups, in this order.
struct DenseSumParams {
  const float *part;
  float *out;
  const uint64_t *part_at, *out_at; // [n]
  const uint32_t *groups;           // [n]
  const uint32_t *count;            // [n]
};

// Gradients. An entry is an argmax of a pair: its coefficient is upstream · weight, which
// is rounded, and contributions are added by fused multiplications, for a row of a
// document in the order of pairs and then of query tokens, for a row of a query in the
// order of pairs, cut into p.parts sums. An entry whose coefficient is 0 adds nothing.
//
// One side. Rows are row_bytes apart, of a format of the forward pass or of float32, with
// nothing behind the last value of those that are read by dense_grad_any. An item has the rows
// offsets[i] to offsets[i+1], or, without offsets, longest rows from i · stride on.
struct DenseGradSide {
  const uint8_t *rows;
  const float *scale;               // a row, or null: 1; with inverse that of a vector of length 1
  const float *inverse;             // a row, 1/length, or null; not null: through the normalisation
  const int8_t *zeros;              // a row, of kI8 and dense_grad_any, or null: 0
  const uint32_t *offsets;          // [items + 1], or null
  const uint32_t *pair_item;        // of kListedPairs: the item of each pair
  const uint32_t *pair_first;       // of kListedPairs: [items + 1], of pairs
  const uint32_t *pairs;            // of kListedPairs: the pairs of each item, in order
  void *out;                        // [n_rows][dim], or null; rows that get nothing are 0
  uint64_t n_rows;
  uint32_t items, stride, longest;
  uint32_t format, row_bytes;
  uint32_t out_type;                // kF32, kF16 or kBF16
  uint32_t whole;                   // out takes four values at a time
  uint32_t reserved;
};

// dense_grad_FORMAT, dense_grad_any: block 256, grid doc_blocks + query blocks. The first
// doc_blocks, tiles of them a document and each of up to `rows` rows at a time, write d.out and read
// rows of q of that format; the others write q.out, 8/parts rows each, and read rows of d. Shared
// memory: with doc_blocks kPullShared, and 8 bytes for each dimension, whose number is rounded up to
// a multiple of 128; else 4096 with parts.
struct DenseGradParams {
  DenseGradSide q, d;
  const float *weights;             // a query row, or null: 1
  const float *upstream;            // a pair, or null: 1
  const int32_t *arg;               // [pairs][pitch]
  uint32_t pitch;
  uint32_t dim, kind;
  uint32_t count;                   // documents of a query: kAllPairs all of them, kOwnPairs its own
  uint32_t groups;                  // of 32 tokens, of a query at most
  uint32_t doc_blocks, tiles, parts;
  uint32_t rows;                    // up to 128
  uint32_t reserved;
};

// dense_lists: grid (blocks, 2), block 1024: the pairs of each query, y = 0, and of each document,
// y = 1, in order. A pass sorts by 8 bits of the items, from the lowest on: step 2 * pass counts,
// 2 * pass + 1 moves pairs; step 2 * passes writes first. A step needs those before it on all
// blocks of its side, and to move takes as many blocks as to count; one block a side may do all
// steps. Pairs of items that are not there are left out.
constexpr uint32_t kListDigits = 256;

struct DenseListSide {
  const uint32_t *item;             // [n], of each pair
  uint32_t *first;                  // out [items + 1]; null: this side is not wanted
  uint32_t *loose;                  // [n]
  uint32_t *pairs;                  // out [n]; from first[items] on those that are left out
  uint32_t *counts;                 // [blocks][kListDigits]
  uint32_t items;
  uint32_t reserved;
};

struct DenseListsParams {
  DenseListSide q, d;
  uint32_t n, from, end;
  uint32_t passes;                  // at least 1; items < 2^(8 passes)
};

// dense_rank: grid (queries), block 1024. best is zero before the first piece.
struct DenseRankParams {
  const float *scores;              // [queries][n]
  const DenseItem *items;           // of the piece: pos is the place of a score
  uint64_t *best;                   // [queries][k] keys so far, in no order, 0 for none
  uint64_t *list;                   // [queries][n + k], for the block
  uint32_t n, n_items, k;
  uint32_t first;                   // document of place 0
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
// 128 dimensions of a block. Weights lie as dense_pack leaves them for N columns. A
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
  uint32_t ahead;                   // hidden states and tables do not come from the launch in front
};

}  // namespace plaid
