"""Finds the program plaid."""

from __future__ import annotations

import os
import shlex
import sys

ENVIRONMENT = "PLAID_BINARY"
_NAME = "plaid.exe" if os.name == "nt" else "plaid"
_FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGED = os.path.join(_FOLDER, "bin", _NAME)
#: Compiles the program, where these are the sources in a clone (PYTHONPATH, or an editable install).
BUILD = os.path.join(os.path.dirname(os.path.dirname(_FOLDER)), "build.py")


def compile_command() -> str | None:
    """The command that compiles what an editable install lacks; None for a package that is installed."""
    if not os.path.isfile(BUILD):
        return None
    return f"{shlex.quote(sys.executable or 'python3')} {shlex.quote(BUILD)} --in-place"


def find_binary(given: str | os.PathLike[str] | None) -> str:
    """The given program, that of $PLAID_BINARY, or the one in this package. A program that is named and missing is an
    error: no other takes its place."""
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
            none = "no wheel has it for this platform: compile it (go build ./cmd/plaid)"
            way = f"compile it by Go: {command}" if command else none
            hint = f"; {way}, or name one in {ENVIRONMENT}, or use Index(url=...)"
        raise FileNotFoundError(f"the program plaid is not at {path} (from {source}){hint}")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"the program at {path} (from {source}) cannot be executed")
    return path
