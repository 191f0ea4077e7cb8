"""Tables, bars and frames, where what they need is installed."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

from plaid_ir import Hits, Index

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "docs" / "examples" / "quickstart" / "colbert-nano"


@pytest.fixture()
def index() -> Any:
    frame = pandas.DataFrame({"year": [1999, 2001, 2004], "at": pandas.to_datetime(["2020-01-02", "2020-01-03", "2020-01-04"]), "tags": [["a"], [], ["b"]]})
    with Index(None) as made:
        yield made.add_documents(["a", "b", "c"], [np.eye(4)[:2], np.eye(4)[1:3], np.eye(4)[2:]], frame)


def test_metadata_of_a_data_frame(index: Index) -> None:
    assert index.get(["a"]) == [{"year": 1999, "at": "2020-01-02T00:00:00", "tags": ["a"]}]
    assert index.ids("year > 2000") == ["b", "c"]


FRAME = pandas.DataFrame(
    {
        "year": [1999, None, 2004],
        "share": [0.5, None, 2.0],
        "lang": ["en", None, float("nan")],
        "at": pandas.to_datetime(["2020-01-02", None, "2020-01-04"]),
        "kind": pandas.Categorical(["x", None, "y"]),
        "old": pandas.array([True, None, False], "boolean"),
        "n": pandas.array([1, None, 3], "Int64"),
    },
    index=[7, 8, 9],
)
ROWS = [
    {"year": 1999, "share": 0.5, "lang": "en", "at": "2020-01-02T00:00:00", "kind": "x", "old": True, "n": 1},
    dict.fromkeys(["year", "share", "lang", "at", "kind", "old", "n"]),
    {"year": 2004, "share": 2.0, "lang": None, "at": "2020-01-04T00:00:00", "kind": "y", "old": False, "n": 3},
]


def frames() -> list[Any]:
    made: list[Any] = [FRAME, pyarrow.Table.from_pandas(FRAME, preserve_index=False), FRAME.to_dict("records")]
    if importlib.util.find_spec("polars"):
        polars = importlib.import_module("polars")
        made.append(polars.from_pandas(FRAME))
    return made


@pytest.mark.parametrize("frame", frames(), ids=lambda f: type(f).__module__)
def test_tables_are_rows_at_every_door(frame: Any) -> None:
    ids, vectors = ["a", "b", "c"], [np.eye(4)] * 3
    texts = ["seals sleep", "tides turn", "ferries sail"]
    with Index(None, model=MODEL) as index:
        for add in (
            lambda: index.add_documents(ids, vectors, frame),
            lambda: index.update_documents(ids, vectors, frame),
            lambda: index.add_batches([(ids, vectors, frame)]),
            lambda: index.add_batches([(ids, vectors, frame)], wait=False),
        ):
            add()
            assert index.get(ids) == ROWS
            index.delete(ids)
    with Index(None, model=MODEL) as index:
        for batch_size, given in ((2, texts), (2, iter(texts)), (128, texts)):
            index.add_texts(given, ids, frame, batch_size=batch_size)
            assert index.get(ids) == [{"text": t, **row} for t, row in zip(texts, ROWS)]
        assert index.ids({"year": {"$lt": 2000}}) == ["a"] and index.ids({"old": None}) == ["b"]
    with Index.from_texts(texts, ids, frame, model=MODEL) as index:
        assert index.get("c") == [{"text": "ferries sail", **ROWS[2]}]
    with Index.from_embeddings(vectors, ids, frame) as index:
        assert index.get("a") == ROWS[:1]


def test_whole_numbers_stay_so(index: Index) -> None:
    """pandas makes floats of whole numbers next to a missing one."""
    rows = pandas.DataFrame({"n": [1, None], "x": [1.5, None], "y": [1.0, 2.0]})
    index.add_documents(["x", "y"], [np.eye(4)] * 2, rows)
    assert [[repr(v) for v in row.values()] for row in index.get(["x", "y"])] == [["1", "1.5", "1.0"], ["None", "None", "2.0"]]


def test_columns_are_texts_ids_and_vectors() -> None:
    frame = pandas.DataFrame({"id": [4, 5, 6], "text": ["seals sleep", None, "tides turn"]}, index=[7, 8, 9])
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    for columns in (frame, table):
        with Index.from_texts(columns["text"], columns["id"], frame[["id"]], model=MODEL) as index:
            assert index.ids() == [4, 5, 6]
            assert index.search_batch(columns["text"].dropna() if columns is frame else ["seals"], 1)[0][0]["id"] == 4
            assert index.search("seals", subset=columns["id"][2:])[0]["id"] == 6
    vectors = pandas.Series([np.eye(4)[:2], np.eye(4)], index=[3, 4])
    with Index.from_embeddings(vectors, pandas.Series(["a", "b"], index=[3, 4])) as index:
        assert index.ids() == ["a", "b"] and len(index.get_documents_embeddings(["b"])[0]) == 4


def test_what_is_wrong_with_a_table(index: Index) -> None:
    two = [np.eye(4)] * 2
    for error, want, frame in (
        (ValueError, "row 1: metadata of document 'y', key 'n' is inf", pandas.DataFrame({"n": [1, float("inf")]})),
        (ValueError, "two columns 'n'", pandas.DataFrame([[1, 2], [3, 4]], columns=["n", "n"])),
        (ValueError, "two columns 'n'", pyarrow.Table.from_arrays([pyarrow.array([1, 2])] * 2, names=["n", "n"])),
        (TypeError, "has the key 0, of type int", pandas.DataFrame([[1], [2]])),
        (TypeError, "row 0: metadata of document 'x', key 'd' is a duration", pandas.DataFrame({"d": pandas.to_timedelta([1, 2])})),
        (ValueError, "2 documents and 3 metadata", pandas.DataFrame({"n": [1, 2, 3]})),
        (ValueError, "has the key _id", pandas.DataFrame({"_id": ["x", "y"]})),
        (TypeError, "one dictionary.*pandas.DataFrame", {"n": [1, 2]}),
    ):
        with pytest.raises(error, match=want):
            index.add_documents(["x", "y"], two, frame)
    with pytest.raises(TypeError, match="texts is a table"):
        Index.from_texts(FRAME, model=MODEL)
    with pytest.raises(TypeError, match="ids is a table"):
        index.add_documents(FRAME[["lang"]], two)
    with pytest.raises(TypeError, match="texts is a dictionary"):
        index.add_texts({"a": "b"}, ["a"])
    assert len(index) == 3


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
