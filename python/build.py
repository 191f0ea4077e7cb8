#!/usr/bin/env python3
"""Compiles the program and builds wheels with it.

    python3 python/build.py                 # for this machine, into python/dist
    python3 python/build.py --out DIR all   # for every platform

Needs Go, and Python with venv; hatchling comes from the package index, pinned in
pyproject.toml, unless it is installed already. On Linux on x86-64 there are two wheels: for
systems with glibc the program binds the drivers of GPUs and onnxruntime when they are asked
for; for others (musl) it is a static one without them.

The library of plaid_ir.torch, libplaid_maxsim, needs a C compiler for the target as well: that of
this machine (CC, or cc) for its own target, for others the one that PLAID_CC_LINUX_ARM64 and the
like name, such as "zig cc -target aarch64-linux-gnu.2.17". Without one, or with "none", a wheel
lacks the library, and says so when plaid_ir.torch is imported. A wheel with a library that needs a
newer glibc than its tag says gets a tag that does.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = "nocuda,noonnxruntime"

#: The file of the library, by GOOS.
LIBRARY = {"linux": "libplaid_maxsim.so", "darwin": "libplaid_maxsim.dylib", "windows": "libplaid_maxsim.dll"}

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


def compiler(target: str) -> tuple[str, str]:
    """The C compiler for a target; "", and the reason, if there is none."""
    goos, goarch, _, tag = TARGETS[target]
    variable = f"PLAID_CC_{goos}_{goarch}".upper()
    named = os.environ.get(variable)
    if tag.startswith("musllinux"):
        return "", "there is no torch for musl"
    if named == "none":
        return "", f"{variable} is none"
    if named:
        return named, ""
    if target != host():
        return "", f"{variable} names no C compiler"
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(shlex.split(name)[0]):
            return name, ""
    return "", f"there is no C compiler on the PATH, and {variable} names none"


def compile_library(target: str, directory: str) -> str:
    """Compiles the library for a target, and returns its path; "": there is no compiler for it."""
    goos, goarch, _, _ = TARGETS[target]
    cc, reason = compiler(target)
    if not cc:
        print(f"{target}: a wheel without {LIBRARY[goos]}, and so without plaid_ir.torch: {reason}", file=sys.stderr)
        return ""
    library = os.path.join(directory, target, LIBRARY[goos])
    environment = {**os.environ, "CGO_ENABLED": "1", "GOOS": goos, "GOARCH": goarch, "CC": cc}
    if goos == "darwin":
        environment.setdefault("MACOSX_DEPLOYMENT_TARGET", "12.0")
    go = ["go", "build", *commit(), "-buildmode=c-shared", "-trimpath", "-ldflags", "-s -w", "-o", library, "."]
    if subprocess.run(go, cwd=HERE.parent / "capi", env=environment).returncode != 0:
        variable = f"PLAID_CC_{goos}_{goarch}".upper()
        sys.exit(f"go build of capi failed with {cc}; what it said is above. {variable}=none leaves {LIBRARY[goos]} out")
    return library


def needed_glibc(library: str) -> tuple[int, int]:
    """The newest version of glibc whose symbols a library names; (0, 0): it names none."""
    data = Path(library).read_bytes()
    return max(((int(a), int(b)) for a, b in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", data)), default=(0, 0))


def honest(tag: str, library: str) -> str:
    """The platform tag of a wheel with a library: one for glibc has the version that the library needs."""
    major, minor = needed_glibc(library)

    def raised(m: re.Match[str]) -> str:
        return f"manylinux_{major}_{minor}_" if (major, minor) > (int(m[1]), int(m[2])) else m[0]

    return re.sub(r"manylinux_(\d+)_(\d+)_", raised, tag)


def compile_all(target: str, directory: str) -> dict[str, str]:
    """Compiles the files of a wheel, and returns the environment that hatch_build.py reads."""
    binary, tag = compile_program(target, directory)
    library = compile_library(target, directory)
    if library:
        tag = honest(tag, library)
    return {"PLAID_WHEEL_BINARY": binary, "PLAID_WHEEL_PLATFORM": tag, "PLAID_WHEEL_LIBRARY": library}


def build(target: str, python: str, directory: str, out: Path) -> None:
    environment = {**os.environ, **compile_all(target, directory)}
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
