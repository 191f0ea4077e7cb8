"""Runs the program as a service of the processes that use a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import IO, Any, Mapping

from ._binary import find_binary
from ._errors import PlaidError, ServiceError
from ._http import Client
from ._locks import Users, one_at_a_time, remove_remains

#: How long an orderly end may take before the program is ended by force, in seconds.
_END = 60.0
#: How long the end of stdin may take to end it, in seconds: a child that was forked may hold the other end.
_EOF = 5.0
#: How long the program waits for one that ends to leave the folder.
_LOCK = "5s"
#: The folder of the socket, in that of the indexes.
_PLACE = ".service"
#: Bytes of the longest address of a Unix socket everywhere.
_LONGEST = 100

UNIX = hasattr(socket, "AF_UNIX")


class _Killed(ServiceError):
    """The program was killed while it started."""


class _Running:
    """What this process started. It is apart from the service so that the end of that can end it."""

    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    remove: str | None = None

    def end(self, pid: int) -> None:
        if pid != os.getpid():  # a child that was forked
            return
        if self.process is not None:
            assert self.process.stdin is not None
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                if sys.platform != "win32":  # where nothing forks
                    try:
                        self.process.wait(_EOF)
                    except subprocess.TimeoutExpired:
                        self.process.terminate()
                self.process.wait(_END)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.log is not None:
            self.log.close()
        if self.remove is not None:
            shutil.rmtree(self.remove, ignore_errors=True)


class Service:
    """`plaid serve` on a folder of indexes, behind a Unix socket that only this user reaches.

    The socket is in the folder. Whoever opens the folder first starts the program, other
    processes find it there, and when it has ended the next call of any of them starts it again.
    Indexes of one process share this object, and the last one that is closed ends the program if
    this process started it. It ends with this process however that ends, since it holds the other
    end of its stdin (`plaid serve --until-eof`). A child that was forked keeps it alive, too.
    """

    _all: dict[tuple[str, bool], Service] = {}
    _lock = threading.RLock()  # a collection of garbage may release while a service is acquired

    def __init__(self, folder: str, binary: str, options: Mapping[str, str], timeout: float, temporary: bool, read_only: bool) -> None:
        self.folder, self.binary, self.timeout = folder, binary, timeout
        self.place = os.path.join(folder, _PLACE)
        #: Flags of the program that were asked for here.
        self.options = dict(options)
        self.temporary, self.read_only = temporary, read_only
        self.users = 0
        self.pid = os.getpid()
        self.url = ""
        self.token: str | None = None
        self._at: int | None = None
        self._users: Users | None = None
        self._running = _Running()
        self._end = weakref.finalize(self, self._running.end, self.pid)
        try:
            self._open()
        except BaseException:
            self._end()
            if self._users is not None:
                self._users.close()
            raise

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The program, if this process started it."""
        return self._running.process

    def _open(self, again: bool = False) -> None:
        """Finds the service of the folder, or starts it; again, where it has been open."""
        place = self.place
        deadline = time.monotonic() + self.timeout
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            writable = os.access(place, os.W_OK) and os.access(self.folder, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            if os.path.isdir(place) and self._join(place):
                self._agree(_recorded(place), self.options)
                return
            if not self.read_only:
                raise PermissionError(f"{self.folder} cannot be written to: Index(..., read_only=True) reads it, Index(url=...) asks a service that has it")
            if self._running.remove is None:
                self._running.remove = tempfile.mkdtemp(prefix="plaid-")
            place = self._running.remove
            os.makedirs(place, mode=0o700, exist_ok=True)
            self._start(place, {**self.options, "read-only": "true", "temporary": place}, deadline)
            return
        with one_at_a_time(os.path.join(place, "lock"), deadline):
            if self._users is None:
                self._users = Users(os.path.join(place, "users"))
                weakref.finalize(self, self._users.close)
            alone = self._users.alone()
            if self._join(place):
                self._agree(_recorded(place), self.options)
                return
            known = (_recorded(place) or {}) if again or not alone else {}
            if not again:
                self._agree({**self.options, **known}, self.options)
            options = {**known, **self.options}
            self._start(place, {**options, "temporary": self.folder} if self.temporary else options, deadline)
            with open(os.path.join(place, f"options-{os.getpid()}"), "w", encoding="utf-8") as f:
                json.dump(options, f)
            os.replace(f.name, os.path.join(place, "options"))

    def _agree(self, there: Mapping[str, str] | None, options: Mapping[str, str]) -> None:
        """Refuses options that the service does not have; None: it is not known what it has."""
        for name, value in options.items():
            if there is None or there.get(name) == value:
                continue
            what = f"{name} is {value} here, and the service of {self.folder}, which is open already, "
            if name in there:
                raise ValueError(f"{what}has {name} {there[name]}: leave {name} out or take the same, or close the other indexes first")
            raise ValueError(f"{what}runs without {name}: close the other indexes and processes that use it first, or open the first of them with {name}=")

    def _socket(self, place: str) -> tuple[str, str]:
        """The folder of the socket, and its path as this process reaches it: addresses are short."""
        path = os.path.join(place, "socket")
        if len(os.fsencode(path)) <= _LONGEST:
            return place, path
        if os.path.isdir("/proc/self/fd"):
            if self._at is None or not os.path.samestat(os.fstat(self._at), os.stat(place)):  # it may have been made again
                self._at = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                weakref.finalize(self, os.close, self._at)
            return place, f"/proc/self/fd/{self._at}/socket"
        name = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
        short = os.path.join("/tmp", f"plaid-{os.getuid()}-{name}")
        os.makedirs(short, mode=0o700, exist_ok=True)
        if os.lstat(short).st_uid != os.getuid():
            raise ServiceError(f"{short} is another user's")
        return short, os.path.join(short, "socket")

    def _join(self, place: str) -> bool:
        """Whether the service of another process answers."""
        token: str | None = None
        if UNIX:
            path = self._socket(place)[1]
            if not os.path.exists(path):
                return False
            url = "unix:" + path
        else:
            try:
                with open(os.path.join(place, "address"), encoding="utf-8") as f:
                    url, token = json.load(f)
            except (OSError, ValueError):
                return False
        client = Client(url, token, self.timeout)
        try:
            client.request("GET", "/indices")
        except PlaidError:
            return False
        finally:
            client.close()
        self.url, self.token = url, token
        return True

    def _start(self, place: str, options: Mapping[str, str], deadline: float) -> None:
        """Starts the program, and waits until it answers: it opens the indexes first."""
        running = self._running
        if running.process is not None and running.process.stdin is not None:
            running.process.stdin.close()
        if running.log is None:
            running.log = tempfile.TemporaryFile()
        begin = running.log.seek(0, os.SEEK_END)
        remove_remains(place)
        # What is set for other services of this user is not meant for this one.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLAID_SERVE_")}
        if UNIX:
            directory, path = self._socket(place)
            listen, self.url, self.token = "unix:socket", "unix:" + path, None
        else:
            directory, listen, self.url, self.token = place, "127.0.0.1:0", "", secrets.token_hex(24)
            environment["PLAID_SERVE_TOKENS"] = f"python admin {self.token}"
        command = [self.binary, "serve", "--until-eof", "--data", self.folder, "--listen", listen, "--log-format", "json"]
        command += ["--log-level", "warn" if UNIX else "info", "--lock-timeout", _LOCK, *(f"--{name}={value}" for name, value in options.items())]
        try:
            process = running.process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=running.log,
                env=environment,
                start_new_session=True,  # an interrupt of this program is none of the service
            )
        except OSError as e:
            raise ServiceError(f"{self.binary} cannot be started: {e}") from e
        pause = 0.005
        while True:
            if not UNIX and not self.url:
                self.url = self._address(begin)
            if self.url and self._answers():
                break
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                why = self.why() if ended else f"plaid serve does not answer after {self.timeout:g} s"
                assert process.stdin is not None
                process.stdin.close()
                process.kill()
                code = process.wait()
                raise (_Killed if ended and code < 0 else ServiceError)(why)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        if not UNIX:
            temporary = os.path.join(place, f"address-{os.getpid()}")
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
                json.dump([self.url, self.token], f)
            os.replace(temporary, os.path.join(place, "address"))

    def _answers(self) -> bool:
        client = Client(self.url, self.token, self.timeout)
        try:
            client.request("GET", "/livez")
            return True
        except ServiceError:
            return False
        finally:
            client.close()

    def _said(self, begin: int = 0) -> list[dict[str, Any]]:
        """Lines of the program's log."""
        log = self._running.log
        assert log is not None
        size = log.seek(0, os.SEEK_END)
        log.seek(max(begin, size - 16000))
        lines: list[dict[str, Any]] = []
        for line in log.read().decode(errors="replace").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"msg": line})
        return lines

    def _address(self, begin: int) -> str:
        return next((str(line["address"]) for line in self._said(begin) if line.get("msg") == "serving"), "")

    def why(self) -> str:
        """Why the program has ended."""
        process = self.process
        if process is None:
            return f"the service of {self.folder}, of another process, has ended"
        said = "; ".join(" ".join(str(v) for k, v in line.items() if k in ("msg", "error")) for line in self._said()[-5:]).strip()
        if process.returncode == 6:
            said += "; a program that Python did not start has the folder: ask it by Index(url=...)"
        return f"plaid serve ended with exit status {process.returncode}: {said or 'it said nothing'}"

    def revive(self) -> None:
        """Finds the service again, or starts it: it was killed, or the process that had it ended."""
        with Service._lock:
            if self._answers():  # another thread was faster
                return
            if self.pid != os.getpid():  # a child that was forked: what it starts is its own
                self.pid, self._running = os.getpid(), _Running()
                self._end = weakref.finalize(self, self._running.end, self.pid)
            elif self.process is not None and self.process.poll() is None:
                self.process.kill()  # it does not answer any more
                self.process.wait()
            try:
                self._open(again=True)
            except _Killed:  # once more
                self._open(again=True)

    def _widen(self, options: Mapping[str, str]) -> None:
        """Takes options of a further index of this process. Those that the service lacks it gets by
        a new start, if this process has it for itself."""
        there = _recorded(self.place)
        if there is None or all(there.get(name) == value for name, value in options.items()):
            self.options.update(options)
            return
        process = self.process
        if any(name in there for name in options if there.get(name) != options[name]) or process is None or self._users is None:
            self._agree(there, options)
        before = dict(self.options)
        assert process is not None and self._users is not None
        with one_at_a_time(os.path.join(self.place, "lock"), time.monotonic() + self.timeout):
            if not self._users.alone():
                self._agree(there, options)
            process.terminate()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.options.update(options)
        try:
            self._open(again=True)
        except BaseException:
            self.options = before  # the next call starts it with these
            raise

    @classmethod
    def acquire(
        cls,
        folder: str | os.PathLike[str],
        binary: str | os.PathLike[str] | None,
        options: Mapping[str, str],
        timeout: float,
        temporary: bool = False,
        read_only: bool = False,
    ) -> Service:
        """The service of a folder, which is started unless it runs."""
        if not read_only:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.isdir(folder):
            raise FileNotFoundError(f"there is no folder {os.fspath(folder)} to read")
        folder = os.path.realpath(folder)
        found = find_binary(binary)
        with cls._lock:
            service = cls._all.get((folder, read_only)) or cls._all.get((folder, False))
            if service is None:
                service = cls._all[folder, read_only] = cls(folder, found, options, timeout, temporary, read_only)
            elif binary is not None and service.binary != found:
                raise ValueError(f"{folder} is open with another binary: {service.binary}, not {found}")
            else:
                if service.process is not None and service.process.poll() is not None:
                    service.revive()
                service._widen(options)
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
            for key in [key for key, service in self._all.items() if service is self]:
                del self._all[key]
            self._end()
            if self._users is not None:
                self._users.close()


def _recorded(place: str) -> dict[str, str] | None:
    """What the service was started with."""
    try:
        with open(os.path.join(place, "options"), encoding="utf-8") as f:
            return dict(json.load(f))
    except (OSError, ValueError):
        return None


def _after_fork() -> None:
    # Another thread of the parent may have had the lock, and the services are the parent's.
    Service._lock = threading.RLock()
    Service._all = {}


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
