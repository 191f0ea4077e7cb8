#!/usr/bin/env bash
# Checks and measures the search on this machine's first GPU: what docs/lab/kernels.md says
# comes from one run of it. It takes about eight minutes, most of them to build an
# index of 50 million tokens.
#
#   CGO_ENABLED=0 go test -c -o BIN/compressed.test ./kernels/cuda/internal/compressed
#   CGO_ENABLED=0 go test -c -o BIN/cuda.test ./kernels/cuda
#   CGO_ENABLED=0 go build -tags noonnxruntime -o BIN/plaid ./cmd/plaid
#   kernels/cuda/measure.sh BIN INDEX QUERIES.npy OUT
#
# INDEX is an index of real vectors, which is grown to other sizes: its documents, and
# behind them documents drawn from it, with noise of half its length on each vector
# (as cmd/studies/growthnoise.go does). QUERIES.npy is 300 queries of 32 vectors, float16. Nothing
# else is needed on the machine but the driver.
set -u
bin=$(realpath "$1") index=$(realpath "$2") queries=$(realpath "$3") out=$(realpath "$4")
modules=$(realpath "$(dirname "$0")/module")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Tests of a family read the device code from ../../module.
mkdir -p "$work/internal/compressed" "$work/grown" && ln -s "$modules" "$work/module"
export PLAID_INDEX=$index PLAID_QUERIES=$queries PLAID_GROWN=$work/grown
cd "$work/internal/compressed"
begin=$(date +%s)
step() { echo "== $* (at $(($(date +%s) - begin)) s)"; }
compressed() { timeout "$1" "$bin/compressed.test" "${@:2}"; }
cuda() { timeout "$1" "$bin/cuda.test" "${@:2}"; }

{
  date; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; nproc
  step SciFact\'s size
  PLAID_GROWN_MILLIONS=1.221388 cuda 60 -test.run GPUGrown -test.v -test.bench GPUEngine -test.benchtime 1s
  step fine scores alone, and random bytes of that size
  compressed 60 -test.run - -test.bench 'GPUFine|GPUSearch/scifact' -test.benchtime 0.5s
} >"$out/small.log" 2>&1
{
  # Nothing is timed here: all of it at once.
  PLAID_GROWN_MILLIONS=50 cuda 280 -test.run GPUGrown -test.v &
  step a minute of 64 goroutines, long documents, device code that the driver compiles, 10,000 shapes
  PLAID_GPU_STRESS=60 compressed 90 -test.run TestGPUStress -test.v &
  compressed 90 -test.run 'TestGPULong|TestGPUFollows' -test.v &
  PLAID_CUDA_CODE=ptx PLAID_GPU_SHAPES=40 compressed 90 -test.run TestGPUAgainstOracle -test.v &
  n=$(($(nproc) > 8 ? $(nproc) - 4 : 4))
  for seed in $(seq 2 $((n + 1))); do
    PLAID_GPU_SEED=$seed PLAID_GPU_SHAPES=$((10000 / n + 1)) compressed 280 -test.run TestGPUAgainstOracle -test.v &
  done
  wait
  step a device that is full, and several, where there are
  compressed 30 -test.run 'TestGPUOutOfMemory' -test.v
  cuda 60 -test.run 'GPUSeveral|GPUKeepsUp' -test.v
} >"$out/check.log" 2>&1
{
  step 50 million tokens
  PLAID_GROWN_MILLIONS=50 cuda 90 -test.run - -test.bench GPUEngine -test.benchtime 0.5s
  step the command, 6,000 queries of a file
  head=$(head -c 128 "$queries" | tr -d '\n\0' | LC_ALL=C sed -n "s/.*(300, \(.*\)), }.*/\1/p")
  {
    printf '\x93NUMPY\x01\x00v\x00%-117s\n' "{'descr': '<f2', 'fortran_order': False, 'shape': (6000, $head), }"
    for _ in $(seq 20); do tail -c +129 "$queries"; done
  } >"$work/many.npy"
  for k in 100 10; do
    time timeout 60 "$bin/plaid" search "$work/grown/50000000.plaid" --queries "$work/many.npy" --device cuda:0 -k $k --stats >"$work/run" 2>"$work/stats"
    wc -l <"$work/run"
    cat "$work/stats"
  done
} >"$out/large.log" 2>&1
{
  step random bytes
  [[ $(nvidia-smi -L | wc -l) -gt 1 ]] || rm -f "$work/grown/50000000.plaid"
  compressed 60 -test.run - -test.bench 'GPUSearch/1M-docs/(one|batch|probe)' -test.benchtime 0.5s
  compressed 120 -test.run - -test.bench 'GPUSearch/600M' -test.benchtime 3x
} >"$out/synthetic.log" 2>&1
if [[ $(nvidia-smi -L | wc -l) -gt 1 ]]; then
  step two devices
  for millions in 1.221388 50; do
    PLAID_GPU=cuda:0,cuda:1 PLAID_GROWN_MILLIONS=$millions cuda 60 -test.run - -test.bench 'GPUEngine/.*/batch=(1|300)$' -test.benchtime 0.5s
  done
fi >"$out/two.log" 2>&1
grep -hE '^==|--- (PASS|FAIL)|Benchmark.*ns/op|gpu_.*test.go|panic|rror' "$out"/*.log
