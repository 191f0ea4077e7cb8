# What .ci/run, .ci/long and .ci/windows share. The first two list their steps in $steps, a name and
# a sentence per line, define a function step_NAME for each, and call run_steps.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

modules=(. vectors/formats capi)
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
systems=(linux/arm64 darwin/arm64 windows/amd64)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_steps() { # without arguments all steps, otherwise those named
  local names name begin before rc took spent table='' failed=''
  names=$(awk 'NF { print $1 }' <<<"$steps")
  case "${1:-}" in
  --list)
    awk 'NF' <<<"$steps"
    return
    ;;
  -*)
    echo "usage: $0 [--list | STEP...]" >&2
    exit 2
    ;;
  esac
  for name in "$@"; do
    if ! grep -qx -- "$name" <<<"$names"; then
      echo "$0: there is no step $name; --list lists them" >&2
      exit 2
    fi
  done
  go version
  grep -m1 'model name' /proc/cpuinfo || true
  for name in ${*:-$names}; do
    printf '\n=== %s\n' "$name"
    begin=$SECONDS
    before=$(processor_seconds)
    set +e
    # A process of its own: within "if" or "||", bash would go on after a command that failed.
    (
      set -e
      "step_$name"
    ) </dev/null
    rc=$?
    set -e
    took=$((SECONDS - begin))
    spent=$(($(processor_seconds) - before))
    case $rc in
    0) rc=passed ;;
    77) rc=skipped ;;
    *)
      rc=FAILED
      failed+=" $name"
      ;;
    esac
    printf '    %s: %s after %d s\n' "$name" "$rc" "$took"
    table+=$(printf '%-16s %8.1f %10.1f   %s' "$name" "$(minutes "$took")" "$(minutes "$spent")" "$rc")$'\n'
  done
  printf '\n%-16s %8s %10s\n%s' step minutes processor "$table"
  printf '%-16s %8.1f\n' all "$(minutes $SECONDS)"
  if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
  fi
}

minutes() { # of seconds
  awk -v s="$1" 'BEGIN { print s / 60 }'
}

processor_seconds() { # of this shell's children so far
  awk '{ sub(/.*\) /, ""); print int(($14 + $15) / 100) }' "/proc/$$/stat" 2>/dev/null || echo 0
}

skipped() { # ends a step that cannot be done here, and says why
  echo "skipped: $*"
  exit 77
}

limited() { # a package index or mirror that hangs counts as out of reach
  if command -v timeout >/dev/null; then
    timeout 300 "$@"
  else
    "$@"
  fi
}

installed() { # a package of Debian, if it can be had
  limited apt-get update && limited env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
} >/dev/null 2>&1

venv() { # NAME PACKAGE...: makes $work/NAME, an environment of Python with these packages
  local dir=$work/$1
  shift
  { python3 -m venv "$dir" && limited "$dir/bin/python" -m pip install -q --retries 1 --timeout 30 "$@"; } >"$work/log" 2>&1
}

no_output() { # fails if the command prints anything but what it fetches
  local out
  out=$("$@" 2>&1) || {
    printf '%s\n' "$out"
    return 1
  }
  out=$(grep -v '^go: downloading ' <<<"$out" || true)
  if [ -n "$out" ]; then
    printf '%s\n' "$out"
    return 1
  fi
}

in_modules() { # runs a command in the folder of each module
  local module
  for module in "${modules[@]}"; do
    echo "$module: $*"
    (cd "$module" && "$@")
  done
}

tested() { # go test; the last line counts the tests
  # The limit is for what hangs: a busy machine takes a multiple of the usual time.
  go test -json -timeout 40m "$@" | python3 "$root/.ci/count.py"
}
