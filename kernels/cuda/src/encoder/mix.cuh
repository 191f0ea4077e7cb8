// mix.cuh: the steps between the products of a layer and attention, or in its place: norms
// of heads and rotary positions where the epilogue of a product has them not, and gated
// convolutions.
#pragma once
#include "common.cuh"

namespace plaid {
// A lane has 16 columns, which are 8 pairs that are turned together.
extern "C" __global__ void __launch_bounds__(256) encoder_turn(EncoderTurnParams p) {
  using namespace encoder;
  const uint32_t used = p.size / 16, lanes = used <= 1 ? 1 : 1u << (32 - __clz(used - 1)), all = p.heads + p.key_heads;
  const uint32_t thread = blockIdx.x * 256 + threadIdx.x, unit = thread / lanes, lane = thread % lanes;
  const uint32_t row = unit / all, head = unit % all;
  let_next();
  wait_before();
  const bool works = row < p.rows && lane < used;
  float x[2][8] = {};
  uint8_t *at[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    at[h] = p.qkv + (works ? tiled(row, (head * p.stride + lane * 16) / 8 + h, p.columns / 64) : 0);
    if (works) add8(x[h], *reinterpret_cast<const uint4 *>(at[h]));
  }
  auto sum = [&](float v) {
    for (uint32_t i = lanes / 2; i > 0; i /= 2) v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
  };
  const float *gamma = head < p.heads ? p.query : p.key, *beta = head < p.heads ? p.query_beta : p.key_beta;
  // All lanes of a warp take part in sums.
  if (p.query || p.key) {
    float mean = 0.f, squares = 0.f;
    if (!p.rms) {
#pragma unroll
      for (int i = 0; i < 16; i++) mean += x[i / 8][i % 8];
      mean = __fdiv_rn(sum(mean), float(p.size));
    }
    float y[2][8];
#pragma unroll
    for (int i = 0; i < 16; i++) {
      y[i / 8][i % 8] = works ? __fsub_rn(x[i / 8][i % 8], mean) : 0.f;
      squares = fmaf(y[i / 8][i % 8], y[i / 8][i % 8], squares);
    }
    const float inverse = rsqrtf(__fdiv_rn(sum(squares), float(p.size)) + p.epsilon);
    if (works && gamma) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float g[8], b[8] = {};
        load8(g, gamma + lane * 16 + h * 8);
        if (beta) load8(b, beta + lane * 16 + h * 8);
#pragma unroll
        for (int j = 0; j < 8; j++) x[h][j] = fmaf(__fmul_rn(y[h][j], inverse), g[j], b[j]);
      }
    }
  }
  if (!works) return;
  if (p.angles) {
    const float4 *angles = reinterpret_cast<const float4 *>(p.angles + (size_t(p.positions[row]) * (p.size / 2) + lane * 8) * 2);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float a[2] = {x[0][2 * i], x[0][2 * i + 1]}, b[2] = {x[1][2 * i], x[1][2 * i + 1]};
      turn(__ldg(angles + i), a, b);
      x[0][2 * i] = a[0], x[0][2 * i + 1] = a[1], x[1][2 * i] = b[0], x[1][2 * i + 1] = b[1];
    }
  }
  #pragma unroll
  for (int h = 0; h < 2; h++) *reinterpret_cast<uint4 *>(at[h]) = pack8(x[h]);
}

// A warp has a row, a lane 8 columns.
extern "C" __global__ void __launch_bounds__(256) encoder_conv(EncoderConvParams p) {
  using namespace encoder;
  const EncoderSpan span = p.spans[blockIdx.x];
  const uint32_t strips = (span.length + 15) / 16, parts = (strips + 3) / 4, share = (strips + parts - 1) / parts * 16;
  const uint32_t begin = span.part * share, end = min(begin + share, span.length), c = blockIdx.y * 256 + threadIdx.x % 32 * 8;
  const uint32_t known = p.all ? span.length : span.attended;
  let_next();
  wait_before();
  if (c >= p.width) return;
  // part: 0 in, 1 out, 2 x.
  auto value = [&](float (&x)[8], uint32_t row, uint32_t part) {
    const uint32_t column = part * p.width + c;
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = 0.f;
    if (row < known) add8(x, *reinterpret_cast<const uint4 *>(p.in + tiled(span.first + row, column / 8, 3 * p.width / 64)));
    else if (p.nothing) load8(x, p.nothing + column);
  };
  for (uint32_t row = begin + threadIdx.x / 32; row < end; row += 8) {
    float sum[8] = {}, x[8], y[8], w[8];
    for (uint32_t j = 0; j < p.taps; j++) {
      const uint32_t from = row + j - p.before;  // before the text it is large
      if (from >= span.length) continue;
      value(x, from, 0), value(y, from, 2), load8(w, p.weights + size_t(j) * p.width + c);
#pragma unroll
      for (int k = 0; k < 8; k++) sum[k] = fmaf(__fmul_rn(x[k], y[k]), w[k], sum[k]);
    }
    if (p.bias) {
      load8(w, p.bias + c);
#pragma unroll
      for (int k = 0; k < 8; k++) sum[k] += w[k];
    }
    value(x, row, 1);
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] = __fmul_rn(sum[k], x[k]);
    *reinterpret_cast<uint4 *>(p.out + tiled(span.first + row, c / 8, p.width / 64)) = pack8(sum);
  }
}

}  // namespace plaid
