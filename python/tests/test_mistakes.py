"""What each parameter is told when it is None, or of a wrong type."""

from __future__ import annotations

import inspect
import re
import tempfile
import unittest
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from plaid_ir import Index

MODEL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "quickstart" / "colbert-nano"
#: Values that some parameters do not take.
NONE: dict[str, Any] = {"None": None}
BAD: dict[str, Any] = {**NONE, "5": 5, "'x'": "x", "[]": [], "{}": {}, "object()": object(), "1.5": 1.5, "True": True}

EYE = np.eye(4, dtype=np.float32)

#: The methods, with arguments that are right, and for each parameter the bad values that are right for it.
CALLS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "search": (
        {"query": EYE},
        {
            "query": "'x'", "k": "5", "where": "None {}", "parameters": "[]", "subset": "None 'x' [] {}",
            "metadata": "True", "keywords": "'x' True", "hybrid": "True", "fusion": "", "expression": "True", "group": "None",
            "passages": "None 5", "highlight": "True", "feedback": "5", "like": "[] {}", "unlike": "[] {}",
            "mode": "None", "offset": "5", "min_score": "None 5 1.5",
        },
    ),
    "search_batch": (
        {"queries": EYE},
        {
            "queries": "[]", "k": "5", "where": "None {}", "parameters": "[]", "subset": "None 'x' [] {}",
            "metadata": "True", "keywords": "[] True", "hybrid": "True", "fusion": "", "expression": "True",
            "group": "None", "passages": "None 5", "highlight": "True", "feedback": "5", "like": "[] {}",
            "unlike": "[] {}", "mode": "None", "offset": "5", "min_score": "None 5 1.5",
        },
    ),
    "search_token_scores": ({"queries": EYE}, {"queries": "[]", "k": "5", "subset": "None 'x' [] {}"}),
    "__call__": ({"queries_embeddings": EYE}, {"queries_embeddings": "'x' []", "k": "5", "subset": "None 'x' [] {}"}),
    "similar": ({"id": "a"}, {"id": "'x'", "k": "5"}),
    "explain": ({"id": "a", "query": EYE}, {"id": "'x'", "query": "'x'", "k": "5", "where": "None {}",
                                            "parameters": "[]", "mode": "None"}),
    "rerank": ({"query": EYE, "documents": [EYE]}, {"query": "", "documents": "[]"}),
    "encode": ({"texts": []}, {"texts": "[]", "is_query": "True"}),
    "get_documents_embeddings": ({"documents_ids": ["a"]}, {"documents_ids": "[] {}"}),
    "get": ({"ids": ["a"]}, {"ids": "'x' [] {}", "where": "None", "parameters": "[]", "limit": "None"}),
    "ids": ({}, {"where": "None {}", "parameters": "[]"}),
    "facets": ({"fields": "n"}, {"fields": "'x' []", "where": "None {}", "parameters": "[]", "values": "5",
                                 "subset": "None 'x' [] {}"}),
    "save": ({"path": "x.plaid"}, {"path": "'x'"}),
    "add_documents": (
        {"documents_ids": ["n"], "documents_embeddings": [EYE]},
        {"documents_ids": "'x'", "documents_embeddings": "None", "metadata": "None", "pool_factor": "None 5",
         "pool_by": "", "keep_metadata": "None True", "batch_size": "None 5", "progress": "None True"},
    ),
    "update_documents": (
        {"documents_ids": ["n"], "documents_embeddings": [EYE]},
        {"documents_ids": "'x'", "documents_embeddings": "None", "metadata": "None"},
    ),
    "add_batches": (
        {"batches": [(["n"], [EYE])]},
        {"batches": "[]", "total": "None 5", "pool_factor": "None 5", "pool_by": "", "progress": "None True",
         "wait": "True"},
    ),
    "add_texts": (
        {"texts": [], "ids": []},
        {"texts": "[]", "ids": "[] {}", "metadata": "None []", "text_field": "'x'", "pool_factor": "None 5",
         "window": "None 5", "overlap": "", "window_by": "", "keep_metadata": "None True", "batch_size": "5",
         "progress": "None True", "wait": "True"},
    ),
    "remove_documents": ({"documents_ids": ["z"]}, {"documents_ids": "'x' [] {}"}),
    "update": ({"where": "n = 1", "values": {"m": 1}}, {"where": "", "values": "{}", "parameters": "[]"}),
    "delete": ({"ids": ["z"]}, {"ids": "'x' [] {}", "where": "None {}", "parameters": "[]"}),
    "load": ({"path": "x.plaid"}, {"path": "'x'", "documents_ids": "None"}),
}  # fmt: skip

#: How messages also name a parameter.
OTHER_WORDS = {
    "query": {"queries"}, "queries": {"query"}, "queries_embeddings": {"query", "queries"}, "where": {"condition"},
    "documents_ids": {"ids"}, "documents_embeddings": {"documents"},
}  # fmt: skip


class Mistakes(unittest.TestCase):
    def setUp(self) -> None:
        self.index = Index(None).add_documents(["a", "b"], [EYE, EYE[:2]], [{"n": 1}, {"n": 2}])
        self.addCleanup(self.index.close)
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_every_parameter(self) -> None:
        """A wrong value is a TypeError or a ValueError that names the parameter, and changes nothing."""
        before = self.index.get(where={}), self.index.stats()["tokens"]
        for name, (right, table) in CALLS.items():
            method = getattr(self.index, name)
            parameters = inspect.signature(method).parameters.values()
            named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
            self.assertEqual(sorted(table), sorted(named), name)
            for parameter, takes in table.items():
                for label, value in BAD.items():
                    if label in takes.split():
                        continue
                    with self.subTest(f"{name}({parameter}={label})"):
                        with self.assertRaises((TypeError, ValueError)) as caught:
                            method(**{**right, parameter: value})
                        said = str(caught.exception)
                        words = set(re.findall(r"\w+", said.replace("=", " ")))
                        known = {parameter, *OTHER_WORDS.get(parameter, ())}
                        self.assertTrue(words & known, said)
                        self.assertNotRegex(said, r"object (is not|has no|of type)|'\w+' object")
        self.assertEqual((self.index.get(where={}), self.index.stats()["tokens"]), before)

    def test_opening(self) -> None:
        """The parameters of an index are looked at before anything is started."""
        takes = {
            "index_folder": "None 'x'", "index_name": "'x'", "override": "True", "nbits": "None", "seed": "None 5",
            "id_type": "", "mode": "", "model": "None 'x'", "read_only": "True", "url": "None 'x'", "token": "None 'x'",
            "device": "None 'x' {} object() 5 1.5 True", "pictures": "None 'x'", "threads": "None 5", "timeout": "5 1.5", "binary": "None 'x'",
        }  # fmt: skip
        named = [p.name for p in inspect.signature(Index).parameters.values() if p.kind is not p.VAR_KEYWORD]
        self.assertEqual(sorted(takes), sorted(named))
        for parameter, right in takes.items():
            for label, value in BAD.items():
                if label not in right.split():
                    with self.subTest(f"{parameter}={label}"):
                        with self.assertRaisesRegex((TypeError, ValueError), rf"\b{parameter}\b"):
                            Index(**{"index_folder": None, parameter: value}).close()

    def test_a_wrong_id_is_found(self) -> None:
        """An error about an id says where it is among all that were given."""
        index = self.enterContext(Index(None, model=MODEL))
        for call, said in (
            (lambda: index.get(["a", None]), "ids, item 1, is None; want a text"),
            (lambda: index.explain(5, EYE), r"^id is 5; want a text.*id_type=int"),
            (lambda: index.add_texts(map(str, range(9)), iter([*"0123456", 7, 8]), batch_size=2), "ids, item 7, is 7; want"),
            (lambda: Index.from_embeddings([EYE], [uuid.UUID(int=1)]), r"documents_ids, item 0, is UUID\(.*; want a text"),
        ):
            with self.subTest(said), self.assertRaisesRegex(TypeError, said):
                call()

    def test_what_is_none(self) -> None:
        with self.assertRaisesRegex(TypeError, "query is None; want a text, or a matrix"):
            self.index.rerank(None, ["a text"])
        with self.assertRaisesRegex(TypeError, "documents_embeddings is None; want a list of matrices"):
            Index.from_embeddings(None)

    def test_table_is_complete(self) -> None:
        """Every public method of an index is in the table, or has no parameters."""
        for name, method in inspect.getmembers(Index, inspect.isfunction):
            twin = name[0] == "a" and hasattr(Index, name[1:])
            if name == "add_images":  # needs a model; test_page_models has it
                continue
            if name[0] != "_" and not twin and len(inspect.signature(method).parameters) > 1:
                self.assertIn(name, CALLS)


if __name__ == "__main__":
    unittest.main()
