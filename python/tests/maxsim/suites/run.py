"""Runs the tests of late-interaction-kernels and Flash-MaxSim with plaid's functions in place of theirs.

    run.py [--device cpu|cuda] [--suite lik|flash] [--archives FOLDER] [--work FOLDER] [--seconds N] [-- pytest's arguments]

Their source archives are fetched by pip (exit status 3 if they cannot be had), or taken from a
folder. On the processor plugin.py makes the device cuda mean cpu. known.txt lists each test that does
not pass, with the reason: a test that fails and is not listed is an error, and so is a listed one
that passes. Needs PyTorch, pytest, plaid_ir, and its library (PLAID_MAXSIM_LIBRARY in a checkout).
On a GPU each file has a process of its own, since an error of the device ends the use of it by a
process.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ARCHIVES = {"lik": "late_interaction_kernels-0.4.5.tar.gz", "flash": "flash_maxsim-0.3.0.tar.gz"}
# Of Flash-MaxSim's files these have tests; the others are programs that print.
FLASH = ["tests/test_flash_maxsim.py", "tests/test_sparse_dd.py", "tests/test_splitd_int8_warmup.py"]
# Tests of the reference functions, which judge the others: here plaid's own are judged.
REFERENCE = "tests/test_reference_cpu.py"
# Processes on a GPU.
PROCESSES = 4
NO_TIME = "there was no time left"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--suite", choices=sorted(ARCHIVES), help="both, if not given")
    parser.add_argument("--archives", type=Path, help="a folder that has the source archives")
    parser.add_argument("--work", type=Path, help="a folder to work in, which is kept")
    parser.add_argument("--seconds", type=float, default=3000, help="what runs longer is ended (default: %(default)s)")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest; with any, known.txt is not compared")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        archives = args.archives or work
        if not args.archives and not fetch(work):
            return 3
        wrong = 0
        for suite in [args.suite] if args.suite else ["lik", "flash"]:
            with tarfile.open(archives / ARCHIVES[suite]) as tar:
                tar.extractall(work, filter="data")
            folder = work / ARCHIVES[suite].removesuffix(".tar.gz")
            results = run(suite, args.device, folder, work, args.pytest, end)
            wrong += report(suite, args.device, results, compare=not args.pytest)
    return 1 if wrong else 0


def fetch(folder: Path) -> bool:
    if all((folder / name).exists() for name in ARCHIVES.values()):
        return True
    pip = [sys.executable, "-m", "pip", "download", "-q", "--retries", "1", "--timeout", "30", "--no-deps"]
    source = ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    done = subprocess.run([*pip, *source, "-d", folder, "-r", HERE / "sdists.txt"], capture_output=True, text=True)
    if done.returncode:
        print("the source archives cannot be fetched:", (done.stderr.strip() or "pip failed").splitlines()[-1])
    return done.returncode == 0


def run(
    suite: str, device: str, folder: Path, work: Path, arguments: list[str], end: float
) -> dict[str, tuple[str, str]]:
    """The outcome of each test, and the last line of what it said."""
    runs: list[tuple[list[str], str]] = [(FLASH, "theirs")]
    if suite == "lik":
        runs = [(["tests", f"--ignore={REFERENCE}"], "theirs"), ([REFERENCE], "own")]
    if arguments:
        runs = [(arguments, "theirs")]
    elif device == "cuda":
        files = FLASH if suite == "flash" else sorted(f"tests/{f.name}" for f in folder.glob("tests/test_*.py"))
        runs = [([file], "own" if file == REFERENCE else "theirs") for file in files]
    (folder / "suite.ini").write_text("[pytest]\nmarkers =\n  cuda: needs a GPU\n  slow: takes long\n")
    results: dict[str, tuple[str, str]] = {}

    def outcomes(i: int) -> dict[str, tuple[str, str]]:
        return run_process(suite, device, folder, work / f"{suite}{i}", *runs[i], end)

    with concurrent.futures.ThreadPoolExecutor(PROCESSES if device == "cuda" else 1) as pool:
        for some in pool.map(outcomes, range(len(runs))):
            results |= some
    return results


def run_process(
    suite: str, device: str, folder: Path, out: Path, files: list[str], reference: str, end: float
) -> dict[str, tuple[str, str]]:
    """The outcomes of the tests of one process of pytest."""
    out.unlink(missing_ok=True)
    environment = os.environ | {
        "PLAID_SUITE": suite,
        "PLAID_SUITE_DEVICE": device,
        "PLAID_SUITE_REFERENCE": reference,
        "PLAID_SUITE_RESULTS": str(out),
        "PYTHONPATH": os.pathsep.join([str(HERE), *(os.path.abspath(p) for p in sys.path[1:] if p)]),
        "LIK_DISABLE_COMPILE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "plugin", "-c", "suite.ini", "--rootdir", ".", "-q", "--tb=short"]
    # Without the processes of pytest-xdist and the like.
    command += ["-p", "no:cacheprovider", "--no-header", "--disable-warnings", "--continue-on-collection-errors", *files]
    said, status = "", -1
    try:
        left = max(end - time.monotonic(), 1)
        done = subprocess.run(
            command, cwd=folder, env=environment, timeout=left, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as e:
        said = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
    print(said, flush=True)
    lines = out.read_text().splitlines() if out.exists() else []
    results = {name: (what, why) for name, what, why in map(json.loads, lines)}
    if status not in (0, 1, 5):  # all passed, some failed, there are none
        why = NO_TIME if status == -1 else f"pytest ended with status {status}"
        results[" ".join(files)] = ("failed", why)
    return results


def known(suite: str, device: str) -> dict[str, str]:
    """Reasons by test; a name that ends in * is all that begin so."""
    reasons: dict[str, str] = {}
    for line in (HERE / "known.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            head, reason = line.split(" | ")
            where, name = head.split(maxsplit=1)
            if where.split("/")[0] == suite and where.split("/")[1] in (device, "any"):
                reasons[name.strip()] = reason
    return reasons


def report(suite: str, device: str, results: dict[str, tuple[str, str]], compare: bool) -> int:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    reasons = known(suite, device)
    used: dict[str, list[str]] = {name: [] for name in reasons}
    wrong: list[str] = []
    for name, (what, why) in sorted(results.items()):
        patterns = [p for p in reasons if fnmatch.fnmatchcase(name, p.replace("[", "[[]"))]
        for pattern in patterns:
            used[pattern].append(what)
        file = name.split("::")[0]
        counts[file]["listed" if patterns and what != "passed" else what] += 1
        if what != "passed" and not patterns:
            wrong.append(f"{what}, and is not listed: {name}: {why}")
        elif what == "passed" and patterns:
            wrong.append(f"passed, and is listed: {name}")
    if all(why != NO_TIME for _, why in results.values()):
        wrong += [f"listed, and is no test: {name}" for name, outcomes in used.items() if not outcomes]
    print(f"\n{suite} on {device}:{'passed':>49} {'listed':>7} {'failed':>7} {'skipped':>8}")
    for file, count in [*sorted(counts.items()), ("all", sum(counts.values(), collections.Counter[str]()))]:
        print(f"{file:55} {count['passed']:6} {count['listed']:7} {count['failed']:7} {count['skipped']:8}")
    if not compare:
        return 0
    for line in wrong:
        print(line)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
