"""Requests to the service, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import os
import socket
import struct
import threading
import time
from typing import IO, Any, Iterable, Iterator, Mapping, NamedTuple, cast
from urllib.parse import urlsplit

from ._arrays import TENSORS, Body, read_tensors, to_json
from ._errors import EmptyIndexError, PlaidError, RequestError, ServiceError, Unreachable

#: Pieces, and bytes, that go with one system call; on systems without such a call, small pieces are joined.
_PIECES = 512
_AT_ONCE = 8 << 20
_SMALL = 256 << 10
_SMALL_PIECE = 32 << 10
#: Bytes of the head of an answer.
_MOST_HEAD = 256 << 10
#: Bytes that a Unix socket holds on their way, if the system allows it: fewer have the two sides wait for each other.
_SOCKET_BUFFER = 1 << 20

_CONNECTION_LOST = (BrokenPipeError, ConnectionError, http.client.BadStatusLine, http.client.CannotSendRequest)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class _ThreadConnection:
    """The connection of a thread, which closes when the thread ends."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.pid = os.getpid()

    def __del__(self) -> None:
        self.connection.close()


class _Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    will_close: bool
    body: bytes


def _read_response(response: http.client.HTTPResponse) -> _Response:
    body = response.read()
    return _Response(response.status, cast("Mapping[str, str]", response.headers), response.will_close, body)


def _join_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Joins pieces that are so small that a system call for each would cost more than copying them."""
    small: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        if len(piece) >= _SMALL_PIECE:
            if small:
                yield b"".join(small)
                small, size = [], 0
            yield piece
            continue
        small.append(piece)
        size += len(piece)
        if size >= _SMALL:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def _send_pieces(sock: socket.socket, pieces: Iterable[bytes | memoryview]) -> None:
    """Sends pieces: many with one system call, where the socket has one for that. TLS and Windows have none."""
    if type(sock) is not socket.socket or not hasattr(sock, "sendmsg"):
        for block in _join_pieces(pieces):
            sock.sendall(block)
        return
    held: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if len(held) == _PIECES or size >= _AT_ONCE:
            _send_vectored(sock, held)
            held, size = [], 0
    _send_vectored(sock, held)


def _send_vectored(sock: socket.socket, pieces: list[bytes | memoryview]) -> None:
    while pieces:
        sent, whole = sock.sendmsg(pieces), 0
        while whole < len(pieces) and sent >= len(pieces[whole]):
            sent -= len(pieces[whole])
            whole += 1
        pieces = pieces[whole:]
        if sent:
            pieces[0] = memoryview(pieces[0])[sent:]


def _exchange_raw(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    pieces: Iterable[bytes | memoryview] | None,
    headers: Mapping[str, str],
    reused: bool,
) -> _Response:
    """Sends a request with few system calls, and reads an answer of known length with few more. http.client takes
    0.2 ms longer."""
    if connection.sock is None:
        connection.connect()
    sock = cast("socket.socket", connection.sock)
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{connection.port}\r\nAccept-Encoding: identity\r\n"
    start = (head + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n").encode("ascii")
    try:
        _send_pieces(sock, itertools.chain([start], pieces or ()))
    except (BrokenPipeError, ConnectionResetError):
        if reused:
            raise
        # The service does not read a body that it refuses to its end. Its answer says why.
    got = b""
    while (end := got.find(b"\r\n\r\n")) < 0 and len(got) < _MOST_HEAD:
        piece = sock.recv(1 << 16)
        if not piece:
            raise http.client.BadStatusLine("the connection was closed without an answer")
        got += piece
    lines = got[: max(end, 0)].decode("latin-1").split("\r\n")
    fields = {name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("Content-Length", "") if "Transfer-Encoding" not in fields else ""
    if not lines[0].startswith("HTTP/1.1 ") or lines[0][9:10] == "1" or not length.isdigit():
        response = http.client.HTTPResponse(cast("socket.socket", _Unread(got, sock)), method=method)
        response.begin()
        return _read_response(response)
    rest, missing = [got[end + 4 :]], int(length) - (len(got) - end - 4)
    while missing > 0:
        piece = sock.recv(min(missing, 1 << 20))
        if not piece:
            raise ConnectionError("the answer broke off")
        rest.append(piece)
        missing -= len(piece)
    will_close = fields.get("Connection", "").lower() == "close"
    return _Response(int(lines[0][9:12]), fields, will_close, b"".join(rest))


class _Unread(io.RawIOBase):
    """A socket with the bytes that were read from it already put back."""

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
    """Sends requests to one service. Any number of threads may share it: each has a connection of its own. A forked
    child makes new ones."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self.url = url
        self._timeout = timeout
        self._local = threading.local()
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("token has a letter that is not ASCII, or a line break: no header can have it")
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._host: str | None = None
        self._port: int | None = None
        parts = urlsplit(url)
        self._scheme, self._base = parts.scheme, ""
        if parts.scheme == "unix":
            self._path = url[len("unix:") :].removeprefix("//")  # not parsed: folders may have ? and # in their names
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
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """The connection of this thread, and whether it was used before."""
        held: _ThreadConnection | None = getattr(self._local, "held", None)
        if held is not None and held.pid == os.getpid():
            return held.connection, True
        # After a fork the connection is the parent's, which goes on using it.
        self._local.held = _ThreadConnection(self._connect())
        return self._local.held.connection, False

    def close(self) -> None:
        """Closes the connection of this thread; those of others close with their threads."""
        self._local.held = None

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a request, with JSON or another body, and returns the JSON of the answer, with ``vectors`` if it has
        tensors. All requests of this package can be repeated without harm. One is repeated if an idle connection was
        closed, or if the service says when to try again."""
        fields = {**self._headers, **(headers or {})}
        pieces: Iterable[bytes | memoryview] | None = None
        if isinstance(body, Body):
            pieces = body.pieces
            fields["Content-Type"], fields["Content-Length"] = body.media_type, str(body.size)
        elif body is not None:
            text = to_json(body)
            pieces = [text]
            fields["Content-Type"], fields["Content-Length"] = "application/json", str(len(text))
        deadline, pause = time.monotonic() + self._timeout, 0.01
        while True:
            response = self._send_with_retry(method, self._base + path, pieces, fields)
            said = response.headers.get("Retry-After", "")
            if response.status not in (429, 503) or not said.isdigit():
                break
            delay = float(said)
            if b'"MODEL_LOADING"' in response.body:  # which may take some milliseconds only
                delay, pause = min(delay, pause), 2 * pause
            if time.monotonic() + delay >= deadline:
                break
            time.sleep(delay)
        if response.status >= 300:
            raise _to_error(response.status, response.body)
        try:
            if response.headers.get("Content-Type") == TENSORS:
                return read_tensors(response.body)
            return json.loads(response.body)
        except (ValueError, KeyError, struct.error) as e:
            raise ServiceError(f"{self.url} does not answer as plaid does: {e}", status=response.status) from e

    def _send_with_retry(
        self, method: str, path: str, pieces: Iterable[bytes | memoryview] | None, headers: Mapping[str, str]
    ) -> _Response:
        while True:
            connection, reused = self._connection()
            try:
                response = _exchange_raw(connection, method, path, pieces, headers, reused)
            except (*_CONNECTION_LOST, FileNotFoundError) as e:
                self.close()
                if reused:  # the service closed it while it was idle
                    continue
                hint = "" if pieces is None else " (a proxy may take smaller bodies only: see batch_size)"
                raise Unreachable(f"{self.url} cannot be reached, or broke off: {e}{hint}") from e
            except (OSError, http.client.HTTPException) as e:  # a time-out, an unknown host, a certificate
                self.close()
                raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
            except BaseException:  # an interrupt: half an answer may be waiting there
                self.close()
                raise
            if response.will_close:
                self.close()
            return response

    def download(self, path: str, into: IO[bytes]) -> None:
        """Writes the body of an answer to a file. An answer that breaks off is an error."""
        self.close()
        connection = self._connection()[0]
        try:
            connection.request("GET", self._base + path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise _to_error(response.status, response.read())
            while piece := response.read(1 << 20):
                into.write(piece)
            if response.length:  # read with a size is silent about that
                raise http.client.IncompleteRead(b"", response.length)
        except (*_CONNECTION_LOST, http.client.IncompleteRead, FileNotFoundError) as e:
            raise Unreachable(f"{self.url} cannot be reached, or broke off: {e}") from e
        except (OSError, http.client.HTTPException) as e:
            raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
        finally:
            self.close()


class FilePieces:
    """A file in pieces. Each iteration begins at the start of the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(1 << 20):
            yield piece


def _to_error(status: int, body: bytes) -> PlaidError:
    try:
        problem = json.loads(body)
        message, code = str(problem["message"]), str(problem["code"])
        details = problem.get("details")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(f"HTTP status {status}: {body[:200].decode(errors='replace')}", status=status)
    kind: type[PlaidError] = PlaidError
    if code == "INDEX_NOT_FOUND":
        kind = EmptyIndexError
    elif 400 <= status < 500 and status not in (401, 403, 408, 429):
        kind = RequestError
    return kind(message, code, status, details)
