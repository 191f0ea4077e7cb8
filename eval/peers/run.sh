#!/usr/bin/env bash
# Measures plaid beside other engines: see README.md.
#
#   eval/peers/run.sh DATA WORK [PATTERN...]
#   eval/peers/run.sh model ORG/NAME|FOLDER WORK [FLAG...]
set -euo pipefail

if [[ ${1:-} == model ]]; then
  exec "$(dirname "$0")/model.sh" "${@:2}"
fi

usage="usage: run.sh DATA WORK [PATTERN...]    (eval/peers/README.md)"
data=$(realpath "${1:?$usage}")
mkdir -p "${2:?$usage}"
work=$(realpath "$2")
shift 2
patterns=("$@")
here=$(cd "$(dirname "$0")" && pwd)
python=$work/venv/bin/python
rust=$work/target/release/peers-bench
core=${CORE:-$(($(nproc) - 1))}
mkdir -p "$work/results" "$work/index" "$work/data"

# DATA/NAME has the files, or DATA/NAME/vectors, as eval/beir/vectors.sh makes them.
given=$data data=$work/data
for c in cranfield scifact; do
  for from in "$given/$c" "$given/$c/vectors"; do
    [[ -e $from/docs.npy ]] && ln -sfn "$from" "$data/$c"
  done
done

collections=()
shapes=()
for c in cranfield=4096 scifact=16384; do
  if [[ -e $data/${c%=*}/docs.npy ]]; then
    collections+=("${c%=*}")
    shapes+=("${c%=*}=$data/${c%=*}=${c#*=}")
  fi
done

# step NAME COMMAND...: runs a step that has no result yet or is asked for.
step() {
  local name=$1 asked= p
  shift
  for p in "${patterns[@]}"; do
    # shellcheck disable=SC2053
    [[ $name == $p ]] && asked=1
  done
  if [[ -n $asked || (${#patterns[@]} == 0 && ! -e $work/results/$name.json) ]]; then
    echo "run.sh: $name" >&2
    "$@"
  fi
}

# measured NAME COMMAND...: all processors. pinned NAME COMMAND...: one.
measured() { python3 "$here/measure.py" "$work/results/$1.json" "${@:2}" 2>>"$work/log"; }
pinned() {
  measured "$1" env RAYON_NUM_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
    taskset -c "$core" "${@:2}"
}
done_with() { echo '{}' >"$work/results/$1.json"; }

install() {
  python3 -m venv "$work/venv"
  "$python" -m pip install -q -r "$here/requirements.txt"
  done_with install
}
compile_peers() {
  RUSTFLAGS="-C target-cpu=native" CARGO_TARGET_DIR=$work/target \
    cargo build -q --release --locked --manifest-path "$here/rust/Cargo.toml"
  done_with compile.peers
}
compile_plaid() {
  (cd "$here/../.." && go build -o "$work/plaid" ./cmd/plaid && go build -o "$work/plaid-bench" ./eval/peers/plaidbench)
  done_with compile.plaid
}

build() { # COLLECTION ENGINE NBITS
  local name=build.$1.$2.$3 in=$data/$1 out=$work/index/$1.$2.$3
  rm -rf "$out"
  case $2 in
  plaid) measured "$name" "$work/plaid" index "$out" --vectors "$in/docs.npy" --lengths "$in/doclens.npy" \
    --ids "$in/doc_ids.txt" --nbits "$3" --json ;;
  next-plaid) measured "$name" "$rust" build "$in" "$out" "$3" ;;
  *) measured "$name" "$python" "$here/engines.py" build "$2" "$in" "$out" "$3" ;;
  esac
}
search() { # COLLECTION ENGINE NBITS HOW
  local name=search.$1.$2.$3.$4 in=$data/$1 index=$work/index/$1.$2.$3
  case $2.$4 in
  plaid.*) pinned "$name" "$work/plaid-bench" search "$in" "$index" 100 20 ;;
  next-plaid.default) pinned "$name" "$rust" search "$in" "$index" 100 8 4096 20 ;;
  next-plaid.narrow) pinned "$name" "$rust" search "$in" "$index" 100 4 1024 20 ;;
  *.default) pinned "$name" "$python" "$here/engines.py" search "$2" "$in" "$index" 100 20 ;;
  xtr-warp.wide) pinned "$name" "$python" "$here/engines.py" search "$2" "$in" "$index" 100 20 32 2048 ;;
  esac
}
throughput() { # COLLECTION ENGINE NBITS: all queries at once, all processors
  local name=throughput.$1.$2.$3 in=$data/$1 index=$work/index/$1.$2.$3
  case $2 in
  plaid) measured "$name" "$work/plaid-bench" throughput "$in" "$index" 100 10 ;;
  next-plaid) measured "$name" "$rust" throughput "$in" "$index" 100 8 4096 10 ;;
  esac
}

approximate() { # COLLECTION
  pinned "kernels.approx.$1" "$rust" approx "$1" "$data/$1" "$work/index/$1.next-plaid.2"
}

step install install
step compile.peers compile_peers
step compile.plaid compile_plaid
for round in 1 2 3; do # turn by turn, so that all meet the same moods of the machine
  step "kernels.plaid.$round" pinned "kernels.plaid.$round" "$work/plaid-bench" kernels "${shapes[@]}"
  step "kernels.next-plaid.$round" pinned "kernels.next-plaid.$round" "$rust" kernels "${shapes[@]}"
  step "kernels.python.$round" pinned "kernels.python.$round" "$python" "$here/libraries.py" "${shapes[@]}"
done
for c in "${collections[@]}"; do
  for engine in plaid next-plaid xtr-warp fast-plaid; do
    [[ $c.$engine == scifact.fast-plaid ]] && continue # seconds a query
    for nbits in 2 4; do
      [[ $engine =~ ^(xtr-warp|fast-plaid)$ && $nbits == 2 ]] && continue
      step "build.$c.$engine.$nbits" build "$c" "$engine" "$nbits"
      step "search.$c.$engine.$nbits.default" search "$c" "$engine" "$nbits" default
    done
  done
  for engine in plaid next-plaid; do
    for nbits in 2 4; do
      step "throughput.$c.$engine.$nbits" throughput "$c" "$engine" "$nbits"
    done
  done
  step "search.$c.next-plaid.4.narrow" search "$c" next-plaid 4 narrow
  step "search.$c.xtr-warp.4.wide" search "$c" xtr-warp 4 wide
  step "kernels.approx.$c" approximate "$c"
done
python3 "$here/report.py" "$data" "$work"
