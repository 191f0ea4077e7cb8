"""Finds the program plaid."""

from __future__ import annotations

import os

ENVIRONMENT = "PLAID_BINARY"
_NAME = "plaid.exe" if os.name == "nt" else "plaid"
PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", _NAME)


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
            hint = (
                ": there is no wheel for this platform, or this is an editable install; "
                f"set {ENVIRONMENT}, or use Index(url=...)"
            )
        raise FileNotFoundError(f"the program plaid is not at {path} (from {source}){hint}")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"the program at {path} (from {source}) cannot be executed")
    return path
