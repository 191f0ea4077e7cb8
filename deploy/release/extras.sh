#!/bin/sh
# Writes what goes into archives and packages beside the program:
#
#   deploy/release/extras.sh DIR
#
# DIR/completions for four shells, DIR/man, and DIR/plaid.service for packages.
set -eu
out=$1
cd "$(dirname "$0")/../.."
rm -rf "$out"
mkdir -p "$out/completions" "$out/man" "$out/bin"
# Of this machine, whatever the release is for.
GOOS= GOARCH= CGO_ENABLED=0 go build -tags nocuda,noonnxruntime -o "$out/bin/plaid" ./cmd/plaid
plaid=$out/bin/plaid
"$plaid" completion bash >"$out/completions/plaid.bash"
"$plaid" completion zsh >"$out/completions/_plaid"
"$plaid" completion fish >"$out/completions/plaid.fish"
"$plaid" completion powershell >"$out/completions/plaid.ps1"
"$plaid" man "$out/man"
rm -r "$out/bin"
# Packages have the program in another place than somebody who copies it there.
sed 's|/usr/local/bin/plaid|/usr/bin/plaid|' deploy/plaid.service >"$out/plaid.service"
