"""Puts the program into the wheel, and names the wheel for its platform.

PLAID_WHEEL_BINARY is the program, PLAID_WHEEL_PLATFORM the platform tag; build.py
sets them. An editable install has no program: PLAID_BINARY names one at run time.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        binary = os.environ.get("PLAID_WHEEL_BINARY")
        platform = os.environ.get("PLAID_WHEEL_PLATFORM")
        if not binary or not platform:
            raise RuntimeError("a wheel needs the program: run build.py, which compiles it")
        if not os.access(binary, os.X_OK):
            raise RuntimeError(f"{binary} cannot be executed")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][binary] = "plaid_ir/bin/plaid"
