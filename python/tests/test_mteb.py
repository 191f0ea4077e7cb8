"""The index backend of mteb, as its ``SearchEncoderWrapper`` calls it."""

from __future__ import annotations

import os
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

from plaid_ir import Index
from plaid_ir.mteb import PlaidSearchIndex, with_index

from .common import collection, ranking, unit


class Backend(unittest.TestCase):
    def setUp(self) -> None:
        self.docs, self.queries = collection(60, 4)
        self.ids = [f"doc {i}\n" for i in range(60)]  # any texts

    def test_searches(self) -> None:
        backend = PlaidSearchIndex()
        with self.assertRaisesRegex(ValueError, "call add_documents before search"):
            backend.search(self.queries, 3, None)
        backend.add_documents(self.docs[:40], self.ids[:40])
        backend.add_documents(self.docs[40:], iter(self.ids[40:]))
        scores, places = backend.search(self.queries, 5, similarity_fn=None, top_ranked=None, query_idx_to_id=None)
        for query, some, of in zip(self.queries, scores, places):
            best = ranking(query, dict(enumerate(self.docs)))[:5]
            np.testing.assert_allclose(some, [score for score, _ in best], atol=0.01 * len(query))
            self.assertEqual(of[0], best[0][1])
        backend.clear()
        backend.add_documents(self.docs[:2], ["a", "b"])
        self.assertEqual(sorted(backend.search(self.queries[:1], 5)[1][0]), [0, 1])
        with self.assertRaisesRegex(ValueError, "1 ids and 2 documents"):
            backend.add_documents(self.docs[:2], ["a"])
        backend.clear()
        backend.clear()

    def test_ranks_what_it_is_given(self) -> None:
        backend = PlaidSearchIndex()
        backend.add_documents(self.docs, self.ids)
        ranked = {"q0": self.ids[30:40], "q1": [], "q2": self.ids[5:7], "q3": self.ids[:1]}
        scores, places = backend.search(self.queries, 3, None, top_ranked=ranked, query_idx_to_id={i: f"q{i}" for i in range(4)})
        self.assertEqual([len(p) for p in places], [3, 0, 2, 1])
        best = ranking(self.queries[0], {i: self.docs[30 + i] for i in range(10)})
        self.assertEqual(places[0][0], best[0][1])  # the place in the list of this query
        self.assertAlmostEqual(scores[0][0], best[0][0], delta=0.01 * len(self.queries[0]))
        with self.assertRaisesRegex(KeyError, "'nobody', in top_ranked of query 'q0'"):
            backend.search(self.queries[:1], 3, None, {"q0": ["nobody"]}, {0: "q0"})
        with self.assertRaisesRegex(ValueError, "query_idx_to_id"):
            backend.search(self.queries[:1], 3, None, {"q0": []})
        backend.clear()

    def test_forms_of_vectors(self) -> None:
        rng = np.random.default_rng(5)
        one = unit(rng, 7, 16)
        backend = PlaidSearchIndex()
        backend.add_documents(one, [str(i) for i in range(7)])  # a vector for a text
        scores, places = backend.search(one[2:4], 2, None)
        self.assertEqual([p[0] for p in places], [2, 3])
        self.assertAlmostEqual(scores[0][0], 1, delta=0.01)
        backend.clear()
        padded = np.zeros((2, 6, 16), np.float32)
        padded[0], padded[1, :2] = unit(rng, 6, 16), unit(rng, 2, 16)
        backend.add_documents(padded, ["a", "b"])
        self.assertEqual([len(m) for m in backend._index.get_documents_embeddings([0, 1])], [6, 2])
        backend.clear()

    def test_a_folder_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with Index(folder, "mteb") as index:
                index.add_documents(["a"], self.docs[:1])
            with self.assertRaisesRegex(ValueError, "documents already"):
                PlaidSearchIndex(index_folder=folder).add_documents(self.docs, self.ids)
            backend = PlaidSearchIndex(index_folder=folder, override=True, nbits=2)
            backend.add_documents(self.docs, self.ids)
            self.assertEqual(len(backend.search(self.queries, 3)[1]), 4)
            backend.clear()
            self.assertFalse(os.path.exists(os.path.join(folder, "mteb")))

    def test_models_that_search_by_themselves(self) -> None:
        made: dict[str, object] = {}

        class SearchEncoderWrapper:
            def __init__(self, model: object, corpus_chunk_size: int = 1, index_backend: object = None) -> None:
                made.update(model=model, backend=index_backend)

        class PyLate:
            mteb_model_meta = "the model"

            def _encode(self, inputs: object, **more: object) -> object:
                return inputs, more

        models = types.ModuleType("mteb.models")
        models.SearchEncoderWrapper = SearchEncoderWrapper
        with mock.patch.dict(sys.modules, {"mteb": types.ModuleType("mteb"), "mteb.models": models}):
            self.assertIsInstance(with_index(PyLate()), SearchEncoderWrapper)
            self.assertIsInstance(made["backend"], PlaidSearchIndex)
            self.assertEqual((made["model"].mteb_model_meta, made["model"].encode(1, a=2)), ("the model", (1, {"a": 2})))
            with self.assertRaises(NotImplementedError):
                made["model"].similarity(1, 2)
            backend = PlaidSearchIndex()

            class Plain(PyLate):
                encode = PyLate._encode

            plain = Plain()
            with_index(plain, backend)
            self.assertEqual((made["model"], made["backend"]), (plain, backend))


if __name__ == "__main__":
    unittest.main()
