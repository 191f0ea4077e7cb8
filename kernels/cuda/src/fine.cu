// fine.cu: scores of some documents as precise as float32, on the tensor cores.
// A block takes documents, or a share of the tiles of each; a warp a tile at a
// time.
//
// Centroids are bfloat16, exact as halves, and so are the fields of uniform levels,
// masked as they are (plaid.cuh, Field order): with the query and its coefficients
// in two half-precision parts the products are exact. The remaining errors are the parts'
// last bits (2^-22) and the sums, float32, which begin with the lower parts, while
// they are small. Tables are looked up, as in table.cu, and their weights are two
// halves as well.
//
// 2 bits, 128 dimensions: for 16 tokens 128 products m16n8k16, or on sm_90a a warp's
// share of 32 wgmma.m64n32k16, which read the query from shared memory once for the
// four tiles of a block. A centroid is read once, 64 bytes of it side by side.
#include "ring.cuh"

namespace plaid {

constexpr int kFineSteps = 8;  // of the query's operands that are in shared memory at a time

// A step of a part of the operands is 1 KiB.
constexpr int kStepWords = 256, kPartWords = kFineSteps * kStepWords;

// Operands names the operands in shared memory.
struct Operands {
#ifdef PLAID_SM90A
  // The descriptor's lower half. No swizzle; core matrices are 128 bytes apart along
  // dimensions, 256 along columns.
  uint32_t at;
  __device__ __forceinline__ explicit Operands(const uint32_t *ops) : at(uint32_t(__cvta_generic_to_shared(ops)) >> 4 | 128 >> 4 << 16) {}
#else
  const uint32_t *at;  // of the lane
  __device__ __forceinline__ explicit Operands(const uint32_t *ops) : at(ops + (threadIdx.x & 31)) {}
#endif
};

// multiply adds the products of 16 tokens with the 32 columns of a step. What the
// four warps of a block give wgmma is multiplied together.
__device__ __forceinline__ void multiply(float (&c)[16], const uint32_t (&a)[4], const Operands &ops, int part, int step) {
  const int words = part * kPartWords + step * kStepWords;
#ifdef PLAID_SM90A
  const uint64_t b = (ops.at + words / 4) | uint64_t(256 >> 4) << 32;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "{%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]),
        "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#else
  const uint32_t *b = ops.at + words;
#pragma unroll
  for (int n = 0; n < 4; n++) mma_half(reinterpret_cast<float(&)[4]>(c[4 * n]), a, b[n * 64], b[n * 64 + 32]);
#endif
}
__device__ __forceinline__ void multiply_begin() {
#ifdef PLAID_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void multiply_end(float (&a)[16], float (&b)[16]) {
#ifdef PLAID_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
      : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3]), "+f"(a[4]), "+f"(a[5]), "+f"(a[6]), "+f"(a[7]), "+f"(a[8]), "+f"(a[9]),
        "+f"(a[10]), "+f"(a[11]), "+f"(a[12]), "+f"(a[13]), "+f"(a[14]), "+f"(a[15]), "+f"(b[0]), "+f"(b[1]), "+f"(b[2]), "+f"(b[3]),
        "+f"(b[4]), "+f"(b[5]), "+f"(b[6]), "+f"(b[7]), "+f"(b[8]), "+f"(b[9]), "+f"(b[10]), "+f"(b[11]), "+f"(b[12]), "+f"(b[13]),
        "+f"(b[14]), "+f"(b[15])::"memory");
#endif
}

// look_up gives the weights of four fields, those of step i of a word.
template <int NB> __device__ __forceinline__ uint2 look_up(const char *lut, uint32_t word, int i) {
  if constexpr (NB == 1) return *reinterpret_cast<const uint2 *>(lut + ((word >> (4 * i)) & 15) * 8);
  if constexpr (NB == 2) return *reinterpret_cast<const uint2 *>(lut + ((word >> (8 * i)) & 255) * 8);
  if constexpr (NB == 4) {
    const uint32_t h = word >> (16 * i);
    return {*reinterpret_cast<const uint32_t *>(lut + (h & 255) * 4), *reinterpret_cast<const uint32_t *>(lut + (h >> 8 & 255) * 4)};
  }
  auto one = [&](int k) -> uint32_t { return *reinterpret_cast<const uint16_t *>(lut + (word >> (8 * k) & 255) * 2); };
  return {one(0) | one(1) << 16, one(2) | one(3) << 16};
}

// two_fields gives fields i and i + 16/NB of a word, as halves.
template <int NB> __device__ __forceinline__ uint32_t two_fields(uint32_t word, int i) {
  const uint32_t mask = ((1u << NB) - 1) << (i * NB % 8);
  return word >> (i * NB / 8 * 8) & (mask | mask << 16);
}

// load_words reads NB words of a row from word w on, zeros past the last.
template <int NB> __device__ __forceinline__ void load_words(uint32_t (&x)[NB], const uint32_t *row, uint32_t w, uint32_t words) {
  constexpr uint32_t kVector = NB < 4 ? NB : 4;
  if (words % kVector == 0) {
#pragma unroll
    for (uint32_t i = 0; i < NB; i += kVector) {
      uint4 v = {};
      if (w + i < words) {
        if constexpr (kVector == 4) v = __ldg(reinterpret_cast<const uint4 *>(row + w + i));
        if constexpr (kVector == 2) v.x = __ldg(reinterpret_cast<const uint2 *>(row + w)).x, v.y = __ldg(reinterpret_cast<const uint2 *>(row + w)).y;
        if constexpr (kVector == 1) v.x = __ldg(row + w);
      }
      x[i] = v.x;
      if constexpr (kVector > 1) x[i + 1] = v.y;
      if constexpr (kVector > 2) x[i + 2] = v.z, x[i + 3] = v.w;
    }
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < NB; i++) x[i] = w + i < words ? __ldg(row + w + i) : 0;
}

// Centroids copies a warp's quarters of centroids to shared memory while the previous
// round is multiplied; each lane copies the values that it reads. On other architectures than
// sm_90a, which may have less shared memory, they are loaded when they are used.
struct Centroids {
#ifdef PLAID_SM90A
  uint32_t at;  // of the lane: [4 pairs of steps][2 tokens][128 threads][16 bytes]
#else
  const uint4 *from[2];
  uint32_t s0;
#endif
  __device__ __forceinline__ void start(const uint4 *(&row)[2], uint32_t pairs, uint32_t s) {
#ifdef PLAID_SM90A
    if (s / 2 + kFineSteps / 2 <= pairs) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint4 *from = row[h] + s * 2;
#pragma unroll
        for (int i = 0; i < kFineSteps / 2; i++) copy_async<16>(at + (i * 2 + h) * 2048, from + i * 4);
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      return;
    }
#pragma unroll
    for (int i = 0; i < kFineSteps / 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint32_t bytes = s / 2 + i < pairs ? 16 : 0;  // the rest is zeros
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at + (i * 2 + h) * 2048), "l"(row[h] + (bytes ? (s / 2 + i) * 4 : 0)), "r"(bytes) : "memory");
      }
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    from[0] = row[0], from[1] = row[1], s0 = s / 2;
#endif
  }
  __device__ __forceinline__ void take(uint4 (&c)[2][kFineSteps / 2], uint32_t pairs) const {
#ifdef PLAID_SM90A
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kFineSteps / 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) c[h][i] = shared_load<uint4>(at + (i * 2 + h) * 2048);
#else
#pragma unroll
    for (int i = 0; i < kFineSteps / 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) c[h][i] = s0 + i < pairs ? __ldg(from[h] + (s0 + i) * 4) : make_uint4(0, 0, 0, 0);
#endif
  }
};

// A block's share of a document's tiles. Shares are whole rounds of four tiles.
struct Share {
  uint32_t lo, hi, of;  // tiles; of how many shares, 0 of an empty document
  __device__ __forceinline__ Share(uint32_t t0, uint32_t tiles) {
    uint32_t per = tiles;
    of = tiles ? 1 : 0;
    if (gridDim.z > 1 && tiles) per = ((tiles + gridDim.z - 1) / gridDim.z + 3) & ~3u, of = (tiles + per - 1) / per;
    lo = t0 + min(blockIdx.z * per, tiles), hi = min(lo + per, t0 + tiles);
  }
};

template <int NB, bool kTable> __device__ __forceinline__ void fine_scores(const FineParams &p) {
  constexpr int kFields = NB <= 2 ? 4 : NB == 4 ? 2 : 1, kEntries = NB == 1 ? 16 : 256;  // of a look-up
  constexpr int kPer = 8 / NB;                                                           // steps of a word
  extern __shared__ __align__(128) uint32_t ops[];  // [4 parts], then Centroids
  __shared__ __align__(16) __half lut[kTable ? 2 : 1][kTable ? kEntries * kFields : 8];
  __shared__ float4 units[kColumns];
  __shared__ float maxima[2][4][kColumns];
  __shared__ uint32_t joined;
  const uint32_t q = blockIdx.y, z = blockIdx.z, l = threadIdx.x & 31, warp = threadIdx.x / 32;
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  const uint32_t steps = p.lane_words * 8 / NB, pairs = (steps + 1) / 2;
  const uint32_t g = l >> 2, j = l & 3;
  if constexpr (kTable) {
#pragma unroll
    for (int part = 0; part < 2; part++)
      for (int e = threadIdx.x; e < kEntries * kFields; e += 128)
        lut[part][e] = p.table[(part << NB) + ((e / kFields) >> (e % kFields * NB) & ((1 << NB) - 1))];
  }
  const Operands operands(ops);
  Centroids centroids;
#ifdef PLAID_SM90A
  centroids.at = uint32_t(__cvta_generic_to_shared(ops + 4 * kPartWords)) + threadIdx.x * 16;
#endif
  uint32_t x[2][NB];  // fields of the step that is next
  // begin loads the values of a step for the lane's two tokens, whose words are in word.
  auto begin = [&](size_t token, const uint2(&word)[2], uint32_t s0) {
    const uint4 *row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) row[h] = reinterpret_cast<const uint4 *>(p.centroids) + size_t(word[h].x / 64) * pairs * 4 + j;
    centroids.start(row, pairs, s0);
#pragma unroll
    for (int h = 0; h < 2; h++) load_words<NB>(x[h], p.rows + ((token + 8 * h) * 4 + j) * p.lane_words, s0 / kPer, p.lane_words);
  };
  auto place = [&](const Share &s, uint32_t round) -> size_t { return size_t(min(s.lo + round * 4 + warp, s.hi - 1)) * kTile + g; };
  auto words = [&](uint2(&word)[2], size_t token) { word[0] = __ldg(p.words + token), word[1] = __ldg(p.words + token + 8); };

  // fetch copies the operands of some steps of a group.
  auto fetch = [&](uint32_t group, uint32_t s0) {
    const uint4 *from = reinterpret_cast<const uint4 *>(p.parts + (size_t(group) * 4 * steps + s0) * kStepWords);
    const uint32_t m = min(steps - s0, uint32_t(kFineSteps)) * (kStepWords / 4);
#pragma unroll 4
    for (uint32_t e = threadIdx.x; e < kPartWords; e += 128) {  // in units of 16 bytes, four parts
      const uint32_t part = e / (kPartWords / 4), r = e % (kPartWords / 4);
      const uint4 *at = from + size_t(part) * steps * (kStepWords / 4) + r;
#ifdef PLAID_SM90A
      const uint32_t bytes = r < m ? 16 : 0;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(ops + e * 4))), "l"(bytes ? at : from), "r"(bytes) : "memory");
#else
      reinterpret_cast<uint4 *>(ops)[e] = r < m ? __ldg(at) : make_uint4(0, 0, 0, 0);
#endif
    }
    if (threadIdx.x < kColumns) units[threadIdx.x] = p.unit[group * kColumns + threadIdx.x];
#ifdef PLAID_SM90A
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  };

  fetch(g0, 0);  // which was there before pick let this begin
  wait_before();
  if (blockIdx.x + q + z == 0) stamp(p.clock);
  const uint32_t n_docs = min(p.found[q * 4], p.capacity);
  if (blockIdx.x >= n_docs) {
#ifdef PLAID_SM90A
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
    return;
  }
  bool fetched = true;            // operands are on their way
  uint32_t loaded = 0xFFFFFFFFu;  // the group whose operands are in shared memory
  uint32_t turn = 0;              // of maxima
  bool begun = false;             // the first step of the document
  const uint32_t *ids = p.ids + size_t(q) * p.capacity;
  uint32_t i = blockIdx.x, doc = ids[i], after = i + gridDim.x < n_docs ? ids[i + gridDim.x] : doc;
  Share share(p.first_tile[doc], p.first_tile[doc + 1] - p.first_tile[doc]);
  uint2 word[2], next[2], first[2];  // of this round, of the next one, and of a document's first
  while (true) {
    const size_t cell = size_t(q) * p.capacity + i;
    // Of the next document its tiles, and of the one after its number.
    const uint32_t t0 = p.first_tile[after], t1 = p.first_tile[after + 1];
    const bool more = i + gridDim.x < n_docs;
    if (i + 2 * gridDim.x < n_docs) after = ids[i + 2 * gridDim.x];
    if (z < share.of) {
      const uint32_t rounds = (share.hi - share.lo + 3) / 4;
      if (!begun) words(first, place(share, 0));
      float total = 0;
      for (uint32_t group = g0; group < g1; group++) {
        float best[4][2];
#pragma unroll
        for (int n = 0; n < 4; n++) best[n][0] = best[n][1] = -INFINITY;
        if (group > g0) words(first, place(share, 0));
        word[0] = first[0], word[1] = first[1];
        // What follows a round: the next, or onward that of the next document.
        size_t follows;
        bool onward;
        auto follow = [&](uint32_t round) {
          follows = place(share, round), onward = false;
          if (round >= rounds && more && group + 1 == g1) {
            const Share then(t0, t1 - t0);
            if (z < then.of) follows = place(then, 0), onward = true;
          }
          words(next, follows);
        };
        follow(1);
        if (!begun) begin(place(share, 0), word, 0);
        begun = false;
        float sum[16], rest[16], factor[2], ratio[2];
        for (uint32_t round = 0, s0 = 0; round < rounds;) {
          if (steps > kFineSteps || loaded != group) {
            if (!fetched) {
              __syncthreads();
              fetch(group, s0);
            }
            fetched = false;
#ifdef PLAID_SM90A
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
            __syncthreads();
            loaded = group;
          }
          // Steps past the last have operands 0.
          uint4 c[2][kFineSteps / 2];
          centroids.take(c, pairs);
          uint32_t a[kFineSteps][4], f[kFineSteps][4], low[kTable ? kFineSteps : 1][4];
#pragma unroll
          for (int s = 0; s < kFineSteps; s++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const uint4 v = c[h][s / 2];
              a[s][h] = s % 2 ? v.z : v.x, a[s][2 + h] = s % 2 ? v.w : v.y;
              const uint32_t w = x[h][s / kPer];
              if constexpr (kTable) {
                const uint2 y = look_up<NB>(reinterpret_cast<const char *>(lut[0]), w, s % kPer);
                const uint2 yl = look_up<NB>(reinterpret_cast<const char *>(lut[1]), w, s % kPer);
                f[s][h] = y.x, f[s][2 + h] = y.y, low[s][h] = yl.x, low[s][2 + h] = yl.y;
              } else {
                f[s][h] = two_fields<NB>(w, s % kPer * 2), f[s][2 + h] = two_fields<NB>(w, s % kPer * 2 + 1);
              }
            }
          }
#ifdef PLAID_SM90A
          // Made before the products begin, or the compiler puts a fence before each;
          // and read before the next ones are copied.
#pragma unroll
          for (int s = 0; s < kFineSteps; s++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
              asm volatile("" : "+r"(a[s][k]), "+r"(f[s][k])::"memory");
              if constexpr (kTable) asm volatile("" : "+r"(low[s][k])::"memory");
            }
#endif
          if (s0 == 0) {
#pragma unroll
            for (int e = 0; e < 16; e++) sum[e] = rest[e] = 0;
          }
          const bool last = s0 + kFineSteps >= steps;  // of the round
          // What is next is copied, and fields loaded, while this is multiplied.
          size_t token = place(share, round);
          uint32_t s1 = s0 + kFineSteps;
          bool is = true;  // there is something
          if (last) {
            s1 = 0, token = follows;
            if (round + 1 == rounds) {
              is = begun = onward;
              first[0] = next[0], first[1] = next[1];
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
              factor[h] = __uint_as_float(word[h].y) * p.factor_max, ratio[h] = p.a_max;
              if (p.centroid_ratio) {
                const float r = __ldg(p.centroid_ratio + word[h].x / 64);
                factor[h] /= r, ratio[h] *= r;
              }
              word[h] = next[h];
            }
          }
          if (is) begin(token, word, s1);
          multiply_begin();
#pragma unroll
          for (int s = 0; s < kFineSteps; s++) {
            multiply(sum, a[s], operands, 1, s);
            multiply(rest, f[s], operands, 3, s);
            if constexpr (kTable) multiply(rest, low[s], operands, 2, s);
          }
#pragma unroll
          for (int s = 0; s < kFineSteps; s++) {
            multiply(sum, a[s], operands, 0, s);
            multiply(rest, f[s], operands, 2, s);
          }
          multiply_end(sum, rest);
          if (!last) {
            s0 += kFineSteps;
            continue;
          }
#pragma unroll
          for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
              for (int e = 0; e < 2; e++) {
                const float4 unit = units[n * 8 + j * 2 + e];
                const int at = n * 4 + 2 * h + e;
                best[n][e] = fmaxf(best[n][e], factor[h] * fmaf(fmaf(rest[at], unit.y, unit.z), ratio[h], sum[at] * unit.x));
              }
          }
          round++, s0 = 0;
          follow(round + 1);
        }
        // Each of the eight lanes with the same columns keeps one of them.
        float v4[4], v2[2];
        const bool h16 = l & 16, h8 = l & 8, h4 = l & 4;
#pragma unroll
        for (int k = 0; k < 4; k++) {
          const float mine = h16 ? best[2 + k / 2][k % 2] : best[k / 2][k % 2], other = h16 ? best[k / 2][k % 2] : best[2 + k / 2][k % 2];
          v4[k] = fmaxf(mine, __shfl_xor_sync(0xffffffffu, other, 16));
        }
#pragma unroll
        for (int k = 0; k < 2; k++) v2[k] = fmaxf(h8 ? v4[2 + k] : v4[k], __shfl_xor_sync(0xffffffffu, h8 ? v4[k] : v4[2 + k], 8));
        const float v = fmaxf(h4 ? v2[1] : v2[0], __shfl_xor_sync(0xffffffffu, h4 ? v2[0] : v2[1], 4));
        maxima[turn][warp][(h16 * 2 + h8) * 8 + j * 2 + h4] = v;
        __syncthreads();
        if (warp == 0) {
          const float m = fmaxf(fmaxf(maxima[turn][0][l], maxima[turn][1][l]), fmaxf(maxima[turn][2][l], maxima[turn][3][l])), w = units[l].w;
          if (share.of > 1) __stcg(&p.part[((cell * gridDim.z + z) * p.max_groups + (group - g0)) * kColumns + l], m);
          else if (w != 0) total = fmaf(w, m, total);
        }
        turn ^= 1;
      }
      bool whole = warp == 0;
      if (whole && share.of > 1) {
        __threadfence();
        __syncwarp();
        if (l == 0) joined = atomicAdd(&p.count[cell], 1);
        __syncwarp();
        whole = joined == share.of - 1;
        if (whole) {
          __threadfence();
          for (uint32_t group = g0; group < g1; group++) {
            float m = -INFINITY;
            for (uint32_t s = 0; s < share.of; s++) m = fmaxf(m, __ldcg(&p.part[((cell * gridDim.z + s) * p.max_groups + (group - g0)) * kColumns + l]));
            const float w = p.unit[group * kColumns + l].w;
            if (w != 0) total = fmaf(w, m, total);
          }
          if (l == 0) p.count[cell] = 0;
        }
        __syncwarp();
      }
      if (whole) {
        for (int s = 16; s; s >>= 1) total += __shfl_xor_sync(0xffffffffu, total, s);
        if (l == 0) {
          p.scores[cell] = total;
          if (p.coarse) {
            const float2 c = p.coarse[cell];
            if (c.y > 0) atomicMax(&p.found[q * 4 + 3], __float_as_uint(fmaxf(total - c.x, 0.0f) / c.y));
          }
        }
      }
    } else if (share.of == 0 && z == 0 && threadIdx.x == 0) {
      p.scores[cell] = 0;
    }
    if (!more) break;
    share = Share(t0, t1 - t0);
    i += gridDim.x;
  }
  if (p.clock && threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned long long *>(p.clock + 1), now());
}

// deliver copies the results to the host, once all blocks are done.
__device__ __forceinline__ void deliver(const FineParams &p) {
  __shared__ bool last;
  if (!p.host) return;
  if (threadIdx.x == 0) {  // which has written what the block has
    __threadfence();
    last = atomicAdd(p.done, 1) == gridDim.x * gridDim.y * gridDim.z - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (uint32_t i = threadIdx.x; i < p.out_words; i += 128) p.host[i] = __ldcg(p.out + i);
  __syncthreads();
  if (threadIdx.x) return;
  *p.done = 0;
  __threadfence_system();  // of what all threads have written
  *reinterpret_cast<volatile uint32_t *>(p.host + p.out_words) = 1;
}

#define PLAID_FINE(nb)                                                                                                             \
  extern "C" __global__ void __launch_bounds__(128, 3) fine_b##nb(const __grid_constant__ FineParams p) { fine_scores<nb, false>(p), deliver(p); } \
  extern "C" __global__ void __launch_bounds__(128, 3) fine_t##nb(const __grid_constant__ FineParams p) { fine_scores<nb, true>(p), deliver(p); }
PLAID_FINE(1)
PLAID_FINE(2)
PLAID_FINE(4)
PLAID_FINE(8)

}  // namespace plaid
