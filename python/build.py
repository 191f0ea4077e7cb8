#!/usr/bin/env python3
"""Compiles the program and builds wheels with it.

    python3 python/build.py                 # for this machine, into python/dist
    python3 python/build.py --out DIR all   # for every platform

Needs Go, and Python with venv; hatchling comes from the package index, pinned in
pyproject.toml, unless it is installed already. On Linux on x86-64 there are two wheels: for
systems with glibc the program binds the drivers of GPUs and onnxruntime when they are asked
for; for others (musl) it is a static one without them.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = "nocuda,noonnxruntime"

#: Target: GOOS, GOARCH, build tags, tag of the wheel's platform. Go's own minimum of macOS is 12.
TARGETS = {
    "linux-amd64": ("linux", "amd64", "", "manylinux_2_17_x86_64"),
    "linux-amd64-static": ("linux", "amd64", STATIC, "musllinux_1_1_x86_64"),
    "linux-arm64-static": ("linux", "arm64", STATIC, "manylinux_2_17_aarch64.musllinux_1_1_aarch64"),
    "darwin-arm64": ("darwin", "arm64", "nocuda", "macosx_12_0_arm64"),
    "darwin-amd64": ("darwin", "amd64", "nocuda", "macosx_12_0_x86_64"),
    "windows-amd64": ("windows", "amd64", "nocuda", "win_amd64"),
}


def host() -> str:
    """The target of this machine."""
    system = platform.system().lower()
    names = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    machine = names.get(platform.machine().lower(), platform.machine())
    name = f"{system}-{machine}"
    if system == "linux" and (machine != "amd64" or platform.libc_ver()[0] != "glibc"):
        name += "-static"
    if name not in TARGETS:
        sys.exit(f"there is no wheel for {name}: plaid has {', '.join(TARGETS)}")
    return name


def hatchling(directory: str) -> str:
    """A Python that has the build backend."""
    pinned = re.search(r'requires = \["(hatchling==([^"]+))"\]', (HERE / "pyproject.toml").read_text())
    assert pinned
    try:
        from importlib.metadata import version

        if version("hatchling") == pinned[2]:
            return sys.executable
    except ImportError:
        pass
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = os.path.join(directory, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pinned[1]], check=True)
    return python


def commit() -> list[str]:
    """The flag that has `plaid version` print the commit, whatever GOFLAGS says; none if git does not know it."""
    git = shutil.which("git")
    if git is None or subprocess.run([git, "rev-parse", "HEAD"], cwd=HERE, capture_output=True).returncode != 0:
        return []
    return ["-buildvcs=true"]


def compile_program(target: str, directory: str) -> tuple[str, str]:
    """Compiles the program for a target, and returns its path and the platform tag of its wheel."""
    goos, goarch, tags, tag = TARGETS[target]
    if shutil.which("go") is None:
        sys.exit(
            "the program plaid is compiled by Go, and there is no go on the PATH: install Go (see go.mod for the version), "
            "or install a wheel that has the program"
        )
    binary = os.path.join(directory, target, "plaid")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOOS": goos, "GOARCH": goarch}
    go = ["go", "build", *commit(), "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", binary, "./cmd/plaid"]
    if subprocess.run(go, cwd=HERE.parent, env=environment).returncode != 0:
        sys.exit("go build failed; what it said is above (pip shows it with -v)")
    return binary, tag


def build(target: str, python: str, directory: str, out: Path) -> None:
    binary, tag = compile_program(target, directory)
    environment = {**os.environ, "PLAID_WHEEL_BINARY": binary, "PLAID_WHEEL_PLATFORM": tag}
    subprocess.run([python, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=HERE, env=environment, check=True)


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--out", type=Path, default=HERE / "dist", help="folder of the wheels (default: %(default)s)")
    p.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or some of {', '.join(TARGETS)} (default: that of this machine)")
    args = p.parse_args()
    targets = list(TARGETS) if "all" in args.targets else args.targets or [host()]
    for t in targets:
        if t not in TARGETS:
            p.error(f"there is no target {t}; there is {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as directory:
        python = hatchling(os.path.join(directory, "venv"))
        for t in targets:
            build(t, python, directory, args.out.resolve())


if __name__ == "__main__":
    main()
