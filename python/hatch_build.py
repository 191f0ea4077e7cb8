"""Puts the program into the wheel, and names the wheel for its platform.

build.py sets PLAID_WHEEL_BINARY, the program, and PLAID_WHEEL_PLATFORM, the platform tag.
Without them (`pip install ./python`) the program is compiled here, for this machine. An editable
install has no program: PLAID_BINARY names one at run time.
"""

import importlib.util
import os
import shutil
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        binary = os.environ.get("PLAID_WHEEL_BINARY")
        platform = os.environ.get("PLAID_WHEEL_PLATFORM")
        if not binary or not platform:
            binary, platform = self._compile()
        if not os.access(binary, os.X_OK):
            raise RuntimeError(f"{binary} cannot be executed")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][binary] = "plaid_ir/bin/plaid" + (".exe" if platform.startswith("win") else "")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _compile(self) -> tuple[str, str]:
        """The program for this machine, and its platform tag."""
        source = os.path.join(self.root, "build.py")
        spec = importlib.util.spec_from_file_location("plaid_build", source)
        if spec is None or spec.loader is None or not os.path.isfile(os.path.join(self.root, os.pardir, "go.mod")):
            raise RuntimeError("plaid-ir is built within its repository: clone it, and run pip install ./python there")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self._folder = tempfile.mkdtemp(prefix="plaid-wheel-")
        try:
            return build.compile_program(build.host(), self._folder)
        except BaseException as e:
            shutil.rmtree(self._folder, ignore_errors=True)
            if isinstance(e, SystemExit):
                raise RuntimeError(str(e)) from e
            raise
