"""Tables, bars and frames, where what they need is installed."""

from __future__ import annotations

import importlib
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from plaid_ir import Documents, Facets, Hits, Index
from plaid_ir._arrays import to_matrices

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
    table = pyarrow.Table.from_pandas(FRAME, preserve_index=False)
    frame = polars.from_pandas(FRAME)
    made: list[Any] = [FRAME, table, FRAME.to_dict("records"), frame, frame.lazy(), table.combine_chunks().to_batches()[0]]
    made += [FRAME.convert_dtypes(), table.to_pandas(types_mapper=pandas.ArrowDtype), Stream(table)]
    made += [importlib.import_module("datasets").Dataset(table)] if importlib.util.find_spec("datasets") else []
    return made


class Stream:
    """A table of any library that has Arrow's interface, as LanceDB's queries and DuckDB's relations have."""

    def __init__(self, table: pyarrow.Table) -> None:
        self.table = table

    def to_arrow(self) -> pyarrow.Table:
        return self.table


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


VECTORS = [np.eye(4)[rows].tolist() if rows else None for rows in ([0, 1], [2], [], [3, 0, 1])]
IDS = ["a", "b", "c", "d"]


def columns_of_vectors() -> dict[str, Any]:
    f32 = pyarrow.float32()
    array = pyarrow.array(VECTORS, pyarrow.list_(pyarrow.list_(f32, 4)))
    more = pyarrow.array([[[9.0] * 4], *VECTORS], pyarrow.list_(pyarrow.list_(f32)))
    padded = [None if m is None else m + [[0.0] * 4] * (3 - len(m)) for m in VECTORS]
    series = pandas.Series(VECTORS)
    objects = series.map(lambda m: m if m is None else np.array([np.array(v) for v in m] + [None], dtype=object)[:-1])
    made = {
        "list of fixed lists": array,
        "list of lists": pyarrow.array(VECTORS),
        "slice": more[1:],
        "chunks": pyarrow.chunked_array([array[:1], array[1:]]),
        "large lists": array.cast(pyarrow.large_list(pyarrow.large_list(pyarrow.float64()))),
        "views": pyarrow.array(VECTORS, pyarrow.list_view(pyarrow.list_(f32))),
        "padded": pyarrow.array(padded, pyarrow.list_(pyarrow.list_(f32, 4), 3)),
        "half": array.cast(pyarrow.list_(pyarrow.list_(pyarrow.float16(), 4))),
        "scalars": list(array),
        "pandas": series,
        "pandas, as from Parquet": objects,
        "pandas, its array": objects.to_numpy(),
        "pandas, a list": objects.tolist(),
        "pandas of Arrow": pandas.Series(array, dtype=pandas.ArrowDtype(array.type)),
        "polars": polars.Series(VECTORS),
        "polars, fixed": polars.Series(VECTORS, dtype=polars.List(polars.Array(polars.Float32, 4))),
        "polars, arrays": polars.Series(padded, dtype=polars.Array(polars.Float32, (3, 4))),
        "polars, a list": list(polars.Series(VECTORS)),
    }
    if importlib.util.find_spec("datasets"):
        given = importlib.import_module("datasets").Dataset.from_dict({"v": VECTORS})
        made |= {"datasets": given["v"], "datasets, chosen": given.select([3, 0, 1, 2]).select([1, 2, 3, 0])["v"]}
        made |= {f"datasets, {form}": given.with_format(form)["v"] for form in ("numpy", "pandas")}
    return made


@pytest.mark.parametrize("name", columns_of_vectors())
def test_columns_of_vectors(name: str) -> None:
    column = columns_of_vectors()[name]
    got = to_matrices(column, "document")
    assert [m.tolist() for m in got] == [v or [] for v in VECTORS]
    with Index.from_embeddings(column, IDS) as index:
        assert [len(m) for m in index.get_documents_embeddings(IDS)] == [2, 1, 0, 3]
        assert [r["index"] for r in index.rerank(np.eye(4)[2:3], column[:2])] == [1, 0]
    queries = column[:2]
    with Index.from_embeddings(VECTORS, IDS) as index:
        assert [hits[0]["id"] for hits in index.search_batch(queries, 1)] == ["a", "b"]


def test_one_vector_a_document() -> None:
    rows = [*np.eye(3)[:2].tolist(), None]
    fixed = pyarrow.array(rows, pyarrow.list_(pyarrow.float32(), 3))
    tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3, dtype=np.float32)[:2])
    for column, count in ((fixed, 3), (pyarrow.array(rows), 3), (pandas.Series(rows), 3), (polars.Series(rows), 3), (tensors, 2), (fixed[1:], 2)):
        got = to_matrices(column, "document")
        assert [m.tolist() for m in got] == [[r] if r else [] for r in (rows[1:] if column is not tensors and count == 2 else rows[:count])]


def test_columns_are_not_copied() -> None:
    numbers = np.arange(24, dtype=np.float32)
    flat = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers), 4)
    for column in (flat, pyarrow.ListArray.from_arrays(pyarrow.array([0, 2, 6], "int32"), flat), polars.Series(flat)):
        for m in to_matrices(column, "document"):
            assert np.shares_memory(m, numbers), type(column)


def test_what_is_wrong_with_a_column() -> None:
    nested = pyarrow.list_(pyarrow.list_(pyarrow.float32()))
    for error, want, column in (
        (ValueError, "^document 1, token 1: the vector is missing", pyarrow.array([[[1.0]], [[2.0], None]], nested)),
        (ValueError, "^document 1, token 1, component 0 is null", pyarrow.array([[[1.0]], [[2.0], [None]]], nested)),
        (ValueError, "^document 1, token 1 has dimension 2, those before it 1", pyarrow.array([[[1.0]], [[2.0], [3, 4]]], nested)),
        (ValueError, "^document 1 has dimension 2, document 0 has 1", pyarrow.array([[[1.0]], [[3, 4]]], nested)),
        (ValueError, "^document 1 has a number that is null, 1", pyarrow.array([[1.0, 2], [1, None]])),
        (ValueError, "^document 0 has 3 axes", pyarrow.array([[[[1.0]]]])),
        (TypeError, "^document 0: vectors are numbers, not string", pyarrow.array([["a"]])),
        (TypeError, "^document 0 is of type float", pandas.Series([1.0])),
        (TypeError, "^document 1 is of type str", polars.Series([[[1.0]], "a"], dtype=polars.Object)),
        (TypeError, "^the documents are a table; want one of its columns", FRAME),
    ):
        with pytest.raises(error, match=want):
            to_matrices(column, "document")


def test_scalars_of_arrow() -> None:
    ids, texts = list(pyarrow.array(["a", "b"])), list(pyarrow.array(["seals sleep", None]))
    with Index.from_texts(texts, ids, [{"n": pyarrow.scalar(1)}, {"n": polars.Series([1, 2])}], model=MODEL) as index:
        assert index.get(pyarrow.array(["b", "a"])) == [{"text": "", "n": [1, 2]}, {"text": "seals sleep", "n": 1}]
        assert index.search_batch(texts[:1], 1)[0][0]["id"] == "a" and index.delete(pyarrow.scalar("a")) == 1


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
    with pytest.raises(TypeError, match="batch 0 is a table; want .ids, embeddings, metadata."):
        index.add_batches([FRAME])
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


MIXED = [
    {"n": 1, "m": 1, "tags": ["a"], "d": {"a": 1}, "b": True, "e": {}, "huge": 2**70, "": 1},
    {"n": None, "m": "x", "tags": ["a", 1], "d": {"b": "x"}, "b": None, "e": None, "huge": 1, "": 2},
]


def test_columns_of_every_type() -> None:
    """None of them is an error, the three libraries agree, and Parquet takes them."""
    made: list[Any] = [
        Documents(MIXED, ["x", "y"]),
        Hits([{"id": i, "score": 1.0, "metadata": row, "token_scores": np.ones((2, i), np.float32)} for i, row in enumerate(MIXED, 1)]),
        Facets([{"field": "m", "docs": 2, "missing": 0, "null": 0, "others": 0, "values": [{"value": v, "docs": 1} for v in (1, "x")]}]),
    ]
    for some in made:
        table, frame, plain = some.to_arrow(), some.to_polars(), some.to_pandas()
        pyarrow.parquet.write_table(table, io.BytesIO())
        frame.write_parquet(io.BytesIO())
        assert frame.to_dicts() == table.to_pylist()
        assert table.column_names == frame.columns == list(plain.columns)
        for name, column in plain.items():
            if column.dtype != object:
                assert [None if pandas.isna(v) else v for v in column.tolist()] == table.column(name).to_pylist(), name
        empty = some[:0]
        assert (len(empty.to_pandas()), len(empty.to_polars()), len(empty.to_arrow())) == (0, 0, 0)
    table, plain = made[0].to_arrow(), made[0].to_pandas()
    assert table.column("m").to_pylist() == ["1", "x"] and table.column("huge").to_pylist() == [str(2**70), "1"]
    assert table.column("tags").to_pylist() == [["a"], ["a", "1"]]
    assert (str(plain["n"].dtype), str(plain["b"].dtype), plain["d"].tolist()) == ("Int64", "boolean", [{"a": 1}, {"b": "x"}])
    assert made[1].to_polars()["token_scores"].to_list() == [[[1.0], [1.0]], [[1.0, 1.0], [1.0, 1.0]]]


class Tensor:
    """As much of a tensor as ids and conditions need."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.asarray(numbers)
        self.ndim = self.numbers.ndim

    def detach(self) -> Any:
        return self

    def tolist(self) -> Any:
        return self.numbers.tolist()

    item = tolist

    def __iter__(self) -> Any:
        return map(Tensor, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> Any:
        return Tensor(self.numbers[i])


def test_tensors_and_scalars_are_values() -> None:
    table = pyarrow.table({"n": [1, 2, 3]})
    with Index(None, id_type=int) as index:
        index.add_documents([1, 2, 3], [np.eye(4)] * 3, table)
        for given, want in ((np.array(2), [2]), ([2, pyarrow.scalar(3)], [2, 3]), ([1, Tensor(2)], [1, 2]), (Tensor([1, 2]), [1, 2])):
            assert index.get(given).ids == want
        for subset in ([Tensor([1]), Tensor([2])], [polars.Series([1]), pyarrow.array([2])], [range(1, 2), range(2, 3)]):
            found = index.search_batch([np.eye(4)] * 2, subset=subset)
            assert [[hit["id"] for hit in hits] for hits in found] == [[1], [2]]
        for where in ({"n": Tensor([1, 2])}, {"n": {"$in": Tensor([1, 2])}}, {"n": {"$lt": Tensor(3)}}, {"n": {"$lt": pyarrow.scalar(3)}}):
            assert index.ids(where) == [1, 2]
        assert index.ids("n = ? OR n = ?", Tensor([1, 2])) == [1, 2]
        index.add_documents([1, 2, 3], [np.eye(4)] * 3, table.select([]))
        assert index.get([1, 2, 3]) == [{}, {}, {}]


def test_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Index(None) as index:
        index.add_documents([str(i) for i in range(7)], [np.eye(4)] * 7, batch_size=3, progress=True)
        index.add_batches([(["x"], [np.eye(4)])], total=1, progress=True)
    said = capsys.readouterr().err
    assert "7/7" in said and "1/1" in said
