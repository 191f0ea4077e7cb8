// common.cuh: what launches of the search's kernels need.
#pragma once
#include "device.cuh"
#include "../plaid.cu"

using namespace plaid;

template <class K> int blocks_for(K kernel, size_t smem, uint32_t tiles, int threads = kScanThreads) {
  int occ = 0;
  CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem)));
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, kernel, threads, smem));
  return std::max(1, std::min<int>(sms() * occ, (tiles + 3) / 4));
}

inline uint32_t lane_words(int dim, int nbits) { return ((dim * nbits + 7) / 8 + 15) / 16; }
inline uint32_t frag_words(int mode, int nbits, uint32_t w) {
  switch (mode) {
    case 1: return 5 * w * 256;
    case 2: return 3 * w * 256;
    case 4: return 2 * w * 256;
    case 8: return 2 * ((w + 1) / 2) * 256;
    case 33: return 4 * w * 256;
    case 34: return 2 * w * 256;
    case 36: return w * 256;
    default: return 8 * w / nbits * 256;
  }
}

// Dynamic shared memory of a scan.
inline size_t scan_smem(int mode, uint32_t w, uint32_t fs, bool shared) {
  if (mode > 32) return fs * 4 + 4 * (3072 + 1024 * w);
  return !shared ? 4 * (3072 + 1024 * w) : fs * 4 + (mode == 16 ? 2048 : 0);
}

// Whether scan_f* has it.
inline bool has_fp8(int nbits, uint32_t w) { return (nbits <= 2 && w == 1) || (nbits == 2 && w == 2) || (nbits == 4 && (w == 2 || w == 4)); }

using Scan = void (*)(ScanParams);
inline Scan scan_for(int mode, uint32_t w, bool list, bool &shared) {
  shared = false;
  if (mode == 33 && w == 1) return list ? scan_f1_w1_list : scan_f1_w1;
  if (mode == 34 && w == 1) return list ? scan_f2_w1_list : scan_f2_w1;
  if (mode == 34 && w == 2) return list ? scan_f2_w2_list : scan_f2_w2;
  if (mode == 36 && w == 2) return list ? scan_f4_w2_list : scan_f4_w2;
  if (mode == 36 && w == 4) return list ? scan_f4_w4_list : scan_f4_w4;
  if (mode == 1 && w == 1) return list ? scan_b1_w1_list : scan_b1_w1;
  if (mode == 2 && w == 1) return list ? scan_b2_w1_list : scan_b2_w1;
  if (mode == 2 && w == 2) return list ? scan_b2_w2_list : scan_b2_w2;
  if (mode == 4 && w == 2) return list ? scan_b4_w2_list : scan_b4_w2;
  if (mode == 4 && w == 4) return list ? scan_b4_w4_list : scan_b4_w4;
  shared = true;
  switch (mode) {
    case 1: return list ? scan_b1_list : scan_b1;
    case 2: return list ? scan_b2_list : scan_b2;
    case 4: return list ? scan_b4_list : scan_b4;
    case 8: return list ? scan_b8_list : scan_b8;
    default: return list ? scan_table_list : scan_table;
  }
}
