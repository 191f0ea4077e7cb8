"""Finds the program."""

from __future__ import annotations

import os

ENVIRONMENT = "PLAID_BINARY"
PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "plaid.exe" if os.name == "nt" else "plaid")


def find_binary(given: str | os.PathLike[str] | None) -> str:
    """The program that is named, that of $PLAID_BINARY, or the one in this package.

    One that is named and not there is an error: another is never taken instead.
    """
    if given is not None:
        path, whence = os.fspath(given), "binary"
    elif os.environ.get(ENVIRONMENT):
        path, whence = os.environ[ENVIRONMENT], ENVIRONMENT
    else:
        path, whence = PACKAGED, "this package"
    if not os.path.isfile(path):
        hint = ""
        if whence == "this package":
            hint = f": there is no wheel for this platform, or this is an editable install; set {ENVIRONMENT}, or use Index(url=...)"
        raise FileNotFoundError(f"the program plaid is not at {path} (from {whence}){hint}")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"the program at {path} (from {whence}) cannot be executed")
    return path
