#!/usr/bin/env bash
# Checks and measures the search on this machine's GPUs: what docs/lab/gpu.md says
# comes from one run of it. It takes about five minutes, most of them to build an
# index of 50 million tokens.
#
#   CGO_ENABLED=0 go test -c -o BIN/compressed.test ./kernels/cuda/internal/compressed
#   CGO_ENABLED=0 go test -c -o BIN/cuda.test ./kernels/cuda
#   kernels/cuda/measure.sh BIN INDEX QUERIES.npy OUT
#
# INDEX is an index of real vectors, which is grown to other sizes: its documents, and
# behind them documents drawn from it, with noise of half its length on each vector
# (as studies/growth does). Nothing else is needed on the machine but the driver.
set -u
bin=$(realpath "$1") index=$(realpath "$2") queries=$(realpath "$3") out=$(realpath "$4")
modules=$(realpath "$(dirname "$0")/module")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Tests of a family read the device code from ../../module.
mkdir -p "$work/internal/compressed" "$work/grown" && ln -s "$modules" "$work/module"
export PLAID_INDEX=$index PLAID_QUERIES=$queries PLAID_GROWN=$work/grown
cd "$work/internal/compressed"
step() { echo "== $*"; }
compressed() { timeout "$1" "$bin/compressed.test" "${@:2}"; }
cuda() { timeout "$1" "$bin/cuda.test" "${@:2}"; }

{
  step oracle
  PLAID_GPU_SHAPES=250 compressed 60 -test.run 'TestGPUAgainstOracle|TestGPULong|TestGPUFollows' -test.v
  step stress
  PLAID_GPU_STRESS=3 compressed 30 -test.run 'TestGPUStress|TestGPUOutOfMemory' -test.v
  step several devices, where there are
  cuda 60 -test.run 'GPUSeveral|GPUKeepsUp' -test.v
} >"$out/check.log" 2>&1
{
  step SciFact\'s size
  PLAID_GROWN_MILLIONS=1.221388 cuda 60 -test.run GPUGrown -test.v -test.bench GPUEngine -test.benchtime 1s
  step 50 million tokens
  PLAID_GROWN_MILLIONS=50 cuda 300 -test.run GPUGrown -test.v -test.bench GPUEngine -test.benchtime 1s
} >"$out/grown.log" 2>&1
{
  step two devices
  PLAID_GPU=cuda:0,cuda:1 PLAID_GROWN_MILLIONS=50 cuda 60 -test.run - -test.bench 'GPUEngine/.*/batch=(1|300)$' -test.benchtime 0.5s
  PLAID_GPU=copies:cuda:0,cuda:1 PLAID_GROWN_MILLIONS=1.221388 cuda 60 -test.run - -test.bench 'GPUEngine/exhaustive/batch=300$' -test.benchtime 0.5s
} >"$out/two.log" 2>&1
{
  step random bytes
  compressed 60 -test.run - -test.bench 'GPUSearch/(scifact|1M-docs/(one|batch|probe))' -test.benchtime 0.5s
  compressed 120 -test.run - -test.bench 'GPUSearch/600M' -test.benchtime 3x
} >"$out/synthetic.log" 2>&1
{
  step a minute of 64 goroutines, 10,000 shapes, and device code that the driver compiles
  PLAID_GPU_STRESS=60 compressed 90 -test.run TestGPUStress -test.v &
  PLAID_CUDA_CODE=ptx PLAID_GPU_SHAPES=40 compressed 90 -test.run TestGPUAgainstOracle -test.v &
  n=$(($(nproc) > 4 ? $(nproc) - 4 : 1))
  for seed in $(seq 2 $((n + 1))); do
    PLAID_GPU_SEED=$seed PLAID_GPU_SHAPES=$((10000 / n + 1)) compressed 300 -test.run TestGPUAgainstOracle -test.v &
  done
  wait
} >"$out/many.log" 2>&1
grep -hE '^==|--- (PASS|FAIL)|Benchmark.*ns/op|gpu_.*test.go' "$out"/*.log
