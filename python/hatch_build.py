"""Puts the program and the library into the wheel, which it names for its platform, and Go sources into the sdist.

build.py sets PLAID_WHEEL_BINARY, the program, PLAID_WHEEL_LIBRARY, the library of plaid_ir.torch or
nothing, and PLAID_WHEEL_PLATFORM, the platform tag. Without them (`pip install ./python`, or an
sdist) all are compiled here, for this machine. An editable install gets them beside its sources, as
by `build.py --in-place`, where there is Go and PLAID_BINARY names no other program.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

T = TypeVar("T")


class CustomBuildHook(BuildHookInterface):
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            build_data["force_include"].update(self._run(lambda build: build.sources()))
            return
        if version == "editable":
            if shutil.which("go") and not os.environ.get("PLAID_BINARY"):
                self._run(lambda build: build.in_place())
            return
        made: Mapping[str, str] = os.environ
        if not made.get("PLAID_WHEEL_BINARY") or not made.get("PLAID_WHEEL_PLATFORM"):
            folder = self._folder = tempfile.mkdtemp(prefix="plaid-wheel-")
            try:
                made = self._run(lambda build: build.compile_all(build.host(), folder))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        binary, platform, library = (made.get(f"PLAID_WHEEL_{name}", "") for name in ("BINARY", "PLATFORM", "LIBRARY"))
        if not os.access(binary, os.X_OK):
            raise RuntimeError(f"{binary} cannot be executed")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][binary] = "plaid_ir/bin/plaid" + (".exe" if platform.startswith("win") else "")
        if library:
            build_data["force_include"][library] = "plaid_ir/bin/" + os.path.basename(library)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, call: Callable[[ModuleType], T]) -> T:
        """Calls build.py."""
        spec = importlib.util.spec_from_file_location("plaid_build", os.path.join(self.root, "build.py"))
        if spec is None or spec.loader is None:
            raise RuntimeError(f"{self.root} has no build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        if not (build.ROOT / "go.mod").is_file():
            sys.exit("the Go sources are not there: run pip install ./python in a clone, or take an sdist")
        # It ends by sys.exit if something is missing: pip shows that sentence, and no traceback.
        return call(build)
