#!/usr/bin/env bash
# Builds the documentation as a site that can be read and searched without a network, also from a
# folder:
#
#   docs/site/build.sh OUT
#
# Needs Python 3.10 or later with pip, which fetches mkdocs-material; PYTHON names a Python that has
# it already. Exit status 3: the packages cannot be had. Links and headings that are not there fail
# the build, and so does a page that would load something from elsewhere.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh OUT}")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

python=${PYTHON:-}
if [ -z "$python" ]; then
  if ! { python3 -m venv "$work/venv" && "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --retries 1 --timeout 30 -r "$here/requirements.txt" -c "$here/constraints.txt"; } >"$work/log" 2>&1; then
    echo "build.sh: mkdocs-material cannot be had: $(tail -n 1 "$work/log")" >&2
    exit 3
  fi
  python=$work/venv/bin/python
fi

# The pages, at their places in the repository.
mkdir -p "$work/src/docs"
cp "$root"/{README,CHANGELOG,CONTRIBUTING,SECURITY}.md "$work/src"
(cd "$root/docs" && find . -path ./site -prune -o -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' \) -print0 | xargs -0 cp --parents -t "$work/src/docs")
cp "$here/iframe-worker.js" "$here/extra.css" "$work/src"
cp "$here/mkdocs.yml" "$here/hooks.py" "$work"
printf 'docs_dir: src\nsite_dir: %s\n' "$out" >>"$work/mkdocs.yml"
(cd "$work" && NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --strict --quiet --clean --config-file mkdocs.yml)

"$python" - "$out" <<'EOF'
import pathlib, re, sys

out = pathlib.Path(sys.argv[1])
# What a browser loads by itself; links that a reader follows are another thing.
loads = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*?(?:src|srcset|href)="((?:https?:)?//[^"]+)"[^>]*>')
pages, bad = 0, []
for page in out.rglob("*.html"):
    pages += 1
    for m in loads.finditer(page.read_text()):
        if 'rel="canonical"' not in m.group(0):
            bad.append(f"{page.relative_to(out)} loads {m.group(1)}")
for sheet in out.rglob("*.css"):
    bad += [f"{sheet.relative_to(out)} loads {u}" for u in re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", sheet.read_text())]
kept = sum(page.read_text().count('class="kept highlight"') for page in out.rglob("*.html"))
if "extra.css" not in (out / "index.html").read_text() or not kept:
    bad.append("commands would be cut off: extra.css or its class is missing")
index = out / "search" / "search_index.js"
if not index.exists() or "MaxSim" not in index.read_text():
    bad.append("there is no index to search in")
if bad:
    sys.exit("build.sh: " + "\n".join(bad))
print(f"{out}: {pages} pages")
EOF
