"""What build.py decides: which compiler, and which tag."""

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parent.parent / "build.py"


@unittest.skipUnless(SOURCE.is_file(), "build.py is not in a wheel")
class TestBuild(unittest.TestCase):
    def setUp(self) -> None:
        spec = importlib.util.spec_from_file_location("plaid_build", SOURCE)
        assert spec and spec.loader
        self.build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.build)

    def tag(self, tag: str, content: bytes) -> str:
        with tempfile.TemporaryDirectory() as directory:
            library = os.path.join(directory, "library")
            Path(library).write_bytes(content)
            return self.build.honest(tag, library)

    def test_tag_has_the_glibc_that_the_library_needs(self) -> None:
        needs = b"\x7fELF..\0GLIBC_2.2.5\0memcpy\0GLIBC_2.34\0GLIBC_2.4\0"
        self.assertEqual(self.tag("manylinux_2_17_x86_64", needs), "manylinux_2_34_x86_64")
        self.assertEqual(self.tag("manylinux_2_17_x86_64", needs.replace(b"2.34", b"2.14")), "manylinux_2_17_x86_64")
        both = "manylinux_2_17_aarch64.musllinux_1_1_aarch64"
        self.assertEqual(self.tag(both, needs), "manylinux_2_34_aarch64.musllinux_1_1_aarch64")
        self.assertEqual(self.tag("macosx_12_0_arm64", b""), "macosx_12_0_arm64")

    def test_compiler(self) -> None:
        other = "windows-amd64" if self.build.host() != "windows-amd64" else "darwin-arm64"
        variable = "PLAID_CC_" + other.replace("-", "_").upper()
        with mock.patch.dict(os.environ):
            os.environ.pop(variable, None)
            self.assertEqual(self.build.compiler(other), ("", f"{variable} names no C compiler"))
            os.environ[variable] = "zig cc"
            self.assertEqual(self.build.compiler(other), ("zig cc", ""))
            os.environ[variable] = "none"
            self.assertEqual(self.build.compiler(other), ("", f"{variable} is none"))
        self.assertEqual(self.build.compiler("linux-amd64-static"), ("", "there is no torch for musl"))


if __name__ == "__main__":
    unittest.main()
