"""The blocks of docs/frameworks.md run, and print what they say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "frameworks.md"


def test_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink(ROOT / "docs", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    space: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[: m.start()].count("\n") + 1
        exec(compile("\n" * line + m[1], str(PAGE), "exec"), space)
        expected = re.findall(r"^ *print\(.*\) +# (.*)$", m[1], re.MULTILINE)
        assert capsys.readouterr().out.split("\n")[:-1] == expected, f"line {line}"
        ran += 1
    assert ran >= 9
    assert space["found"]["documents"][0].content == "dogs bark at night"
    assert space["found_nodes"][0].text == space["plain_nodes"][0].text == "cats sleep for most of the day"
    assert (space["docs"][0].doc_id, space["places"]) == ("dog", [[1]])
    space["index"].close()
    space["nodes"].client.close()
    space["backend"].clear()
    space["store"].close()
