"""Reads what go test -json prints. Shows a line for each package and everything that a test that
failed has said; the last line counts the tests."""

import collections
import json
import sys

said = collections.defaultdict(list)  # by package and test, until it has ended
tests = collections.Counter()  # by how they ended
parts = 0
packages = []  # seconds and name

for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        print(line, end="", flush=True)
        continue
    action, package, test = event["Action"], event.get("Package"), event.get("Test")
    if action == "build-output":
        print(event["Output"], end="", flush=True)
    elif action == "output":
        said[package, test].append(event["Output"])
    elif action not in ("pass", "fail", "skip"):
        continue
    elif test:
        text = said.pop((package, test), [])
        if "/" in test:
            parts += 1
        else:
            tests[action] += 1
        if action == "fail":
            print("".join(text), end="", flush=True)
    else:
        text = said.pop((package, None), [])
        packages.append((event.get("Elapsed", 0), package))
        if action == "fail":  # a test that was running when the process ended has no end of its own
            running = [said.pop(key) for key in list(said) if key[0] == package]
            print("".join(sum(running, []) + text), end="", flush=True)
        elif text and not text[-1].startswith("?"):  # without tests
            print(text[-1], end="", flush=True)
        for key in [k for k in said if k[0] == package]:
            del said[key]

packages.sort(reverse=True)
slow = [f"{name.removeprefix('github.com/plaid-ir/plaid/')} {seconds:.0f} s" for seconds, name in packages[:5]]
print(f"slowest: {', '.join(slow)}")
print(f"{sum(tests.values())} tests with {parts} parts in {len(packages)} packages: "
      f"{tests['pass']} passed, {tests['skip']} skipped, {tests['fail']} failed")
if not tests:
    sys.exit("no test ran")
