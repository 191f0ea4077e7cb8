"""Finds the model that encodes texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, cast

from ._binary import find_binary
from ._errors import ServiceError

#: The exit status of the program if a file, folder or model does not exist.
_NOT_FOUND = 4


def find_model(model: str | os.PathLike[str], binary: str | os.PathLike[str] | None) -> str:
    """Returns the folder of a model; for a model at the hub, its name with the commit, after downloading its files.

    ``model`` is a folder if one of that name exists. A download shows its progress if stderr is a terminal.
    """
    name = os.fspath(model)
    if os.path.isdir(name):
        return os.path.realpath(name)
    program = find_binary(binary)
    found = _run_model_command(program, name, "--no-weights")
    if found.get("missing"):
        found = _run_model_command(program, name, "--fetch")
    return str(found["name"])


def _run_model_command(program: str, name: str, *flags: str) -> dict[str, Any]:
    """Runs `plaid model` and returns its output."""
    shows_progress = "--fetch" in flags and sys.stderr is not None and sys.stderr.isatty()
    try:
        done = subprocess.run(
            [program, "model", name, "--json", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if shows_progress else subprocess.PIPE,
            check=False,
        )
    except OSError as e:
        raise ServiceError(f"{program} cannot be started: {e}") from e
    if done.returncode == 0:
        return cast("dict[str, Any]", json.loads(done.stdout))
    message = (done.stderr or b"").decode(errors="replace").strip()
    try:  # with --json the last line has the error
        message = str(json.loads(message.splitlines()[-1])["error"])
    except (ValueError, KeyError, TypeError, IndexError):
        message = message.removeprefix("plaid: ") or f"plaid model {name} ended with exit status {done.returncode}"
    raise (FileNotFoundError if done.returncode == _NOT_FOUND else ServiceError)(message)
