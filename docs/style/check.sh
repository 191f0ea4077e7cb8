#!/usr/bin/env bash
# Checks the prose of all pages with Vale and the rules beside this script. Vale is built by Go.
# Exit status 3: Vale cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v3.22.0

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
if ! GOBIN="$bin" go install "github.com/vale-cli/vale/v3/cmd/vale@$version" 2>"$bin/log"; then
  echo "Vale cannot be fetched: $(tail -n 1 "$bin/log")" >&2
  exit 3
fi
"$bin/vale" --config docs/style/vale.ini --output line README.md CONTRIBUTING.md SECURITY.md python/README.md docs
