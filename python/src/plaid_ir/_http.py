"""Requests to the service, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import ssl
import threading
import time
from typing import IO, Any, Iterable, Iterator, Mapping, cast
from urllib.parse import urlsplit

from ._arrays import to_json
from ._errors import EmptyIndexError, PlaidError, RequestError, ServiceError, Unreachable

#: Up to this size a body is sent at once, which saves half of what a request costs in Python.
_SMALL = 256 << 10

_BROKEN = (BrokenPipeError, ConnectionError, http.client.BadStatusLine, http.client.CannotSendRequest)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class _Held:
    """The connection of a thread, which closes with it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.pid = os.getpid()

    def __del__(self) -> None:
        self.connection.close()


class _Answer:
    """Head of an answer: as much of it as is looked at."""

    def __init__(self, status: int, headers: Mapping[str, str], will_close: bool) -> None:
        self.status, self.headers, self.will_close = status, headers, will_close


def _piecewise(
    connection: http.client.HTTPConnection, method: str, path: str, pieces: Iterable[bytes | memoryview] | None, headers: Mapping[str, str], used: bool
) -> tuple[_Answer, bytes]:
    """Sends a body piece by piece."""
    try:
        connection.request(method, path, body=None if pieces is None else iter(pieces), headers=dict(headers))
    except (BrokenPipeError, ConnectionResetError):
        if used:
            raise
        # A body that is refused is not read to its end; the answer says why.
    return _whole(connection.getresponse())


def _whole(response: http.client.HTTPResponse) -> tuple[_Answer, bytes]:
    answer = response.read()
    return _Answer(response.status, cast("Mapping[str, str]", response.headers), response.will_close), answer


def _at_once(
    connection: http.client.HTTPConnection, method: str, path: str, pieces: Iterable[bytes | memoryview] | None, headers: Mapping[str, str]
) -> tuple[_Answer, bytes]:
    """Sends a request with one system call, and reads an answer whose length is told with few
    more. http.client takes .2 ms for the same."""
    if connection.sock is None:
        connection.connect()
    sock = cast("socket.socket", connection.sock)
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    head = [f"{method} {path} HTTP/1.1\r\nHost: {host}:{connection.port}\r\nAccept-Encoding: identity"]
    for name, value in headers.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"the header {name} has a line break in it")
        head.append(f"{name}: {value}")
    sock.sendall(b"".join([("\r\n".join(head) + "\r\n\r\n").encode("ascii"), *(pieces or ())]))
    got = b""
    while (end := got.find(b"\r\n\r\n")) < 0 and len(got) < _SMALL:
        piece = sock.recv(1 << 16)
        if not piece:
            raise http.client.BadStatusLine("the connection was closed without an answer")
        got += piece
    lines = got[: max(end, 0)].decode("latin-1").split("\r\n")
    there = {name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = there.get("Content-Length", "")
    if not lines[0].startswith("HTTP/1.1 ") or lines[0][9:10] == "1" or not length.isdigit():
        response = http.client.HTTPResponse(cast("socket.socket", _Again(got, sock)), method=method)
        response.begin()
        return _whole(response)
    rest, missing = [got[end + 4 :]], int(length) - (len(got) - end - 4)
    while missing > 0:
        piece = sock.recv(min(missing, 1 << 20))
        if not piece:
            raise ConnectionError("the answer broke off")
        rest.append(piece)
        missing -= len(piece)
    return _Answer(int(lines[0][9:12]), there, there.get("Connection", "").lower() == "close"), b"".join(rest)


class _Again(io.RawIOBase):
    """What was read of a socket, and what comes then."""

    def __init__(self, read: bytes, sock: socket.socket) -> None:
        self._read, self._sock = read, sock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._read:
            return self._sock.recv_into(into)
        n = min(len(into), len(self._read))
        into[:n] = self._read[:n]
        self._read = self._read[n:]
        return n


class Client:
    """Sends requests to one service. Any number of threads may share it, each has a
    connection of its own; so has a process after a fork."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 300.0, context: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._timeout = timeout
        self._context = context
        self._local = threading.local()
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._host: str | None = None
        self._port: int | None = None
        parts = urlsplit(url)
        self._scheme, self._base = parts.scheme, ""
        if parts.scheme == "unix":
            self._path = url[len("unix:") :].removeprefix("//")  # a folder may have ? and # in its name
            if not self._path:
                raise ValueError(f"{url!r} has no path; want unix:/run/plaid/socket")
        elif parts.scheme in ("http", "https") and parts.hostname:
            self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        else:
            raise ValueError(f"{url!r} is no address; want http://HOST:PORT, https://HOST or unix:/PATH")

    def _connect(self) -> http.client.HTTPConnection:
        if self._scheme == "unix":
            return _UnixConnection(self._path, self._timeout)
        assert self._host is not None
        if self._scheme == "https":
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """The connection of this thread, and whether it has been used before."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and held.pid == os.getpid():
            return held.connection, True
        # After a fork the connection is the parent's, which goes on using it.
        self._local.held = _Held(self._connect())
        return self._local.held.connection, False

    def close(self) -> None:
        """Closes the connection of this thread; those of others close with their threads."""
        self._local.held = None

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        tensors: tuple[Iterable[bytes | memoryview], int] | None = None,
        media: str = "application/octet-stream",
        prefer: str = "return=representation",
        more: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a request, with JSON or with the pieces of another body and their size, and
        returns the JSON of the answer. Every request of this package can be repeated without
        harm, and is where the connection was closed while it idled, or where the service says
        when to come again."""
        headers = {"Prefer": prefer, **self._headers, **(more or {})}
        pieces: Iterable[bytes | memoryview] | None = None
        if tensors is not None:
            pieces = tensors[0]
            headers["Content-Type"] = media
            headers["Content-Length"] = str(tensors[1])
        elif body is not None:
            text = to_json(body)
            pieces = [text]
            headers["Content-Type"] = "application/json"
            headers["Content-Length"] = str(len(text))
        deadline = time.monotonic() + self._timeout
        while True:
            status, again, answer = self._send(method, self._base + path, pieces, headers)
            if status in (429, 503) and again is not None and time.monotonic() + again < deadline:
                time.sleep(again)
                continue
            break
        if status >= 300:
            raise _error(status, answer)
        try:
            return json.loads(answer)
        except ValueError as e:
            raise ServiceError(f"{self.url} does not answer as plaid does: {e}", status=status) from e

    def _send(self, method: str, path: str, pieces: Iterable[bytes | memoryview] | None, headers: Mapping[str, str]) -> tuple[int, float | None, bytes]:
        while True:
            connection, used = self._connection()
            try:
                if int(headers.get("Content-Length", 0)) <= _SMALL:
                    response, answer = _at_once(connection, method, path, pieces, headers)
                else:
                    response, answer = _piecewise(connection, method, path, pieces, headers, used)
            except (*_BROKEN, FileNotFoundError) as e:
                self.close()
                if used:  # it was closed while it idled
                    continue
                hint = "" if pieces is None else " (a proxy may take smaller bodies only: see batch_size)"
                raise Unreachable(f"{self.url} cannot be reached, or broke off: {e}{hint}") from e
            except (OSError, http.client.HTTPException) as e:  # a time-out, no such host, a certificate
                self.close()
                raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
            except BaseException:  # an interrupt: half an answer may be waiting there
                self.close()
                raise
            if response.will_close:
                self.close()
            again = response.headers.get("Retry-After", "")
            return response.status, float(again) if again.isdigit() else None, answer

    def download(self, path: str, into: IO[bytes]) -> None:
        """Writes the body of an answer into a file. An answer that breaks off is an error."""
        self.close()
        connection = self._connection()[0]
        try:
            connection.request("GET", self._base + path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise _error(response.status, response.read())
            while piece := response.read(1 << 20):
                into.write(piece)
            if response.length:  # which read with a size does not complain of
                raise http.client.IncompleteRead(b"", response.length)
        except (*_BROKEN, http.client.IncompleteRead, FileNotFoundError) as e:
            raise Unreachable(f"{self.url} cannot be reached, or broke off: {e}") from e
        except (OSError, http.client.HTTPException) as e:
            raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
        finally:
            self.close()


class Pieces:
    """A file in pieces, from its beginning each time it is asked for them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(1 << 20):
            yield piece


def _error(status: int, answer: bytes) -> PlaidError:
    try:
        problem = json.loads(answer)
        message, code = str(problem["message"]), str(problem["code"])
        details = problem.get("details")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(f"HTTP status {status}: {answer[:200].decode(errors='replace')}", status=status)
    kind: type[PlaidError] = PlaidError
    if code == "INDEX_NOT_FOUND":
        kind = EmptyIndexError
    elif 400 <= status < 500 and status not in (401, 403, 408, 429):
        kind = RequestError
    return kind(message, code, status, details)
