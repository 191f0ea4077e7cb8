"""The index with the classes of PyLate and of sentence-transformers, where they are installed.

The model is the small one of this repository: nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import tempfile
import unittest
from pathlib import Path

import numpy as np

from plaid_ir import Index

from .common import ranking

MODEL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "quickstart" / "colbert-nano"
DOCUMENTS = {
    "cats": "Cats sleep for most of the day.",
    "dogs": "Dogs bark at night when strangers pass.",
    "fish": "Fish swim in cold water near the bottom of the sea.",
    "cells": "Mitochondria make most of the energy of a cell.",
    "genes": "A gene is a sequence of nucleotides in DNA.",
}
QUERIES = ["Which animal sleeps all day?", "What produces energy in cells?"]
WANT = ["cats", "cells"]

try:
    from pylate import indexes, models, rank, retrieve
except ImportError:
    retrieve = None
try:
    from sentence_transformers import MultiVectorEncoder
except ImportError:
    MultiVectorEncoder = None


def numpy_of(m: object) -> np.ndarray:
    return m.detach().cpu().float().numpy() if hasattr(m, "detach") else np.asarray(m, dtype=np.float32)


class Encoders(unittest.TestCase):
    def agree(self, results: list, queries: list, documents: list) -> None:
        """Results are the exact ranking, but for what 8 bits a component move."""
        by_id = {i: numpy_of(d) for i, d in zip(DOCUMENTS, documents)}
        for hits, query, want in zip(results, queries, WANT):
            best = ranking(numpy_of(query), by_id)
            self.assertEqual(hits[0]["id"], want)
            for hit, (score, i) in zip(hits, best):
                self.assertEqual(hit["id"], i)
                self.assertAlmostEqual(hit["score"], score, delta=0.005 * len(query))


@unittest.skipIf(retrieve is None, "pylate is not installed")
class PyLate(Encoders):
    @classmethod
    def setUpClass(cls) -> None:
        cls.model = models.ColBERT(str(MODEL), device="cpu")

    def test_retriever(self) -> None:
        texts = list(DOCUMENTS.values())
        for form in ({}, {"convert_to_tensor": True}, {"convert_to_numpy": False}, {"padding": True}):
            with self.subTest(str(form)), tempfile.TemporaryDirectory() as folder:
                documents = self.model.encode(texts, is_query=False, show_progress_bar=False, **form)
                queries = self.model.encode(QUERIES, is_query=True, show_progress_bar=False, **{k: v for k, v in form.items() if k != "padding"})
                with contextlib.closing(Index(folder, "pets", override=True)) as index:
                    index.add_documents(documents_ids=list(DOCUMENTS), documents_embeddings=documents)
                    retriever = retrieve.ColBERT(index=index)
                    results = retriever.retrieve(queries_embeddings=queries, k=3)
                    plain = self.model.encode(texts, is_query=False, show_progress_bar=False)
                    self.agree(results, queries, plain)
                    self.assertEqual(set(results[0][0]), {"id", "score"})
                    own = retriever.retrieve(queries_embeddings=queries, k=3, subset=[["dogs"], ["fish", "genes"]])
                    self.assertEqual([len(h) for h in own], [1, 2])
                    one = self.model.encode(QUERIES[0], is_query=True, show_progress_bar=False)
                    self.assertEqual(index(one, k=1)[0][0]["id"], WANT[0])

                    ids = [[h["id"] for h in hits] for hits in results]
                    floats = [numpy_of(q) for q in queries]  # the model computes in half precision
                    again = rank.rerank(documents_ids=ids, queries_embeddings=floats, documents_embeddings=index.get_documents_embeddings(ids))
                    self.assertEqual([[h["id"] for h in hits] for hits in again], ids)

    def test_has_what_the_base_class_asks_for(self) -> None:
        from pylate.indexes.base import Base

        for name in Base.__abstractmethods__:
            self.assertTrue(hasattr(Index, name), name)

    def test_an_index_of_pylate_is_taken_along(self) -> None:
        documents = self.model.encode(list(DOCUMENTS.values()) * 20, is_query=False, show_progress_bar=False)
        names = [f"{i}-{n}" for i in range(20) for n in DOCUMENTS]
        queries = self.model.encode(QUERIES, is_query=True, show_progress_bar=False)
        with tempfile.TemporaryDirectory() as folder:
            theirs = indexes.PLAID(index_folder=folder, index_name="old", override=True, device="cpu", show_progress=False, use_triton=False)
            theirs.add_documents(documents_ids=names, documents_embeddings=documents)
            want = theirs(queries, k=5)
            with Index(folder, "taken") as index:
                index.load(f"{folder}/old")
                self.assertEqual(len(index), 100)
                got = index(queries, k=5)
                for a, b, name in zip(got, want, WANT):
                    self.assertEqual({h["id"].split("-")[1] for h in a}, {name})
                    self.assertEqual({h["id"].split("-")[1] for h in b}, {name})
                    self.assertAlmostEqual(a[0]["score"], b[0]["score"], delta=0.02 * abs(b[0]["score"]))


@unittest.skipIf(MultiVectorEncoder is None, "sentence-transformers from 6 on is not installed")
class SentenceTransformers(Encoders):
    def test_one_call(self) -> None:
        model = MultiVectorEncoder(str(MODEL), device="cpu")
        texts = list(DOCUMENTS.values())
        for form in ({}, {"convert_to_numpy": True}):
            documents = model.encode_document(texts, **form)
            queries = model.encode_query(QUERIES, **form)
            with Index.from_embeddings(documents, list(DOCUMENTS)) as index:
                self.agree(index(queries, k=5), queries, documents)
            with Index.from_embeddings(documents) as index:
                self.assertEqual([list(DOCUMENTS)[hits[0]["id"]] for hits in index(queries, k=1)], WANT)
                self.assertEqual(index(model.encode_query(QUERIES[1], **form), k=1)[0][0]["id"], 3)
        exact = model.similarity(model.encode_query(QUERIES), model.encode_document(texts))
        with Index.from_embeddings(model.encode_document(texts)) as index:
            for hits, row in zip(index(model.encode_query(QUERIES), k=5), exact):
                for hit in hits:
                    self.assertAlmostEqual(hit["score"], float(row[hit["id"]]), delta=0.01 * 32)


if __name__ == "__main__":
    unittest.main()
