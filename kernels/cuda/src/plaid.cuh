// plaid.cuh: what the host must know of the device code. Every kernel is
// extern "C", takes ONE struct by value (mirrored field for field by the host;
// 8-byte fields first, no padding in between), and is launched with the grid,
// block and dynamic shared memory given with it. All launches of one search
// go to one stream in the order of this file.
//
//   pack            stored arrays -> resident index          (once)
//   prep_query      query tokens  -> groups                  (a query)
//   centroid_scores groups        -> rows of S, float S
//   list_tiles      list of documents -> walk
//   scan_*          walk          -> a score a (group, document)
//   pick            scores        -> the documents that can be among the k best;
//                                    above 8,192: topk_first/next, then collect
//   fine            those         -> float scores
//   probe_mark, candidates, compact, gains, cut   pruned search
//   scale_rows, to_half, nearest, nearest_exact, encode_tokens   index build
//   cluster_means   rows by centroid -> centroids  (a round of k-means)
//
// # Resident index
//
// Tokens are kept in TILES of 16. A document of len tokens has ceil(len/16)
// tiles, none when empty; the places after its last token repeat that token
// (a maximum does not mind), so a tile has no tail. Tiles are numbered
// through the index; tile t has the tokens 16t to 16t+15.
//
//   words      uint2 [16·(tiles+4)]  x: code·64 (byte offset of a row of S),
//                                    y: bits of the float32 factor/32767 · a_c/a_max, in [−1, 1]
//   rows       uint32 [16·(tiles+4)][4W]  packed fields, first dimension first,
//              rows of 16·W bytes, W = lane words = ceil(ceil(d·nbits/8)/16)
//   codes      uint16 or, of more than 65,536 centroids, uint32 [16·(tiles+4)]  the codes alone
//   tile_doc   uint32 [tiles+4]      document | 1<<31 on its last tile
//   first_tile uint32 [docs+1]       first tile of a document; [docs] = tiles
//   doc_max    uint32 [docs]         bits of the largest |y| of a document's words, for modes
//                                    33, 34, 36 without a_c/a_max; zero before it is packed
//
// The four tiles at the end exist to be read ahead: zero them. Documents of
// one resident index: at most 2^31−1; centroids: at most 2^26.
// a_c is the optional scale of a centroid, a_max the largest (1 without).
// Use of the scan_b* kernels needs 0 < a_c and a_max/a_min <= 64; otherwise,
// and for table codebooks, scan_table* (see there).
//
// # Groups
//
// A group is up to 32 tokens of one query; a query of Lq tokens has
// ceil(Lq/32) groups. Masked tokens are left out by the host. Unused columns
// have weight 0 and vector 0. Scores of a query are the sums of its groups'.
//
//   frags  uint32 [groups][frag_stride]   query operand of the tensor cores, lane order
//   cols   float4 [groups][32]  x: s_mul, y: s_add  (row value = S·s_mul + s_add)
//                               z: out scale, w: approx scale
//   bound  float4 [groups][32]  error of a column for factor 1, see Bounds
//   parts  uint32 [groups][4][steps][4][2][32]  the query in lane order, for S and fine scores, in
//                               half precision: two parts of the vectors, and two of the
//                               coefficients of the fields, those in field order
//   unit   float4 [groups][32]  the factors of sums of products with x: the vectors, y: the
//                               coefficients; z: the number to add to the latter;
//                               w: the column's weight
//   s_rows uint16 [groups][K][32] (64 B a row): entry 8·j + 2·b + c is column 8·b + 2·j + c;
//          for scans of several groups side by side [ceil(groups/side)][K][side][32]
//   scores float  [groups][stride]; zero it before a scan where documents may
//          be empty: a scan writes the documents that have a tile, and no other
//
// # Lane order
//
// Lane j of four has the dimensions [D·j, D·(j+1)), D = 32·W/nbits, of a token,
// as it has a quarter of the packed row; step s has 4s to 4s+3 of each lane, so
// there are D/4 steps of 16. Entries [s][n][0][4c + j] and [s][n][1][4c + j] of a part
// are the first two and the last two of those dimensions of column 8n + c: the core
// matrices of wgmma, 8 columns × 16 bytes. Dimensions past the last are zero.
//
// Centroids are half precision, times a power of two (centroid_up), which keeps
// every bfloat16 that is not 2^-24 of the largest norm: rows of 16 bytes
// [ceil(steps/2)][4][8], entry [i][j] being steps 2i and 2i + 1 of lane j, so that
// the four lanes read 64 bytes side by side.
//
// # Field order
//
// The fields of uniform levels are operands as they are: masked, they are the
// halves b·2^p·2^-24, subnormal or nearly so. Of the 32/nbits fields of a word, step
// s of the word has 2s and 2s + 16/nbits, then 2s + 1 and 2s + 1 + 16/nbits, which
// are the same place apart in the two half-words; p is their place in a byte, for
// which the coefficient is divided. Tables are looked up in lane order.
//
// # Bounds
//
// |scan score − oracle| of a document is at most n·E, n being its doc_max.
// The worst case adds up what every rounding can do: E = Σ x over the columns.
// Roundings that are independent and of mean zero cancel: with Hoeffding's
// inequality |Σ| <= λ·sqrt(Σ z) except with probability 2·exp(−λ²/2), z being a
// column's sum of squares of the largest sizes, and y what may always add up
// (the same rounding in several columns): E = min(Σ x, Σ y + λ·sqrt(Σ z)).
// w is |weight|·|q|, for the error of fine scores.
// A document is missed only if its own score is too low, and that concerns the
// tokens that are best by the oracle, which do not depend on the roundings. So
// does not hold for a negative weight, whose column has the worst case in y.
// Columns that are one in many components are rounded alike there: with r_ik the share
// of components, Σ r_ik·s_i·s_k <= Σ_i s_i²·Σ_k r_ik, and z is multiplied with that.
#pragma once
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include "follow.cuh"

namespace plaid {

constexpr int kTile = 16;            // tokens a tile
constexpr int kColumns = 32;         // query tokens a group
constexpr int kScanThreads = 128;    // block of scan_*
constexpr int kWideThreads = 512;    // of scan_*_x4
constexpr int kMaxList = 1 << 30;

// stamp notes the device's time, in nanoseconds, at the beginning of a launch.
__device__ __forceinline__ uint64_t now() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__device__ __forceinline__ void stamp(uint64_t *clock) {
  if (clock && threadIdx.x == 0) *clock = now();
}

// From compute capability 9.0 on, centroid_scores, scan_*, pick and fine may each be
// launched to begin before the launch in front of it has ended (follow.cuh): until
// wait_before() a kernel reads only data that existed before prep_query was launched, and
// writes nothing. fine has begun to load the operands of the query when it waits, which is
// why pick waits first.

// Words of frags for one group: frag_stride = plaid_frag_words(mode, W).
// steps(mode): 1 bit: 5·W, 2 bits: 3·W, 4 bits: 2·W, 8 bits: 2·ceil(W/2)
// table (mode 16): 8·W/nbits        frag words = steps · 256
//
// modes 33, 34, 36: 4·W, 2·W, W
//
// mode: 1, 2, 4, 8: uniform levels of that many bits, for scan_b*; 16: table
// codebook, for scan_table; 33, 34, 36: uniform levels of 1, 2, 4 bits for
// scan_f*, which only the sm_90a module has: rows of S are then half precision
// (centroid_scores with half_rows = 1).

// pack: grid (ceil(tiles/8), 1), block 256 (a warp a tile), no shared memory.
// Called for each uploaded piece of whole documents.
struct PackParams {
  const uint8_t *codes;             // [tokens] uint16 or uint32
  const int16_t *factors;           // [tokens]
  const uint8_t *residuals;         // [tokens][row_bytes]
  const uint32_t *offsets;          // [docs+1] tokens, from the start of the piece
  const uint32_t *first_tile;       // [docs+1] tile numbers in the resident index: points at the piece's first document
  const float *centroid_scale;      // [K] a_c/a_max, or null
  uint2 *words;                     // resident arrays, whole
  uint32_t *rows;
  uint32_t *tile_doc;
  uint32_t *doc_max;
  void *code_list;                  // codes, of code_bytes as well
  uint32_t docs, doc_base;          // of the piece; number of its first document
  uint32_t tiles;                   // first_tile[docs] − first_tile[0]
  uint32_t code_bytes, row_bytes, lane_words;
  uint32_t plain_max;               // 1: doc_max without a_c/a_max
  uint32_t reserved;
};

// prep_query: grid (4, groups), block 512, shared memory 32·dim bytes where staged is
// 1, else 0. Groups are independent; 8 columns a block, two warps each. query, weights and alike may be
// page-locked memory of the host, and should then be staged.
struct PrepParams {
  const float *query;               // [groups][32][dim], unused columns zero
  const float *weights;             // [groups][32], unused columns zero
  const float *alike;               // [groups][32]: how many of the query's columns are rounded alike
  const float *dim_scale;           // [dim] or null
  uint32_t *frags;                  // out
  float4 *cols;                     // out
  float4 *bound;                    // out
  uint32_t *parts;                  // out
  float4 *unit;                     // out
  uint32_t *zeros;                  // zero_words words to be zero
  uint64_t *clock;                  // out: time when it began, in ns, or null
  uint32_t dim, mode, nbits, lane_words, frag_stride, zero_words;
  float step;                       // uniform: the step; table: largest |weight| of the table
  float s_max;                      // largest norm of a centroid / smallest a_c (1 without scales), rounded up
  float s_least;                    // largest norm of a centroid / a_max, rounded up
  float factor_max;                 // FactorMax · a_max
  float table_scale;                // table: what fine's weights are multiplied with, a power of two
  float centroid_up;                // what centroids are multiplied with
  uint32_t staged, reserved;
};

// centroid_scores: grid (ceil(K/128), groups), block 256 (8 warps of 16 centroids), no shared memory.
// Error of S: below 1e-5 · |q|.
struct CentroidParams {
  const __half *centroids;          // [K], in lane order
  const uint32_t *parts;            // of prep_query
  const float4 *unit;
  const float4 *cols;
  const float *inv_scale;           // [K] 1/a_c, or null
  uint16_t *s_rows;                 // out [groups][K][32] or null
  float *s_float;                   // out [groups][32][K], not scaled, or null: to probe
  float *maxima;                    // out [groups][32][ceil(K/128)]: the largest of 128 of these, or null
  uint64_t *clock;
  uint32_t k;
  uint32_t half_rows;               // 1 for modes 33, 34, 36, else 0
  uint32_t lane_dims;               // D: see lane order
  uint32_t side;                    // groups side by side in s_rows
};

// list_tiles: grid (ceil(n/256)), block 256. Turns a list of documents into a
// walk. tiles_total must be zero before.
struct ListParams {
  const uint32_t *docs;             // [n]
  const uint32_t *n_dev;            // number of documents if not null, at most n
  const uint32_t *first_tile;       // resident
  uint2 *walk;                      // out: x: tile, y: position in the list | 1<<31 on the last tile of a document
  uint32_t *pos_first, *pos_end;    // out [n]: tiles of a position in the walk
  uint32_t *tiles_total;            // out
  uint32_t n;
  uint32_t walk_capacity;           // entries of walk; the host sizes it as the sum of tiles, or the tiles of the index
};

// scan_b{1,2,4,8}[_wW][_list], scan_table[_list]:
// grid (blocks, groups), block 128; a warp takes a run of tiles, so documents
// of any length load all warps alike; pieces of a document cut between warps
// are joined by the last warp to finish one.
// blocks: SMs × occupancy, no more than ceil(tiles/4).
// Shared memory (dynamic): 4·(3072 + 1024·W) bytes for the names with _w; else
// 4·frag_stride bytes for scan_b*, 4·frag_stride + 2048 for scan_table.
// scan_f{1,2,4}_wW[_list] (sm_90a): grid and block the same, shared memory
// 4·frag_stride + 4·(3072 + 1024·W), for (bits, W): f1_w1, f2_w1, f2_w2, f4_w2, f4_w4.
// scan_f{1,2,4}_wW_x{2,4}: 2 or 4 groups side by side: grid (blocks, ceil(groups/side)),
// block 128 or 512, shared memory 4·side·frag_stride + warps·(1024 + 1024·W + 2048·side).
// Names with _wW exist for (bits, W): b1_w1, b2_w1, b2_w2, b4_w2, b4_w4.
struct ScanParams {
  const uint2 *words;
  const uint32_t *rows;
  const uint32_t *tile_doc;
  const uint2 *walk;                // _list: of list_tiles
  const uint32_t *n_tiles_dev;      // _list: tiles_total; may be null
  const uint32_t *doc_first;        // first_tile, or pos_first
  const uint32_t *doc_end;          // first_tile + 1, or pos_end
  const uint16_t *s_rows;
  const uint32_t *frags;
  const float4 *cols;
  const __half *table;              // scan_table: [2^nbits] weights / largest |weight|
  float *scores;                    // [groups][score_stride], by document or by position
  uint32_t *part;                   // scratch [gridDim.y][warps][2][32], warps = those of a grid row;
                                    // [..][2][64] for four groups side by side
  uint32_t *count;                  // scratch [gridDim.y][warps], zero before the first use; left zero
  uint64_t *clock;
  uint64_t s_stride;                // entries of s_rows between groups: 32·K
  uint64_t score_stride;
  uint32_t n_tiles;                 // tiles of the walk when n_tiles_dev is null
  uint32_t lane_words, frag_stride;
  uint32_t dim, nbits;              // scan_table
  uint32_t groups;
};

// topk_first: grid (ceil(n/8192), queries), block 1024, shared memory 0.
// Makes 64-bit keys (score descending, then number ascending) and keeps the k
// largest of each 8,192: out has [queries][gridDim.x][k] keys, 0 where there are
// fewer. Scores of a query are summed over its groups, in order. NaN never wins.
// With bound, scores are lowered as pick lowers them.
struct TopkFirstParams {
  const float *scores;              // [groups][stride]
  const uint32_t *group_begin;      // [queries+1], or null: query i has group i alone
  const uint32_t *ids;              // number of entry i, or null: i
  const uint32_t *n_dev;            // entries if not null, at most n
  const uint32_t *allowed;          // bitmap by number, or null
  const uint32_t *doc_max;          // by number
  const float4 *bound;              // of prep_query, or null
  uint64_t *keys;                   // out
  uint64_t *clock;
  uint64_t stride;
  uint32_t n, k;
  uint64_t ids_stride;              // entries of ids between queries (0: shared)
  uint32_t max_by_entry;            // doc_max is by entry and not by number
  float deviations, slack;
  uint32_t reserved;
};

// topk_next: grid (ceil(n/8192), queries), block 1024, shared memory 0:
// the same for keys, [queries][n] -> [queries][gridDim.x][k]. When gridDim.x
// is 1 the keys come out sorted, best first; out_ids and out_scores (if not
// null) then get [queries][k] numbers and scores, and out_n [queries] the
// number of valid ones. Invalid places have number 0xFFFFFFFF and score −inf.
// Apply until gridDim.x is 1, at least once. k <= 4096.
struct TopkNextParams {
  const uint64_t *keys;
  uint64_t *out;
  uint32_t *out_ids;
  float *out_scores;
  uint32_t *out_n;
  uint32_t n, k;
};

// pick: grid (1, queries), block 1024, for n <= 8192; else topk_first and
// topk_next, and collect: grid (ceil(n/8192), queries), block 256.
//
// What is listed is every document that can be among the k best. With l the score
// less slack·n·E and u the score plus n·E plus error, a document is listed if
// its u is at least the k-th largest l, the limit. If the k-th best fine score of
// those listed is at least the limit, no document that is not listed belongs
// among them; slack makes that so except for unlucky queries.
struct PickParams {
  const float *scores;              // as of topk_first
  const uint32_t *group_begin;
  const uint32_t *ids;
  const uint32_t *n_dev;
  const uint32_t *allowed;
  const uint32_t *doc_max;
  const float4 *bound;
  const float *kth;                 // collect: [queries][k] lowered scores of topk_next
  uint32_t *out_ids;                // [queries][capacity], in no order
  float2 *out_scores;               // [queries][capacity]: the score, n·E
  uint32_t *found;                  // [queries][4]: how many there are (zero before), bits of the
                                    // limit, of E, of the largest share of the bound (of fine; zero before)
  uint64_t *clock;
  uint64_t stride;
  uint32_t n, k, capacity;
  uint32_t max_by_entry;
  float deviations;                 // λ; negative: the worst case
  float slack;
  float error;                      // of fine scores, for Σ |weight|·|q| = 1
  uint32_t reserved;
};

// fine_b{1,2,4,8} (uniform levels), fine_t{1,2,4,8} (tables): grid (blocks, queries,
// splits), block 128, shared memory 32 KiB, 48 on sm_90a. A block takes every blocks-th
// document of its query. Scores of the listed
// documents, as precise as float32: the query in parts, so that the products on
// the tensor cores are exact, and float32 sums. An empty document scores 0.
// splits blocks share a document's tiles; the last to come joins them. With host, the
// last block of all copies out there, page-locked memory, and then writes 1 behind it.
struct FineParams {
  const uint2 *words;
  const uint32_t *rows;
  const uint32_t *first_tile;
  const __half *centroids;          // [K], in lane order
  const __half *table;              // tables: [2][2^nbits] weights times table_scale, in two halves
  const float *centroid_ratio;      // [K] a_c/a_max, or null
  const uint32_t *parts;            // of prep_query
  const float4 *unit;               // of prep_query
  const uint32_t *group_begin;      // [queries+1] or null: query i has group i alone
  const uint32_t *ids;              // [queries][capacity]
  const float2 *coarse;             // [queries][capacity] of pick, or null
  uint32_t *found;                  // [queries][4]: of pick
  float *part;                      // scratch [queries][capacity][splits][max_groups][32] where splits > 1
  uint32_t *count;                  // scratch [queries][capacity], zero before; left zero
  float *scores;                    // [queries][capacity]
  uint64_t *clock;                  // out: when it began, when it ended (zero before)
  const uint4 *out;                 // [out_words]
  uint4 *host;                      // [out_words + 1], or null
  uint32_t *done;                   // scratch, zero before; left zero
  float factor_max;                 // FactorMax (without a_max)
  float a_max;                      // 1 without scales
  uint32_t capacity, lane_words;
  uint32_t max_groups;              // most groups of a query
  uint32_t out_words;
};

// probe_pick: grid (columns), block 32. The best centroids of a column, where they are few of
// not too many: what topk_first and topk_next make of s_float, but with fewer reads.
constexpr int kMostPicked = 64, kMostMaxima = 2048;
struct ProbePickParams {
  const float *scores;              // [columns][k]: s_float
  const float *maxima;              // [columns][ceil(k/128)]
  uint32_t *ids;                    // out [columns][picked], best first
  float *out_scores;                // out [columns][picked]
  uint64_t *clock;
  uint32_t k, picked;               // picked <= kMostPicked, k <= 128·kMostMaxima
};

// probe_mark: grid (queries), block 1024. Sets the query's bit of probed centroids, of at
// most 32 queries, and makes what gains takes; zero marks and bits before. Columns of
// weight <= 0 probe nothing.
struct MarkParams {
  const uint32_t *ids;              // [columns][picked], best first, of probe_pick
  const float *scores;              // [columns][picked]
  const float4 *unit, *cols;        // of prep_query
  const uint32_t *group_begin;      // [queries+1], or null: query i has group i alone
  uint32_t *marks;                  // out [K]: a bit a query
  uint32_t *bits;                   // out [queries + 1][bit_words]: a bit a centroid; the last: of any query
  float4 *gain_cols;                // out [columns]: S of a row's value v is v·x + y; z: the floor; w: the
                                    // weight, so that the most that can be gained is 1
  float *gaps;                      // out [queries]
  uint32_t picked, n;               // n < picked, or all centroids, are probed; the last is the floor
  uint32_t queries, bit_words;
};

// candidates: grid (blocks), block 512, shared memory 4·bit_words where staged is 1, else 0.
// Sets the bits of those queries that probe a centroid of one of a document's tokens, for 32
// queries at once. Zero hits before.
struct CandidateParams {
  const void *codes;
  const uint32_t *tile_doc;
  const uint32_t *marks, *bits;     // of any query
  uint32_t *hits;                   // [docs]
  uint32_t tiles, bit_words, staged, code_bytes;
};

// gains: grid (blocks), block 512, shared memory as candidates. The gains of a query's candidates,
// as search/probe.go (reach) defines them: for each column the best S of the probed
// centroids that the document has, above that of the best that is not probed, and a gap
// above that of a document that has none.
constexpr int kGainLevels = 4096;
constexpr float kUnseenGap = 5;
struct GainParams {
  const uint32_t *docs, *n_dev;     // of compact
  const uint32_t *first_tile;
  const void *codes;
  const uint32_t *bits;             // of the query
  const uint16_t *s_rows;           // of its first group; a group a row
  const float *inv_scale;           // [K] 1/a_c, or null
  const float4 *gain_cols;          // of its first group
  const float *gap;                 // of the query
  uint32_t *gains;                  // out [n]: a level from 0 to kGainLevels − 1
  uint32_t *levels;                 // out [kGainLevels]: documents of each; zero before
  uint32_t n, groups, k, half_rows, bit_words, staged, code_bytes, reserved;
};

// cut: grid (ceil(n/256)), block 256. list_tiles of those documents that gain most: of whole
// levels, and no more than most. kept and tiles_total must be zero before.
struct CutParams {
  const uint32_t *docs, *n_dev;     // of compact
  const uint32_t *gains, *levels;
  const uint32_t *first_tile;
  uint32_t *list;                   // out [most]: the documents, in no order that results depend on
  uint32_t *kept;                   // out: how many
  uint2 *walk;                      // out: as of list_tiles
  uint32_t *pos_first, *pos_end;    // out [most]
  uint32_t *tiles_total;            // out
  uint32_t n, most, walk_capacity, reserved;
};

// compact: grid (ceil(docs/256)), block 256. The documents whose hits have the bit
// of a query and that are allowed, in no order that results depend on. n must be
// zero before.
struct CompactParams {
  const uint32_t *hits;
  const uint32_t *allowed;          // bitmap
  uint32_t *list;
  uint32_t *n;
  uint32_t docs, query;
};

// scale_rows: grid (ceil(n/rows)), block 256, shared memory 4·dim·(rows | 1)
// bytes. rows is a power of two, at most 32.
// Vectors as they come, to float32 of unit length or as they are.
struct ScaleParams {
  const void *in;                   // [.][dim] float, or with half != 0 __half
  const uint32_t *numbers;          // [n] rows of in, or null: the first n
  float *x;                         // out [n][dim] or null
  double *by, *squares;             // out [n] or null: what a row was multiplied with; ‖x‖²
  uint32_t n, dim, rows, half, unit;
};

// gather_rows: grid (ceil(n/8)), block 256. Rows by number, one behind the other.
struct GatherParams {
  const uint8_t *in;
  const uint32_t *numbers;          // [n]
  uint8_t *out;                     // [n][row_bytes]
  uint32_t n, row_bytes;            // an even number of bytes
};

// to_half: grid (ceil(rows/8)), block 256. Rows to half precision, padded with
// zeros to width; used for x (each piece) and, once, for centroids.
struct HalfParams {
  const float *in;                  // [n][dim], or null:
  const __half *halves;             // [.][dim], whose nearest centroids are those of the scaled vectors
  const uint32_t *numbers;          // [n] rows of halves, or null: the first n
  __half *out;                      // [rows][width], rows past n zero
  float *norms, *errors;            // out [n] or null: ‖row‖ and ‖row − half(row)‖
  uint32_t n, rows, dim, width;
};

// nearest64, nearest128: grid (ceil(n/128)), block 256, shared memory
// 512·width bytes (width 64 or 128: the dimension rounded up; 32 or 64 KiB).
// Then nearest_exact: grid (ceil(n/8)), block 256, decides in float32, as the
// processor does, to the bit. It leaves rows in doubt for which more sets of centroids are in
// question than were kept: nearest_again64, nearest_again128 (any grid, block and memory as before)
// list their centroids, and nearest_doubts (any grid, block 256) decides among these.
// nearest_any: grid (ceil(n/32)), block 256: any dimension, float32, by itself.
// The number of the centroid with the largest product, the lowest of equals.
struct MeansParams {
  const float *x;                   // [rows][dim], or null:
  const __half *halves;             // [.][dim]
  const uint32_t *numbers;          // [rows] rows of halves
  const double *by;                 // [rows] their factors
  const uint32_t *order, *starts;   // rows by centroid; [k+1] where a centroid's begin
  float *centroids;                 // cluster_means: in and out [k][dim]; cluster_sums: out
  uint32_t k, dim;
};
struct NearestParams {
  const __half *x_half;             // [n rounded up to 128][width]
  const __half *c_half;             // [K rounded up to 128][width], rows past K zero
  const float *x;                   // [n][dim]
  const float *centroids;           // [K][dim]
  const float *x_norms, *x_errors;  // of to_half
  uint4 *slots;                     // scratch [n rounded up to 128][16]
  uint32_t *doubts;                 // scratch [1 + n]: how many rows are in doubt; which
  float *limits;                    // scratch [n rounded up to 128]: of each, the least product in question
  uint32_t *counts;                 // scratch [n rounded up to 128]: centroids in question, which may be more
  uint32_t *listed;                 // scratch [n][256]: than are here
  uint32_t *codes;                  // out [n]
  float *scores;                    // out [n] or null
  float c_norm, c_error;            // the largest ‖c‖ and ‖c − half(c)‖
  uint32_t n, k, dim, width;
};

// encode_tokens: grid (ceil(n/rows)), block 288, shared memory 13·dim·(rows | 1) +
// 4·dim bytes; rows as of scale_rows. The residual, the factor and the
// squared error of tokens whose codes are known, for uniform levels, to the bit those
// of Quantizer.Encode in package codec.
struct EncodeParams {
  const float *x;                   // [n][dim]
  const uint32_t *codes;            // [n]; nothing is written for those that are not below k
  const float *centroids;           // [K][dim]
  const float *dim_scale;           // [dim] or null
  const float *centroid_scale;      // [K] or null
  uint8_t *residuals;               // out [n][row_bytes]
  int16_t *factors;                 // out [n], 0 for a token of zeros
  double *errors;                   // out [n]; with a sign where the factor was clamped
  float step, factor_max;
  uint32_t n, k, dim, rows, nbits, row_bytes;
};

}  // namespace plaid
