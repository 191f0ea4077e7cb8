#!/usr/bin/env bash
# Builds the device code into ../module, of plaid.cu, dense/dense.cu and
# encoder/encoder.cu: PTX for compute_80, which a driver compiles for any newer device,
# and a cubin for each architecture below. Needs python3 with venv, gzip, and a host C++ compiler; the CUDA
# compiler comes as Python wheels of pinned versions into a throw-away folder.
#
#   build.sh           rebuild ../module
#   build.sh --check   rebuild elsewhere and compare byte for byte
#
# NVCC=/path/to/nvcc uses that compiler instead; its output may differ.
set -euo pipefail
cd "$(dirname "$0")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z ${NVCC:-} ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check \
    nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
  NVCC=$(echo "$work"/venv/lib/python*/site-packages/nvidia/cu13/bin/nvcc)
fi
out=$work/module
mkdir "$out"

# The sources are named by a relative path, so nothing of this machine is recorded.
flags=(-std=c++17 -O3 --fmad=true)
for source in plaid.cu dense/dense.cu encoder/encoder.cu; do
  name=$(basename "$source" .cu)
  "$NVCC" "${flags[@]}" -arch=compute_80 -ptx -o "$work/${name}_80.ptx" "$source"
  sed -i '/^\/\/ .*Based on\|^\/\/ Compiler Build ID/d' "$work/${name}_80.ptx"
  gzip -9n <"$work/${name}_80.ptx" >"$out/${name}_80.ptx.gz"
  for arch in 80 86 89 90a 100 120; do
    extra=()
    [[ $arch == 90a ]] && extra=(-DPLAID_SM90A)
    "$NVCC" "${flags[@]}" "${extra[@]}" -arch=sm_$arch -cubin -o "$work/${name}_$arch.cubin" "$source"
    gzip -9n <"$work/${name}_$arch.cubin" >"$out/${name}_$arch.cubin.gz"
  done
done

if [[ ${1:-} == --check ]]; then
  diff -r -x "*.go" "$out" ../module && echo "module is what the sources give"
else
  mkdir -p ../module
  rm -f ../module/*.gz
  cp "$out"/* ../module/
  ls -l ../module
fi
