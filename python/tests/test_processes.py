"""The service ends with the programs that use it, is reached over a network, and has documented names."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import numpy as np

import plaid_ir
from plaid_ir import Index, PlaidError, RequestError

from .common import collection


def alive(pid: int) -> bool:
    """Reports whether a process runs. A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/children") as f:
            found += map(int, f.read().split())
    return found


def command_of(pid: int) -> str:
    """The command of a process of the program."""
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/cmdline") as f:
        return (f.read().split("\0") + [""])[1]
    return ""


class Processes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.docs, _ = collection(3, 1)

    def python(self, text: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text), self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def gone(self, pid: int) -> None:
        deadline = time.monotonic() + 60
        while alive(pid):
            self.assertLess(time.monotonic(), deadline, "the service outlives its program")
            time.sleep(0.02)

    def test_service_ends_with_a_killed_program(self) -> None:
        program = self.python("""
            import sys, numpy as np
            from plaid_ir import Index
            index = Index(sys.argv[1]).add_documents(["a"], [np.eye(4)])
            print(index._connection.service.process.pid, flush=True)
            sys.stdin.read()
        """)
        with program:
            pid = int(program.stdout.readline())
            with Index(self.folder) as index:  # by the service of the other process
                self.assertIsNone(index._connection.service.process)
                self.assertEqual(len(index), 1)
                index.add_documents(["b"], [np.eye(4)])
            self.assertTrue(alive(pid))
            program.kill()
        self.gone(pid)
        with Index(self.folder) as index:
            self.assertEqual(len(index), 2)

    @unittest.skipUnless(os.path.isdir("/proc/self"), "needs /proc")
    def test_build_ends_with_a_killed_program(self) -> None:
        program = self.python("""
            import sys, numpy as np
            from plaid_ir import Index
            documents = np.random.default_rng(0).standard_normal((1000, 100, 64)).astype(np.float32)
            with Index(sys.argv[1]) as index:
                print("begin", flush=True)
                index.add_documents([str(i) for i in range(len(documents))], documents)
            print("end", flush=True)
        """)
        with program:
            self.assertEqual(program.stdout.readline(), "begin\n")
            while not (builds := [p for p in children(program.pid) if command_of(p) == "index"]):
                self.assertIsNone(program.poll())
            programs = children(program.pid)
            program.kill()
            self.assertEqual(program.stdout.read(), "")
        for pid in programs:
            self.gone(pid)
        self.assertEqual(len(builds), 1)
        run = os.path.join(self.folder, ".service")
        self.assertEqual([name for name in os.listdir(run) if name.startswith("build-")], [])
        with Index(self.folder) as index:
            self.assertEqual(len(index), 0)

    def test_service_ends_with_a_program_that_forgets_it(self) -> None:
        program = self.python("""
            import sys, numpy as np
            from plaid_ir import Index
            index = Index(sys.argv[1]).add_documents(["a"], [np.eye(4)])
            print(index._connection.service.process.pid, flush=True)
        """)
        with program:
            pid = int(program.stdout.readline())
            self.assertEqual(program.wait(120), 0)
        self.gone(pid)

    def test_command_line(self) -> None:
        said = subprocess.run(
            [sys.executable, "-m", "plaid_ir", "version"], capture_output=True, text=True, check=True
        ).stdout
        self.assertIn("plaid ", said)
        bad = subprocess.run([sys.executable, "-m", "plaid_ir", "nosuch"], capture_output=True, text=True)
        self.assertEqual(bad.returncode, 2)
        none = subprocess.run(
            [sys.executable, "-m", "plaid_ir"],
            capture_output=True,
            text=True,
            env={**os.environ, "PLAID_BINARY": "/nowhere"},
        )
        self.assertEqual(none.returncode, 1)
        self.assertIn("PLAID_BINARY", none.stderr)
        imports = "import sys, plaid_ir.__main__; assert 'numpy' not in sys.modules"
        subprocess.run([sys.executable, "-c", imports], check=True)


class Addresses(unittest.TestCase):
    """A service that was not started by the package."""

    def serve(self, *options: str, **environment: str) -> str:
        from plaid_ir._binary import find_binary

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        process = subprocess.Popen(
            [find_binary(None), "serve", "--until-eof", "--data", folder.name, "--listen", "127.0.0.1:0", "--log-format", "json", *options],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip

        def end() -> None:
            process.stdin.close()
            process.stderr.read()
            self.assertEqual(process.wait(120), 0)
            process.stderr.close()

        self.addCleanup(end)
        for line in process.stderr:
            said = json.loads(line)
            if said["msg"] == "serving":
                return said["address"]
        self.fail("the service has ended")

    def test_a_token_and_a_path(self) -> None:
        docs, queries = collection(10, 2)
        ids = [str(i) for i in range(10)]
        tokens = "reader read read-read-read-read\nboss admin boss-boss-boss-boss"
        url = self.serve("--base-path", "/plaid", PLAID_SERVE_TOKENS=tokens)
        self.assertTrue(url.endswith("/plaid"), url)
        with Index(url=url + "/", index_name="x", token="boss-boss-boss-boss") as index:
            index.add_documents(ids, docs)
            want = index(queries)
        with Index(url=url, index_name="x", token="read-read-read-read") as reader:
            self.assertEqual(reader(queries), want)
            self.assertEqual(len(reader), 10)
            with self.assertRaises(PlaidError) as e:
                reader.add_documents(ids, docs)
            self.assertEqual((e.exception.code, e.exception.status), ("FORBIDDEN", 403))
        with self.assertRaises(PlaidError) as e:
            Index(url=url, index_name="x")
        self.assertEqual(e.exception.code, "UNAUTHORIZED")

    def test_a_body_that_is_too_large_says_so(self) -> None:
        url = self.serve("--max-body", "64KiB")
        with Index(url=url) as index:
            with self.assertRaises(RequestError) as e:
                index.add_documents(["a"], [np.ones((20000, 128), np.float32)])
            self.assertEqual(e.exception.code, "PAYLOAD_TOO_LARGE")
            index.add_documents([str(i) for i in range(40)], [np.ones((20, 64), np.float32)] * 40, batch_size=8)
            self.assertEqual(len(index), 40)

    def test_a_connection_that_was_closed_is_made_again(self) -> None:
        with Index(url=self.serve()) as index:
            for i in range(3):
                index.add_documents([str(i)], [np.eye(4)])
                # As the service does when a connection has been idle for some minutes.
                index._connection.client._connection()[0].sock.shutdown(socket.SHUT_RDWR)
            self.assertEqual(len(index), 3)


class Interface(unittest.TestCase):
    def test_names(self) -> None:
        self.assertEqual(set(plaid_ir.__all__) - set(dir(plaid_ir)), set())
        with self.assertRaises(AttributeError):
            plaid_ir.nothing  # noqa: B018

    def test_every_public_name_is_explained(self) -> None:
        for name in plaid_ir.__all__:
            if name.startswith("__"):
                continue
            thing = getattr(plaid_ir, name)
            self.assertTrue(inspect.getdoc(thing), name)
        for name, method in inspect.getmembers(Index, inspect.isfunction):
            if not name.startswith("_"):
                self.assertTrue(inspect.getdoc(method), name)

    def test_pylate_names(self) -> None:
        """Names and order of parameters, as PyLate 1.6.0 has them for its index PLAID."""
        for method, want in {
            "__init__": ["self", "index_folder", "index_name", "override"],
            "add_documents": ["self", "documents_ids", "documents_embeddings"],
            "update_documents": ["self", "documents_ids", "documents_embeddings"],
            "remove_documents": ["self", "documents_ids"],
            "__call__": ["self", "queries_embeddings", "k", "subset"],
        }.items():
            self.assertEqual(list(inspect.signature(getattr(Index, method)).parameters)[: len(want)], want)
        self.assertIs(Index.is_end_to_end_index, True)
