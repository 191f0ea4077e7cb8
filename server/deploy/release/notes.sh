#!/bin/sh
# Prints the section of CHANGELOG.md of a version:
#
#   server/deploy/release/notes.sh 0.1.0
set -eu
cd "$(dirname "$0")/../../.."
awk -v version="$1" '
  /^## \[/ { inside = index($0, "## [" version "]") == 1; if (inside) found = 1; next }
  /^\[[^]]+\]:/ { inside = 0 }
  inside { print }
  END { exit !found }
' CHANGELOG.md || { echo "CHANGELOG.md has no section $1" >&2; exit 1; }
