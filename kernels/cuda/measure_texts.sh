#!/usr/bin/env bash
# Checks and measures the way from texts to an index and from questions to hits on this
# machine's first GPU: what docs/benchmarks.md says of it comes from one run.
#
#   kernels/cuda/measure_texts.sh prepare [SHARED]   # where Go is: makes .card, which git ignores
#   kernels/cuda/measure_texts.sh run OUT            # where the GPU is: it needs .card, python3 and numpy
#
# prepare takes models and collections from SHARED (../shared), and computes nDCG@10 in float32
# on this machine's processor; that takes some minutes, and is kept. A run takes about two
# minutes. What is checked runs side by side, what is timed runs alone. Steps end by themselves,
# and none begins after PLAID_MEASURE_SECONDS (130). For a rehearsal without a GPU there are
# PLAID_MEASURE_DEVICE (cuda:0) and PLAID_MEASURE_PASSAGES (267546).
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
card=$root/.card
helper=$root/kernels/cuda/measure_texts.py
nano=$root/docs/examples/quickstart/colbert-nano
sample=$root/docs/examples/quickstart/scifact-sample

prepare() {
  set -e
  local shared
  shared=$(realpath "${1:-$root/../shared}")
  cd "$root"
  local exclude
  exclude=$(git rev-parse --git-path info/exclude)
  mkdir -p "$(dirname "$exclude")"
  grep -qsxF /.card/ "$exclude" || echo /.card/ >>"$exclude"
  mkdir -p "$card"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/bin" "$work/data"
  export CGO_ENABLED=0
  local flags=(-trimpath -ldflags '-s -w')
  go build "${flags[@]}" -tags noonnxruntime -o "$work/bin/plaid" ./cmd/plaid
  go test -c "${flags[@]}" -o "$work/bin/cuda.test" ./kernels/cuda
  for p in encoder compressed nearest; do
    go test -c "${flags[@]}" -o "$work/bin/$p.test" "./kernels/cuda/internal/$p"
  done
  for c in scifact cranfield cosqa arguana; do
    mkdir -p "$work/data/$c/qrels"
    cp "$shared/data/$c/corpus.jsonl" "$shared/data/$c/queries.jsonl" "$work/data/$c"
    cp "$shared/data/$c/qrels/$(split_of $c).tsv" "$work/data/$c/qrels"
  done
  # One archive: the device code is in two programs, and packed once.
  tar -C "$work" -cf - bin data | xz -T1 --lzma2=preset=6,dict=64MiB >"$card/all.tar.xz"
  if [[ ! -s $card/f32.tsv ]]; then
    for c in scifact cranfield cosqa arguana; do
      judge "$work/bin/plaid" "$work/data/$c" "$nano" cpu >"$work/judged"
      echo "$c $(sed -n 's/.*"nDCG@10":\([0-9.]*\).*/\1/p' "$work/judged")" | tee -a "$work/f32"
    done
    mv "$work/f32" "$card/f32.tsv"
  fi
  local tree packed
  tree=$(git ls-files -co --exclude-standard -z | du -cb --files0-from=- | tail -n 1 | cut -f 1)
  packed=$(du -sb "$card" | cut -f 1)
  echo "the working tree has $((tree >> 20)) MiB, .card $((packed >> 20)): $(((tree + packed) >> 20)) of 64"
  ((tree + packed < 63 << 20))
}

split_of() { [[ $1 == cosqa ]] && echo dev || echo test; }

# judge PLAID COLLECTION MODEL DEVICE [FLAG…]
judge() {
  local name own=()
  name=$(basename "$2")
  [[ $name == arguana ]] && own=(--exclude-self)
  "$1" beir "$2" --model "$3" --device "$4" --split "$(split_of "$name")" "${own[@]}" --nbits 8 --exhaustive --measures nDCG@10 --json -q "${@:5}"
}

run() {
  mkdir -p "$1" && rm -f "$1"/*.log
  out=$(realpath "$1")
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  begin=$(date +%s%N)
  device=${PLAID_MEASURE_DEVICE:-cuda:0}
  seconds=${PLAID_MEASURE_SECONDS:-130}
  export CARD=$card PLAID_DEVICE=
  [[ $device == cuda:* ]] && export PLAID_REQUIRE_GPU=1
  {
    date
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    nproc
    python3 "$helper" unpack "$card/all.tar.xz" "$work"
  } >"$out/summary.log" 2>&1
  bin=$work/bin data=$work/data plaid=$work/bin/plaid wide=$work/wide
  checks
  timed
  # Steps that measure something else go here.
  {
    echo "== all of it: $(now) s"
    grep -hE '^==|^--|^(---|===) (PASS|FAIL)|nDCG|equal|DIFFER|docs.npy|ended with|resumed|time:|ru_maxrss|Benchmark.*ns/op|gpu.*_test.go|texts:|panic|[Ee]rror' "$out"/{encoder,collections,builds,search,timed}.log
  } >>"$out/summary.log" 2>&1
  cat "$out/summary.log"
}

now() { echo "$((($(date +%s%N) - begin) / 1000000))e-3" | awk '{printf "%.1f", $1}'; }

# step LOG SECONDS NAME COMMAND… runs a command for at most so long, and no longer than there is time.
step() {
  local log=$out/$1.log most=$2 name=$3 start left
  shift 3
  start=$(now)
  left=$(awk "BEGIN {l = $seconds - $start; print int(l < $most ? l : $most)}")
  echo "== $name (at $start s, for at most $left)" >>"$log"
  if ((left < 2)); then
    echo "-- left out" >>"$log"
    return
  fi
  timeout -k 2 "$left" "$@" >>"$log" 2>&1
  echo "-- exit $?, $(awk "BEGIN {printf \"%.1f\", $(now) - $start}") s: $name" >>"$log"
}

# of FAMILY TEST-FLAG… runs the tests of a family of kernels where they find the device code.
of() (cd "$root/kernels/cuda/internal/$1" && exec "$bin/$1.test" "${@:2}")
export -f of judge split_of

# checks runs side by side: nothing of it is timed.
checks() {
  export root bin plaid data work device wide nano sample helper
  python3 "$helper" wide "$nano" "$wide" >>"$out/summary.log" 2>&1
  encoder_checks &
  collections &
  builds &
  searches &
  step builds 45 'passages' python3 "$helper" passages "$data/scifact/corpus.jsonl" "$work/passages.jsonl" "${PLAID_MEASURE_PASSAGES:-267546}" &
  wait
}

encoder_checks() {
  export PLAID_GPU_TEXTS=$data/scifact
  local golden=$root/encode/testdata/golden
  export PLAID_GPU_MODELS=$nano:$golden/xlmr:$golden/xlmr-rotary:$golden/sentence-modernbert
  step encoder 45 'kernels of the encoder, models and texts' bash -c \
    'of encoder -test.run "GPU(Against|SameBits|NotFinite|Memory|Encodes)" -test.v'
}

# nDCG@10 of collections, of the narrow and of the wide model, beside the processor's float32.
collections() {
  mkdir -p "$work/beir" "$work/cranfield"
  local c
  for c in scifact cosqa arguana; do
    step collections 42 "$c" bash -c "judge \$plaid \$data/$c \$nano \$device >\$work/beir/$c" &
  done
  step collections 42 'cranfield' bash -c 'judge $plaid $data/cranfield $nano $device --index $work/cranfield/x.plaid >$work/beir/cranfield'
  step collections 20 'scifact, 6 × 384' bash -c 'judge $plaid $data/scifact $wide $device >$work/beir/scifact-wide'
  wait
  step collections 5 'nDCG@10' python3 "$helper" measures "$work/beir"
}

# A build without a spool, one of a spool, and one that was killed and went on: one content.
builds() {
  local how=(--text "$data/scifact/corpus.jsonl" --model "$nano" --nbits 4 --memory 64MiB --no-check --device "$device" -q) i
  step builds 30 'index of a spool' "$plaid" index "$work/spool.plaid" "${how[@]}" --spool "$work/spool" &
  step builds 30 'index without one' "$plaid" index "$work/streamed.plaid" "${how[@]}" &
  step builds 30 'index for questions' "$plaid" index "$work/nano.plaid" --text "$data/scifact/corpus.jsonl" --model "$nano" --device "$device" -q &
  for i in 1 2; do
    step builds 10 "vectors of the sample, $i" bash -c "\$plaid encode \$sample/corpus.jsonl --model \$nano --device \$device -o \$work/v$i -q && sha256sum \$work/v$i/docs.npy" &
  done
  step builds 30 'index that is killed' python3 "$helper" killed "$work/killed.plaid" $((40 << 20)) "$plaid" index "$work/killed.plaid" "${how[@]}"
  step builds 30 'index that goes on' "$plaid" index "$work/killed.plaid" "${how[@]}"
  wait
  step builds 5 'digests' bash -c '
    for i in spool streamed killed; do "$plaid" info "$work/$i.plaid" | grep "^digest" | sed "s/^/$i /"; done | tee "$work/digests"
    [[ $(awk "{print \$NF}" "$work/digests" | sort | uniq -c | awk "{print \$1}") == 3 ]] && echo "equal" || echo "DIFFERENT"'
}

# The search of compressed tokens, nearest centroids, and a real collection.
searches() {
  step search 60 'search, random shapes' env PLAID_GPU_SHAPES=25 bash -c 'of compressed -test.run "GPU(AgainstOracle|FollowsTheIndex|LongDocuments)" -test.v'
  step search 20 'nearest centroids and residuals' env PLAID_GPU_SHAPES=20 bash -c 'of nearest -test.run GPU -test.v'
  for _ in $(seq 30); do
    [[ -s $work/beir/cranfield ]] && break
    sleep .5
  done
  step search 10 'queries of Cranfield' "$plaid" encode "$data/cranfield/queries.jsonl" --queries --model "$nano" -o "$work/cranfield" -q
  step search 25 'Cranfield' env PLAID_CRANFIELD="$work/cranfield/x.plaid" "$bin/cuda.test" -test.run 'GPU(Cranfield|KeepsUp|SeveralDevices)' -test.v
}

# timed runs one by one.
timed() {
  local i m
  for i in 1 2; do
    step timed 15 "SciFact to an index, 6 × 384, $i" python3 "$helper" used "$plaid" index "$work/wide.plaid" --force --text "$data/scifact/corpus.jsonl" --model "$wide" --device "$device"
  done
  step timed 60 'passages to an index, 4 × 192, a gibibyte' python3 "$helper" used "$plaid" index "$work/passages.plaid" --text "$work/passages.jsonl" --model "$nano" --memory 1GiB --device "$device"
  for m in nano wide; do
    step timed 10 "questions, $m" env PLAID_QUESTION_INDEX="$work/$m.plaid" PLAID_QUESTION_MODEL="${!m}" PLAID_QUESTIONS="$data/scifact/queries.jsonl" \
      "$bin/cuda.test" -test.run - -test.bench GPUQuestion -test.benchtime 3000x
  done
  step timed 20 'ids to vectors, random weights' env PLAID_LONG=1 bash -c 'of encoder -test.run GPUSpeed -test.v'
}

case ${1:-} in
prepare) prepare "${@:2}" ;;
run) run "${2:?OUT}" ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
