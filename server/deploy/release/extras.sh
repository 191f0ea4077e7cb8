#!/bin/sh
# Writes what goes into archives and packages beside the program:
#
#   server/deploy/release/extras.sh DIR [VERSION]
#
# DIR/completions for four shells, DIR/man, and DIR/plaid.service for packages.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../.."
rm -rf "$out"
mkdir -p "$out/completions" "$out/man" "$out/bin"
plaid=$out/bin/plaid
ldflags=${2:+-X github.com/plaid-ir/plaid/index.release=$2}
# Of this machine, whatever the release is for; manual pages name the version.
go_here() {
  command=$1
  shift
  GOOS= GOARCH= CGO_ENABLED=0 go "$command" -tags nocuda,noonnxruntime -ldflags "$ldflags" "$@"
}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # the same commit makes the same pages
export SOURCE_DATE_EPOCH
go_here run ./cmd/plaid/man "$out/man"
go_here build -o "$plaid" ./cmd/plaid
"$plaid" completion bash >"$out/completions/plaid.bash"
"$plaid" completion zsh >"$out/completions/_plaid"
"$plaid" completion fish >"$out/completions/plaid.fish"
"$plaid" completion powershell >"$out/completions/plaid.ps1"
rm -r "$out/bin"
# Packages have the program in another place than somebody who copies it there.
sed 's|/usr/local/bin/plaid|/usr/bin/plaid|' server/deploy/plaid.service >"$out/plaid.service"
