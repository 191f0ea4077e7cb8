"""File locks between processes. The system releases them when their process ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from typing import IO, Generator

from ._errors import ServiceError

#: The file in a build's folder that is locked while the build runs.
_LOCK = "lock"

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: IO[bytes]) -> bool:
        """Locks a file and returns True, or returns False if another process has the lock."""
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

    def try_lock(file: IO[bytes]) -> bool:
        """Locks a file and returns True, or returns False if another process has the lock."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False

    def unlock(file: IO[bytes]) -> None:
        # Closing the file would not unlock it while a forked child has it open.
        fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def exclusive(path: str, deadline: float) -> Generator[None, None, None]:
    """Lets only one process at a time run the block."""
    with open(path, "a+b") as file:
        while not try_lock(file):
            if time.monotonic() > deadline:
                raise ServiceError(f"another process has been starting the service for too long: {path} is locked")
            time.sleep(0.02)
        try:
            yield
        finally:
            unlock(file)


class SharedLock:
    """A shared lock on a file. Every process that uses a folder has one.

    Windows has no such locks: there, a process always counts as alone.
    """

    def __init__(self, path: str) -> None:
        self._fd: int | None = None
        if sys.platform != "win32":
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def is_alone(self) -> bool:
        """Reports whether no other process has the lock. Call it only within `exclusive`."""
        if sys.platform == "win32":
            return True
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_SH)  # the exclusive lock was needed only for the test

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@contextlib.contextmanager
def temporary_build_folder(place: str) -> Generator[str, None, None]:
    """Creates a folder in ``place`` for a build, and removes it at the end.

    If the process is killed, `remove_abandoned_builds` of a later one removes it.
    """
    with exclusive(os.path.join(place, _LOCK), time.monotonic() + 60):
        remove_abandoned_builds(place)
        folder = tempfile.mkdtemp(prefix="build-", dir=place)
        lock_file = open(os.path.join(folder, _LOCK), "a+b")
        try_lock(lock_file)
    try:
        yield folder
    finally:
        lock_file.close()
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned_builds(place: str) -> None:
    """Removes the folders of builds whose processes were killed. The caller has the lock of ``place``."""
    for entry in os.scandir(place):
        if not entry.name.startswith("build-") or not entry.is_dir():
            continue
        with contextlib.suppress(OSError):
            with open(os.path.join(entry.path, _LOCK), "a+b") as file:
                if not try_lock(file):
                    continue
            shutil.rmtree(entry.path, ignore_errors=True)
