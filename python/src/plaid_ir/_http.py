"""Requests to the service, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
from typing import IO, Any, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from ._errors import EmptyIndexError, PlaidError, RequestError, ServiceError

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


class Client:
    """Sends requests to one service. Any number of threads may share it, each has a
    connection of its own; so has a process after a fork."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 300.0, context: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._timeout = timeout
        self._context = context
        self._local = threading.local()
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        parts = urlsplit(url)
        self._scheme, self._base = parts.scheme, ""
        if parts.scheme == "unix":
            self._path = parts.path
            if not self._path:
                raise ValueError(f"{url!r} has no path; want unix:/run/plaid/socket")
        elif parts.scheme in ("http", "https") and parts.hostname:
            self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        else:
            raise ValueError(f"{url!r} is no address; want http://HOST:PORT, https://HOST or unix:/PATH")

    def _connect(self) -> http.client.HTTPConnection:
        if self._scheme == "unix":
            return _UnixConnection(self._path, self._timeout)
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
    ) -> Any:
        """Sends a request, with JSON or with the pieces of another body and their size, and
        returns the JSON of the answer. Every request of this package can be repeated without
        harm, and is where the connection was closed while it idled, or where the service says
        when to come again."""
        headers = {"Prefer": "return=representation", **self._headers}
        pieces: Iterable[bytes | memoryview] | None = None
        if tensors is not None:
            pieces = tensors[0]
            headers["Content-Type"] = media
            headers["Content-Length"] = str(tensors[1])
        elif body is not None:
            text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
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
                try:
                    connection.request(method, path, body=None if pieces is None else iter(pieces), headers=dict(headers))
                except (BrokenPipeError, ConnectionResetError):
                    if used:
                        raise
                    # A body that is refused is not read to its end; the answer says why.
                response = connection.getresponse()
                answer = response.read()
            except _BROKEN as e:
                self.close()
                if used:  # it was closed while it idled
                    continue
                hint = "" if pieces is None else " (a proxy may take smaller bodies only: see batch_size)"
                raise ServiceError(f"{self.url} cannot be reached, or broke off: {e}{hint}") from e
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
