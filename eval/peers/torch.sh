#!/usr/bin/env bash
# plaid_ir.torch on a machine with an NVIDIA GPU: its own tests, the tests of the packages that it stands in for,
# and figures beside these packages. Takes six minutes at most; results are written as they come.
#
#   eval/peers/torch.sh FOLDER OUT [STEP...]      steps: tests suites launch training forward head chamfer rank
#
# FOLDER has libplaid_maxsim.so and, where packages cannot be fetched, wheels of late-interaction-kernels,
# flash-maxsim and pytest with what it needs, and the source archives of the first two (python/tests/torch/suites).
# Python (PYTHON, python3) has to have PyTorch with CUDA and Triton.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "$1") out=$(mkdir -p "$2" && realpath "$2")
shift 2
python=${PYTHON:-python3}
export PLAID_MAXSIM_LIBRARY=${PLAID_MAXSIM_LIBRARY:-$folder/libplaid_maxsim.so}
export PYTHONUNBUFFERED=1 PYTHONPATH=$root/python/src PLAID_TORCH_DEVICE=${PLAID_TORCH_DEVICE:-cuda}
wheels=("$folder"/*.whl)
if [ -e "${wheels[0]}" ]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" "${wheels[@]}" || exit
  PYTHONPATH+=:$site
fi
"$python" -c 'import torch, triton; print(torch.cuda.get_device_name(), torch.__version__, triton.__version__)' | tee -a "$out/log"

limited() { # SECONDS NAME COMMAND...
  local seconds=$1 name=$2 begin=$SECONDS rc=0
  shift 2
  timeout "$seconds" "$@" >>"$out/log" 2>&1 || rc=$?
  tail -n 12 "$out/log"
  echo "=== $name: status $rc after $((SECONDS - begin)) s" | tee -a "$out/log"
}

figures() { # PART SECONDS: the last row that begins may take a third of the time more
  warmed
  limited $(($2 * 4 / 3)) "$1" "$python" "$root/eval/peers/dense_torch.py" "$1" "$out/figures.jsonl" "$2"
}

# While tests run, the others' kernels are compiled.
warm=()
case " ${*:-tests} " in *" tests "* | *" suites "*)
  for part in forward training head chamfer; do
    timeout 170 "$python" "$root/eval/peers/dense_torch.py" warm $part >/dev/null 2>&1 &
    warm+=($!)
  done
  ;;
esac
warmed() {
  wait ${warm[@]+"${warm[@]}"}
  warm=()
}

for step in ${*:-tests suites launch training forward head chamfer rank}; do
  case $step in
  tests) limited 60 tests "$python" -m pytest -v --tb=short -p no:cacheprovider --ignore-glob="*test_losses.py" --ignore-glob="*suites*" "$root/python/tests/torch" ;;
  suites) limited 90 suites "$python" "$root/python/tests/torch/suites/run.py" --device cuda --archives "$folder" ;;
  launch) figures launch 15 ;;
  training) figures training 40 ;;
  forward) figures forward 50 ;;
  head) figures head 15 ;;
  chamfer) figures chamfer 20 ;;
  rank) figures rank 10 ;;
  *) echo "no step $step" >&2 && exit 2 ;;
  esac
done
[ ! -e "$out/figures.jsonl" ] || "$python" "$root/eval/peers/dense_torch.py" report "$out/figures.jsonl" | tee "$out/figures.md"
