#!/usr/bin/env python3
"""Compiles the program and builds wheels with it.

    python3 python/build.py                 # for this machine, into python/dist
    python3 python/build.py --out DIR all   # for every platform
    python3 python/build.py sdist           # the sources, Go's as well, from which pip builds a wheel
    python3 python/build.py --in-place      # into python/src, for PYTHONPATH and `pip install -e`

Needs Go, and Python with venv; hatchling comes from the package index, pinned in
pyproject.toml, unless it is installed already. Go fetches the modules that go.sum names, unless
its cache has them. On Linux on x86-64 there are two wheels: for
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
import time
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
#: The folder of an sdist that has Go's sources.
SOURCES = "go"
#: The folder of go.mod: in an sdist its own, in a clone the one above.
ROOT = HERE / SOURCES if (HERE / SOURCES / "go.mod").is_file() else HERE.parent
#: Where the package looks for the program and the library.
PACKAGED = HERE / "src" / "plaid_ir" / "bin"
#: What a package takes to compile, and its share of linking, on a processor that does other things as well.
SECONDS = 0.4
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


def version() -> str:
    """The version of the package, which the program tells as well."""
    found = re.search(r'"(.*)"', (HERE / "src" / "plaid_ir" / "_version.py").read_text())
    assert found
    return found[1]


def terminal() -> TextIO | None:
    """The terminal from which pip was started, which does not show what a build prints; None if there is none."""
    if sys.stderr.isatty():
        return None
    try:
        # Closed with the process.
        fd = os.open("/dev/tty", os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
        # The terminal may stop a process in the background that writes.
        if os.tcgetpgrp(fd) == os.getpgrp():
            return os.fdopen(fd, "w", buffering=1)
        os.close(fd)
    except OSError:
        pass
    return None


class Progress:
    """Tells how far a build is, in lines: on the terminal, or on stderr where there is none.
    PLAID_BUILD_PROGRESS=none silences it."""

    EVERY = 10.0

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._silent = os.environ.get("PLAID_BUILD_PROGRESS") == "none"
        self._terminal = None if self._silent else terminal()

    def say(self, text: str) -> None:
        if self._silent:
            return
        self._told = time.monotonic()
        try:
            if self._terminal is None:
                print(f"plaid-ir: {text}", file=sys.stderr, flush=True)
            else:  # pip's spinner turns in this line
                self._terminal.write(f"\r\033[Kplaid-ir: {text}\n")
        except OSError:  # the terminal is gone
            self._silent = True

    def count(self, text: str) -> None:
        """Tells a number, unless the last line is young."""
        if time.monotonic() - self._told >= self.EVERY:
            self.say(f"{text} ({time.monotonic() - self._began:.0f} s)")


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stamp() -> str:
    """The flag that has `plaid version` print the commit, whatever GOFLAGS says, if git knows it. A repository around
    an sdist is another one."""
    git = None if ROOT == HERE / SOURCES else shutil.which("git")
    known = git and subprocess.run([git, "rev-parse", "HEAD"], cwd=HERE, capture_output=True).returncode == 0
    return "-buildvcs=true" if known else "-buildvcs=false"


def run_go(
    command: list[str], where: tuple[Path, dict[str, str]], progress: Progress, counted: str, text: str
) -> tuple[int, int]:
    """Runs go in a folder and an environment, and returns its status and the number of lines that match counted, which
    text tells. What else it says goes to stderr, but for commands that -n lists."""
    n = fetched = 0
    said: list[str] = []
    env = {**where[1], "GOWORK": "off"}
    with subprocess.Popen(command, cwd=where[0], env=env, stderr=subprocess.PIPE, text=True, errors="replace") as p:
        assert p.stderr is not None
        for line in p.stderr:
            if line.startswith("go: downloading "):
                fetched += 1
                progress.count(f"{fetched} modules fetched by Go")
            elif re.search(counted, line):
                n += 1
                progress.count(text.format(n))
            else:
                said.append(line)
    if "-n" not in command or p.returncode != 0:
        sys.stderr.writelines(said)
    return p.returncode, n


def go_build(what: str, arguments: list[str], directory: Path, environment: dict[str, str]) -> bool:
    """Runs go build, tells how far it is, and reports whether it succeeded."""
    progress = Progress()
    flags = f"-s -w -X github.com/plaid-ir/plaid/index.release=v{version()}"
    arguments = [stamp(), "-trimpath", "-ldflags", flags, *arguments]
    where = directory, environment
    # A dry run fetches the modules, and lists the compilations that Go's cache lacks.
    status, packages = run_go(["go", "build", "-n", *arguments], where, progress, r"[/\\]compile(\.exe)?\"? -o ", "")
    if status != 0:
        return False
    if packages > 50:
        minutes = max(1, round(packages * SECONDS / processors() / 60))
        progress.say(
            f"compiling {what} {version()}: {packages} packages of Go on {processors()} processors, "
            f"about {minutes} minute{'s' if minutes > 1 else ''} if they are free; later builds take seconds"
        )
    # Go prints the name of each package that it compiles.
    text = f"{{}} of {packages} packages compiled"
    return run_go(["go", "build", "-v", *arguments], where, progress, r"^[\w./~-]+$", text)[0] == 0


def compile_program(target: str, directory: str) -> tuple[str, str]:
    """Compiles the program for a target, and returns its path and the platform tag of its wheel."""
    goos, goarch, tags, tag = TARGETS[target]
    if shutil.which("go") is None:
        needed = re.search(r"^go (\d+\.\d+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
        sys.exit(
            "the program plaid is compiled by Go, and there is no go on the PATH: "
            f"install Go {needed[1] if needed else ''} or newer, or a wheel, which has the program"
        )
    binary = os.path.join(directory, target, "plaid")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOOS": goos, "GOARCH": goarch}
    if not go_build("the engine", ["-tags", tags, "-o", binary, "./cmd/plaid"], ROOT, environment):
        sys.exit(
            "go build failed; what it said is above. Modules that its cache lacks come from where `go env GOPROXY` says"
        )
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
    arguments = ["-buildmode=c-shared", "-o", library, "."]
    if not go_build("the library of plaid_ir.torch", arguments, ROOT / "capi", environment):
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
    """Builds the wheel of a target, or the sdist."""
    kind = "sdist" if target == "sdist" else "wheel"
    environment = {**os.environ, **(compile_all(target, directory) if kind == "wheel" else {})}
    command = [python, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    subprocess.run(command, cwd=HERE, env=environment, check=True)


def in_place() -> None:
    """Compiles the program and the library for this machine to where the package of these sources looks for them."""
    PACKAGED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PACKAGED) as directory:
        made = compile_all(host(), directory)
        for path in filter(None, (made["PLAID_WHEEL_BINARY"], made["PLAID_WHEEL_LIBRARY"])):
            # Processes that run the old one go on with it.
            os.replace(path, PACKAGED / executable(host(), path))


def executable(target: str, path: str) -> str:
    """The name in the package of a file that was compiled for a target."""
    name = os.path.basename(path)
    return name + ".exe" if name == "plaid" and TARGETS[target][0] == "windows" else name


def sources() -> dict[str, str]:
    """The files from which Go compiles the program and the library for any target, and their paths in an sdist."""
    if shutil.which("go") is None:
        sys.exit("the Go sources of an sdist are those that go lists, and there is no go on the PATH")
    fields = "GoFiles CgoFiles CFiles HFiles SFiles SysoFiles EmbedFiles IgnoredGoFiles IgnoredOtherFiles".split()
    each = "".join(f'{{{{range .{f}}}}}{{{{$.Dir}}}}/{{{{.}}}}{{{{"\\n"}}}}{{{{end}}}}' for f in fields)
    found = {str(ROOT / module / name) for module in ("", "capi") for name in ("go.mod", "go.sum")}
    for goos, goarch, tags, _ in TARGETS.values():
        for cgo, directory, package in (("0", ROOT, "./cmd/plaid"), ("1", ROOT / "capi", ".")):
            environment = {**os.environ, "GOOS": goos, "GOARCH": goarch, "CGO_ENABLED": cgo, "GOWORK": "off"}
            command = ["go", "list", "-deps", "-tags", tags, "-f", "{{if not .Standard}}" + each + "{{end}}", package]
            listed = subprocess.check_output(command, cwd=directory, env=environment, text=True)
            found.update(os.path.normpath(path) for path in listed.splitlines())
    inside = str(ROOT) + os.sep
    return {
        path: f"{SOURCES}/{path[len(inside):].replace(os.sep, '/')}"
        for path in sorted(found)
        if path.startswith(inside) and not path.endswith("_test.go")
    }


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--out", type=Path, default=HERE / "dist", help="folder of the wheels (default: %(default)s)")
    p.add_argument("--in-place", action="store_true", help="compile for this machine, into the sources of the package")
    what = f"sdist, all, or some of {', '.join(TARGETS)} (default: that of this machine)"
    p.add_argument("targets", nargs="*", metavar="TARGET", help=what)
    args = p.parse_args()
    if args.in_place:
        if args.targets:
            p.error("--in-place is for this machine: it takes no TARGET")
        in_place()
        return
    targets = ["sdist", *TARGETS] if "all" in args.targets else args.targets or [host()]
    for t in targets:
        if t not in TARGETS and t != "sdist":
            p.error(f"there is no target {t}; there is sdist, {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as directory:
        python = hatchling(os.path.join(directory, "venv"))
        for t in targets:
            build(t, python, directory, args.out.resolve())


if __name__ == "__main__":
    main()
