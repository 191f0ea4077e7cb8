"""Locks of files, between processes: they go with the process that has them, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from typing import IO, Generator

from ._errors import ServiceError

#: The file that says, while it is locked, that somebody uses a folder of a build.
_LOCK = "lock"

if sys.platform == "win32":
    import msvcrt

    def lock(file: IO[bytes]) -> bool:
        """Locks a file, unless another process has."""
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return True
        except OSError:
            return False

    def unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def lock(file: IO[bytes]) -> bool:
        """Locks a file, unless another process has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False

    def unlock(file: IO[bytes]) -> None:  # said, since a child that was forked meanwhile has the file open
        fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def one_at_a_time(path: str, deadline: float) -> Generator[None, None, None]:
    """Lets one process at a time do something: look for the service, and start it."""
    with open(path, "a+b") as file:
        while not lock(file):
            if time.monotonic() > deadline:
                raise ServiceError(f"another process has been starting the service for long: {path} is locked")
            time.sleep(0.02)
        try:
            yield
        finally:
            unlock(file)


class Users:
    """The processes that use a folder, each with a share of the lock of a file. Windows has no
    such locks: a process is alone there."""

    def __init__(self, path: str) -> None:
        self._fd: int | None = None
        if sys.platform != "win32":
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def alone(self) -> bool:
        """Whether no other process has a share; one that may start the service asks."""
        if sys.platform == "win32":
            return True
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_SH)  # nobody has more than a share for long

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@contextlib.contextmanager
def build_folder(place: str) -> Generator[str, None, None]:
    """A folder for a build, which is removed at its end, or when somebody looks after its process
    was killed."""
    with one_at_a_time(os.path.join(place, _LOCK), time.monotonic() + 60):
        remove_remains(place)
        folder = tempfile.mkdtemp(prefix="build-", dir=place)
        held = open(os.path.join(folder, _LOCK), "a+b")
        lock(held)
    try:
        yield folder
    finally:
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


def remove_remains(place: str) -> None:
    """Removes what killed processes have left of builds; the lock of the place is to be had."""
    for entry in os.scandir(place):
        if not entry.name.startswith("build-") or not entry.is_dir():
            continue
        with contextlib.suppress(OSError):
            with open(os.path.join(entry.path, _LOCK), "a+b") as file:
                if not lock(file):
                    continue
            shutil.rmtree(entry.path, ignore_errors=True)
