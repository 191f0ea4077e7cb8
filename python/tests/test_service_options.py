"""The options of a service that several programs share, its folder and its paths; indexes in an object store."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from plaid_ir import Index, ServiceError, _connection, _service, _stores

from .common import collection, long_form
from .sharing import SharedFolder


MODEL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "quickstart" / "colbert-nano"


class Stores(unittest.TestCase):
    """The address of an object store in the place of a folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = Path(folder.name, "store").as_uri()
        caches = mock.patch.object(_connection, "cache_folder", lambda store: os.path.join(folder.name, self.cache))
        caches.start()
        self.addCleanup(caches.stop)
        self.cache = "cache"
        self.docs, self.queries = collection(10, 2)
        self.ids = [str(i) for i in range(10)]

    def open(self, **options: object) -> Index:
        index = Index(self.store, **options)
        self.addCleanup(index.close)
        return index

    def test_an_index_is_that_of_a_folder(self) -> None:
        with Index(None) as want, self.open() as index:
            for i in (want, index):
                i.add_documents(self.ids, self.docs, [{"n": n} for n in range(10)])
                i.remove_documents(self.ids[:1])
            self.assertEqual(index.index_folder, self.store)
            self.assertIn(self.store, repr(index))
            self.assertEqual(len(index), 9)
            self.assertEqual(sorted(index.ids("n < 4")), ["1", "2", "3"])
            for got, hits in zip(index(self.queries, k=9), want(self.queries, k=9)):
                self.assertEqual([hit["id"] for hit in got], [hit["id"] for hit in hits])
                for a, b in zip(got, hits):
                    self.assertAlmostEqual(a["score"], b["score"], places=4)
        self.cache = "another"  # another machine: all that the first one was told is in the store
        with self.open(read_only=True) as index:
            self.assertEqual(sorted(index.ids()), self.ids[1:])
            with self.assertRaises(PermissionError):
                index.remove_documents(self.ids)

    def test_a_killed_service_is_started_at_the_next_call(self) -> None:
        index = self.open().add_documents(self.ids[:5], self.docs[:5])
        want = index(self.queries)
        assert index._connection.service is not None and index._connection.service.process is not None
        index._connection.service.process.kill()
        self.assertEqual(index(self.queries), want)
        index.add_documents(self.ids[5:], self.docs[5:])
        self.assertEqual(len(index), 10)

    def test_addresses(self) -> None:
        self.assertTrue(all(map(_stores.is_store, ("s3://bucket/prefix", "s3:/mistyped"))))
        self.assertFalse(any(map(_stores.is_store, ("indexes", "C:\\indexes", Path("/x"), None))))
        self.assertNotEqual(_stores.cache_folder("s3://a"), _stores.cache_folder("s3://b"))


class Options(SharedFolder):
    def joined(self, options: str) -> subprocess.Popen:
        """A process that joins the service, and after a line of input searches by a text."""
        program = self.python(f"""
            import sys
            from plaid_ir import Index
            try:
                index = Index(sys.argv[1], {options})
            except ValueError as e:
                print(e, flush=True)
                sys.exit()
            print(index._connection.service.process, flush=True)
            for line in sys.stdin:
                print(index.search("cats")[0]["id"] if line == "search\\n" else len(index), flush=True)
        """)
        return program

    def ask(self, program: subprocess.Popen, what: str) -> str:
        program.stdin.write(what + "\n")
        program.stdin.flush()
        return program.stdout.readline()

    @long_form
    def test_the_model_outlives_the_process_that_named_it(self) -> None:
        first = self.open(model=MODEL).add_texts(["cats"], ["a"])
        plain, third = self.joined(""), self.joined(f"model={str(MODEL)!r}")
        self.assertEqual((plain.stdout.readline(), third.stdout.readline()), ("None\n", "None\n"))
        first.close()
        self.assertEqual(self.ask(plain, "count"), "1\n")  # the service is that of one without a model now
        self.assertEqual(self.ask(third, "search"), "a\n")
        self.assertEqual(self.ask(plain, "search"), "a\n")
        first = self.open()
        self.assertEqual(first.search("cats")[0]["id"], "a")

    @long_form
    def test_a_process_that_joins_with_other_options(self) -> None:
        other = os.path.join(os.path.dirname(self.folder), "other-model")
        shutil.copytree(MODEL, other)
        with self.open(model=MODEL) as first:
            joined = self.joined(f"model={other!r}")
            said = joined.stdout.readline()
            joined.wait()
            self.assertIn(f"model is {other} here", said)
            self.assertIn(f"has model {MODEL}", said)
            self.assertEqual(len(first), 0)
        with self.open() as first:
            self.assertIn("runs without model", self.joined(f"model={str(MODEL)!r}").stdout.readline())
            self.assertEqual(len(first), 0)
        # No process is left that has asked for the other model.
        with self.open(model=other) as first:
            first.add_texts(["cats"], ["a"])

    @long_form
    def test_options_of_one_process(self) -> None:
        with self.open() as first:
            first.add_documents(["1"], self.docs[:1])
            process = first._connection.service.process
            self.open(index_name="other", model=MODEL).add_texts(["cats"], ["a"])  # it is restarted
            self.assertIsNot(first._connection.service.process, process)
            self.assertEqual(len(first), 1)
            self.assertEqual(self.open(index_name="other").search("cats")[0]["id"], "a")
            with self.assertRaisesRegex(ValueError, f"model is .*, and .* has model {MODEL}"):
                self.open(model=self.folder)
            joined = self.joined("")
            self.assertEqual(joined.stdout.readline(), "None\n")
            with self.assertRaisesRegex(ValueError, "threads is 2 here.*without threads"):
                self.open(threads=2)
            self.assertEqual(self.ask(joined, "count"), "1\n")
            joined.kill()
            joined.wait()
            with self.assertRaises(ServiceError):
                self.open(device="abacus")
            self.assertEqual(len(first), 1)

    def test_marks_of_addresses_in_a_path(self) -> None:
        self.folder += " a?b#c%41"
        self.assertEqual(len(self.open(timeout=20).add_documents(self.ids, self.docs)), 10)

    def test_read_only(self) -> None:
        index = self.open().add_documents(self.ids, self.docs, [{"n": i} for i in range(10)])
        reader = self.open(read_only=True)
        self.assertEqual(reader(self.queries), index(self.queries))
        index.remove_documents(["3"])
        self.assertEqual(len(reader), 9)  # it follows
        for change in (
            lambda: reader.add_documents(["x"], self.docs[:1]),
            lambda: reader.remove_documents(["1"]),
            lambda: reader.update(where="n = 1", values={"n": 2}),
            lambda: reader.delete(where="n = 1"),
            lambda: reader.add_texts(["x"], ["x"]),
            lambda: reader.load(__file__),
        ):
            with self.assertRaisesRegex(PermissionError, "read_only"):
                change()
        with self.assertRaises(ValueError):
            self.open(read_only=True, override=True)
        with self.assertRaises(FileNotFoundError):
            Index(self.folder + "-none", read_only=True)
        self.assertFalse(os.path.exists(self.folder + "-none"))

    def test_a_folder_that_cannot_be_written_to(self) -> None:
        with self.open() as index:
            index.add_documents(self.ids, self.docs)
            want = index(self.queries)
        shutil.rmtree(os.path.join(self.folder, ".service"))
        real = os.access
        unwritable = lambda path, mode, **more: not (mode & os.W_OK) and real(path, mode, **more)  # noqa: E731  root may write anywhere
        with (
            tempfile.TemporaryDirectory() as temporary,
            mock.patch.object(tempfile, "tempdir", temporary),
            mock.patch.object(os, "access", unwritable),
        ):
            with self.assertRaisesRegex(PermissionError, "read_only=True"):
                self.open()
            with self.open(read_only=True) as one:
                before = sorted(glob.glob(self.folder + "/**", recursive=True))
                self.assertEqual(one(self.queries), want)
                _service.Service._by_folder.clear()  # as another process
                with self.open(read_only=True) as two:
                    self.assertIsNot(one._connection.service.process, two._connection.service.process)
                    self.assertEqual(two(self.queries), want)
                    two._connection.service.process.kill()
                    self.assertEqual(two(self.queries), want)
                self.assertEqual(sorted(glob.glob(self.folder + "/**", recursive=True)), before)
            self.assertEqual(os.listdir(temporary), [])

    @long_form
    def test_long_paths(self) -> None:
        self.folder = os.path.join(self.folder, "x" * 120)
        index = self.open(timeout=20).add_documents(self.ids, self.docs)
        program = self.python("""
            import sys
            from plaid_ir import Index
            index = Index(sys.argv[1])
            print(len(index), index._connection.service.process)
        """)
        self.assertEqual(program.stdout.readline(), "10 None\n")
        index._connection.service.process.kill()
        self.assertEqual(len(index), 10)
        shutil.rmtree(os.path.join(self.folder, ".service"))  # as those who clean up do
        index._connection.service.process.kill()
        self.assertEqual(len(index), 10)

    @unittest.skipIf(sys.platform == "win32", "there both share a place in the file")
    def test_the_log_is_read_while_it_is_written(self) -> None:
        service = _service.Service(self.folder, "plaid", {}, 10, False, False)
        with tempfile.TemporaryFile() as log:
            service._program.log = log
            text = "import os\nfor i in range(20000): os.write(2, b'{\"n\": %05d}\\n' % (10000 + i))"
            with subprocess.Popen([sys.executable, "-c", text], stderr=log) as writer:
                while writer.poll() is None:
                    service._log_lines()
            log.seek(0)
            self.assertEqual([json.loads(line)["n"] for line in log], list(range(10000, 30000)))

    def test_over_tcp_as_on_windows(self) -> None:
        with mock.patch.object(_service, "UNIX", False):
            index = self.open().add_documents(self.ids, self.docs)
            self.assertTrue(index._connection.service.url.startswith("http://127.0.0.1:"))
            _service.Service._by_folder.clear()
            other = self.open()
            self.assertIsNone(other._connection.service.process)
            self.assertEqual(len(other), 10)
            index._connection.service.process.kill()
            index._connection.service.process.wait()
            self.assertEqual(len(other), 10)
            self.assertEqual(Path(self.folder, ".service", "address").stat().st_mode & 0o077, 0)
            from urllib.error import HTTPError
            from urllib.request import urlopen

            with self.assertRaises(HTTPError) as e:
                urlopen(other._connection.service.url + "/indices")
            self.assertEqual(e.exception.code, 401)
            e.exception.close()
