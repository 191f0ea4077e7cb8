"""Tables, bars and frames, where what they need is installed; and the blocks of docs/python.md, Frameworks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

from plaid_ir import Hits, Index

ROOT = Path(__file__).parents[3]


@pytest.fixture()
def index() -> Any:
    frame = pandas.DataFrame({"year": [1999, 2001, 2004], "at": pandas.to_datetime(["2020-01-02", "2020-01-03", "2020-01-04"]), "tags": [["a"], [], ["b"]]})
    with Index(None) as made:
        yield made.add_documents(["a", "b", "c"], [np.eye(4)[:2], np.eye(4)[1:3], np.eye(4)[2:]], frame)


def test_metadata_of_a_data_frame(index: Index) -> None:
    assert index.get(["a"]) == [{"year": 1999, "at": "2020-01-02T00:00:00", "tags": ["a"]}]
    assert index.ids("year > 2000") == ["b", "c"]
    with pytest.raises(ValueError, match="document 'x', key 'n' is nan"):
        index.add_documents(["x", "y"], [np.eye(4)] * 2, pandas.DataFrame({"n": [float("nan"), 1.0]}))
    with pytest.raises(ValueError, match="document 'y', key 'd' is NaT"):
        index.add_documents(["x", "y"], [np.eye(4)] * 2, pandas.DataFrame({"d": pandas.to_datetime(["2020-01-02", None])}))


def test_pandas(index: Index) -> None:
    hits = index.search(np.eye(4)[:2], 3, metadata=True)
    frame = hits.to_pandas()
    assert list(frame.columns) == ["rank", "id", "score", "year", "at", "tags"]
    assert (frame["id"][0], frame["year"][0], list(frame["rank"])) == ("a", 1999, [1, 2, 3])
    both = index.search_batch([np.eye(4)[:2], np.eye(4)[2:]], 2).to_pandas()
    assert list(both["query"]) == [0, 0, 1, 1]
    assert list(both.groupby("query")["id"].first()) == ["a", "c"]
    assert list(index.search(np.eye(4)[:2], where="year > 3000").to_pandas().columns) == ["rank", "id", "score"]
    scored = index.search_token_scores([np.eye(4)[:2]], 1)[0].to_pandas()
    assert scored["token_scores"][0].shape == (2, 2)
    rows = {"a": {"n": 1, "id": "x"}, "b": {"m": None}}
    named = Hits([{"id": i, "score": 2.0, "metadata": row} for i, row in rows.items()])
    assert list(named.to_pandas().columns) == ["rank", "id", "score", "n", "metadata.id", "m"]
    assert named.to_arrow().column("n").to_pylist() == [1, None]


def test_arrow(index: Index) -> None:
    table = index.search(np.eye(4)[:2], 3, metadata=True).to_arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.column_names == ["rank", "id", "score", "year", "at", "tags"]
    assert table.schema.field("tags").type == pyarrow.list_(pyarrow.string())
    assert table.column("id").to_pylist()[0] == "a"
    both = index.search_batch([np.eye(4)[:2], np.eye(4)[2:]], 2).to_arrow()
    assert both.column("query").to_pylist() == [0, 0, 1, 1]
    scored = index.search_token_scores([np.eye(4)[:2]], 1)[0].to_arrow()
    assert np.asarray(scored.column("token_scores")[0].as_py()).shape == (2, 2)


def test_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Index(None) as index:
        index.add_documents([str(i) for i in range(7)], [np.eye(4)] * 7, batch_size=3, progress=True)
        index.add_batches([(["x"], [np.eye(4)])], total=1, progress=True)
    said = capsys.readouterr().err
    assert "7/7" in said and "1/1" in said


def blocks(page: Path) -> list[tuple[int, str]]:
    text = page.read_text()
    begin = text.index("## Frameworks\n")
    return [(text[: m.start()].count("\n") + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if m.start() > begin]


def test_the_blocks_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "python.md"
    os.symlink(ROOT / "docs", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for line, code in blocks(page):
        exec(compile("\n" * line + code, str(page), "exec"), space)
        ran += 1
    assert ran >= 6
    assert space["nodes"][0].node_id == "dog" and space["found"]["documents"][0].content == "dogs bark at night"
    assert space["docs"][0].doc_id == "dog" and space["places"] == [[1]]
    for name in ("index", "backend"):
        (space[name].close if name == "index" else space[name].clear)()
    space["store"].close()
