"""Arrays with masks, numbers of float64, and lists that make tables; tables of other libraries: tests/frameworks."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import unittest
from typing import Any

import numpy as np

from plaid_ir import Documents, Facets, Hits, Index, Results
from plaid_ir._arrays import to_float32, to_matrices
from plaid_ir._frames import BOOL, FLOAT, FLOAT32, INT, NULL, TEXT, UINT, Columns, Kind, to_kind, infer_kind

EYE = np.eye(4, dtype=np.float32)


class Vectors(unittest.TestCase):
    def same(self, given: Any, want: list[np.ndarray]) -> None:
        got = to_matrices(given, "document")
        self.assertEqual(len(got), len(want))
        for m, w in zip(got, want):
            np.testing.assert_array_equal(to_float32(m), w)

    def test_masks(self) -> None:
        two = np.ma.masked_array(EYE, mask=[[False] * 4, [True] * 4, [False] * 4, [True] * 4])
        want = EYE[[0, 2]]
        for given in ([two], two, two[None], [two[None]], np.ma.stack([two]), (m for m in [two])):
            self.same(given, [want])
        self.same(np.ma.stack([two, np.ma.masked_array(EYE)]), [want, EYE])
        self.same([list(two)], [want])  # a list of masked tokens
        self.same([np.ma.masked_array(EYE)], [EYE])
        self.same([np.ma.masked_array(EYE, mask=True), EYE], [EYE[:0], EYE])
        with self.assertRaisesRegex(ValueError, "^document 1: token 2 is partly masked"):
            to_matrices([EYE, np.ma.masked_array(EYE, mask=np.eye(4)[::-1] * [0, 1, 0, 0])], "document")
        with Index(None) as index:
            index.add_documents(["a"], [two])
            self.assertEqual(index.get_documents_embeddings(["a"])[0].shape, (2, 4))
            self.assertAlmostEqual(index.search(two, 1)[0]["score"], 2, delta=0.001)

    def test_small_numbers_keep_their_direction(self) -> None:
        d = np.array([[1.0, 2, 3, 4], [4, 3, 2, 1]])
        unit = d / np.linalg.norm(d, axis=1, keepdims=True)
        for scale in (1e-20, 1e-39, 1e-60, 1e-300):
            for given in ([d * scale], (d * scale)[None], [(d * scale).tolist()], [(d * scale).astype(np.longdouble)]):
                with self.subTest(scale), Index(None) as index:
                    index.add_documents(["a"], given)
                    np.testing.assert_allclose(index.get_documents_embeddings(["a"])[0], unit, atol=0.01)
                    self.assertAlmostEqual(index.search(given, 1)[0]["score"], 2, delta=0.001)
                    (hits,) = index.search_token_scores(given, 1)
                    np.testing.assert_allclose(np.diag(hits[0]["token_scores"]), 1, atol=0.01)
        mixed = np.array([[1.0, 1e-60, 0, 0], [0, 0, 0, 0]])
        self.same([mixed], [mixed.astype(np.float32)])
        with Index(None) as index, self.assertRaisesRegex(ValueError, "^document 1: token 1 has only numbers below"):
            index.rerank(d, [d, d * [[1], [1e-60]]])  # which does not scale vectors

    def test_what_is_wrong_is_named(self) -> None:
        for error, want, given in (
            (ValueError, "^document 1, token 1 has dimension 1, those before it 2", [[[1, 2]], [[1, 2], [3]]]),
            (ValueError, "^document 1, token 1: the vector is missing", [[[1, 2]], [[1, 2], None]]),
            (TypeError, "^document 1: vectors are numbers, not <U1", [EYE, [["a"]]]),
            (TypeError, "^document 0: vectors are numbers, not complex128", [np.ones((2, 2), complex)]),
            (TypeError, "^document 1 is of type str; want a matrix", [EYE, "x"]),
            (TypeError, "^document 0 is of type int; want a matrix", np.array([1, "x"], dtype=object)),
        ):
            with self.subTest(want), self.assertRaisesRegex(error, want):
                to_matrices(given, "document")

    def test_arrays_of_objects(self) -> None:
        rows = [np.array(list(EYE), dtype=object), [EYE[0], EYE[1]], None, list(EYE[:1])]
        column = np.empty(4, dtype=object)
        column[:3] = [np.empty(0), None, None]
        for i, row in enumerate(rows):
            column[i] = row
        self.same(column, [EYE, EYE[:2], EYE[:0], EYE[:1]])
        self.same(rows, [EYE, EYE[:2], EYE[:0], EYE[:1]])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors(self) -> None:
        import torch

        docs = [torch.eye(4)[:n] for n in (2, 1, 3)]
        want = [EYE[:n] for n in (2, 1, 3)]
        self.same(torch.nested.nested_tensor(docs, layout=torch.jagged), want)
        self.same([d.to_sparse() for d in docs], want)
        self.same([list(d) for d in docs], want)
        with Index(None, id_type=int) as index:
            index.add_documents(torch.tensor([4, 5, 6]), docs, [{"n": torch.tensor(3), "v": torch.ones(2)}] * 3)
            self.assertEqual((index.ids(), index.get(torch.tensor([4]))), ([4, 5, 6], [{"n": 3, "v": [1.0, 1.0]}]))
            self.assertEqual(index.delete(torch.tensor(5)), 1)
            self.assertEqual(index.explain(4, EYE)["id"], 4)


class Lists(unittest.TestCase):
    def test_slices_and_sums_stay_what_they_are(self) -> None:
        hits = Hits([{"id": i, "score": 1.0} for i in "abc"])
        for some in (hits[:2], hits[::-1], hits + hits[:1], hits.copy(), copy.copy(hits), copy.deepcopy(hits)):
            self.assertIs(type(some), Hits)
        self.assertIs(type(pickle.loads(pickle.dumps(hits))), Hits)
        self.assertEqual(([h["id"] for h in hits[1:]], hits[0], len(hits + hits)), (["b", "c"], hits[0], 6))
        results = Results([hits, Hits()])
        self.assertEqual((type(results[1:]), type(results[0])), (Results, Hits))

    def test_documents_keep_their_ids(self) -> None:
        rows = [{"id": 1, "y": 2}, {"y": None}]
        documents = Documents(rows, ["a", "b"])
        self.assertEqual((documents, documents.ids, json.loads(json.dumps(documents))), (rows, ["a", "b"], rows))
        for some in (documents[1:], Documents(documents[1:]), copy.deepcopy(documents)[1:]):
            self.assertEqual((type(some), some.ids), (Documents, ["b"]))
        documents.reverse()
        self.assertEqual((documents + documents[:1]).ids, ["b", "a", "b"])
        self.assertEqual(pickle.loads(pickle.dumps(documents)).ids, ["b", "a"])
        columns = documents._columns()
        self.assertEqual(columns.values, {"id": ["b", "a"], "y": [None, 2], "metadata.id": [None, 1]})

    def test_facets_are_rows_of_values(self) -> None:
        count = {"docs": 3, "missing": 0, "null": 0, "others": 0}
        facets = Facets([{"field": "y", "values": [{"value": 2021, "docs": 2}], **count}, {"field": "t", "values": [{"value": "x", "docs": 1}], **count}])
        columns = facets._columns()
        self.assertEqual(columns.values, {"field": ["y", "t"], "value": [2021, "x"], "documents": [2, 1]})
        self.assertEqual((columns.kinds["value"], facets[:1]._columns().kinds["value"]), (TEXT, INT))

    def test_no_two_keys_are_one_column(self) -> None:
        row = {"id": "x", "metadata.id": 1, "metadata.metadata.id": 2, "metadata.n": 3, "score": None, "": 4}
        columns = Hits([{"id": "a", "score": 2.0, "metadata": row}])._columns()
        self.assertEqual(len(columns.values), 3 + len(row))
        self.assertEqual((columns.values["id"], columns.values["metadata.id"], columns.values["metadata.n"]), (["a"], ["x"], [3]))

    def test_types_of_columns(self) -> None:
        for values, kind, want in (
            ([], NULL, []), ([None], NULL, [None]), ([True, None], BOOL, [True, None]), ([1, None], INT, [1, None]),
            ([2**63, 0], UINT, [2**63, 0]), ([2**63, -1], TEXT, [str(2**63), "-1"]), ([2**70], TEXT, [str(2**70)]),
            ([1, 0.5], FLOAT, [1.0, 0.5]), ([2**60 + 1, 0.5], TEXT, ["1152921504606846977", "0.5"]),
            ([1, True], TEXT, ["1", "true"]), (["a", 1, None], TEXT, ["a", "1", None]), (["a", [1, "ü"], {"b": None}], TEXT, ["a", '[1,"ü"]', '{"b":null}']),
            ([[1], [], None, [None]], Kind("list", INT), [[1], [], None, [None]]), ([["a", 1]], Kind("list", TEXT), [["a", "1"]]),
            ([[]], Kind("list", NULL), [[]]), ([[[1], [0.5]]], Kind("list", Kind("list", FLOAT)), [[[1.0], [0.5]]]),
            ([{"a": 1}, {"b": "x"}], Kind("struct", None, (("a", INT), ("b", TEXT))), [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
            ([{}], TEXT, ["{}"]), ([[{"a": {}}]], Kind("list", Kind("struct", None, (("a", TEXT),))), [[{"a": "{}"}]]),
            ([EYE[:1], None], Kind("list", Kind("list", FLOAT32)), [[[1, 0, 0, 0]], None]), ([EYE[:1], 1], TEXT, ["[[1.0,0.0,0.0,0.0]]", "1"]),
        ):  # fmt: skip
            with self.subTest(str(values)):
                self.assertEqual(infer_kind(values), kind)
                got = [to_kind(v, kind) for v in values]
                self.assertEqual((got, [type(v) for v in got]), (want, [type(v) for v in want]))
        self.assertEqual(Columns([], {"id": NULL, "n": INT}).kinds, {"id": NULL, "n": INT})


if __name__ == "__main__":
    unittest.main()
