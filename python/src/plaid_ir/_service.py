"""Runs the program as a service of this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import IO, Sequence

from ._binary import find_binary
from ._errors import ServiceError
from ._http import Client

#: How long an orderly end may take before the program is ended by force, in seconds.
_END = 60.0


class Service:
    """`plaid serve` on a folder of indexes, behind a Unix socket that only this user
    reaches. Indexes of one folder share it, and the last one that is closed ends it.

    It ends with this process however that ends, since it holds the other end of its
    stdin (`plaid serve --until-eof`). A child that was forked keeps it alive, too.
    """

    _all: dict[str, Service] = {}
    _lock = threading.RLock()  # a collection of garbage may release while a service is acquired

    def __init__(self, folder: str, binary: str, options: tuple[str, ...], timeout: float) -> None:
        self.folder = folder
        self.binary = binary
        self.options = options
        self.users = 0
        self.pid = os.getpid()
        self._dir = tempfile.mkdtemp(prefix="plaid-")
        path = os.path.join(self._dir, "s")
        if len(os.fsencode(path)) > 100:  # more than an address of a Unix socket holds
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = tempfile.mkdtemp(prefix="plaid-", dir="/tmp")
            path = os.path.join(self._dir, "s")
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self.url = "unix:" + path
        # What is set for other services of this user is not meant for this one.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLAID_SERVE_")}
        try:
            self.process = subprocess.Popen(
                [binary, "serve", "--until-eof", "--data", folder, "--listen", self.url, "--log-level", "warn", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=environment,
                start_new_session=True,  # an interrupt of this program is none of the service
            )
        except OSError as e:
            self._log.close()
            shutil.rmtree(self._dir, ignore_errors=True)
            raise ServiceError(f"{binary} cannot be started: {e}") from e
        self._end = weakref.finalize(self, _stop, self.process, self._dir, self.pid)
        self._wait(timeout)

    def _wait(self, timeout: float) -> None:
        """Waits until the service answers: it opens the indexes first."""
        deadline = time.monotonic() + timeout
        client = Client(self.url, timeout=timeout)
        pause = 0.005
        while True:
            try:
                client.request("GET", "/livez")
                return
            except ServiceError:
                pass
            finally:
                client.close()
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                self._end()
                why = self.why() if ended else f"plaid serve does not answer after {timeout:g} s"
                self._log.close()
                raise ServiceError(why)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def why(self) -> str:
        """Why the program has ended."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        said = self._log.read().decode(errors="replace").strip()
        if self.process.returncode == 6:
            said += "; to share an index between processes, run plaid serve and use Index(url=...)"
        return f"plaid serve ended with exit status {self.process.returncode}: {said or 'it said nothing'}"

    def check(self) -> None:
        """Says why, if the service has ended."""
        if self.pid == os.getpid() and self.process.poll() is not None:
            raise ServiceError(self.why())

    @classmethod
    def acquire(cls, folder: str | os.PathLike[str], binary: str | os.PathLike[str] | None, options: Sequence[str], timeout: float) -> Service:
        """The service of a folder, which is started if it does not run in this process."""
        os.makedirs(folder, exist_ok=True)
        folder = os.path.realpath(folder)
        found = find_binary(binary)
        with cls._lock:
            service = cls._all.get(folder)
            if service is not None and service.process.poll() is not None:
                service = None  # it has ended
            if service is None:
                service = cls._all[folder] = cls(folder, found, tuple(options), timeout)
            elif (service.binary, service.options) != (found, tuple(options)):
                raise ValueError(f"{folder} is open with other options: {service.binary} {' '.join(service.options)}")
            service.users += 1
            return service

    def release(self) -> None:
        """Ends the service if nobody else uses it."""
        if self.pid != os.getpid():
            return
        with self._lock:
            self.users -= 1
            if self.users > 0:
                return
            if self._all.get(self.folder) is self:
                del self._all[self.folder]
            self._end()
            self._log.close()


def _after_fork() -> None:
    # Another thread of the parent may have had the lock, and the services are the parent's.
    Service._lock = threading.RLock()
    Service._all = {}


if sys.platform != "win32":  # where Index(url=...) works all the same
    os.register_at_fork(after_in_child=_after_fork)


def _stop(process: subprocess.Popen[bytes], folder: str, pid: int) -> None:
    if pid != os.getpid():  # a child that was forked
        return
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        pass
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
