"""What an index lists, counts, compacts and pools, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import tempfile
import threading
import unittest
import warnings
from typing import Any

import numpy as np

from plaid_ir import (
    Documents,
    Facets,
    Index,
    RequestError,
    _documents,
    delete_index,
    list_indexes,
)

MODEL = os.path.join(os.path.dirname(__file__), "../../docs/examples/quickstart/colbert-nano")
EYE = np.eye(4, dtype=np.float32)


def filled(count: int, **options: Any) -> Index:
    """An index of documents "d0", "d1" and so on, with a number each."""
    names: Any = range(count) if options.get("id_type") is int else [f"d{i}" for i in range(count)]
    rows = [{"n": i, "lang": "de" if i % 3 else "en"} for i in range(count)]
    return Index(None, **options).add_documents(names, [EYE] * count, rows)


class Listing(unittest.TestCase):
    def setUp(self) -> None:
        pages = _documents._MAX_IDS  # pyright: ignore[reportPrivateUsage]
        _documents._MAX_IDS = 7  # pyright: ignore[reportPrivateUsage]
        self.addCleanup(setattr, _documents, "_MAX_IDS", pages)

    def test_pages(self) -> None:
        with filled(40) as index:
            self.assertEqual(index.ids(), [f"d{i}" for i in range(40)])
            self.assertEqual(index.ids("n >= 30"), [f"d{i}" for i in range(30, 40)])
            self.assertEqual(index.ids({"lang": "en"}), [f"d{i}" for i in range(0, 40, 3)])
            self.assertEqual(index.ids("n < ?", [2]), ["d0", "d1"])
            self.assertEqual(index.ids("n < 0"), [])
            index.delete([f"d{i}" for i in range(0, 40, 2)])
            self.assertEqual(index.ids(), [f"d{i}" for i in range(1, 40, 2)])
        with filled(20, id_type=int) as index:
            self.assertEqual(index.ids(), list(range(20)))
            self.assertEqual(index.get(where="n > 17").ids, [18, 19])
        with Index(None) as index:
            self.assertEqual(index.ids(), [])
            self.assertEqual(index.get(where={}), [])
            self.assertEqual(index.compact(), 0)
            self.assertTrue(index, "an index without documents is true")

    def test_metadata_is_not_fetched(self) -> None:
        with filled(20) as index:
            index.update(where={"n": {"$gte": 0}}, values={"long": "x" * 10_000})
            bodies: list[str] = []
            request = index._connection.client.request  # pyright: ignore[reportPrivateUsage]

            def counted(*args: Any, **more: Any) -> Any:
                answer = request(*args, **more)
                bodies.append(json.dumps(answer))
                return answer

            index._connection.client.request = counted  # type: ignore[method-assign]  # pyright: ignore
            self.assertEqual(len(index.ids()), 20)
            self.assertEqual(len(bodies), 3)
            self.assertLess(max(map(len, bodies)), 200)

    def test_documents_change_meanwhile(self) -> None:
        """No id is there twice, and none is missing that was there before and after."""
        with filled(60) as index:
            stop = threading.Event()

            def change() -> None:
                n = 0
                while not stop.is_set():
                    index.add_documents([f"d{n % 30}", f"new{n}"], [EYE, EYE], [{"n": 1}, {"n": 1}])
                    index.delete([f"new{n}", f"d{50 + n % 10}"])
                    n += 1

            thread = threading.Thread(target=change)
            thread.start()
            try:
                for _ in range(20):
                    ids = index.ids()
                    self.assertEqual(len(ids), len(set(ids)))
                    self.assertLessEqual({f"d{i}" for i in range(50)}, set(ids))
                    found = index.get(where="n >= 0")
                    self.assertEqual(len(found), len(set(found.ids)))
            finally:
                stop.set()
                thread.join()

    def test_passages(self) -> None:
        texts = ["Cats sleep for most of the day. " * 20, "Dogs bark at night.", "Owls hunt. " * 30]
        rows = [{"n": i} for i in range(3)]
        with Index.from_texts(texts, ["a", "b", "c"], rows, model=MODEL, window=12, overlap=2) as index:
            self.assertGreater(index.stats()["passages"], 10)
            self.assertEqual(index.ids(), ["a", "b", "c"])
            self.assertEqual(index.ids("n <> 1"), ["a", "c"])
            found = index.get(where={"n": [0, 1]})
            self.assertEqual(found.ids, ["a", "b"])
            self.assertEqual([row["n"] for row in found], [0, 1])
            self.assertEqual(index.get(where={}, limit=2).ids, ["a", "b"])
            self.assertEqual(index.get(where={}, limit=0), [])
            self.assertEqual([hit["id"] for hit in index.search("who barks?", 1, group="best")], ["b"])

    def test_get(self) -> None:
        with filled(30) as index:
            found = index.get(where="n BETWEEN ? AND ?", parameters=[10, 19], limit=4)
            self.assertIsInstance(found, Documents)
            self.assertEqual(found.ids, ["d10", "d11", "d12", "d13"])
            self.assertEqual([row["n"] for row in found], [10, 11, 12, 13])
            self.assertEqual(index.get(["d2", "d0", "d2"]).ids, ["d2", "d0", "d2"])
            with self.assertRaisesRegex(TypeError, "either ids or a condition"):
                index.get()
            with self.assertRaisesRegex(TypeError, "either ids or a condition"):
                index.get("d1", where="n = 1")
            with self.assertRaisesRegex(TypeError, "limit needs a condition"):
                index.get("d1", limit=1)
            self.assertEqual(asyncio.run(index.aget(where="n < 2")).ids, ["d0", "d1"])

    def test_facets(self) -> None:
        with filled(30) as index:
            languages, numbers = index.facets(["lang", "n"], where="n < 9", values=1)
            self.assertEqual(languages["values"], [{"value": "de", "docs": 6}])
            self.assertEqual([languages["docs"], languages["others"], numbers["others"]], [9, 1, 8])
            self.assertEqual(index.facets("lang", subset=["d0", "d1"])[0]["docs"], 2)
            self.assertIsInstance(index.facets([]), Facets)
            self.assertEqual(asyncio.run(index.afacets("lang"))[0]["docs"], 30)
            with self.assertRaisesRegex(RequestError, "unknown field lung.*lang"):
                index.facets("lung")
        with Index(None) as index:
            self.assertEqual([f["field"] for f in index.facets(["a", "b"])], ["a", "b"])


class Managing(unittest.TestCase):
    def test_list_and_delete(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(list_indexes(folder), [])
            with Index(folder, "one") as index, Index(folder, "two"):
                index.add_documents(["a"], [EYE])
                self.assertEqual(list_indexes(folder), ["one"], "an index is there from its first documents on")
                service = index._connection.service  # pyright: ignore[reportPrivateUsage]
                assert service is not None
                self.assertEqual(list_indexes(url=service.url, token=service.token), ["one"])
            self.assertTrue(delete_index("one", folder))
            self.assertFalse(delete_index("one", folder))
            self.assertEqual(list_indexes(folder), [])
            for call in (lambda: list_indexes(folder + "/none"), lambda: delete_index("a", folder + "/none")):
                with self.assertRaises(FileNotFoundError):
                    call()
            self.assertFalse(os.path.exists(folder + "/none"))
            with self.assertRaisesRegex(TypeError, "index_folder is None"):
                list_indexes(None)  # type: ignore[arg-type]
            with self.assertRaisesRegex(TypeError, "index_name is 5"):
                delete_index(5, folder)  # type: ignore[arg-type]

    def test_compact(self) -> None:
        with filled(600) as index:
            index.delete(where="n >= 3")
            before = index.search(EYE, 3)
            self.assertGreater(index.compact(), 0)
            self.assertEqual(index.search(EYE, 3), before)
            self.assertEqual(asyncio.run(index.acompact()), 0)
            self.assertEqual(index.ids(), ["d0", "d1", "d2"])

    def test_saved_file_has_the_mode_of_new_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder, filled(2) as index:
            umask = os.umask(0o027)
            try:
                index.save(os.path.join(folder, "x.plaid"))
            finally:
                os.umask(umask)
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, "x.plaid")).st_mode), 0o640)
            self.assertEqual(os.listdir(folder), ["x.plaid"])

    def test_pooling(self) -> None:
        page = np.repeat(np.repeat(np.eye(4, dtype=np.float32).reshape(2, 2, 4), 2, axis=0), 2, axis=1).reshape(16, 4)
        fields = {"image": "a.png", "grid": [4, 4]}
        with Index(None) as index:
            cases: list[tuple[int, Any, int, Any]] = [
                (1, "similar", 16, [4, 4]), (4, "similar", 4, None), (4, "tiles", 4, [2, 2]), (4, "neighbours", 4, None),
            ]  # fmt: skip
            for n, by, tokens, grid in cases:
                index.add_documents(["p"], [page], [fields], pool_factor=n, pool_by=by)
                self.assertEqual(len(index.get_documents_embeddings(["p"])[0]), tokens)
                self.assertEqual(index.get("p")[0].get("grid"), grid)
            cells = index.add_documents(["p"], [page], [fields], pool_factor=4, pool_by="tiles").explain("p", EYE).cells
            assert cells is not None
            self.assertEqual(cells.shape, (4, 2, 2))
            index.add_batches([(["q"], [page], [fields])], pool_factor=4, pool_by="tiles")
            self.assertEqual(len(index.get_documents_embeddings(["q"])[0]), 4)
            with self.assertRaisesRegex(ValueError, "pool_by='tiles' needs a pool_factor"):
                index.add_documents(["p"], [page], [fields], pool_by="tiles")
            with self.assertRaisesRegex(RequestError, "pooling by tiles needs pages"):
                index.add_documents(["p"], [page], pool_factor=4, pool_by="tiles", keep_metadata=False)
        with Index.from_embeddings([page], pool_factor=2) as index:
            self.assertEqual(len(index.get_documents_embeddings([0])[0]), 8)


class Sayings(unittest.TestCase):
    def test_explanation(self) -> None:
        with filled(3) as index:
            why = index.explain("d1", EYE)
            lines = str(why).splitlines()
            self.assertEqual(lines[0], "document: d1 (4 tokens)")
            self.assertRegex(lines[2], "^stage:    returned, rank [123]$")
            self.assertEqual(lines[lines.index("") + 1].split(), ["QUERY", "DOCUMENT", "SCORE"])
            self.assertEqual(len(lines) - lines.index(""), 2 + 4)
            self.assertRegex(repr(why), r"^<Explanation of 'd1': score [34]\.\d+, returned, rank [123]>$")
        with Index.from_texts(["cats sleep"], ["a"], model=MODEL) as index:
            self.assertRegex(str(index.explain("a", "who sleeps?")), r"(?m)^ +\d+  sleep +\d+  sleep +0\.\d{4}$")

    def test_warnings_name_the_callers_line(self) -> None:
        with filled(3) as index:
            calls: list[Any] = [
                lambda: index.add_documents(["d1"], [EYE]),
                lambda: index.update_documents(["d1"], [EYE]),
                lambda: index.add_batches([(["d1"], [EYE]), (["d2"], [EYE])]),
                lambda: asyncio.run(index.aadd_documents(["d1"], [EYE])),
            ]
            for call in calls[:3]:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    call()
                self.assertEqual([w.filename for w in caught], [__file__])
                self.assertIn("keep their metadata", str(caught[0].message))

    def test_a_failed_call_does_not_warn(self) -> None:
        with filled(3) as index, warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(RequestError):
                index.add_documents(["d1"], [np.full((2, 4), np.nan, np.float32)])
            with self.assertRaises(ValueError):
                index.add_batches([(["d1"], [np.full((2, 4), np.nan, np.float32)])])
            self.assertEqual(index.get("d1")[0]["n"], 1)

    def test_long_ids(self) -> None:
        long = "x" * 100_000
        with filled(3) as index, filled(1, id_type=int) as whole:
            calls: list[Any] = [
                lambda: index.add_documents([long], [EYE]),
                lambda: index.add_documents([long, long], [EYE, EYE]),
                lambda: index.add_documents([long], [EYE, EYE]),
                lambda: index.add_documents([long], [EYE], [{"a": object()}]),
                lambda: index.get(long),
                lambda: index.explain(long, EYE),
                lambda: index.get_documents_embeddings([long]),
                lambda: index.similar(long),
                lambda: index.search(EYE, like=[long]),
                lambda: index.search(EYE, mode=long),  # type: ignore[arg-type]  # pyright: ignore
                lambda: whole.get(long),
                lambda: whole.delete(long),
                lambda: Index(None, long),
                lambda: list_indexes(long),
            ]
            for i, call in enumerate(calls):
                with self.subTest(i), self.assertRaises((ValueError, TypeError, KeyError, OSError)) as caught:
                    call()
                self.assertLess(len(str(caught.exception)), 700)
            self.assertNotIn(long, index)
            self.assertEqual(index.delete(long), 0)

    def test_empty_texts(self) -> None:
        """A text without tokens is a document all the same, whichever door it comes by."""
        texts, ids = ["cats sleep", "", "dogs bark", " \n"], ["a", "b", "c", "d"]
        doors: list[Any] = [
            lambda: Index.from_texts(texts, ids, model=MODEL),
            lambda: Index(None, model=MODEL).add_texts(texts, ids),
            lambda: Index(None, model=MODEL).add_texts(iter(texts), iter(ids), wait=False),
            lambda: Index(None, model=MODEL).add_texts(texts, ids, window=8),
            lambda: Index(None, model=MODEL).add_texts(texts, ids, batch_size=1, pool_factor=2),
        ]
        for i, door in enumerate(doors):
            with self.subTest(i), door() as index:
                self.assertEqual(index.ids(), ids)
                self.assertEqual([hit["id"] for hit in index.search("who barks?", 1)], ["c"])
                self.assertEqual(index.get("b")[0].get("text"), "")


if __name__ == "__main__":
    unittest.main()
