#!/bin/sh
# Writes what goes into archives and packages beside the program:
#
#   server/deploy/release/extras.sh DIR [VERSION]
#
# DIR/completions for four shells, DIR/man, DIR/man-cluster for the program of clusters, and
# DIR/plaid.service for packages. The completions ask the program, so they are those of both.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../.."
rm -rf "$out"
mkdir -p "$out/completions" "$out/man" "$out/man-cluster" "$out/bin"
plaid=$out/bin/plaid
ldflags=${2:+-X github.com/plaid-ir/plaid/index.release=$2}
# Of this machine, whatever the release is for; manual pages name the version.
build() {
  GOOS= GOARCH= CGO_ENABLED=0 go -C "$1" build -tags nocuda,noonnxruntime -ldflags "$ldflags" -o "$plaid" ./cmd/plaid
}
man() {
  GOOS= GOARCH= CGO_ENABLED=0 go -C "$1" run -tags nocuda,noonnxruntime -ldflags "$ldflags" "$2" "$3"
}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # the same commit makes the same pages
export SOURCE_DATE_EPOCH
man cluster ./cmd/man "$out/man-cluster"
man . ./cmd/plaid/man "$out/man"
build .
"$plaid" completion bash >"$out/completions/plaid.bash"
"$plaid" completion zsh >"$out/completions/_plaid"
"$plaid" completion fish >"$out/completions/plaid.fish"
"$plaid" completion powershell >"$out/completions/plaid.ps1"
rm -r "$out/bin"
# Packages have the program in another place than somebody who copies it there.
sed 's|/usr/local/bin/plaid|/usr/bin/plaid|' server/deploy/plaid.service >"$out/plaid.service"
