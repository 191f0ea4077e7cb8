"""Puts the program and the library into the wheel, and names the wheel for its platform.

build.py sets PLAID_WHEEL_BINARY, the program, PLAID_WHEEL_LIBRARY, the library of plaid_ir.torch or
nothing, and PLAID_WHEEL_PLATFORM, the platform tag. Without them (`pip install ./python`) all are
compiled here, for this machine. An editable install has neither: PLAID_BINARY and
PLAID_MAXSIM_LIBRARY name them at run time.
"""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        made: Mapping[str, str] = os.environ
        if not made.get("PLAID_WHEEL_BINARY") or not made.get("PLAID_WHEEL_PLATFORM"):
            made = self._compile()
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

    def _compile(self) -> dict[str, str]:
        """The values that build.py puts into the environment, for this machine."""
        source = os.path.join(self.root, "build.py")
        spec = importlib.util.spec_from_file_location("plaid_build", source)
        if spec is None or spec.loader is None or not os.path.isfile(os.path.join(self.root, os.pardir, "go.mod")):
            raise RuntimeError("plaid-ir is built within its repository: clone it, and run pip install ./python there")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self._folder = tempfile.mkdtemp(prefix="plaid-wheel-")
        try:
            return build.compile_all(build.host(), self._folder)
        except BaseException as e:
            shutil.rmtree(self._folder, ignore_errors=True)
            if isinstance(e, SystemExit):
                raise RuntimeError(str(e)) from e
            raise
