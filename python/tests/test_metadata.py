"""Metadata, big builds, batches, and keywords of other libraries."""

from __future__ import annotations

import datetime
import decimal
import enum
import glob
import json
import math
import os
import sys
import tempfile
import unittest
import uuid
import warnings
from typing import Iterator
from unittest import mock

import numpy as np

from plaid_ir import Index, PlaidError, RequestError, ServiceError, _build, _reader
from plaid_ir._binary import find_binary
from plaid_ir._conditions import to_condition
from plaid_ir._connection import Connection, device_names
from plaid_ir._metadata import to_json_value

from .common import collection

KEYS = ["year", "ptex.fullbanner", "Page Number", 'a "b"', "in", "größe", "1st", "", "a'b", "?"]


class Colour(str, enum.Enum):
    RED = "red"


def deep(levels: int) -> dict:
    where: dict = {"a": 1}
    for _ in range(levels):
        where = {"$not": where}
    return where


class Values(unittest.TestCase):
    def test_plain(self) -> None:
        for given, want in (
            (np.int64(7), 7), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.str_("a"), "a"), (datetime.date(2020, 1, 2), "2020-01-02"),
            (datetime.datetime(2020, 1, 2, 3, 4, tzinfo=datetime.timezone.utc), "2020-01-02T03:04:00+00:00"), (np.datetime64("2020-01-02"), "2020-01-02"),
            (np.array([1, 2]), [1, 2]), ((1, {"a": np.int8(3)}), [1, {"a": 3}]), ({"b", "a"}, ["a", "b"]), (None, None), (2**70, 2**70),
            (math.nan, None), (np.float32("nan"), None), (np.datetime64("NaT"), None), (np.timedelta64("NaT"), None), (decimal.Decimal("NaN"), None),
            ([1, math.nan, {"a": math.nan}], [1, None, {"a": None}]), (np.array([1, math.nan]), [1, None]), (np.ma.masked_array([1, 2], [False, True]), [1, None]),
            (decimal.Decimal("19.99"), 19.99), (decimal.Decimal("1E+2"), 100), (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (datetime.time(3, 4), "03:04:00"), (np.datetime64("2020-01-02T03:04:05", "ns"), "2020-01-02T03:04:05"), (np.datetime64("2020-01-02T00:00:00.000000001"), "2020-01-02T00:00:00.000000001"),
            (np.array(["2020-01-02"], "datetime64[ns]"), ["2020-01-02T00:00:00"]), (Colour.RED, "red"), (np.longdouble(0.5), 0.5),
        ):  # fmt: skip
            got = to_json_value(given, "it")
            self.assertEqual(got, want)
            self.assertIs(type(got), type(want))
        for bad in (math.inf, -np.float32("inf"), decimal.Decimal("Infinity"), decimal.Decimal("1E+400"), decimal.Decimal("0.12345678901234567891")):
            with self.assertRaisesRegex(ValueError, "^it, key 'a', item 1 is"):
                to_json_value({"a": [0, bad]}, "it")
        for bad in (object(), b"a", 1j, np.complex64(1), np.bytes_(b"a")):
            with self.assertRaisesRegex(TypeError, "^it is of type"):
                to_json_value(bad, "it")
        for duration in (datetime.timedelta(1), np.timedelta64(5, "ns")):
            with self.assertRaisesRegex(TypeError, "^it is a duration.*seconds"):
                to_json_value(duration, "it")

    def test_condition(self) -> None:
        self.assertIsNone(to_condition(None))
        self.assertEqual(to_condition("a > ?", [np.int64(1)]), ("a > ?", [1]))
        self.assertEqual(to_condition({"a b": 1, 'c"': [2, 3], "d": None, "e": []}), ('("a b" = ? AND "c""" IN (?, ?) AND "d" IS NULL AND "e" IN ())', [1, 2, 3]))
        self.assertEqual(to_condition({"a": ["en", None], "b": [None], "c": 1}), ('(("a" IN (?) OR "a" IS NULL) AND "b" IS NULL AND "c" = ?)', ["en", 1]))
        for none in ({}, {"$and": [{}]}, {"$or": [{"a": 1}, {}]}):
            self.assertIsNone(to_condition(none))
        self.assertEqual(to_condition({"$not": {}}), ("_id IS NULL", []))
        for error, args in (
            (ValueError, (" ",)), (ValueError, ({"a": 1}, [1])), (ValueError, ({"a": {"b": 1}},)), (TypeError, ("a = ?", [{}])), (TypeError, ("a = ?", "x")), (TypeError, ({1: 2},)), (TypeError, (7,)),
            (TypeError, (len,)), (ValueError, ({"a": {}},)), (ValueError, ({"$or": []},)), (TypeError, ({"$and": [1]},)), (ValueError, ({"$nor": [{"a": 1}]},)), (ValueError, ({"a": {"$regex": "x"}},)),
            (ValueError, ({"a": {"$gt": None}},)), (TypeError, ({"a": {"$gt": [1]}},)), (TypeError, ({"a": {"$in": 1}},)), (ValueError, ({"a": math.nan},)), (ValueError, ("a = ?", [math.nan])),
            (TypeError, ({"a": {"$exists": 1}},)), (ValueError, ({"a": {"$between": [1]}},)), (TypeError, ({"a": {"$like": 1}},)), (TypeError, ({"a": {"$not": 1}},)), (ValueError, (deep(300),)),
        ):  # fmt: skip
            with self.subTest(str(args)), self.assertRaises(error):
                to_condition(*args)


class Metadata(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        kept = Index(cls.folder, "kept")  # whose service is that of all tests
        cls.addClassCleanup(kept.close)
        kept.ids()

    def setUp(self) -> None:
        self.docs, self.queries = collection(20, 2)
        self.ids = [f"d{i}" for i in range(20)]
        self.index = self.fresh()

    def fresh(self) -> Index:
        index = Index(self.folder, f"i{uuid.uuid4().hex}")
        self.addCleanup(index.close)
        return index

    def test_before_there_are_documents(self) -> None:
        self.assertEqual(self.index.ids(), [])
        self.assertNotIn("a", self.index)
        with self.assertRaises(KeyError):
            self.index.get(["a"])

    def test_reading_and_changing(self) -> None:
        index = self.index.add_documents(self.ids, self.docs, [{"n": np.int64(i), "even": i % 2 == 0} for i in range(20)])
        self.assertEqual(index.get(["d3", "d1", "d3"]), [{"n": 3, "even": False}, {"n": 1, "even": False}, {"n": 3, "even": False}])
        with self.assertRaises(KeyError) as e:
            index.get(["d1", "nobody"])
        self.assertEqual(e.exception.args, ("nobody",))
        self.assertEqual(index.ids("n >= 17"), ["d17", "d18", "d19"])
        self.assertEqual(index.ids("n = ?", [np.int32(4)]), ["d4"])
        self.assertEqual(index.ids({"n": [1, 2, 3], "even": False}), ["d1", "d3"])
        self.assertEqual(index.update(where="n < 2", values={"lang": "en"}), 2)
        self.assertEqual(index.ids({"lang": ["en", None], "n": [1, 2]}), ["d1", "d2"])
        self.assertEqual(index.update(where="n < 2", values={"lang": None}), 2)
        self.assertEqual(index.update(where={"n": 5}, values={"at": datetime.date(2020, 1, 1), "even": None}), 1)
        self.assertEqual(index.get("d5"), [{"n": 5, "at": "2020-01-01"}])
        for ids, where in ((None, None), (["d1"], "n < 3")):
            self.assertRaises(TypeError, index.delete, ids, where=where)
        for change in (lambda: index.delete(where="yaer IS NULL"), lambda: index.update(where="NOT yaer = 1", values={"a": 1})):
            with self.assertRaisesRegex(RequestError, "unknown field yaer"):
                change()
        self.assertEqual(index.delete(where="n < 3"), 3)
        self.assertNotIn("d2", index)
        self.assertIn("d3", index)
        self.assertNotIn(3, index)
        self.assertEqual(len(index), 17)

    def test_lists_are_their_text(self) -> None:
        rows = [{"tags": ["café", "x"], "n": i} for i in range(19)] + [{"tags": ["\u2028", "𝄞"]}]
        for least in ((1 << 16), 100):
            with self.subTest(least), mock.patch.object(Connection, "train_tokens", least), Index(None) as index:
                index.add_documents(self.ids, self.docs, rows)
                self.assertEqual(index.get(["d0", "d19"]), [rows[0], rows[19]])
                self.assertEqual(len(index.ids("tags LIKE ?", ['%"café"%'])), 19)
                self.assertEqual(index.ids("tags LIKE ?", ['%"𝄞"%']), ["d19"])
                self.assertEqual(index.update(where={"n": 3}, values={"tags": ["größe"]}), 1)
                self.assertEqual(index.ids("tags LIKE '%größe%'"), ["d3"])
                with self.assertRaisesRegex(RequestError, r"metadata\[0\].t: .ud800 is half of a character"):
                    index.add_documents(["half"], self.docs[:1], [{"t": "\ud800"}])

    def test_vectors_come_later(self) -> None:
        index = self.index.add_documents(["a", "b"], None, [{"t": "seals sleep"}, {"t": "tides"}])
        self.assertEqual((len(index), index.ids({"t": "tides"}), [h["id"] for h in index.search(keywords="seals")]), (2, ["b"], ["a"]))
        self.assertEqual(index.search(np.eye(4)), [])
        index.add_documents(["a"], [np.eye(4)], keep_metadata=True)
        index.add_documents(["c", "d"], [None, np.eye(4)[:1]])
        self.assertEqual((index.get("a"), [h["id"] for h in index.search(np.eye(4))]), ([{"t": "seals sleep"}], ["a", "d"]))
        index.add_documents(["e", "f"], [[], [[-1.0, 0, 0, 0]]]).add_documents(["g", "h"], [[], []])  # lists of numbers
        self.assertEqual([len(m) for m in index.get_documents_embeddings(["a", "b", "c", "e", "f", "h"])], [4, 0, 0, 0, 1, 0])
        index.delete(["e", "f", "g", "h"])
        scored = {h["id"]: h for h in index.search_token_scores([np.eye(4)], hybrid=True, keywords=["tides"])[0]}
        self.assertEqual((scored["a"]["token_scores"].shape, scored["b"]["token_scores"].shape), ((4, 4), (4, 0)))
        for least in ((1 << 16), 20):
            with self.subTest(least), mock.patch.object(Connection, "train_tokens", least), Index(None) as other:
                other.add_batches([(["z"], None, [{"n": 1}]), (["x", "y"], [np.ones((0, 4)), np.ones((30, 4))])])
                self.assertEqual((len(other), other.ids("n = 1"), [h["id"] for h in other.search(np.eye(4))]), (3, ["z"], ["y"]))
            with self.subTest(least), mock.patch.object(Connection, "train_tokens", least), Index(None) as other:
                with self.assertRaisesRegex(ValueError, "^id '.ud800' has half of a character"):
                    other.add_documents(["a", "\ud800"], [np.ones((20, 4))] * 2)
                for ids, rows in ((["a", "b\t"], None), (["a", "b"], [{}, {"t": "\ud800"}])):
                    with self.assertRaises(RequestError) as e:
                        other.add_documents(ids, [np.ones((20, 4))] * 2, rows)
                    self.assertEqual((e.exception.details["document"], len(other)), (1, 0))

    def test_pages_of_pictures(self) -> None:
        cells = np.eye(8, 32, dtype=np.float32)
        pages = [np.concatenate([np.full((1, 32), 32**-0.5, np.float32), cells[i : i + 6]]) for i in range(2)]
        index = self.index.add_documents(["a", "b"], pages, [{"image": "a.png", "grid": [2, 3, 1]}, {"n": 1}])
        page = index.explain("a", np.eye(8, 32, dtype=np.float32)[[4, 0]])
        got = page.cells
        assert got is not None
        self.assertEqual(got.shape, (2, 2, 3))
        self.assertEqual([divmod(int(m.argmax()), 3) for m in got], [(1, 1), (0, 0)])
        np.testing.assert_allclose(got.reshape(2, 6), page.similarities[:, 1:], atol=0.001)
        self.assertEqual((page["image"], page["grid"]["special"]), ("a.png", 1))
        self.assertEqual(page._repr_html_().count('fill="#e63c00"'), 2, "the cells that match")
        self.assertIsNone(index.explain("b", pages[0][1:2]).cells)
        with self.assertRaisesRegex(RequestError, "3 × 3 cells"):
            index.add_documents(["c"], pages[:1], [{"image": "c.png", "grid": [3, 3]}])
        # Text and grid described the old vectors, and are not kept.
        with self.assertWarnsRegex(UserWarning, r"keep their metadata without grid \(1\): 'a'"):
            index.add_documents(["a"], [pages[0][:3]])
        self.assertEqual(index.get("a"), [{"image": "a.png"}])
        index.add_documents(["a"], pages[:1], [{"image": "a.png", "grid": [2, 3, 1], "text": "old"}])
        with self.assertWarnsRegex(UserWarning, r"keep their metadata without grid and text \(1\): 'a'"):
            index.add_documents(["a"], [pages[0]])
        index.add_documents(["a"], pages[:1], [{"text": "old"}])
        with self.assertWarnsRegex(UserWarning, r"keep their metadata without text \(1\): 'a'"):  # nothing is left
            index.add_documents(["a"], [pages[0]])
        index.add_documents(["a"], pages[:1], [{"image": "a.png", "grid": [2, 3, 1], "text": "old"}])
        index.add_documents(["a"], pages[1:], keep_metadata=True)
        self.assertEqual(index.get("a"), [{"image": "a.png", "grid": [2, 3, 1], "text": "old"}])
        index.add_documents(["a"], [pages[0][:3]], keep_metadata=True)
        self.assertEqual(index.get("a"), [{"image": "a.png", "text": "old"}])

    def test_keys_of_any_name(self) -> None:
        self.index.add_documents(self.ids, self.docs, [{k: i for k in KEYS} for i in range(20)])
        self.assertEqual(self.index.get("d7"), [{k: 7 for k in KEYS}])
        for key in KEYS:
            with self.subTest(key):
                self.assertEqual(self.index.ids({key: [7, 8]}), ["d7", "d8"])
                quoted = '"' + key.replace('"', '""') + '"'
                self.assertEqual([h["id"] for h in self.index.search(self.queries[0], where=f"{quoted} = 7")], ["d7"])

    def test_bad_metadata_names_document_and_key(self) -> None:
        for error, want, row in (
            (ValueError, "row 1: metadata of document 'd1', key 'x' is inf", {"x": math.inf}),
            (TypeError, "document 'd1', key 'x' is of type object", {"x": object()}),
            (TypeError, "document 'd1' has the key 1", {1: 2}),
            (ValueError, "document 'd1' has the key _id", {"_id": "z"}),
            (TypeError, "document 'd1' is of type int", 7),
        ):
            with self.subTest(want), self.assertRaisesRegex(error, want):
                self.index.add_documents(self.ids[:2], self.docs[:2], [{}, row])
        with self.assertRaisesRegex(TypeError, "one dictionary"):
            self.index.add_documents(self.ids[:1], self.docs[:1], {"a": 1})
        self.assertEqual(len(self.index), 0)

    def test_metadata_is_kept(self) -> None:
        index = self.index.add_documents(self.ids[:3], self.docs[:3], [{"n": 0}, {"n": 1}, {}])
        with self.assertWarnsRegex(UserWarning, r"keep their metadata \(2\): 'd0', 'd1'\.") as w:
            index.add_documents(self.ids[:4], self.docs[4:8])
        self.assertEqual(w.filename, __file__)
        self.assertEqual(index.get(self.ids[:4]), [{"n": 0}, {"n": 1}, {}, {}])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.add_documents(["d0"], self.docs[:1], keep_metadata=True)
            self.assertEqual(index.get("d0"), [{"n": 0}])
            index.add_documents(["d0"], self.docs[:1], [{"m": 2}])
            self.assertEqual(index.get("d0"), [{"m": 2}])
            index.add_documents(["d0"], self.docs[:1], keep_metadata=False)
            self.assertEqual(index.get("d0"), [{}])

    def test_keywords_of_pylate(self) -> None:
        _reader._warned_options.clear()
        with self.assertWarnsRegex(UserWarning, "use_triton is ignored: it is a parameter of PyLate's index") as w, Index(None, use_triton=False, kmeans_niters=4) as index:
            index.add_documents(self.ids, self.docs, show_progress=False, batch_size=7)
            index(self.queries, k=2, n_ivf_probe=8)
        self.assertEqual(w.filename, __file__)
        with self.assertWarnsRegex(UserWarning, "nranks"):
            Index(None, embedding_size=128, nranks=1, index_bsize=1, device=["cpu"]).close()
        for device, want in (("cuda", "cuda:0"), (["cuda:0", "cuda:1"], "cuda:0,cuda:1"), (("cuda",), "cuda:0"), ("auto", "auto")):
            self.assertEqual(device_names(device), want)
        with self.assertRaisesRegex(ValueError, "device is an empty list"):
            Index(None, device=[])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once
            Index(None, use_triton=True).close()
        for call in (lambda: Index(None, use_tritan=True), lambda: self.index(self.queries, kk=3), lambda: self.index.add_documents([], [], speed=3)):
            with self.assertRaisesRegex(TypeError, "unexpected keyword"):
                call()

    def test_numbers_for_texts(self) -> None:
        with tempfile.TemporaryDirectory() as folder, Index(folder) as index:
            index.add_documents(["a"], self.docs[:1])
            with Index(folder, id_type=int) as other, self.assertRaisesRegex(TypeError, "'a', which is not a whole number"):
                other.search(self.queries[0])

    def test_batches(self) -> None:
        told: list[tuple[int, object]] = []
        source = ((self.ids[i : i + 6], self.docs[i : i + 6], [{"i": i}] * len(self.ids[i : i + 6])) for i in range(0, 20, 6))
        self.index.add_batches(source, total=20, progress=lambda *x: told.append(x))
        self.assertEqual(told, [(6, 20), (12, 20), (18, 20), (20, 20)])
        self.assertEqual((len(self.index), self.index.get("d19")), (20, [{"i": 18}]))
        with self.assertRaisesRegex(ValueError, "batch 0 has 1 items"):
            self.index.add_batches([(["a"],)])

    def test_a_big_build_is_that_of_plaid_index(self) -> None:
        docs, queries = collection(300, 5)
        ids = [f"{i} ä" for i in range(300)]
        told: list[tuple[int, object]] = []
        with mock.patch.object(Connection, "train_tokens", 1000), tempfile.TemporaryDirectory() as folder, Index(folder) as index:
            index.add_documents(ids, docs, [{"n": i, "t": "ä"} for i in range(300)], progress=lambda *x: told.append(x))
            self.assertEqual(index.stats()["nbits"], 4)
            self.assertEqual((len(index), told, index.get(ids[7])), (300, [(300, 300)], [{"n": 7, "t": "ä"}]))
            hits = index.search(docs[42], 1, where="n = 42", metadata=True)
            self.assertEqual((hits[0]["id"], hits[0]["metadata"]), (ids[42], {"n": 42, "t": "ä"}))
            self.assertEqual(sorted(os.listdir(os.path.join(folder, ".service"))), ["lock", "options", "socket", "users"])
            index.add_documents(ids[:200], docs[:200], keep_metadata=True)  # not into an index that has some
            self.assertEqual((len(index), index.get(ids[7])), (300, [{"n": 7, "t": "ä"}]))
            with Index(folder, "two", nbits=2, seed=7) as other:
                other.add_documents(ids, [d.astype(np.float16) for d in docs[:5] + docs[6:] + docs[7:8]])
                self.assertEqual(other.stats()["nbits"], 2)

    def test_errors_of_a_big_build_are_those_of_the_service(self) -> None:
        docs, _ = collection(300, 1)
        bad = list(docs)
        bad[5] = docs[5].copy()
        bad[5][1, 3] = np.nan
        ids = [f"{i} ä" for i in range(300)]
        for given, rows, changed, want, details in (
            (bad, None, {}, 'document 5 (id "5 ä"), token 1, component 3: value is not finite: nan', {"document": 5, "id": "5 ä", "token": 1}),
            (docs, [{}] * 7 + [{"image": "a", "grid": [9, 9]}] + [{}] * 292, {}, 'document 7 (id "7 ä"): shapes do not match: field grid', {"document": 7, "id": "7 ä"}),
            (docs, None, {9: "a\tb"}, "document 9: bad id: control character U+0009", {"document": 9, "id": "a\tb"}),
            (docs, None, {9: "a\nb"}, "document 9: id 'a\\nb' has a line break", {"document": 9, "id": "a\nb"}),
        ):
            names = [changed.get(i, name) for i, name in enumerate(ids)]
            with mock.patch.object(Connection, "train_tokens", 1000), Index(None) as index, self.assertRaises(RequestError) as e:
                index.add_documents(names, given, rows)
            self.assertTrue(str(e.exception).startswith(want), str(e.exception))
            self.assertNotIn("build-", str(e.exception))
            self.assertEqual((e.exception.code, e.exception.status), ("BAD_REQUEST", 400))
            self.assertEqual(e.exception.details, details)
            with self.assertRaises(RequestError) as same, self.fresh() as index:
                index.add_documents(names, given, rows)  # by the service
            self.assertEqual((same.exception.code, same.exception.details.get("document")), (e.exception.code, e.exception.details["document"]))
        with Index(None, binary=self.failing("no space left on device")) as index, mock.patch.object(Connection, "train_tokens", 1000):
            with self.assertRaisesRegex(PlaidError, "no space left on device") as full:
                index.add_documents(ids, docs)
            self.assertEqual((full.exception.code, len(index)), ("DISK_FULL", 0))

    def failing(self, error: str, *lines: str) -> str:
        """A program that serves, and whose builds say some lines and fail."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "plaid")
        said = "".join(f"print({line!r}, file=sys.stderr, flush=True)\n    " for line in (*lines, json.dumps({"type": "error", "error": error})))
        text = f"""#!{sys.executable}
import os, sys
if sys.argv[1] == "index":
    {said}sys.exit(1)
os.execv({find_binary(None)!r}, sys.argv)
"""
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)
        return path

    def test_progress_of_a_big_build(self) -> None:
        docs, _ = collection(300, 1)
        told: list[tuple[int, object]] = []
        lines = ("train 70%, 1,160,448 of 1,650,000 assignments, 120.4k/s, 4s left", "encode 49%, 196,800 of 400,000 tokens, 36.1k/s", "encode 80%, 9 of 10 tokens")
        with Index(None, binary=self.failing("no", *lines)) as index, mock.patch.object(Connection, "train_tokens", 1000), self.assertRaisesRegex(ServiceError, "not built: no$"):
            index.add_documents([str(i) for i in range(300)], docs, progress=lambda *x: told.append(x))
        self.assertEqual(told, [(0, 300), (147, 300), (240, 300)])

        class Enough(Exception):
            pass

        def stop(done: int, of: object) -> None:
            raise Enough

        with Index(None, binary=self.failing("no", *lines)) as index, mock.patch.object(Connection, "train_tokens", 1000):
            with self.assertRaises(Enough):
                index.add_documents([str(i) for i in range(300)], docs, progress=stop)
            self.assertEqual(glob.glob(index._connection.service.run_folder + "/build-*"), [])

    def test_somebody_else_is_faster_than_a_big_build(self) -> None:
        docs, _ = collection(300, 1)
        ids = [f"d{i}" for i in range(300)]
        real = _build.Spool.build
        with tempfile.TemporaryDirectory() as folder, Index(folder) as index, Index(folder) as other, mock.patch.object(Connection, "train_tokens", 1000):

            def slow(*args: object) -> str:
                path = real(*args)
                other.add_documents(["theirs", "d0"], self.docs[:2], [{}, {"n": 1}])
                return path

            with mock.patch.object(_build.Spool, "build", slow):
                index.add_documents(ids, docs, keep_metadata=True)
            self.assertEqual((len(index), index.get(["d0"])), (301, [{"n": 1}]))
            index.remove_documents(index.ids())
            with Index(folder, "b") as index, Index(folder, "b") as other, mock.patch.object(_build.Spool, "build", slow):
                index.add_batches((ids[i : i + 9], docs[i : i + 9], [{"i": i}] * len(ids[i : i + 9])) for i in range(0, 300, 9))
                self.assertEqual((len(index), index.get(["d0", "d299"])), (301, [{"i": 0}, {"i": 297}]))

    def test_batches_become_a_big_build(self) -> None:
        docs, _ = collection(300, 1)
        ids = [f"d{i}" for i in range(300)]

        def source(n: int) -> Iterator[tuple]:
            for i in range(0, n, 50):
                some = docs[i : i + 50] if i != 100 else [d.astype(np.float16) for d in docs[i : i + 50]]
                yield ids[i : i + 50], some, [{"i": i}] * 50
            if n < 300:
                raise RuntimeError("the source broke off")

        told: list[tuple[int, object]] = []
        with mock.patch.object(Connection, "train_tokens", 1000):
            with self.fresh() as index:
                index.add_batches(source(300), total=300, progress=lambda *x: told.append(x))
                self.assertEqual((len(index), index.stats()["nbits"], told[5]), (300, 4, (300, 300)))
                self.assertEqual(index.get(["d0", "d120", "d299"]), [{"i": 0}, {"i": 100}, {"i": 250}])
                self.assertEqual([index.search(docs[i], 1)[0]["id"] for i in (3, 120, 290)], ["d3", "d120", "d290"])
            with self.fresh() as index:
                with self.assertRaisesRegex(RuntimeError, "broke off"):
                    index.add_batches(source(200))
                self.assertEqual((len(index), index.stats()["nbits"]), (200, 4))
            with self.fresh() as index:
                index.add_batches(source(300), wait=False)
                self.assertEqual((len(index), index.stats()["nbits"]), (300, 8))
            with self.fresh() as index, mock.patch.object(_build, "MAX_TOKENS", 1100):
                index.add_batches(source(300))  # those that are too many go the usual way
                self.assertEqual((len(index), index.stats()["nbits"]), (300, 4))
            with self.fresh() as index:
                index.add_batches([*source(300), (["d7", "new"], docs[8:10], [{}, {}])])
                self.assertEqual((len(index), index.get(["d7"])), (301, [{}]))
            with self.fresh() as index:
                bad = [(ids[:2], docs[:2]), (ids[2:4], [docs[2], np.ones((2, 3))])]
                with self.assertRaisesRegex(ValueError, "document 1 has dimension 3"):
                    index.add_batches(bad)
                with self.assertRaisesRegex(RequestError, "document 2 has dimension 3, those before it 32") as e:
                    index.remove_documents(index.ids()).add_batches([bad[0], (["x"], [np.ones((2, 3))])])
                self.assertEqual((e.exception.details, len(index)), ({"document": 2}, 2))
        with self.fresh() as index:
            index.add_batches(source(300))  # too few for a build
            self.assertEqual((len(index), index.stats()["nbits"], index.get(["d299"])), (300, 8, [{"i": 250}]))

    def test_load_follows_links(self) -> None:
        """As the cache of Hugging Face has them."""
        import subprocess

        docs, queries = collection(40, 2)
        self.index.add_documents([str(i) for i in range(40)], docs)
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/v.npy", np.concatenate(docs))
            np.save(f"{folder}/l.npy", np.array([len(d) for d in docs]))
            subprocess.run([find_binary(None), "index", f"{folder}/i.plaid", "-q", "--vectors", f"{folder}/v.npy", "--lengths", f"{folder}/l.npy", "--scales", "none"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([find_binary(None), "export", "-q", f"{folder}/i.plaid", f"{folder}/blobs", "--format", "fast-plaid"], check=True, stdout=subprocess.DEVNULL)
            os.mkdir(f"{folder}/snapshot")
            for name in os.listdir(f"{folder}/blobs"):
                os.symlink(f"../blobs/{name}", f"{folder}/snapshot/{name}")
            with Index(None) as index:
                index.load(f"{folder}/snapshot")
                self.assertEqual(len(index), 40)
                self.assertEqual(index.search(docs[3], 1)[0]["id"], "3")
            os.symlink("../snapshot", f"{folder}/snapshot/round")
            with Index(None) as index, self.assertRaisesRegex(ValueError, "a link to a folder that contains it"):
                index.load(f"{folder}/snapshot")

    def test_load_takes_the_ids_of_pylate(self) -> None:
        """They are above the folder of its engine, and count for that folder, too; ids.txt in it goes before."""
        import pickle
        import subprocess

        docs, queries = collection(40, 2)
        self.index.add_documents([str(i) for i in range(40)], docs)
        with tempfile.TemporaryDirectory() as folder:
            inside = f"{folder}/old/fast_plaid_index"
            self.index.save(f"{folder}/i.plaid")
            os.mkdir(f"{folder}/old")
            subprocess.run([find_binary(None), "export", "-q", f"{folder}/i.plaid", inside, "--format", "fast-plaid"], check=True, stdout=subprocess.DEVNULL)
            os.rename(f"{inside}/ids.txt", f"{folder}/ids.txt")
            with open(f"{folder}/old/plaid_ids_to_documents_ids.pkl", "wb") as f:
                pickle.dump({i: f"d{i}" for i in range(40)}, f)

            def first(path: str, ids: list[str] | None = None) -> str:
                with Index(None) as index:
                    return index.load(path, ids).search(docs[3], 1)[0]["id"]

            for path in (f"{folder}/old", inside, f"{inside}/", os.path.relpath(inside)):
                self.assertEqual(first(path), "d3", path)
            self.assertEqual(first(inside, [f"g{i}" for i in range(40)]), "g3")
            for bad in ("a\nb", "a\r", "\ufeffa"):
                with self.assertRaisesRegex(ValueError, "has a line break or begins with a byte order mark"):
                    first(inside, [bad, *(f"g{i}" for i in range(40 - len(bad.split())))])
            os.rename(f"{folder}/ids.txt", f"{inside}/ids.txt")
            self.assertEqual(first(inside), "3")


if __name__ == "__main__":
    unittest.main()
