"""Sends requests to the service, over TCP, TLS or a Unix socket."""

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

#: The largest number of pieces, and of bytes, for one system call.
_MAX_PIECES = 512
_MAX_CALL_BYTES = 8 << 20
#: On systems without such a call, pieces below _SMALL_PIECE bytes are joined into blocks of _BLOCK_BYTES.
_BLOCK_BYTES = 256 << 10
_SMALL_PIECE = 32 << 10
#: The largest head of an answer, in bytes.
_MAX_HEAD = 256 << 10
#: Bytes of the buffer of a Unix socket, if the system allows it. With a smaller one both sides wait for each other.
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
    """The connection of a thread. It is closed when the thread ends."""

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
    """Joins small pieces into blocks: copying them is cheaper than a system call for each."""
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
        if size >= _BLOCK_BYTES:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def _send_pieces(sock: socket.socket, pieces: Iterable[bytes | memoryview]) -> None:
    """Sends pieces, many with one system call if the socket supports it. TLS sockets and Windows do not."""
    if type(sock) is not socket.socket or not hasattr(sock, "sendmsg"):
        for block in _join_pieces(pieces):
            sock.sendall(block)
        return
    pending: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if len(pending) == _MAX_PIECES or size >= _MAX_CALL_BYTES:
            _send_vectored(sock, pending)
            pending, size = [], 0
    _send_vectored(sock, pending)


def _send_vectored(sock: socket.socket, pieces: list[bytes | memoryview]) -> None:
    while pieces:
        sent, complete = sock.sendmsg(pieces), 0
        while complete < len(pieces) and sent >= len(pieces[complete]):
            sent -= len(pieces[complete])
            complete += 1
        pieces = pieces[complete:]
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
    """Sends a request and reads its answer with few system calls. http.client takes 0.2 ms longer."""
    # 1. Send the head and the body.
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
        # The service closes the connection if it refuses a body before reading all of it. Its answer says why.
    # 2. Read the head of the answer.
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0 and len(received) < _MAX_HEAD:
        piece = sock.recv(1 << 16)
        if not piece:
            raise http.client.BadStatusLine("the connection was closed without an answer")
        received += piece
    lines = received[: max(end, 0)].decode("latin-1").split("\r\n")
    fields = {name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("Content-Length", "") if "Transfer-Encoding" not in fields else ""
    # 3. Leave an answer of unknown length to http.client.
    if not lines[0].startswith("HTTP/1.1 ") or lines[0][9:10] == "1" or not length.isdigit():
        response = http.client.HTTPResponse(cast("socket.socket", _Unread(received, sock)), method=method)
        response.begin()
        return _read_response(response)
    # 4. Read the body.
    body, missing = [received[end + 4 :]], int(length) - (len(received) - end - 4)
    while missing > 0:
        piece = sock.recv(min(missing, 1 << 20))
        if not piece:
            raise ConnectionError("the connection was closed in the middle of the answer")
        body.append(piece)
        missing -= len(piece)
    will_close = fields.get("Connection", "").lower() == "close"
    return _Response(int(lines[0][9:12]), fields, will_close, b"".join(body))


class _Unread(io.RawIOBase):
    """A socket, preceded by bytes that were already read from it."""

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
    """Sends requests to one service. Threads can share it: each has its own connection, and so has a forked child."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self.url = url
        self._timeout = timeout
        self._local = threading.local()
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("token has a non-ASCII letter or a line break, which an HTTP header cannot have")
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._host: str | None = None
        self._port: int | None = None
        parts = urlsplit(url)
        self._scheme, self._base = parts.scheme, ""
        if parts.scheme == "unix":
            self._path = url[len("unix:") :].removeprefix("//")  # not parsed: names of folders may have ? and #
            if not self._path:
                raise ValueError(f"{url!r} has no path; want unix:/run/plaid/socket")
        elif parts.scheme in ("http", "https") and parts.hostname:
            self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        else:
            raise ValueError(f"{url!r} is not an address; want http://HOST:PORT, https://HOST or unix:/PATH")

    def _connect(self) -> http.client.HTTPConnection:
        if self._scheme == "unix":
            return _UnixConnection(self._path, self._timeout)
        assert self._host is not None
        if self._scheme == "https":
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Returns the connection of this thread, and whether it was used before."""
        cached: _ThreadConnection | None = getattr(self._local, "connection", None)
        if cached is not None and cached.pid == os.getpid():
            return cached.connection, True
        # After a fork the parent still uses the cached connection.
        self._local.connection = _ThreadConnection(self._connect())
        return self._local.connection.connection, False

    def close(self) -> None:
        """Closes the connection of this thread. Those of other threads are closed when the threads end."""
        self._local.connection = None

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a request with JSON or another body, and returns the JSON of the answer.

        If the answer has tensors, its key ``vectors`` has them. The request is repeated if an idle connection was
        closed, or if the service says when to try again; repeating is safe for all requests of this package.
        """
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
            retry_after = response.headers.get("Retry-After", "")
            if response.status not in (429, 503) or not retry_after.isdigit():
                break
            delay = float(retry_after)
            if b'"MODEL_LOADING"' in response.body:  # loading may take only some milliseconds
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
            raise ServiceError(f"the answer of {self.url} is not plaid's: {e}", status=response.status) from e

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
                hint = "" if pieces is None else " (a proxy may refuse large bodies: try a smaller batch_size)"
                raise Unreachable(f"{self.url} cannot be reached, or the connection was lost: {e}{hint}") from e
            except (OSError, http.client.HTTPException) as e:  # a time-out, an unknown host, a certificate
                self.close()
                raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
            except BaseException:  # an interrupt: the connection may have half an answer
                self.close()
                raise
            if response.will_close:
                self.close()
            return response

    def download(self, path: str, into: IO[bytes]) -> None:
        """Writes the body of an answer to a file. Raises `Unreachable` if the answer is incomplete."""
        self.close()
        connection = self._connection()[0]
        try:
            connection.request("GET", self._base + path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise _to_error(response.status, response.read())
            while piece := response.read(1 << 20):
                into.write(piece)
            if response.length:  # read() with a size does not report a missing end
                raise http.client.IncompleteRead(b"", response.length)
        except (*_CONNECTION_LOST, http.client.IncompleteRead, FileNotFoundError) as e:
            raise Unreachable(f"{self.url} cannot be reached, or the connection was lost: {e}") from e
        except (OSError, http.client.HTTPException) as e:
            raise ServiceError(f"{self.url}: {e or type(e).__name__}") from e
        finally:
            self.close()


class FilePieces:
    """The content of a file in pieces. Each iteration starts at the beginning of the file."""

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
