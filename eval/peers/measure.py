"""Runs a command and writes what it cost, and the JSON that it printed last, to a file.

    measure.py OUT COMMAND...

Fields: result; wall, its seconds; cpu, its processor seconds; rss_mib, its
largest resident set; others, how many processors the rest of the machine kept
busy meanwhile.
"""
import json
import os
import subprocess
import sys
import time


def busy():
    """Processor seconds that the machine has spent so far."""
    with open("/proc/stat") as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    return (sum(t) - t[3] - t[4]) / os.sysconf("SC_CLK_TCK")


def main(out, command):
    start, before = time.monotonic(), busy()
    with open(out + ".out", "w+") as captured:
        child = subprocess.Popen(command, stdout=captured)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        cpu = usage.ru_utime + usage.ru_stime
        others = max(busy() - before - cpu, 0) / wall
        captured.seek(0)
        lines = captured.read().strip().splitlines()
    if status != 0:
        sys.exit(f"measure.py: {' '.join(command)}: status {os.waitstatus_to_exitcode(status)}")
    record = {"result": json.loads(lines[-1]), "wall": wall, "cpu": cpu, "rss_mib": usage.ru_maxrss / 1024, "others": others}
    with open(out + ".new", "w") as f:
        json.dump(record, f)
    os.replace(out + ".new", out)
    os.remove(out + ".out")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
