"""build.py tells how far Go is, and what Go says when it fails."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pty
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[1] / "build.py"

#: A go that has three packages to compile, of which the last one fails if FAILS is set.
GO = """#!/bin/sh
case "$2" in
-n)
  echo 'go: downloading example.com/m v1.0.0' >&2
  for p in 1 2 3; do echo "/usr/lib/go/tool/compile -o \\$WORK/b$p/_pkg_.a -trimpath" >&2; done
  echo '/usr/lib/go/tool/link -o out' >&2 ;;
-v)
  printf 'internal/a\\nexample.com/m/v2\\n' >&2
  if [ -n "$FAILS" ]; then printf '# example.com/c\\nc.go:1:2: undefined: x\\n' >&2; exit 1; fi
  echo example.com/c >&2 ;;
esac
"""


def load() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("plaid_build", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipUnless(SOURCE.is_file(), "the tests are not in a clone")
class Compile(unittest.TestCase):
    def go_build(self, **environ: str) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "go").write_text(GO)
            (Path(folder) / "go").chmod(0o755)
            said = io.StringIO()
            environment = {**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"], **environ}
            build = load()
            build.terminal = lambda: None
            build.Progress.EVERY = 0
            with mock.patch.dict(os.environ, environment), contextlib.redirect_stderr(said):
                done = build.go_build("it", [], Path(folder), environment)
        return done, said.getvalue()

    def test_packages_are_counted(self) -> None:
        done, said = self.go_build()
        self.assertTrue(done)
        lines = [line.partition(" (")[0] for line in said.splitlines()]
        self.assertEqual(lines[0], "plaid-ir: 1 modules fetched by Go")
        self.assertEqual(lines[-3:], [f"plaid-ir: {n} of 3 packages compiled" for n in (1, 2, 3)])

    def test_errors_of_go_are_shown(self) -> None:
        done, said = self.go_build(FAILS="1", PLAID_BUILD_PROGRESS="none")
        self.assertFalse(done)
        self.assertEqual(said, "# example.com/c\nc.go:1:2: undefined: x\n")

    def test_terminal_behind_pip(self) -> None:
        """stderr is a pipe, as under pip: the lines go to the terminal of the process."""
        begin = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})"
        program = f"{begin}; import build; build.Progress().say('halfway')"
        pid, master = pty.fork()
        if pid == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.execv(sys.executable, [sys.executable, "-B", "-c", program])
            finally:
                os._exit(127)
        said = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(master, 1000):
                said += data
        os.close(master)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(said, b"\r\x1b[Kplaid-ir: halfway\r\n")

    def test_version(self) -> None:
        import plaid_ir

        self.assertEqual(load().version(), plaid_ir.__version__)
