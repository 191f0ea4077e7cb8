"""Runs `plaid serve` for the processes that use a folder, or an object store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
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
from ._locks import SharedLock, exclusive, remove_abandoned_builds

#: Seconds between asking the program to stop and killing it.
_STOP_TIMEOUT = 60.0
#: Seconds between closing the program's stdin and asking it to stop: a forked child may keep its stdin open.
_EOF_TIMEOUT = 5.0
#: How long the program waits for another program, which is stopping, to release the folder.
_LOCK_TIMEOUT = "5s"
#: The folder of the socket, inside the folder of the indexes.
_RUN_FOLDER = ".service"
#: The longest path of a Unix socket that every system accepts, in bytes.
_MAX_SOCKET_PATH = 100

UNIX = hasattr(socket, "AF_UNIX")


class _Killed(ServiceError):
    """The program was killed while it was starting."""


class _StartedProgram:
    """The program that this process started.

    It is apart from `Service`, since the finalizer of a service must not refer to the service.
    """

    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    remove: str | None = None

    def stop(self, pid: int) -> None:
        if pid != os.getpid():  # a forked child
            return
        if self.process is not None:
            assert self.process.stdin is not None
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            if sys.platform != "win32":  # Windows has no fork
                try:
                    self.process.wait(_EOF_TIMEOUT)
                except subprocess.TimeoutExpired:
                    self.process.terminate()
            _wait_or_kill(self.process)
        if self.log is not None:
            self.log.close()
        if self.remove is not None:
            shutil.rmtree(self.remove, ignore_errors=True)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Waits for a program that was asked to stop, and kills it if it does not."""
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Service:
    """`plaid serve` for a folder of indexes, behind a Unix socket in the folder that only this user can open.

    1. The first process that opens the folder starts the program. Other processes find it by its socket.
    2. If the program has ended, the next call of any of these processes starts it again.
    3. The indexes of one process share this object. Closing the last one stops the program, if this process started it.
    4. The program ends with this process, even if that is killed, because its stdin is closed then (`plaid serve
       --until-eof`). A forked child keeps the program running.
    5. With the option ``store`` the folder is the cache of an object store. The service then listens on a port of this
       machine, with a token, since the services of a store send each other requests.
    """

    _by_folder: dict[tuple[str, bool], Service] = {}
    #: Services that are being stopped; the event is set when they have stopped.
    _stopping: dict[Service, threading.Event] = {}
    #: Guards both, only briefly. Reentrant: garbage collection may release a service while another is acquired.
    _lock = threading.RLock()

    def __init__(
        self, folder: str, binary: str, options: Mapping[str, str], timeout: float, temporary: bool, read_only: bool
    ) -> None:
        self.folder, self.binary, self.timeout = folder, binary, timeout
        self.run_folder = os.path.join(folder, _RUN_FOLDER)
        #: The flags of the program that this process needs.
        self.options = dict(options)
        self.temporary, self.read_only = temporary, read_only
        self.index_count = 0
        #: Acquired while the program is being started. Other folders do not wait for it.
        self._starting = threading.RLock()
        self._started = self._ended = False
        self.pid = os.getpid()
        self.url = ""
        self.token: str | None = None
        self._run_folder_fd: int | None = None
        self._shared_lock: SharedLock | None = None
        self._program = _StartedProgram()
        self._stop = weakref.finalize(self, self._program.stop, self.pid)

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The program, if this process started it; otherwise None."""
        return self._program.process

    @property
    def place(self) -> str:
        """The folder or store of the indexes."""
        return self.options.get("store", self.folder)

    @property
    def _has_socket(self) -> bool:
        return UNIX and "store" not in self.options

    def _find_or_start(self, restart: bool = False) -> None:
        """Joins the service of the folder, or starts it. A restart keeps the options of the service that has ended."""
        run_folder = self.run_folder
        deadline = time.monotonic() + self.timeout
        try:
            os.makedirs(run_folder, mode=0o700, exist_ok=True)
            writable = os.access(run_folder, os.W_OK) and os.access(self.folder, os.W_OK)
        except OSError:
            writable = False
        # A folder that is not writable: this process starts a service of its own, with its files elsewhere.
        if not writable:
            if os.path.isdir(run_folder) and self._join_running(run_folder):
                self._refuse_conflicts(_read_options(run_folder), self.options)
                return
            if not self.read_only:
                raise PermissionError(
                    f"{self.folder} is not writable: use Index(..., read_only=True) to read it, "
                    "or Index(url=...) for a service that has it"
                )
            if self._program.remove is None:
                self._program.remove = tempfile.mkdtemp(prefix="plaid-")
            run_folder = self._program.remove
            os.makedirs(run_folder, mode=0o700, exist_ok=True)
            self._start(run_folder, {**self.options, "read-only": "true", "temporary": run_folder}, deadline)
            return
        # A writable folder: one process at a time joins its service or starts it.
        with exclusive(os.path.join(run_folder, "lock"), deadline):
            if self._shared_lock is None:
                self._shared_lock = SharedLock(os.path.join(run_folder, "users"))
                weakref.finalize(self, self._shared_lock.close)
            alone = self._shared_lock.is_alone()
            if self._join_running(run_folder):
                self._refuse_conflicts(_read_options(run_folder), self.options)
                return
            known = (_read_options(run_folder) or {}) if restart or not alone else {}
            if not restart:
                self._refuse_conflicts({**self.options, **known}, self.options)
            options = {**known, **self.options}
            self._start(run_folder, {**options, "temporary": self.folder} if self.temporary else options, deadline)
            with open(os.path.join(run_folder, f"options-{os.getpid()}"), "w", encoding="utf-8") as f:
                json.dump(options, f)
            os.replace(f.name, os.path.join(run_folder, "options"))

    def _refuse_conflicts(self, running: Mapping[str, str] | None, options: Mapping[str, str]) -> None:
        """Raises ValueError if the running service lacks one of the options. ``running`` is None if unknown."""
        for name, value in options.items():
            if running is None or running.get(name) == value:
                continue
            conflict = f"{name} is {value} here, but the service of {self.place}, which is already running, "
            if name in running:
                raise ValueError(
                    f"{conflict}has {name} {running[name]}: omit {name} or use the same, "
                    "or close the other indexes first"
                )
            raise ValueError(
                f"{conflict}was started without {name}: close the other indexes and processes that use it first, "
                f"or open the first of them with {name}="
            )

    def _socket_path(self, run_folder: str) -> tuple[str, str]:
        """Returns the folder of the socket, and a path of the socket that is short enough for the system."""
        path = os.path.join(run_folder, "socket")
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
            return run_folder, path
        if os.path.isdir("/proc/self/fd"):
            fd = self._run_folder_fd
            if fd is None or not os.path.samestat(os.fstat(fd), os.stat(run_folder)):  # it was replaced
                fd = self._run_folder_fd = os.open(run_folder, os.O_RDONLY | os.O_DIRECTORY)
                weakref.finalize(self, os.close, fd)
            return run_folder, f"/proc/self/fd/{fd}/socket"
        name = hashlib.sha256(os.fsencode(run_folder)).hexdigest()[:16]
        short = os.path.join("/tmp", f"plaid-{os.getuid()}-{name}")
        os.makedirs(short, mode=0o700, exist_ok=True)
        if os.lstat(short).st_uid != os.getuid():
            raise ServiceError(f"{short} belongs to another user: remove it, or use a folder with a shorter path")
        return short, os.path.join(short, "socket")

    def _join_running(self, run_folder: str) -> bool:
        """Sets the address of the folder's running service. Returns False if none is running."""
        token: str | None = None
        if self._has_socket:
            path = self._socket_path(run_folder)[1]
            if not os.path.exists(path):
                return False
            url = "unix:" + path
        else:
            try:
                with open(os.path.join(run_folder, "address"), encoding="utf-8") as f:
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

    def _start(self, run_folder: str, options: Mapping[str, str], deadline: float) -> None:
        """Starts the program, and waits until it has opened the indexes and answers."""
        # 1. Clean up after an earlier program.
        program = self._program
        if program.process is not None and program.process.stdin is not None:
            program.process.stdin.close()
        if program.log is None:
            program.log = tempfile.TemporaryFile()
        begin = program.log.seek(0, os.SEEK_END)
        remove_abandoned_builds(run_folder)
        # 2. Build the command. Variables that configure the user's own services do not apply to this one.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLAID_SERVE_")}
        has_socket = self._has_socket
        if has_socket:
            directory, path = self._socket_path(run_folder)
            listen, self.url, self.token = "unix:socket", "unix:" + path, None
        else:
            directory, listen, self.url, self.token = run_folder, "127.0.0.1:0", "", secrets.token_hex(24)
            environment["PLAID_SERVE_TOKENS"] = f"python admin {self.token}"
        command = [self.binary, "serve", "--until-eof", "--data", self.folder, "--listen", listen]
        command += ["--max-indexes", "0"]  # no limit: all clients are programs of this user
        command += ["--log-format", "json", "--log-level", "warn" if has_socket else "info"]
        command += ["--lock-timeout", _LOCK_TIMEOUT]
        if "store" in options:  # the name of this service among those of the store; it stays the same after a restart
            cache = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]
            command += ["--node", re.sub(r"[^A-Za-z0-9-]+", "-", f"{socket.gethostname()}-python-{cache}")]
        command += [f"--{name}={value}" for name, value in options.items()]
        # 3. Start it.
        try:
            process = program.process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=program.log,
                env=environment,
                start_new_session=True,  # Ctrl-C in this process must not stop it
            )
        except OSError as e:
            raise ServiceError(f"{self.binary} cannot be started: {e}") from e
        # 4. Wait until it answers.
        pause = 0.002
        while True:
            if not has_socket and not self.url:
                self.url = self._logged_address(begin)
            if self.url and self._is_alive():
                break
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                reason = self.exit_reason() if ended else f"plaid serve does not answer after {self.timeout:g} s"
                assert process.stdin is not None
                process.stdin.close()
                process.kill()
                code = process.wait()
                raise (_Killed if ended and code < 0 else ServiceError)(reason)
            time.sleep(pause)
            pause = min(1.2 * pause, 0.05)  # most start within 20 ms
        # 5. Write its address for other processes.
        if not has_socket:
            temporary = os.path.join(run_folder, f"address-{os.getpid()}")
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
                json.dump([self.url, self.token], f)
            os.replace(temporary, os.path.join(run_folder, "address"))

    def _is_alive(self) -> bool:
        client = Client(self.url, self.token, self.timeout)
        try:
            client.request("GET", "/livez")
            return True
        except ServiceError:
            return False
        finally:
            client.close()

    def _log_lines(self, begin: int = 0) -> list[dict[str, Any]]:
        """Returns the last lines of the program's log."""
        log = self._program.log
        assert log is not None
        begin = max(begin, os.fstat(log.fileno()).st_size - 16000)
        if sys.platform == "win32":
            log.seek(begin)
            text = log.read()
        else:  # pread does not move the file's position, at which the program writes
            text = os.pread(log.fileno(), 16000, begin)
        lines: list[dict[str, Any]] = []
        for line in text.decode(errors="replace").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"msg": line})
        return lines

    def _logged_address(self, begin: int) -> str:
        return next((str(line["address"]) for line in self._log_lines(begin) if line.get("msg") == "serving"), "")

    def exit_reason(self) -> str:
        """Describes why the program has ended."""
        process = self.process
        if process is None:
            return f"the service of {self.place}, which another process started, has ended"
        lines = (" ".join(str(v) for k, v in line.items() if k in ("msg", "error")) for line in self._log_lines()[-5:])
        message = "; ".join(lines).strip()
        if process.returncode == 6:
            message += "; a program that Python did not start is using the folder: use Index(url=...) for it"
        return f"plaid serve ended with exit status {process.returncode}: {message or 'without a message'}"

    def revive(self) -> None:
        """Joins or starts the service after the program, or the process that started it, has ended."""
        with self._starting:
            if self._is_alive():  # another thread has restarted it
                return
            if self.pid != os.getpid():  # a forked child: it starts a program of its own
                self.pid, self._program = os.getpid(), _StartedProgram()
                self._stop = weakref.finalize(self, self._program.stop, self.pid)
            elif self.process is not None and self.process.poll() is None:
                self.process.kill()  # it runs but does not answer
                self.process.wait()
            try:
                self._find_or_start(restart=True)
            except _Killed:
                self._find_or_start(restart=True)
            finally:
                if self._ended:  # the last index was closed in the meantime
                    self._program.stop(self.pid)

    def _add_options(self, options: Mapping[str, str]) -> None:
        """Adds the options of another index of this process.

        If the service lacks some, it is restarted with them. That is possible only if this process started it and no
        other process uses it.
        """
        running = _read_options(self.run_folder)
        missing = [name for name, value in options.items() if running is not None and running.get(name) != value]
        if running is None or not missing:
            self.options.update(options)
            return
        process = self.process
        if any(name in running for name in missing) or process is None or self._shared_lock is None:
            self._refuse_conflicts(running, options)
        before = dict(self.options)
        assert process is not None and self._shared_lock is not None
        with exclusive(os.path.join(self.run_folder, "lock"), time.monotonic() + self.timeout):
            if not self._shared_lock.is_alone():
                self._refuse_conflicts(running, options)
            process.terminate()
            _wait_or_kill(process)
        self.options.update(options)
        try:
            self._find_or_start(restart=True)
        except BaseException:
            self.options = before  # the next call starts the service with these
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
        """Returns the service of a folder, for another index of this process. Starts it if it is not running."""
        if not read_only:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.isdir(folder):
            raise FileNotFoundError(f"folder {os.fspath(folder)} does not exist, and read_only=True does not create it")
        folder = os.path.realpath(folder)
        found = find_binary(binary)
        while True:
            with cls._lock:
                stopping = next((event for service, event in cls._stopping.items() if service.folder == folder), None)
                service = cls._by_folder.get((folder, read_only)) or cls._by_folder.get((folder, False))
                if service is None and stopping is None:
                    service = cls(folder, found, options, timeout, temporary, read_only)
                    cls._by_folder[folder, read_only] = service
                if service is not None:
                    service.index_count += 1
            if service is None:
                assert stopping is not None
                stopping.wait()
                continue
            with service._starting:
                if service._ended:  # another thread failed to start it, or has closed the last index
                    continue
                try:
                    service._start_or_add_options(options, None if binary is None else found)
                except BaseException:
                    service.release()
                    raise
                return service

    def _start_or_add_options(self, options: Mapping[str, str], binary: str | None) -> None:
        """Starts the service for the first index of this process, or adds the options of another index."""
        if not self._started:
            try:
                self._find_or_start()
            except BaseException:
                self._stop_program()  # threads that wait for it may succeed with their own options
                raise
            self._started = True
        elif binary is not None and self.binary != binary:
            raise ValueError(f"{self.place} is already open with another binary: {self.binary}, not {binary}")
        else:
            if self.process is not None and self.process.poll() is not None:
                self.revive()
            self._add_options(options)

    def release(self) -> None:
        """Stops the service unless another index of this process uses it."""
        if self.pid != os.getpid():
            return
        with self._lock:
            self.index_count -= 1
            if self.index_count > 0:
                return
        self._stop_program()

    def _stop_program(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            for key in [key for key, service in self._by_folder.items() if service is self]:
                del self._by_folder[key]
            stopped = Service._stopping[self] = threading.Event()
        try:
            self._stop()
            if self._shared_lock is not None:
                self._shared_lock.close()
        finally:
            with self._lock:
                Service._stopping.pop(self, None)
            stopped.set()


def _read_options(run_folder: str) -> dict[str, str] | None:
    """Returns the options with which the service was started; None if they are not known."""
    try:
        with open(os.path.join(run_folder, "options"), encoding="utf-8") as f:
            return dict(json.load(f))
    except (OSError, ValueError):
        return None


def _reset_after_fork() -> None:
    # Locks may have been acquired by threads of the parent, which the child does not have. Services are the parent's.
    Service._lock = threading.RLock()
    for service in Service._by_folder.values():
        service._starting = threading.RLock()
    Service._by_folder, Service._stopping = {}, {}


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_reset_after_fork)
