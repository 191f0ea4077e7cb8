// dense.cc: the kernels of dense.cu that are for all devices, as a library for the processor. The
// tests of internal/dense call them in place of their own (TestSources).
#define PLAID_HOST
#include "cuda.h"

namespace plaid {

alignas(1024) thread_local uint8_t shared[128 << 10];

// What tensorcores.cuh has for devices. Addresses are places in shared.
inline uint32_t __cvta_generic_to_shared(const void *p) { return uint32_t(static_cast<const uint8_t *>(p) - shared); }
inline void copy_point(uint32_t to, const uint8_t *from) { std::memcpy(shared + to, from, 16); }
inline void commit_copies() {}
inline void wait_for_copies() {}

// ldmatrix: lane i gives the address of row i%8 of matrix i/8, of eight halves, and gets of row i/4 of each the
// halves 2(i%4) and the next.
inline void load_matrices(uint32_t (&a)[4], uint32_t at) {
  const host::Meeting::Turn &t = host::block->meet("ldmatrix", ~0u, at);
  const int lane = host::block->current().lane;
  for (int i = 0; i < 4; i++) std::memcpy(&a[i], shared + t.value[8 * i + lane / 4] + lane % 4 * 4, 4);
}

// mma.m16n8k16: lane 4g+j has of A rows g and g+8, of B and C columns g, and 2j and the next.
inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  uint64_t parts[3][host::kWarp];
  const uint64_t mine[3] = {a[0] | uint64_t(a[1]) << 32, a[2] | uint64_t(a[3]) << 32, b0 | uint64_t(b1) << 32};
  for (int i = 0; i < 3; i++) std::memcpy(parts[i], host::block->meet("mma", ~0u, mine[i]).value, sizeof parts[i]);
  const auto half = [&](int part, int lane, int word, int k) {
    return __half2float({uint16_t(parts[part][lane] >> (32 * word + 16 * (k & 1)))});
  };
  const int g = host::block->current().lane / 4, j = host::block->current().lane % 4;
  for (int i = 0; i < 4; i++) {
    double sum = c[i];
    const int row = g, word = i / 2, column = 2 * j + i % 2;
    for (int k = 0; k < 16; k++)
      sum += double(half(k / 8, 4 * row + k % 8 / 2, word, k)) * half(2, 4 * column + k % 8 / 2, k / 8, k);
    c[i] = float(sum);
  }
}

}  // namespace plaid

#include "../dense/any.cuh"
#include "../dense/chamfer.cuh"
#include "../dense/chamferexact.cuh"
#include "../dense/chamferfew.cuh"
#include "../dense/chamfergrad.cuh"
#include "../dense/chamferproduct.cuh"
#include "../dense/fill.cuh"
#include "../dense/grad.cuh"
#include "../dense/lists.cuh"
#include "../dense/pack.cuh"
#include "../dense/project.cuh"
#include "../dense/rank.cuh"

namespace plaid {

namespace {

template <class P> void call(void (*kernel)(P), const void *params) { kernel(*static_cast<const P *>(params)); }

struct Kernel {
  const char *name;
  void (*run)(const void *params);
};

#define KERNEL(NAME) {#NAME, [](const void *params) { call(NAME, params); }}
const Kernel kernels[] = {
    KERNEL(dense_any), KERNEL(dense_chamfer_few_l1_d3), KERNEL(dense_chamfer_few_l1_d4),
    KERNEL(dense_chamfer_few_l1_d8), KERNEL(dense_chamfer_few_l2_d3), KERNEL(dense_chamfer_few_l2_d4),
    KERNEL(dense_chamfer_few_l2_d8), KERNEL(dense_chamfer_find), KERNEL(dense_chamfer_grad_l1),
    KERNEL(dense_chamfer_grad_l1_few), KERNEL(dense_chamfer_grad_l2), KERNEL(dense_chamfer_grad_l2_few),
    KERNEL(dense_chamfer_grad_long_l1), KERNEL(dense_chamfer_grad_long_l2), KERNEL(dense_chamfer_l1),
    KERNEL(dense_chamfer_l2), KERNEL(dense_chamfer_list), KERNEL(dense_chamfer_pairs), KERNEL(dense_chamfer_product),
    KERNEL(dense_chamfer_product_resident), KERNEL(dense_chamfer_resolve), KERNEL(dense_chamfer_rows),
    KERNEL(dense_chamfer_sum), KERNEL(dense_fill), KERNEL(dense_grad_any), KERNEL(dense_grad_bf16),
    KERNEL(dense_grad_e4m3), KERNEL(dense_grad_f16), KERNEL(dense_grad_f32), KERNEL(dense_grad_i8),
    KERNEL(dense_grad_split), KERNEL(dense_join), KERNEL(dense_lists), KERNEL(dense_pack), KERNEL(dense_prepare),
    KERNEL(dense_project_any), KERNEL(dense_rank), KERNEL(dense_sum), KERNEL(dense_weights),
};

}  // namespace
}  // namespace plaid

// plaid_host_launch runs a kernel; 0: without a fault, which message then tells of.
extern "C" int plaid_host_launch(const char *name, const uint32_t grid[3], uint32_t threads, uint32_t shared_bytes,
                                 const void *params, uint32_t reversed, char *message, uint64_t message_bytes) {
  for (const auto &k : plaid::kernels) {
    if (std::strcmp(k.name, name) != 0) continue;
    try {
      if (shared_bytes > sizeof plaid::shared) throw host::Fault("no room for shared memory");
      blockDim = {threads, 1, 1}, gridDim = {grid[0], grid[1], grid[2]};
      host::Block block(threads, reversed);
      for (uint32_t z = 0; z < grid[2]; z++)
        for (uint32_t y = 0; y < grid[1]; y++)
          for (uint32_t x = 0; x < grid[0]; x++) {
            blockIdx = {x, y, z};
            std::memset(plaid::shared, 0xff, shared_bytes);
            block.run([&] { k.run(params); });
          }
      return 0;
    } catch (const host::Fault &e) {
      std::snprintf(message, message_bytes, "%s: %s", name, e.what());
      return 1;
    }
  }
  std::snprintf(message, message_bytes, "there is no kernel %s", name);
  return 1;
}
