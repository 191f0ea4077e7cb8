"""The blocks of docs/torch.md run, and print what their comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"


def test_page() -> None:
    said: dict[str, object] = {}
    printed = 0
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, str(PAGE), "exec"), said)  # noqa: S102
        wanted = re.findall(r"^print\(.*\)\s+# (.*)$", block, re.M)
        got = out.getvalue().splitlines()
        assert len(got) == len(wanted)
        for line, comment in zip(got, wanted):
            assert comment == line or comment.startswith(line + ":")
            printed += 1
    assert printed > 5


def test_every_function_is_named() -> None:
    import plaid_ir.torch

    text = PAGE.read_text()
    for name in plaid_ir.torch.__all__:
        assert name.startswith("dequantize") or name == "backend" or f"`{name}" in text or f".{name}" in text, name
