"""Several processes, one folder; services and programs that are killed."""

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from plaid_ir import Index, RequestError, ServiceError, _connection, _service
from plaid_ir._binary import find_binary
from plaid_ir._errors import Unreachable
from plaid_ir._locks import temporary_build_folder

from .common import collection, long_form

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
        self.assertTrue(all(map(_service.is_store, ("s3://bucket/prefix", "s3:/mistyped"))))
        self.assertFalse(any(map(_service.is_store, ("indexes", "C:\\indexes", Path("/x"), None))))
        self.assertNotEqual(_service.cache_folder("s3://a"), _service.cache_folder("s3://b"))


class Sharing(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "indexes")
        self.docs, self.queries = collection(10, 2)
        self.ids = [str(i) for i in range(10)]

    def open(self, **options: object) -> Index:
        index = Index(self.folder, **options)
        self.addCleanup(index.close)
        return index

    def python(self, text: str, **environment: str) -> subprocess.Popen:
        program = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text), self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )  # fmt: skip
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.stdout.close)
        return program

    def wait_for(self, what: object) -> None:
        deadline = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_a_killed_service_is_started_at_the_next_call(self) -> None:
        index = self.open().add_documents(self.ids[:5], self.docs[:5])
        want = index(self.queries)
        for _ in range(2):
            process = index._connection.service.process
            process.kill()
            process.wait()
            self.assertEqual(index(self.queries), want)  # what was answered is there
            self.assertIsNot(index._connection.service.process, process)
        index._connection.service.process.kill()
        index.add_documents(self.ids[5:], self.docs[5:])
        self.assertEqual(len(index), 10)

    def test_a_service_that_is_killed_beside_threads(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        want, wrong, stop = index(self.queries), [], threading.Event()

        def ask() -> None:
            try:
                while not stop.is_set():
                    if index(self.queries) != want:
                        wrong.append("another answer")
            except Exception as e:
                wrong.append(e)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(2):
            time.sleep(0.1)
            index._connection.service.process.kill()
        time.sleep(0.2)
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(_service.UNIX and os.name == "posix", "a script")
    def test_a_service_that_is_killed_while_it_starts(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        script = os.path.join(os.path.dirname(self.folder), "program")
        with open(script, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nif mkdir "$0.once" 2>/dev/null; then kill -9 $$; fi\nexec "{index._connection.service.binary}" "$@"\n')
        os.chmod(script, 0o755)
        index._connection.service.binary = script
        index._connection.service.process.kill()
        index._connection.service.process.wait()
        self.assertEqual(len(index), 10)
        self.assertTrue(os.path.isdir(script + ".once"))

    def test_a_service_that_cannot_start_again_says_why(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        index._connection.service.process.kill()
        index._connection.service.process.wait()
        index._connection.service.binary = "/nowhere/plaid"
        with self.assertRaisesRegex(ServiceError, "cannot be started"):
            len(index)

    @unittest.skipUnless(_service.UNIX and os.name == "posix", "a script")
    def test_two_folders_start_side_by_side(self) -> None:
        folders = [os.path.join(os.path.dirname(self.folder), name) for name in "ab"]
        script = os.path.join(os.path.dirname(self.folder), "program")
        with open(script, "w", encoding="utf-8") as f:  # begins when both have been started
            f.write('#!/bin/sh\nmkdir "$0.$$"\nwhile [ $(ls -d "$0".* | wc -l) -lt 2 ]; do sleep 0.02; done\n')
            f.write(f'exec "{find_binary(None)}" "$@"\n')
        os.chmod(script, 0o755)
        opened: list[object] = [None, None]

        def start(i: int) -> None:
            try:
                opened[i] = Index(folders[i], binary=script, timeout=60)
            except Exception as e:
                opened[i] = e

        threads = [threading.Thread(target=start, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for index in opened:
            self.assertIsInstance(index, Index, index)
            index.close()

    def test_threads_open_and_close_one_folder(self) -> None:
        wrong: list[BaseException] = []

        def work(i: int) -> None:
            try:
                for _ in range(3):
                    with Index(self.folder, f"of-{i}") as index:
                        index.add_documents(self.ids[:1], self.docs[:1])
                        self.assertEqual(len(index), 1)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertEqual((_service.Service._by_folder, _service.Service._stopping), ({}, {}))

    def lose_an_answer(self, index: Index, before: object) -> None:
        """Kills the service before its next answer. ``before``, where given, is done in place of the request."""
        client, service = index._connection.client, index._connection.service
        send = client.request

        def lose(*args: object) -> object:
            if before is None:
                send(*args)
            else:
                before()
            service.process.kill()
            service.process.wait()
            raise Unreachable("the answer was lost")

        client.request = lose

    def test_an_upload_whose_answer_is_lost_is_one(self) -> None:
        file = os.path.join(os.path.dirname(self.folder), "saved.plaid")
        self.open(index_name="source").add_documents(self.ids, self.docs).save(file)
        index = self.open(index_name="copy")
        self.lose_an_answer(index, None)
        index.load(file)
        self.assertEqual(len(index), 10)
        index.add_documents(["more"], self.docs[:1])
        self.assertEqual(len(index), 11)
        # What another has put there meanwhile is not taken for it.
        index, other = self.open(index_name="taken"), self.open(index_name="taken")
        self.lose_an_answer(index, lambda: other.add_documents(["theirs"], self.docs[:1]))
        with self.assertRaisesRegex(RequestError, "the answer to the first attempt was lost") as e:
            index.load(file)
        self.assertEqual(e.exception.code, "INDEX_ALREADY_EXISTS")
        self.assertEqual(len(index), 1)

    def test_a_second_process_writes(self) -> None:
        first = self.open()
        program = self.python("""
            import sys, numpy as np
            from plaid_ir import Index
            index = Index(sys.argv[1])
            index.add_documents(["theirs"], [np.eye(32)])
            print(index._connection.service.process, flush=True)
            sys.stdin.readline()
            print(len(index), flush=True)      # the service that it used has ended with the first
            sys.stdin.readline()
        """)
        self.assertEqual(program.stdout.readline(), "None\n")
        self.assertEqual(len(first), 1)
        first.add_documents(["ours"], self.docs[:1])
        first.close()
        program.stdin.write("\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), "2\n")
        again = self.open()  # theirs is the service now
        self.assertIsNone(again._connection.service.process)
        program.kill()
        program.wait()
        self.wait_for(lambda: len(again) == 2 and again._connection.service.process is not None)

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

    def test_remains_of_a_killed_build(self) -> None:
        with self.open():
            place = os.path.join(self.folder, ".service")
            program = self.python("""
                import sys
                from plaid_ir._locks import temporary_build_folder
                with temporary_build_folder(sys.argv[1] + "/.service") as folder:
                    print(folder, flush=True)
                    sys.stdin.read()
            """)
            left = program.stdout.readline().strip()
            with temporary_build_folder(place):
                self.assertTrue(os.path.isdir(left))  # another process uses it
                program.kill()
                program.wait()
        self.assertTrue(os.path.isdir(left))
        self.open()
        self.assertFalse(os.path.exists(left))

    @long_form
    def test_many_that_start_at_once(self) -> None:
        text = """
            import sys, os, numpy as np
            from plaid_ir import Index
            index = Index(sys.argv[1])
            index.add_documents([str(os.getpid())], [np.eye(4)])
            print(len(index._connection.service.folder), flush=True)
            sys.stdin.read()
        """
        programs = [self.python(text) for _ in range(4)]
        for p in programs:
            self.assertNotEqual(p.stdout.readline(), "")
        self.assertEqual(len(self.open()), 4)

    def test_a_forked_child_finds_the_service_again(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        want = index(self.queries)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                index._connection.service.process.kill()
                code = 0 if index(self.queries) == want else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(index(self.queries), want)

    def test_an_index_closes_beside_a_forked_child(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        process = index._connection.service.process
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:  # it has the other end of the program's stdin
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)
        try:
            with mock.patch.object(_service, "_EOF_TIMEOUT", 0.1):
                index.close()
            self.assertEqual(process.returncode, 0)  # it was not ended by force
        finally:
            os.close(writer)
            os.waitpid(pid, 0)

    def test_save_from_a_killed_service(self) -> None:
        index = self.open().add_documents(self.ids, self.docs)
        index._connection.service.process.kill()
        index._connection.service.process.wait()
        path = os.path.join(self.folder, "..", "saved.plaid")
        index.save(path)
        with Index(None) as other:
            self.assertEqual(len(other.load(path)), 10)

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
        with tempfile.TemporaryDirectory() as temporary, mock.patch.object(tempfile, "tempdir", temporary), mock.patch.object(os, "access", unwritable):
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

    def test_nothing_is_left_by_a_killed_program(self) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            program = self.python("""
                import sys, numpy as np
                from plaid_ir import Index
                index = Index(None).add_documents(["a"], [np.eye(4)])
                kept = Index(sys.argv[1]).add_documents(["a"], [np.eye(4)])
                print(index._connection.service.process.pid, flush=True)
                sys.stdin.read()
            """, TMPDIR=temporary)  # fmt: skip
            self.assertNotEqual(program.stdout.readline(), "")
            self.assertEqual(len(os.listdir(temporary)), 1)
            program.kill()
            self.wait_for(lambda: os.listdir(temporary) == [])
        self.wait_for(lambda: not os.path.exists(os.path.join(self.folder, ".service", "socket")))
        self.assertEqual(len(self.open()), 1)

    def test_a_temporary_index_outlives_its_service(self) -> None:
        with Index(None) as index:
            index.add_documents(self.ids, self.docs)
            for how in (signal.SIGKILL, signal.SIGTERM):
                index._connection.service.process.send_signal(how)
                index._connection.service.process.wait()
                self.assertEqual(len(index), 10)
            folder = index._connection.service.folder
        self.assertFalse(os.path.exists(folder))

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


if __name__ == "__main__":
    unittest.main()
