#!/usr/bin/env bash
# Checks a published model against its own package: see README.md.
#
#   eval/peers/run.sh model ORG/NAME[@REVISION]|FOLDER WORK [FLAG...] [-- FLAG OF plaid encode...]
set -euo pipefail

usage="usage: run.sh model ORG/NAME|FOLDER WORK [--data DIR] [--texts N] [--package pylate|sentence] [--trust-remote-code]
       [--delta X] [--cosine X] [--ndcg X] [-- FLAG OF plaid encode...]    (eval/peers/README.md)"
name=${1:?$usage}
mkdir -p "${2:?$usage}"
work=$(realpath "$2")
shift 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
data=$root/docs/examples/quickstart/scifact-sample
package=
vectors=() limits=()
while (($#)); do
  case $1 in
  --data) data=$2 && shift 2 ;;
  --package) package=$2 && shift 2 ;;
  --texts | --batch | --device) vectors+=("$1" "$2") && shift 2 ;;
  --trust-remote-code) vectors+=("$1") && shift ;;
  --delta | --cosine | --ndcg) limits+=("$1" "$2") && shift 2 ;;
  --) shift && break ;;
  *) echo "$usage" >&2 && exit 2 ;;
  esac
done

# python PACKAGE: the interpreter with its pinned versions; PEERS_PYLATE and PEERS_SENTENCE name others.
python() {
  local given=PEERS_${1^^}
  if [[ -n ${!given:-} ]]; then
    echo "${!given}"
    return
  fi
  local venv=$work/venv-$1
  if [[ ! -e $venv/done ]]; then
    echo "model.sh: installing $1 into $venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r "$here/requirements-$1.txt" >&2
    touch "$venv/done"
  fi
  echo "$venv/bin/python"
}

plaid=${PLAID:-$work/plaid}
[[ -n ${PLAID:-} ]] || (cd "$root" && go build -o "$plaid" ./cmd/plaid)
folder=$name
[[ -d $name ]] || folder=$("$(python sentence)" "$here/model.py" fetch "$name")
[[ -n $package ]] || package=$("$(python sentence)" "$here/model.py" package "$folder")
out=$work/models/$(basename "${name%@*}")
rm -rf "$out"
"$(python "$package")" "$here/model.py" vectors "$package" "$folder" "$data" "$out" "${vectors[@]}"
[[ ! -e $out/model ]] || folder=$out/model
"$plaid" encode "$out/documents.jsonl" --model "$folder" -o "$out/plaid" --drop-text --float32 "$@"
"$plaid" encode "$out/queries.jsonl" --queries --model "$folder" -o "$out/plaid" --float32 "$@"
"$(python sentence)" "$here/model.py" compare "$out" "${limits[@]}"
