// encoder.cu: checks the text encoder's kernels and times them, alone and as models
// with random weights.
//   nvcc -std=c++17 -O3 -DPLAID_SM90A -gencode=arch=compute_90a,code=sm_90a -o encoder encoder.cu
#include "encoder_models.cuh"

int main(int argc, char **argv) {
  if (argc < 2 || *argv[1] == *"check") check_all();
  if (argc > 1 && *argv[1] == *"check") return faults != 0;
  const Sizes mini{"6 x 384", 384, 12, 1536, 6, false, 12}, base{"BERT base", 768, 12, 3072, 12, false, 3}, modern{"ModernBERT base", 768, 12, 1152, 22, true, 1.8};
  for (const Sizes &s : {mini, base, modern}) questions(s);
  for (const Sizes &s : {mini, base, modern}) whole(s, {16384, 65536});
  std::printf("%d faults\n", faults);
  return faults != 0;
}
