#!/bin/sh
# Index, search and evaluate one BEIR collection from its token vectors:
#
#   sh eval/beir/beir.sh DIR VECTORS [FLAG…]
#
# DIR has qrels/test.tsv; VECTORS has docs.npy, doclens.npy, doc_ids.txt,
# queries.npy and query_ids.txt, or another of the layouts that
# `plaid beir --help` names. FLAG… are those of plaid beir, such as --nbits 4.
set -eu
if [ $# -lt 2 ]; then
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
dir=$1 vectors=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT INT TERM
(cd "$root" && go build -o "$bin/plaid" ./cmd/plaid)
"$bin/plaid" beir "$dir" --vectors "$vectors" "$@"
