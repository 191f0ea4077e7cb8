"""Texts, words, explanations and passages, with the small model of this repository."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
import unittest
import warnings
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator
from unittest import mock

import numpy as np

from plaid_ir import Index, RequestError, ServiceError
from plaid_ir._connection import Connection
from plaid_ir._results import Hits, Results

from .common import long_form, maxsim

MODEL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "quickstart" / "colbert-nano"
TEXTS = {
    "cats": "Größe: cats sleep for most of the day.",
    "dogs": "Dogs bark at night when strangers pass.",
    "fish": "Fish swim in <b>cold</b> water & near the bottom.",
    "cells": "Mitochondria make most of the energy of a cell.",
}
EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """The tags of a page; scripts are a fault."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.index = Index.from_texts(TEXTS.values(), TEXTS, ({"n": i} for i in range(4)), model=MODEL)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.index.close()

    def test_texts_and_vectors_are_one(self) -> None:
        asked = ["which animal sleeps all day?", "what produces energy in cells?"]
        vectors = self.index.encode(asked, is_query=True)
        results = self.index.search_batch(asked, k=3)
        self.assertEqual([hits[0]["id"] for hits in results], ["cats", "cells"])
        self.assertEqual(results, self.index(vectors, k=3))
        self.assertEqual(results, self.index(asked, k=3))
        self.assertEqual(results[0], self.index.search(asked[0], 3))
        self.assertEqual(results[0], self.index.search(vectors[0], 3))
        self.assertEqual(self.index(asked[0], k=3), results[:1])  # one text is one query
        self.assertEqual(self.index.search_batch(asked, subset=[["dogs"], ["fish", "cats"]], k=1)[0][0]["id"], "dogs")
        documents = self.index.encode(list(TEXTS.values()))
        for hit in results[0]:
            exact = maxsim(vectors[0], documents[list(TEXTS).index(hit["id"])])
            self.assertAlmostEqual(hit["score"], exact, delta=0.3)
        self.assertEqual(self.index.search(asked[0], 1, metadata=True)[0]["metadata"], {"n": 0, "text": TEXTS["cats"]})
        with self.assertRaisesRegex(TypeError, "search_batch"):
            self.index.search(asked)
        with self.assertRaisesRegex(ValueError, "search_batch"):
            self.index.search(vectors)
        with self.assertRaisesRegex(TypeError, "k is '3'"):
            self.index.search("a", k="3")
        with self.assertRaisesRegex(ValueError, "neither a query nor keywords"):
            self.index.search()

    def test_words(self) -> None:
        self.assertEqual([h["id"] for h in self.index.search(keywords="bark")], ["dogs"])
        self.assertEqual({h["id"] for h in self.index.search("night swim", keywords=True)}, {"fish", "dogs"})
        self.assertEqual([h["id"] for h in self.index.search(keywords='"cell energy"', expression=True)], [])
        self.assertEqual([[h["id"] for h in hits] for hits in self.index.search_batch(keywords=["bark", "swim"])], [["dogs"], ["fish"]])
        both = self.index.search("which animal sleeps?", hybrid=0.0, keywords="mitochondria", k=1)
        self.assertEqual(both[0]["id"], "cells")
        both = self.index.search("which animal sleeps?", hybrid=1.0, keywords="mitochondria", k=1, fusion="relative_score")
        self.assertEqual(both[0]["id"], "cats")
        self.assertEqual(self.index.search("who barks?", hybrid=True, fusion="rrf", k=1)[0]["id"], "dogs")
        self.assertEqual(self.index.search(keywords="of", where={"n": 3})[0]["id"], "cells")
        for want, options in (
            ("weight", {"query": "a", "hybrid": 2}),
            ("combines them", {"query": "a", "keywords": "b"}),
            ("pass a query, too", {"keywords": "b", "hybrid": True}),
            ("needs queries that are texts", {"query": np.eye(128), "keywords": True}),
        ):
            with self.subTest(want), self.assertRaisesRegex(ValueError, want):
                self.index.search(**options)

    def test_highlights_are_places_in_the_text(self) -> None:
        hit = self.index.search("who sleeps?", 1, highlight=True)[0]
        text = hit["metadata"]["text"]
        found = {text[s["start"] : s["end"]] for s in hit["spans"]}
        self.assertIn("sleep", found)  # behind letters of two bytes
        self.assertTrue(all(text[s["start"] : s["end"]] == s["text"] for s in hit["spans"]))
        page = Reader(self.index.search("who sleeps?", 1, highlight=True)._repr_html_())
        self.assertIn("mark", page.tags)

    def test_explanation(self) -> None:
        x = self.index.explain("fish", "what swims?")
        self.assertEqual((x["id"], x.stage, x["rank"]), ("fish", "returned", 1))
        self.assertEqual(x.similarities.shape, (len(x.query_tokens()), len(x.document_tokens())))
        self.assertIn("what", x.query_tokens())
        self.assertAlmostEqual(x.score, float(x.similarities.max(axis=1).sum()), delta=0.01)
        page = Reader(x._repr_html_())
        self.assertNotIn("<b>cold", x._repr_html_())
        self.assertIn("bottom", page.text)
        again = self.index.explain("fish", self.index.encode(["what swims?"], is_query=True)[0])
        np.testing.assert_array_equal(again.similarities, x.similarities)
        self.assertEqual(self.index.explain("fish", "what swims?", where="n = 0").stage, "filtered")
        with self.assertRaises(KeyError):
            self.index.explain("nobody", "a")

    def test_html_is_escaped(self) -> None:
        with Index(None, model=MODEL) as index:
            index.add_texts([f"cats {EVIL} sleep"], [EVIL], [{EVIL: EVIL}])
            hits = index.search("cats", highlight=True)
            pages = [hits._repr_html_(), Results([hits])._repr_html_(), index._repr_html_(), index.explain(EVIL, f"cats {EVIL}")._repr_html_()]
            for page in pages:
                self.assertNotIn("script", Reader(page).tags)
            self.assertIn(EVIL, Reader(pages[0]).text)

    def test_similar_feedback_and_token_scores(self) -> None:
        near = self.index.similar("cats", k=3, where="n < 3")
        self.assertEqual({h["id"] for h in near}, {"dogs", "fish"})
        self.assertEqual({h["id"] for h in self.index.search("animals", feedback=1, like=["cells"], unlike=["dogs"])}, set(TEXTS))
        with self.assertRaises(RequestError):
            self.index.search("animals", feedback=101)
        hits = self.index.search_token_scores(["who barks?"], k=2)[0]
        for hit in hits:
            self.assertEqual(hit["token_scores"].dtype, np.float32)
            self.assertAlmostEqual(float(hit["token_scores"].max(axis=1).sum()), hit["score"], delta=0.001 * hit["score"])
        (both,) = self.index.search_token_scores(["who barks?"], k=2, hybrid=0.5)
        self.assertEqual([h["id"] for h in both], [h["id"] for h in self.index.search("who barks?", k=2, hybrid=0.5)])
        self.assertEqual(both[0]["token_scores"].shape, hits[0]["token_scores"].shape)
        self.assertEqual([h["id"] for h in self.index.search_token_scores(["bark"], keywords=True)[0]], ["dogs"])
        with self.assertRaisesRegex(ValueError, "queries is None"):
            self.index.search_token_scores(None, keywords=["bark"])
        self.assertEqual({h["id"] for h in self.index.search("who barks?", 4, subset=["fish", "cells"], mode="candidates")}, {"fish", "cells"})

    def test_rerank(self) -> None:
        self.assertEqual([r["index"] for r in self.index.rerank("dogs", ["cats sleep", "dogs bark"])], [1, 0])
        got = self.index.rerank(np.eye(4), [np.eye(4)[:2], 3 * np.eye(4)])
        self.assertEqual([(r["index"], r["score"]) for r in got], [(1, 12), (0, 2)])
        with self.assertRaises(TypeError):
            self.index.rerank("a", [np.eye(4)])
        self.assertEqual((self.index.rerank("a", []), self.index.rerank(np.eye(4), [])), ([], []))
        with self.assertRaisesRegex(ValueError, "^document 1 has dimension 3"):
            self.index.rerank(np.eye(4), [np.eye(4), np.eye(3)])

    def test_passages(self) -> None:
        with Index(None, model=MODEL) as index:
            parts = [{"_passage": {"of": "owls", "n": 0, "start": 0, "end": 18}}, {"_passage": {"of": "owls", "n": 1, "start": 19, "end": 33}}, {}]
            index.add_texts(["owls hunt at night", "owls hear mice", "bees fly"], ["owls#0", "owls#1", "bees"], parts)
            hits = index.search("what do owls hear?", 2, group="best", passages=1, highlight=True)
            self.assertEqual([h["id"] for h in hits], ["owls", "bees"])
            self.assertEqual([p["id"] for p in hits[0]["passages"]], ["owls#1"])
            self.assertIn("hear", {s["text"] for s in hits[0]["passages"][0]["spans"]})
            self.assertEqual(len(index.search("owls", group="maxsim")[0]["passages"]), 2)
            # The id of a document means all its passages.
            self.assertEqual((index.ids(), len(index), index.stats()["passages"]), (["owls", "bees"], 2, 2))
            self.assertTrue("owls" in index and "owls#0" in index and "owl" not in index)
            self.assertEqual(index.get(["bees", "owls"]), [{"text": "bees fly"}, {}])
            with self.assertRaises(KeyError):
                index.get(["owls", "owl"])
            first, second = index.get_documents_embeddings(["owls#0", "owls#1"])
            for whole in (index.get_documents_embeddings(["owls"])[0], index.get_documents_embeddings([["bees"], ["owls", "owls#1"]])[1][0]):
                np.testing.assert_array_equal(whole, np.concatenate([first, second]))
            self.assertEqual([h["id"] for h in index.similar("owls")], ["bees"])
            self.assertEqual({h["id"] for h in index.similar("owls#0")}, {"owls#1", "bees"})
            self.assertEqual({h["id"] for h in index.similar("bees", group="best", where="_id <> 'x'")}, {"owls"})
            scored = index.search_token_scores(["what do owls hear?"], group="maxsim")[0]
            self.assertEqual(scored[0]["id"], "owls")
            self.assertEqual(scored[0]["token_scores"].shape[1], len(first) + len(second))
            self.assertAlmostEqual(float(scored[0]["token_scores"].max(axis=1).sum()), scored[0]["score"], delta=0.01)
            best = index.search_token_scores(["what do owls hear?"], k=1, group="best")[0][0]
            self.assertEqual(best["token_scores"].shape, scored[0]["token_scores"].shape)
            self.assertEqual([h["id"] for h in index.search("owls", subset=["owls"], group="best")], ["owls"])
            self.assertIn(index.explain("owls", "owls")["id"], ("owls#0", "owls#1"))
            index.remove_documents(["owls"])
            self.assertEqual(index.ids(), ["bees"])

    def test_long_texts(self) -> None:
        long = "Owls hunt at night. " * 200
        with Index(None, model=MODEL) as index:
            with self.assertWarnsRegex(UserWarning, r"truncated: 1\. \d+ tokens .*window=N"):
                index.add_texts([long, "bees fly"], ["owls", "bees"])
            for asking in (
                lambda: index.encode([long]),
                lambda: index.encode([long], is_query=True),
                lambda: index.search(long),
                lambda: index.search_batch(["who flies?", long]),
                lambda: index.search_token_scores([long]),
                lambda: index.rerank(long, ["owls"]),
                lambda: index.rerank("owls", ["bees", long]),
            ):
                with self.assertWarnsRegex(UserWarning, r"truncated: 1\. \d+ tokens") as w:
                    asking()
                self.assertEqual((w.filename, len(w.warnings)), (__file__, 1))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                index.search(long, keywords=True)
                index.rerank("owls", ["bees"])
                index.add_texts([long, "我们在这里看到了许多不同的东西，" * 60], ["owls", "many"], window=100, overlap=10, window_by="sentences", keep_metadata=False)
            self.assertEqual((index.ids(), len(index)), (["bees", "owls", "many"], 3))
            self.assertGreater(index.stats()["passages"], 10)
            self.assertEqual(index.search("who hunts?", 1, group="best")[0]["id"], "owls")
            with self.assertRaisesRegex(RequestError, "passages of 1000 tokens: the model reads at most"):
                index.add_texts([long], ["owls"], window=1000)
            for options in ({"overlap": 1}, {"window_by": "blocks"}, {"window": 9, "text_field": ""}):
                with self.subTest(options), self.assertRaises(ValueError):
                    index.add_texts(["a"], ["a"], **options)

    @unittest.skipIf(find_spec("pandas") or find_spec("pyarrow"), "pandas or pyarrow is installed")
    def test_tables_need_libraries(self) -> None:
        hits = Hits([{"id": "a", "score": 2.0}])
        for table, library in ((hits.to_pandas, "pandas"), (hits.to_arrow, "pyarrow")):
            with self.assertRaisesRegex(ImportError, f"pip install {library}"):
                table()

    def test_asyncio(self) -> None:
        async def ask() -> list:
            return await asyncio.gather(*(self.index.asearch("who barks?", k=1) for _ in range(8)), self.index.aids("n < 2"))

        *hits, ids = asyncio.run(ask())
        self.assertEqual({h[0]["id"] for h in hits}, {"dogs"})
        self.assertEqual(ids, ["cats", "dogs"])

    def test_numbers_generators_and_progress(self) -> None:
        told: list[tuple[int, object]] = []
        with Index(None, id_type=int, model=MODEL) as index:
            index.add_texts((f"text {i}" for i in range(7)), batch_size=3, progress=lambda *x: told.append(x))
            self.assertEqual(told, [(3, None), (6, None), (7, None)])
            self.assertEqual(index.ids(), list(range(7)))
            with self.assertRaisesRegex(ValueError, "give ids for the new ones"):
                index.add_texts(["a"])
            with self.assertRaisesRegex(ValueError, "2 texts and 1 ids"):
                index.add_texts(["a", "b"], [9])
            with self.assertRaisesRegex(TypeError, "text 1 is of type int"):
                index.add_texts(["a", 2], [8, 9])
            with self.assertRaisesRegex(TypeError, "one text"):
                index.add_texts("abc")
            self.assertEqual(len(index), 7)
            for more in ({"ids": [8, 9, 10]}, {"ids": iter([8, 9, 10])}, {"ids": [8, 9], "metadata": [{}] * 3}):
                with warnings.catch_warnings(), self.assertRaisesRegex(ValueError, f"2 texts, which are stored, and more {list(more)[-1]}"):
                    warnings.simplefilter("error")  # the texts are all that is kept, and they are given
                    index.add_texts((t for t in "ab"), **more)
            index.add_texts((t for t in "ab"), itertools.count(20))
            self.assertEqual(index.ids()[-2:], [20, 21])
            self.assertEqual([len(m) == 0 for m in index.encode(["a"] * 130 + [""])], [False] * 130 + [True])
            with self.assertRaisesRegex(RequestError, r"texts\[130\] is empty") as e:
                index.encode(["a"] * 130 + [""], is_query=True)
            self.assertEqual(e.exception.details, {"query": 130})
        with Index.from_texts(["a", "b"], model=MODEL) as index:
            self.assertEqual(index.search("b", 1)[0]["id"], 1)

    @long_form
    def test_many_texts_are_a_big_build(self) -> None:
        texts = [f"{t} Number {i}." for i in range(20) for t in TEXTS.values()]
        ids = [str(i) for i in range(80)]
        rows = [{"n": i} for i in range(80)]
        asked = "what produces energy in cells?"
        with Index.from_texts(texts, ids, rows, model=MODEL) as plain:  # few
            want, vectors = plain.search(asked, 1, metadata=True), plain.get_documents_embeddings(["7"])[0]
            self.assertEqual(plain.stats()["nbits"], 8)
            made_by = plain.stats()["model"]
        self.assertEqual(made_by["name"], str(MODEL))
        with mock.patch.object(Connection, "train_tokens", 200):
            told: list[tuple[int, object]] = []
            for given in (texts, (t for t in texts)):
                with Index.from_texts(given, ids, rows, model=MODEL, progress=lambda *x: told.append(x)) as index:
                    self.assertEqual((len(index), index.stats()["nbits"], index.stats()["model"]), (80, 4, made_by))
                    got = index.search(asked, 1, metadata=True)
                    self.assertEqual(got[0]["metadata"], {"n": int(got[0]["id"]), "text": texts[int(got[0]["id"])]})
                    self.assertAlmostEqual(got[0]["score"], want[0]["score"], delta=0.05 * want[0]["score"])
                    np.testing.assert_allclose(index.get_documents_embeddings(["7"])[0], vectors, atol=0.2)
                    index.add_texts(["cats"], ["0"], keep_metadata=True)  # the model is known to be the same
            self.assertEqual([t for t in told if t[0] == 80][:1], [(80, 80)])
            with Index(None, model=MODEL) as index:
                with self.assertRaisesRegex(RequestError, r"documents\[70\].*half of a character.*\(64 of the documents of this call") as e:
                    index.add_texts((t if i != 70 else "\ud800" for i, t in enumerate(texts)), ids, batch_size=8)
                self.assertEqual((e.exception.details["document"], e.exception.stored, len(index), index.stats()["nbits"]), (70, 64, 64, 4))
            with Index(None, model=MODEL) as index:
                index.add_texts((t if i != 70 else "" for i, t in enumerate(texts)), ids, batch_size=8)
                self.assertEqual((len(index), index.stats()["nbits"], index.get("70")), (80, 4, [{"text": ""}]))
            with Index(None, model=MODEL) as index:
                index.add_texts(texts, ids, pool_factor=3, wait=False)
                self.assertEqual(index.stats()["nbits"], 8)
                tokens = index.stats()["tokens"]
            with Index(None, model=MODEL) as index:
                index.add_texts((t for t in texts), ids, pool_factor=3)
                self.assertEqual((index.stats()["nbits"], index.stats()["tokens"]), (4, tokens))
            with Index(None, model=MODEL) as index:
                with self.assertRaisesRegex(ValueError, "id '3' is given twice"):
                    index.add_texts((t for t in texts[:9] + texts[:1]), [*ids[:9], "3"], batch_size=4)
                index.add_texts((t for t in texts[:9] + texts[:1]), iter([*ids[:9], "3"]), batch_size=4)
                self.assertEqual((len(index), index.get("3")[0]["text"]), (9, texts[0]))

    def test_empty_texts_are_documents(self) -> None:
        texts = ["seals sleep", "", "tides turn", None, float("nan"), " "]
        for given in (texts, iter(texts)):
            with Index.from_texts(given, list("abcdef"), model=MODEL) as index:
                self.assertEqual((len(index), index.ids(), index.ids({"text": ""})), (6, list("abcdef"), list("bde")))
                self.assertEqual([h["id"] for h in index.search("who sleeps?")], ["a", "c"])
                self.assertEqual([len(m) for m in index.get_documents_embeddings(["b", "f"])], [0, 0])
                self.assertEqual(index.search_token_scores(["tides"], keywords=True)[0][0]["id"], "c")
                self.assertEqual(index.add_texts(["seals"], ["b"]).search("seals", 1)[0]["id"], "b")
        with Index.from_texts(["seals" if n != 1500 else "" for n in range(2000)], model=MODEL, metadata=[{"n": n} for n in range(2000)]) as index:
            self.assertEqual((len(index), index.ids("n = 1500")), (2000, [1500]))

    def test_what_a_document_may_be(self) -> None:
        table = Path(__file__).resolve().parents[2] / "cmd" / "plaid" / "command" / "testdata" / "documents.json"
        with Index.from_texts(["cats sleep"], ["first"], model=MODEL) as index:
            for row in json.loads(table.read_text(encoding="utf-8")):
                # Ids of an index are of one type, a dictionary has no key twice, and NaN is a missing value.
                if row["name"] in ("an integer as id", "key twice", "no number"):
                    continue
                given, text = json.loads(row["id"]), json.loads(row["text"])
                metadata = [json.loads("{" + row["metadata"] + "}")]
                with self.subTest(row["name"]):
                    if row["stored"]:
                        index.add_texts([text], [given], metadata)
                        self.assertEqual(index.get(str(given)), [{"text": text, **metadata[0]}])
                    else:
                        with self.assertRaises((RequestError, ValueError, TypeError)):
                            index.add_texts([text], [given], metadata)

    def test_what_is_stored_is_said(self) -> None:
        def source() -> Iterator[str]:
            yield from (f"text {n}" for n in range(20))
            raise RuntimeError("broke off")

        for options in ({}, {"wait": False, "batch_size": 8}):
            with self.subTest(str(options)), Index(None, model=MODEL) as index:
                with self.assertRaisesRegex(RuntimeError, "^broke off$") as e:
                    index.add_texts(source(), map(str, range(99)), **options)
                if sys.version_info >= (3, 11):
                    self.assertEqual(e.exception.__notes__, ["20 of the documents of this call are stored, the last of them '19'"])
                self.assertEqual(len(index), 20)
                with self.assertRaisesRegex(RequestError, r"^documents\[3\].*half of a character.*\(2 of the documents of this call are stored, the last of them 'x1'\)") as refused:
                    index.add_texts(["a", "b", "c", "\ud800", "e"], [f"x{n}" for n in range(5)], batch_size=2)
                self.assertEqual((refused.exception.stored, refused.exception.details["document"], len(index)), (2, 3, 22))
                for bad in ({"texts": ["a", 2], "ids": ["y", "z"]}, {"texts": ["a", "b"], "ids": ["y", "y"]}, {"texts": ["a", "b"], "ids": ["y", 1]}, {"texts": ["a", "b"], "ids": ["y", "z"], "metadata": [{}, {"x": object()}]}):
                    with self.assertRaises((TypeError, ValueError)):  # before the first is encoded
                        index.add_texts(**bad, batch_size=1)
                self.assertEqual(len(index), 22)

    def test_pages_and_a_least_score(self) -> None:
        every = self.index.search("who sleeps at night?", 4)
        self.assertEqual([h for n in range(3) for h in self.index.search("who sleeps at night?", 2, offset=2 * n)], every)
        self.assertEqual(self.index.search_batch(["who sleeps at night?"], 4, min_score=every[1]["score"]), [every[:2]])
        self.assertEqual(self.index(["who sleeps at night?"], 4, offset=1, min_score=every[2]["score"]), [every[1:3]])
        words = self.index.search(keywords="of the", k=9)
        self.assertEqual(self.index.search(keywords="of the", k=9, offset=1), words[1:])
        with self.assertRaisesRegex(ValueError, "offset is -1"):
            self.index.search("a", offset=-1)

    def test_queries_that_are_none(self) -> None:
        for query in (float("nan"), 1):
            with self.assertRaisesRegex(TypeError, f"query 0 is of type {type(query).__name__}; want a matrix.* or a text"):
                self.index.search(query)  # type: ignore[arg-type]
        for other in (None, float("nan"), np.eye(4)):
            with self.assertRaisesRegex(TypeError, f"query 1 is of type {type(other).__name__}, and others are texts"):
                self.index.search_batch(["who sleeps?", other])  # type: ignore[list-item]
        with self.assertRaisesRegex(TypeError, "document 0 is of type NoneType, and others are texts"):
            self.index.rerank("who sleeps?", [None, "cats"])  # type: ignore[list-item]
        with self.assertRaisesRegex(TypeError, "a set, which has no order"):
            self.index.search_batch({"a", "b"})  # type: ignore[arg-type]
        two = ["who sleeps?", "who barks?"]
        self.assertEqual(self.index.search_batch((q for q in two), 2), self.index.search_batch(two, 2))  # type: ignore[arg-type]
        for none in (float("nan"), float("inf"), -float("inf")):
            with self.assertRaisesRegex(ValueError, f"^min_score is {none}; want a finite number"):
                self.index.search("a", min_score=none)
        with self.assertRaisesRegex(TypeError, "^offset is 1.0; want a whole number"):
            self.index.search("a", offset=1.0)  # type: ignore[arg-type]
        with self.assertWarnsRegex(UserWarning, "ask shorter queries, or raise query_length in the model's folder"):
            self.index.search("who sleeps " * 60)

    def test_texts_and_ids_that_are_none(self) -> None:
        with Index(None, model=MODEL) as index:
            with self.assertRaisesRegex(TypeError, "texts is a set, which has no order"):
                index.add_texts({"x", "y"}, ["x", "y"])
            with self.assertRaisesRegex(ValueError, r"^id '.ud83d' has half of a character"):
                index.add_texts(["x", "y"], ["x", "\ud83d"])
            self.assertEqual(len(index), 0)

    def test_without_a_model(self) -> None:
        with self.assertRaisesRegex(RequestError, "model=FOLDER"):
            Index.from_texts(["a"])
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere"):
            Index(None, model="/nowhere")
        with tempfile.TemporaryDirectory() as temporary, mock.patch.object(tempfile, "tempdir", temporary):
            for options in ({"model": "/nowhere"}, {"device": "abacus"}, {"binary": "/nowhere"}, {"index_name": "a/b"}):
                with self.assertRaises((OSError, ValueError, ServiceError)):
                    Index(None, **options)
            self.assertEqual(os.listdir(temporary), [])

    def test_a_url_takes_texts(self) -> None:
        """The model is the service's."""
        with tempfile.TemporaryDirectory() as folder, Index(folder, model=MODEL) as here:
            with Index(url=here._connection.service.url, index_name="far") as far:
                far.add_texts(["cats sleep"], ["a"])
                self.assertEqual(far.search("cats")[0]["id"], "a")
            self.assertTrue(os.path.isdir(os.path.join(folder, "far")))


if __name__ == "__main__":
    unittest.main()
