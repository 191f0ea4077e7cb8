"""Several processes, one folder; services and programs that are killed."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import unittest
from unittest import mock

from plaid_ir import Index, RequestError, ServiceError, _service
from plaid_ir._binary import find_binary
from plaid_ir._errors import Unreachable
from plaid_ir._locks import temporary_build_folder

from .common import long_form
from .sharing import SharedFolder


class Sharing(SharedFolder):
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
            f.write(
                f'#!/bin/sh\nif mkdir "$0.once" 2>/dev/null; then kill -9 $$; fi\nexec "{index._connection.service.binary}" "$@"\n'
            )
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
