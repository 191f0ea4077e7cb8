"""Finds the program plaid."""

from __future__ import annotations

import os
import shlex
import sys

ENVIRONMENT = "PLAID_BINARY"
_NAME = "plaid.exe" if os.name == "nt" else "plaid"
_FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGED = os.path.join(_FOLDER, "bin", _NAME)
#: The script that compiles the program, if this is a clone (PYTHONPATH, or an editable install).
BUILD = os.path.join(os.path.dirname(os.path.dirname(_FOLDER)), "build.py")


def compile_command() -> str | None:
    """Returns the command that compiles the program in a clone; None for an installed package."""
    if not os.path.isfile(BUILD):
        return None
    return f"{shlex.quote(sys.executable or 'python3')} {shlex.quote(BUILD)} --in-place"


def find_binary(given: str | os.PathLike[str] | None) -> str:
    """Returns the path of the program: the given one, $PLAID_BINARY, or the one in this package.

    If the given one or $PLAID_BINARY does not exist, raises FileNotFoundError and does not try the next.
    """
    if given is not None:
        path, source = os.fspath(given), "binary"
    elif os.environ.get(ENVIRONMENT):
        path, source = os.environ[ENVIRONMENT], ENVIRONMENT
    else:
        path, source = PACKAGED, "this package"
    if not os.path.isfile(path):
        hint = ""
        if source == "this package":
            command = compile_command()
            cure = "this platform has no wheel with the program: compile it (go build ./cmd/plaid)"
            if command:
                cure = f"compile it with Go: {command}"
            hint = f"; {cure}, or set {ENVIRONMENT} to its path, or use Index(url=...)"
        raise FileNotFoundError(f"the program plaid is not at {path} (from {source}){hint}")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"the program at {path} (from {source}) is not executable")
    return path
