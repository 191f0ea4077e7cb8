"""A folder of indexes, and programs that use it, for the tests of sharing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

from plaid_ir import Index

from .common import collection


class SharedFolder(unittest.TestCase):
    """Opens indexes of a temporary folder, in this process and in others."""

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
