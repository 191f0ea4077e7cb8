#!/usr/bin/env bash
# What plaid watch takes for the documentation of the Linux kernel, or for a folder of it: the
# first index, a look that finds no change, and the time from writing one file until a search
# finds what was written. Needs Debian's apt-get and dpkg-deb, and Go.
#
#   cmd/studies/folders.sh WORK [FOLDER]
#
# WORK is a folder for the package, the texts and the index; FOLDER is one below
# Documentation, such as mm. MODEL is another model than colbert-nano. PLAID is a program that
# is there already; Go is not needed then, and with WORK/Documentation no package.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
model=${MODEL:-$root/docs/examples/quickstart/colbert-nano}
mkdir -p "$1"
cd "$1"
part=${2:-}

if [ ! -d Documentation ]; then
  [ -n "$(ls linux-doc-6.12_*.deb 2>/dev/null)" ] || apt-get download linux-doc-6.12
  rm -rf unpacked
  dpkg-deb -x linux-doc-6.12_*.deb unpacked
  cp -r unpacked/usr/share/doc/linux-doc-6.12/Documentation .
  rm -rf unpacked
  find Documentation -type l -delete # one of them is not whole
  gunzip -qr Documentation
fi
plaid=${PLAID:-$PWD/plaid}
[ -n "${PLAID:-}" ] || (cd "$root" && go build -o "$plaid" ./cmd/plaid)
folder=$PWD/Documentation/$part index=$PWD/k.plaid
rm -f "$index" "$index".*
"$plaid" version | head -n 1
ls linux-doc-6.12_*.deb 2>/dev/null || true
find "$folder" -type f | wc -l
nproc
uptime

TIMEFORMAT='  %R s, of the processors %U s and %S s of the system'
echo "first index"
time "$plaid" watch "$index" "$folder" --model "$model" --once
ls -l "$index"
echo "nothing has changed"
time "$plaid" watch "$index" "$folder" --model "$model" --once

echo "one file is written, and searched for until it is found"
file=$folder/plaid-measures.rst
rm -f "$file"
"$plaid" watch "$index" "$folder" --model "$model" --json >reports 2>messages &
watcher=$!
trap 'kill $watcher; rm -f "$file"' EXIT
until [ -s reports ]; do sleep 0.1; done
now() { date +%s%N; }
for i in 1 2 3 4 5 6; do # the first one makes the file
  sleep 3
  printf 'Measured\n========\n\nThe quokka number%d eats leaves and sleeps in the shade of shrubs.\n' $i >"$file"
  written=$(now)
  asked=0
  until "$plaid" search "$index" "what does quokka number$i eat?" --model "$model" --format grep -k 1 \
    --where "path = 'plaid-measures.rst'" --lock-timeout 10s 2>>messages | grep -q "number$i "; do
    asked=$((asked + 1))
    sleep 0.05 # as people do: the change needs a moment without searches
  done
  echo "  found after $((($(now) - written) / 1000000)) ms, by search $((asked + 1))"
done
begin=$(now)
for i in 1 2 3 4 5; do "$plaid" search "$index" "what does it eat?" --model "$model" --format grep -k 1 >/dev/null; done
echo "  a search by itself takes $((($(now) - begin) / 5000000)) ms, with its start"
echo "reports of the watcher"
cat reports
cat messages
uptime
