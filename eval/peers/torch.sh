#!/usr/bin/env bash
# plaid_ir.torch on a machine with an NVIDIA GPU: its own tests, the tests of the packages that it stands in for,
# and figures beside these packages. Results are written as they come, and a step that fails stops no other.
#
#   eval/peers/torch.sh FOLDER OUT [STEP...]      steps: tests suites launch training forward head chamfer rank
#
# Tests and suites take 250 seconds at most. The figures take some 240, and 335 at most: the others' kernels are
# compiled before, for 90 seconds at most; in one call with the tests, while these run.
#
# FOLDER has libplaid_maxsim.so and, where packages cannot be fetched, wheels of late-interaction-kernels,
# flash-maxsim and pytest with what it needs, and the source archives of the first two (python/tests/maxsim/suites).
# Python (PYTHON, python3) has to have PyTorch with CUDA and Triton. With PLAID_TORCH_DEVICE=cpu small shapes run.
set -uo pipefail
usage="usage: torch.sh FOLDER OUT [tests|suites|launch|training|forward|head|chamfer|rank]..."
[ $# -ge 2 ] || { echo "$usage" >&2 && exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "$1") out=$(mkdir -p "$2" && realpath "$2")
shift 2
[ $# -gt 0 ] || set -- tests suites launch training forward head chamfer rank
python=${PYTHON:-python3}
export PLAID_MAXSIM_LIBRARY=${PLAID_MAXSIM_LIBRARY:-$folder/libplaid_maxsim.so}
export PYTHONUNBUFFERED=1 PYTHONPATH=$root/python/src PLAID_TORCH_DEVICE=${PLAID_TORCH_DEVICE:-cuda}
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 # of plugins that the machine happens to have
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '%s\n' "$*" | tee -a "$out/log"; }

figures=()
for step; do
  case $step in
  tests | suites) ;;
  launch | training | forward | head | chamfer | rank) figures+=("$step") ;;
  *) echo "no step $step; $usage" >&2 && exit 2 ;;
  esac
done

wheels=("$folder"/*.whl)
if [ -e "${wheels[0]}" ]; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$work/site" \
    "${wheels[@]}" >>"$out/log" 2>&1 || say "the wheels of $folder cannot be installed"
  PYTHONPATH+=:$work/site
fi
timeout 60 "$python" - 2>&1 <<'P' | tee -a "$out/log"
import torch, triton
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print("torch", torch.__version__, "triton", triton.__version__, device)
import plaid_ir.torch
print("plaid on the processor:", plaid_ir.torch.backend())
P

limited() { # SECONDS NAME COMMAND...
  local seconds=$1 name=$2 begin=$SECONDS rc=0
  shift 2
  timeout -k 5 "$seconds" "$@" >"$work/$name" 2>&1 || rc=$?
  cat "$work/$name" >>"$out/log"
  tail -n 25 "$work/$name"
  say "=== $name: status $rc after $((SECONDS - begin)) s, $SECONDS s since the start"
}

tests() { # a process for each file: an error of the device ends the use of it by a process
  local file name running=()
  for file in "$root"/python/tests/maxsim/test_*.py; do
    name=$(basename "$file" .py)
    [ "$name" != test_losses ] || continue
    limited 110 "$name" "$python" -m pytest -v --tb=short -p no:cacheprovider "$file" &
    running+=($!)
  done
  wait "${running[@]}"
}

part() { # NAME SECONDS: after these no row begins; the last one, and the start of Python, take some more
  wait ${warm[@]+"${warm[@]}"}
  warm=()
  limited $(($2 * 4 / 3 + 10)) "$1" "$python" "$root/eval/peers/dense_torch.py" "$1" "$out/figures.jsonl" "$2"
}

warm=()
for step in ${figures[@]+"${figures[@]}"}; do
  timeout -k 5 90 "$python" "$root/eval/peers/dense_torch.py" warm "$step" >"$work/warm-$step" 2>&1 &
  warm+=($!)
done

for step; do
  case $step in
  tests) tests ;;
  suites)
    limited 130 suites "$python" "$root/python/tests/maxsim/suites/run.py" --device "$PLAID_TORCH_DEVICE" \
      --archives "$folder" --seconds 110
    ;;
  launch) part launch 12 ;;
  training) part training 35 ;;
  forward) part forward 45 ;;
  head) part head 15 ;;
  chamfer) part chamfer 20 ;;
  rank) part rank 10 ;;
  esac
done
for step in ${figures[@]+"${figures[@]}"}; do
  say "compiled before $step: $(grep -c '^warm' "$work/warm-$step") rows; $(tail -n 1 "$work/warm-$step")"
done
if [ -e "$out/figures.jsonl" ]; then
  "$python" "$root/eval/peers/dense_torch.py" report "$out/figures.jsonl" | tee "$out/figures.md"
fi
