#!/usr/bin/env bash
# Makes the indexes of this folder anew, with the programs themselves: see README.md.
#
#   index/interop/testdata/real/make.sh WORK
set -euo pipefail
mkdir -p "${1:?usage: make.sh WORK}"
work=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
python=$work/venv/bin/python

if [[ ! -e $python ]]; then
  python3 -m venv "$work/venv"
  "$python" -m pip install -q -r "$here/requirements.txt"
fi
CARGO_TARGET_DIR=$work/target cargo build -q --locked --manifest-path "$here/../../../../eval/peers/rust/Cargo.toml"
export OMP_NUM_THREADS=1

"$python" "$here/make.py" input "$work/input"
for engine in colbert fast-plaid; do
  rm -rf "$work/$engine"
  "$python" "$here/make.py" "$engine" "$work/input" "$work/$engine" >&2
  "$python" "$here/make.py" "$engine-hits" "$work/input" "$work/$engine" >"$work/$engine.hits.tsv"
done
"$python" "$here/make.py" fast-plaid-metadata "$work/input" "$work/fast-plaid" >&2
rm -rf "$work/next-plaid"
"$work/target/debug/peers-bench" build "$work/input" "$work/next-plaid" 2 >&2
"$work/target/debug/peers-bench" hits "$work/input" "$work/next-plaid" >"$work/next-plaid.hits.tsv"
"$work/target/debug/peers-bench" metadata "$work/input" "$work/next-plaid" >&2
rm "$work/next-plaid/embeddings.npy" "$work/next-plaid/embeddings_lengths.json" # the vectors, for updates of its own

for engine in colbert fast-plaid next-plaid; do
  rm -rf "${here:?}/$engine" "$here/$engine.hits.tsv"
  cp -r "$work/$engine" "$work/$engine.hits.tsv" "$here"
done
for engine in fast-plaid next-plaid; do
  mv "$here/$engine/metadata.db" "$here/../../../../vectors/formats/sqlite/testdata/$engine.db"
done
