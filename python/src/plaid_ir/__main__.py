"""The command line: `plaid` and `python -m plaid_ir`."""

from __future__ import annotations

import os
import subprocess
import sys

from ._binary import find_binary


def main() -> None:
    try:
        binary = find_binary(None)
        if os.name == "nt":  # exec on Windows ends this process before the program ends
            sys.exit(subprocess.run([binary, *sys.argv[1:]]).returncode)
        os.execv(binary, ["plaid", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"plaid: {e}")


if __name__ == "__main__":
    main()
