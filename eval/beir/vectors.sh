#!/usr/bin/env bash
# Makes the vectors of a BEIR collection, as the benchmarks of this repository read them:
#
#   eval/beir/vectors.sh COLLECTION MODEL OUT [FLAG…]
#
# COLLECTION is scifact, nfcorpus, arguana or fiqa, which is fetched from BEIR's server and compared
# with the checksum that BEIR publishes, or a folder in BEIR's layout (corpus.jsonl, queries.jsonl,
# qrels/test.tsv). MODEL is a model's folder: one from the Hugging Face hub, or
# docs/examples/quickstart/colbert-nano. FLAG… are those of plaid encode, such as --precision int8.
#
# OUT gets the texts and judgements, and in OUT/vectors: docs.npy, doclens.npy, doc_ids.txt,
# queries.npy, querylens.npy, query_ids.txt (judged queries only), qrels.tsv, and exact-top100.tsv,
# the best hundred by exact MaxSim. A run that was interrupted goes on where it was.
#
# Needs Go; to fetch, curl and python3 (which unpacks).
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
collection=$1 model=$2 out=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out/vectors"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT INT TERM
plaid=${PLAID:-$temporary/plaid}
if [ -z "${PLAID:-}" ]; then
  (cd "$root" && go build -o "$plaid" ./cmd/plaid)
fi

checksum() { # MD5 of the archive, as BEIR's list has it
  case $1 in
  scifact) echo 5f7d1de60b170fc8027bb7898e2efca1 ;;
  nfcorpus) echo a89dba18a62ef92f7d323ec890a0d38d ;;
  arguana) echo 8ad3e3c2a5867cdced806d6503f29b99 ;;
  fiqa) echo 17918ed23cd04fb15047f73e6c3bd9d9 ;;
  *)
    echo "vectors.sh: $1 is neither a folder nor one of scifact, nfcorpus, arguana, fiqa" >&2
    return 1
    ;;
  esac
}

if [ ! -e "$out/corpus.jsonl" ]; then
  from=$collection
  if [ ! -d "$collection" ]; then
    sum=$(checksum "$collection")
    curl -fL -o "$temporary/c.zip" "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/$collection.zip"
    python3 - "$temporary/c.zip" "$sum" <<'EOF'
import hashlib, sys
got = hashlib.md5(open(sys.argv[1], "rb").read()).hexdigest()
if got != sys.argv[2]:
    sys.exit(f"vectors.sh: the archive has the checksum {got}, not {sys.argv[2]}")
EOF
    python3 -m zipfile -e "$temporary/c.zip" "$temporary"
    from=$temporary/$collection
  fi
  mkdir -p "$out/qrels"
  cp "$from/qrels/test.tsv" "$out/qrels/test.tsv"
  cp "$from/queries.jsonl" "$out/queries.jsonl"
  cp "$from/corpus.jsonl" "$out/corpus.jsonl.tmp"
  mv "$out/corpus.jsonl.tmp" "$out/corpus.jsonl" # last: it says that all is there
fi

v=$out/vectors
cp "$out/qrels/test.tsv" "$v/qrels.tsv"
# The queries that are judged, in their order. Ids are the first column of the judgements.
awk -F'\t' '
  NR == FNR { if (FNR > 1) judged[$1] = 1; next }
  match($0, /"_id": *"[^"]*"/) { id = substr($0, RSTART, RLENGTH); sub(/^"_id": *"/, "", id); sub(/"$/, "", id); if (id in judged) print }
' "$v/qrels.tsv" "$out/queries.jsonl" >"$temporary/queries.jsonl"
if [ ! -s "$temporary/queries.jsonl" ]; then
  echo "vectors.sh: no query of $out/queries.jsonl is judged in qrels/test.tsv" >&2
  exit 1
fi
if [ ! -e "$v/queries.npy" ]; then
  "$plaid" encode "$temporary/queries.jsonl" --queries --model "$model" -o "$v" "$@"
fi
if [ ! -e "$v/docs.npy" ]; then
  "$plaid" encode "$out/corpus.jsonl" --model "$model" -o "$v" --drop-text "$@"
fi
"$plaid" score --queries "$v/queries.npy" --query-lengths "$v/querylens.npy" --query-ids "$v/query_ids.txt" \
  --vectors "$v/docs.npy" --lengths "$v/doclens.npy" --ids "$v/doc_ids.txt" -k 100 --format trec |
  awk -v OFS='\t' '{ print $1, $3, $4, $5 }' >"$v/exact-top100.tsv.tmp"
mv "$v/exact-top100.tsv.tmp" "$v/exact-top100.tsv"
echo "$v: $(wc -l <"$v/doc_ids.txt") documents, $(wc -l <"$v/query_ids.txt") queries" >&2
