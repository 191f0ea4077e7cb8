#!/usr/bin/env bash
# MS MARCO's passages (8.8 million, 598 million tokens of ColBERTv2) from texts to a table:
#
#   eval/beir/msmarco.sh MODEL WORK [FLAG…]
#
# MODEL is a model's folder. WORK is a folder with collectionandqueries.tar.gz as MS MARCO offers it
# under its own terms (this script fetches nothing; its MD5 is compared), or with collection.tsv,
# queries.dev.small.tsv and qrels.dev.small.tsv out of it, whose numbers of lines are compared. FLAG…
# are those of plaid index, such as --precision int8, --device cuda:0, --nbits 1 or --memory 16GiB.
# Give --memory 8GiB or more: training takes no larger sample than fits into it.
#
# WORK gets corpus.jsonl, msmarco.plaid (some 24 GB at 2 bits), while that is made its spool (256
# bytes a token: 153 GB; none with --device), the runs, and table.md, which goes to stdout, too. The
# index is not made again while MODEL and FLAG… are the same, and a build that was interrupted goes
# on. Searches are made again. Variables:
#
#   THREADS=1       of the searches that are timed
#   EXHAUSTIVE=100  queries that are also searched without pruning, for the overlap; 0: none
#   DEVICE=cuda:0   searches on a device as well
#   ANY=1           other texts of the same format
#
# Needs Go and python3.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,22s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
model=$1 work=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
threads=${THREADS:-1} exhaustive=${EXHAUSTIVE:-100} device=${DEVICE:-} any=${ANY:-}
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT INT TERM
plaid=${PLAID:-$temporary/plaid}
if [ -z "${PLAID:-}" ]; then
  (cd "$root" && go build -o "$plaid" ./cmd/plaid)
fi

fail() {
  echo "msmarco.sh: $*" >&2
  exit 1
}

if [ ! -e "$work/corpus.jsonl" ]; then
  archive=$work/collectionandqueries.tar.gz
  if [ -e "$archive" ] && [ ! -e "$work/collection.tsv" ]; then
    python3 - "$archive" 31644046b18952c1386cd4564ba2ae69 <<'EOF'
import hashlib, sys
sum = hashlib.md5()
with open(sys.argv[1], "rb") as f:
    while piece := f.read(1 << 20):
        sum.update(piece)
if sum.hexdigest() != sys.argv[2]:
    sys.exit(f"msmarco.sh: {sys.argv[1]} has the checksum {sum.hexdigest()}, not {sys.argv[2]}")
EOF
    tar -xzf "$archive" -C "$work" queries.dev.small.tsv qrels.dev.small.tsv collection.tsv
  fi
  for f in collection.tsv queries.dev.small.tsv qrels.dev.small.tsv; do
    [ -e "$work/$f" ] || fail "$work has neither $f nor collectionandqueries.tar.gz"
  done
  python3 - "$work" "$any" <<'EOF'
import json, os, sys
work, any = sys.argv[1:]
def counted(name, n, want):
    if not any and n != want:
        sys.exit(f"msmarco.sh: {work}/{name} has {n} lines, not {want}; with ANY=1 it may be another collection")
def convert(name, out, want, ids=None):
    n = 0
    with open(f"{work}/{name}", encoding="utf-8", newline="\n") as f, open(f"{work}/{out}.tmp", "w", encoding="utf-8") as o:
        for n, line in enumerate(f, 1):
            id, tab, text = line.rstrip("\n").partition("\t")
            if not tab:
                sys.exit(f"msmarco.sh: {work}/{name}, line {n}: no tab between id and text")
            if ids is None or id in ids:
                o.write(json.dumps({"_id": id, "text": text}, ensure_ascii=False) + "\n")
    counted(name, n, want)
    os.rename(f"{work}/{out}.tmp", f"{work}/{out}")
with open(f"{work}/qrels.dev.small.tsv") as f:
    judgements = [line.split()[0] for line in f if line.strip()]
counted("qrels.dev.small.tsv", len(judgements), 7437)
judged = set(judgements)
convert("queries.dev.small.tsv", "queries.jsonl", 6980, judged)
convert("collection.tsv", "corpus.jsonl", 8841823)
EOF
fi

index=$work/msmarco.plaid
made="$model $*" # what the index was made with
if [ "$(sed 1d "$work/built" 2>/dev/null || true)" != "$made" ]; then
  force=
  if [ -e "$work/built" ]; then
    force=--force
    rm -rf "$work/built" "$work/queries"
  fi
  start=$(date +%s)
  "$plaid" index "$index" $force --text "$work/corpus.jsonl" --drop-text --model "$model" "$@"
  printf '%s\n%s\n' $(($(date +%s) - start)) "$made" >"$work/built"
fi
q=$work/queries
if [ ! -e "$q/query_ids.txt" ]; then
  "$plaid" encode "$work/queries.jsonl" --queries --model "$model" -o "$q" --force
fi

# search NAME FLAG… writes WORK/NAME.trec and WORK/NAME.json.
search() {
  local name=$1
  shift
  "$plaid" search "$index" --queries "$q/queries.npy" --query-lengths "$q/querylens.npy" \
    --query-ids "$q/query_ids.txt" --format trec --quiet --stats=json "$@" \
    >"$work/$name.trec" 2>"$work/$name.json"
}
runs="pruned-10 pruned-100 pruned-1000"
for k in 10 100 1000; do
  search "pruned-$k" -k "$k" --threads "$threads"
  if [ -n "$device" ]; then
    search "device-$k" -k "$k" --device "$device"
    runs="$runs device-$k"
  fi
done
if [ "$exhaustive" -gt 0 ]; then
  # Some queries of all: a search of everything takes seconds a query.
  python3 - "$work" "$exhaustive" <<'EOF'
import json, random, sys
work, n = sys.argv[1], int(sys.argv[2])
lines = open(f"{work}/queries.jsonl", encoding="utf-8").readlines()
with open(f"{work}/some.jsonl", "w", encoding="utf-8") as o:
    o.writelines(random.Random(1).sample(lines, min(n, len(lines))))
EOF
  "$plaid" encode "$work/some.jsonl" --queries --model "$model" -o "$work/some" --force
  "$plaid" search "$index" --queries "$work/some/queries.npy" --query-lengths "$work/some/querylens.npy" \
    --query-ids "$work/some/query_ids.txt" --format trec --quiet -k 1000 --exhaustive ${device:+--device "$device"} \
    >"$work/exhaustive.trec"
fi
for run in $runs; do
  "$plaid" eval --qrels "$work/qrels.dev.small.tsv" --measures RR@10,R@100,R@1000 --format json "$work/$run.trec" \
    >"$work/$run.eval.json"
done
"$plaid" info "$index" --json >"$work/info.json"

python3 - "$work" "$threads" $runs <<'EOF' | tee "$work/table.md"
import json, os, sys
work, threads, runs = sys.argv[1], sys.argv[2], sys.argv[3:]
def ranking(path):
    r = {}
    with open(path) as f:
        for line in f:
            query, _, doc, *_ = line.split()
            r.setdefault(query, []).append(doc)
    return r
def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.startswith("{")]
full = ranking(f"{work}/exhaustive.trec") if os.path.exists(f"{work}/exhaustive.trec") else {}
print(f"{os.path.getsize(work + '/msmarco.plaid') / 2**30:.2f} GiB, from texts to the index in {open(work + '/built').readline().strip()} s; "
      f"processor: {threads} thread{'s' * (threads != '1')}; device: all queries in batches; means, a query's encoding left out\n")
print("| | ms a query | RR@10 | R@100 | R@1000 | of exhaustive |\n|:--|--:|--:|--:|--:|--:|")
for name in runs:
    how, k = name.rsplit("-", 1)
    stats = lines(f"{work}/{name}.json")[-1]
    ms = stats["times"]["total_ns"] / stats["queries"] / 1e6
    means = lines(f"{work}/{name}.eval.json")[-1]["runs"][0]["means"]
    own, shares = ranking(f"{work}/{name}.trec"), []
    for query, docs in full.items():
        best = docs[:int(k)]
        shares.append(len(set(best) & set(own.get(query, []))) / len(best))
    share = f"{sum(shares) / len(shares):.4f}" if shares else ""
    cells = [f"{means[m]:.4f}" if int(k) >= n else "" for m, n in (("RR@10", 10), ("R@100", 100), ("R@1000", 1000))]
    print(f"| plaid, {how}, k = {k} | {ms:.2f} | " + " | ".join(cells) + f" | {share} |")
# What others published, with their models, on their machines, by their own measurements.
for row in (
    ("ColBERTv2, PLAID k = 10, one thread of a Xeon Gold 6132 (arXiv 2205.09707)", "185.5", ".394", "", ""),
    ("the same, k = 100", "222.3", ".398", ".906", ""),
    ("the same, k = 1000; index of 21.6 GiB", "352.3", ".398", ".913", ".975"),
    ("the same, k = 1000, on a TITAN V", "38.4", ".398", ".913", ".975"),
    ("TACHIOM, one thread of a Xeon Silver 4314 (arXiv 2604.28142): three settings", "10 / 14 / 15", ".390 / .393 / .396", "", ""),
):
    print(f"| {row[0]} | {row[1]} | {row[2]} | {row[3]} | {row[4]} | |")
EOF
