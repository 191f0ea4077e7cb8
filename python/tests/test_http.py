"""Requests to a service that breaks off, is slow, refuses, or answers in other ways than plaid does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable
from unittest import mock

import plaid_ir._http
from plaid_ir import PlaidError, RequestError, ServiceError
from plaid_ir._errors import Unreachable
from plaid_ir._http import Client

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"ok": 1}\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


def problem(status: int, code: str, *fields: str) -> bytes:
    body = b'{"code":"%s","message":"no"}' % code.encode()
    lines = [f"HTTP/1.1 {status} No", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Served(unittest.TestCase):
    """A service that answers the requests of its connections as a test says."""

    def setUp(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        #: The requests of each connection, up to their blank line.
        self.asked: list[list[bytes]] = []
        #: What each connection has seen the end of.
        self.ended: list[threading.Event] = []

    def serve(self, *connections: list[bytes | Callable[[socket.socket], Any]]) -> Client:
        """Each connection answers its requests with bytes, or by a function, and closes then. The last one goes for
        all further ones."""

        def run(sock: socket.socket, answers: list[Any], asked: list[bytes], ended: threading.Event) -> None:
            with sock, contextlib.suppress(OSError):
                for answer in answers:
                    got = b""
                    while b"\r\n\r\n" not in got:
                        piece = sock.recv(1 << 16)
                        if not piece:
                            return ended.set()
                        got += piece
                    asked.append(got)
                    answer(sock) if callable(answer) else sock.sendall(answer)
                sock.shutdown(socket.SHUT_RDWR)

        listener, stopping = self.listener, threading.Event()

        def accept() -> None:
            n = 0
            while True:
                sock, _ = listener.accept()
                if stopping.is_set():
                    return sock.close()
                self.asked.append([])
                self.ended.append(threading.Event())
                answers = connections[min(n, len(connections) - 1)]
                threading.Thread(target=run, args=(sock, answers, self.asked[-1], self.ended[-1]), daemon=True).start()
                n += 1

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()

        def stop() -> None:
            """Ends the thread before the listener is closed: it could accept on the next one, which has the same file
            number."""
            stopping.set()
            socket.create_connection(listener.getsockname()).close()
            accepting.join()

        self.addCleanup(stop)
        client = Client(self.url, None, 20)
        self.addCleanup(client.close)
        return client

    def get(self, client: Client) -> Any:
        return client.request("GET", "/x")

    def test_one_connection_for_all_requests(self) -> None:
        client = self.serve([OK, OK, OK])
        for _ in range(3):
            self.assertEqual(client.request("POST", "/x", {"a": 1}), {"ok": 1})
        self.assertEqual([len(asked) for asked in self.asked], [3])
        self.assertTrue(self.asked[0][0].startswith(b"POST /x HTTP/1.1\r\n"))

    def test_answers_of_other_forms(self) -> None:
        def slowly(sock: socket.socket) -> None:
            for i in range(len(OK)):
                sock.sendall(OK[i : i + 1])

        chunks = b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"ok\r\n5\r\n": 1}\r\n0\r\n\r\n'
        forms: list[Any] = [
            slowly,
            b"HTTP/1.1 200 OK\r\n" + chunks,
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" + chunks,
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
            OK.replace(b"Content-Length", b"content-LENGTH"),
            OK,
        ]
        client = self.serve(forms)
        for _ in forms:
            self.assertEqual(self.get(client), {"ok": 1})
        self.assertEqual(len(self.asked), 1)

    def test_answers_that_end_with_their_connection(self) -> None:
        forms = [b'HTTP/1.0 200 OK\r\n\r\n{"ok": 1}', OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK]
        client = self.serve(*[[form] for form in forms])
        for _ in forms:
            self.assertEqual(self.get(client), {"ok": 1})
        self.assertEqual([len(asked) for asked in self.asked], [1, 1, 1])

    def test_what_is_no_answer(self) -> None:
        for answer in (b"SSH-2.0-OpenSSH\r\n\r\n", HEAD + b"no JSON at", b"HTTP/1.1 200 OK\r\nX: " + b"y" * (300 << 10)):
            with self.subTest(answer[:20]):
                client = self.serve([answer])
                with self.assertRaises(ServiceError):
                    self.get(client)
                self.setUp()

    def test_an_idle_connection_that_was_closed(self) -> None:
        client = self.serve([OK], [OK, OK])
        for _ in range(3):
            self.assertEqual(self.get(client), {"ok": 1})
        self.assertEqual(len(self.asked), 2)

    def test_a_connection_that_breaks_off(self) -> None:
        for answer in (b"", b"HTTP/1.1 200", HEAD + b'{"ok'):
            with self.subTest(answer):
                client = self.serve([OK, answer], [answer])
                self.get(client)
                with self.assertRaises(Unreachable):  # it is repeated once, on a new connection
                    self.get(client)
                self.assertEqual(len(self.asked), 2)
                self.setUp()

    def test_nobody_is_there(self) -> None:
        self.listener.close()
        with self.assertRaises(Unreachable) as e:
            self.get(Client(self.url, None, 20))
        self.assertIn(self.url, str(e.exception))
        with self.assertRaises(Unreachable):
            self.get(Client("unix:/nowhere/socket", None, 20))

    def test_a_service_that_says_nothing(self) -> None:
        late = threading.Event()

        def silent(sock: socket.socket) -> None:
            late.wait(20)
            sock.sendall(OK.replace(b"1", b"2"))

        client = self.serve([silent], [OK])
        client._timeout = 0.2
        with self.assertRaises(ServiceError) as e:
            self.get(client)
        self.assertNotIsInstance(e.exception, Unreachable)  # it runs: nobody starts another one
        late.set()
        self.assertEqual(self.get(client), {"ok": 1})  # and no late answer to the first
        self.assertEqual(len(self.asked), 2)

    def test_an_interrupt_loses_the_answer_only(self) -> None:
        client = self.serve([OK, OK.replace(b"1}", b"2}")], [OK.replace(b"1}", b"3}")])
        self.get(client)
        with mock.patch.object(plaid_ir._http, "_exchange_raw", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.get(client)
        self.assertEqual(self.get(client), {"ok": 3})

    def test_try_again_later(self) -> None:
        pauses: list[float] = []
        with mock.patch("time.sleep", pauses.append):
            busy = problem(503, "SERVICE_UNAVAILABLE", "Retry-After: 2")
            client = self.serve([busy, problem(429, "TOO_MANY_REQUESTS", "Retry-After: 1"), OK])
            self.assertEqual(client.request("POST", "/x", {"a": 1}), {"ok": 1})
            self.assertEqual(pauses, [2, 1])
            self.assertEqual(len(set(self.asked[0])), 1)  # the same each time

    def test_it_is_never_later(self) -> None:
        pauses: list[float] = []
        for fields in ((), ("Retry-After: 3600",), ("Retry-After: Mon, 30 Nov 2026 08:00:00 GMT",)):
            with self.subTest(fields), mock.patch("time.sleep", pauses.append):
                client = self.serve([problem(503, "SERVICE_UNAVAILABLE", *fields)])
                with self.assertRaises(PlaidError) as e:
                    self.get(client)
                self.assertEqual((e.exception.status, e.exception.code), (503, "SERVICE_UNAVAILABLE"))
                self.setUp()
        self.assertEqual(pauses, [])

    def test_a_model_that_loads_is_soon_there(self) -> None:
        pauses: list[float] = []
        loading = problem(503, "MODEL_LOADING", "Retry-After: 1")
        with mock.patch("time.sleep", pauses.append):
            client = self.serve([loading] * 9 + [OK])
            self.assertEqual(self.get(client), {"ok": 1})
        self.assertLess(pauses[0], 0.05)
        self.assertEqual(pauses, sorted(pauses))
        self.assertEqual(pauses[-1], 1)

    def test_a_body_that_is_refused_before_its_end(self) -> None:
        size = 64 << 20

        def refuse(sock: socket.socket) -> None:
            sock.sendall(problem(413, "PAYLOAD_TOO_LARGE", "Connection: close"))
            deadline = time.monotonic() + 10
            with contextlib.suppress(OSError):  # as plaid does: the rest is read for a moment
                sock.settimeout(0.2)
                while time.monotonic() < deadline and sock.recv(1 << 20):
                    pass

        client = self.serve([refuse])
        body = plaid_ir._http.Body([bytes(size)], size, "application/safetensors")
        with self.assertRaises(RequestError) as e:
            client.request("POST", "/x", body)
        self.assertEqual(e.exception.code, "PAYLOAD_TOO_LARGE")

    def test_each_thread_has_a_connection(self) -> None:
        client = self.serve([OK] * 10)
        self.get(client)

        def ask() -> None:
            self.get(client)
            self.get(client)

        for _ in range(2):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(ask).result()
        self.get(client)
        self.assertEqual([len(asked) for asked in self.asked], [2, 2, 2])
        for ended in self.ended[1:]:  # with their threads
            self.assertTrue(ended.wait(10))
        self.assertFalse(self.ended[0].is_set())

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_forked_child_leaves_the_connection_alone(self) -> None:
        client = self.serve([OK, OK])
        self.get(client)
        pid = os.fork()
        if pid == 0:
            ok = False
            with contextlib.suppress(BaseException):
                ok = self.get(client) == {"ok": 1}
                client.close()
            os._exit(0 if ok else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.get(client)
        self.assertEqual([len(asked) for asked in self.asked], [2, 1])

    def test_tokens(self) -> None:
        for token in ("a\nb", "a\r\nX: y", "gehe\u00efm"):
            with self.subTest(token), self.assertRaisesRegex(ValueError, "^token has a non-ASCII letter"):
                Client(self.url, token, 1)
        client = self.serve([problem(401, "UNAUTHORIZED")])
        client._headers = Client(self.url, "secret", 1)._headers
        with self.assertRaises(PlaidError) as e:
            self.get(client)
        self.assertNotIsInstance(e.exception, RequestError)
        self.assertIn(b"\r\nAuthorization: Bearer secret\r\n", self.asked[0][0])

    def test_addresses(self) -> None:
        for url in ("", "localhost:8080", "ftp://a", "http://", "unix:"):
            with self.subTest(url), self.assertRaises(ValueError):
                Client(url, None, 1)


if __name__ == "__main__":
    unittest.main()
