"""Documents that are stored as passages, and come in several requests or batches."""

from __future__ import annotations

import tempfile
import unittest
import warnings
from typing import Any, Iterator
from unittest import mock

import numpy as np
from plaid_ir import Index, _documents
from plaid_ir._connection import Connection

from .common import unit
from .test_texts import MODEL


def parts(document: str, *numbers: int) -> tuple[list[str], list[np.ndarray], list[dict[str, Any]]]:
    """Passages of a document: ids, vectors and metadata."""
    rng = np.random.default_rng(len(document))
    rows = [{"_passage": {"of": document, "n": n, "start": n, "end": n + 1}, "text": f"{document} {n}"} for n in numbers]
    return [f"{document}#{n}" for n in numbers], [unit(rng, 4) for _ in numbers], rows


def joined(*some: tuple[list[Any], ...]) -> list[list[Any]]:
    return [sum(lists, []) for lists in zip(*some)]


def plain(*ids: str) -> tuple[list[str], list[np.ndarray], list[dict[str, Any]]]:
    rng = np.random.default_rng(7)
    return list(ids), [unit(rng, 4) for _ in ids], [{"text": i} for i in ids]


class Passages(unittest.TestCase):
    def setUp(self) -> None:
        self.index = Index(None)
        self.addCleanup(self.index.close)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.filterwarnings("ignore", "documents that were there keep their metadata")

    def stored(self, document: str) -> list[int]:
        found = _documents.fetch_documents(self.index._connection, [document])[document]
        return [d["passage"]["n"] for d in found]

    def test_a_document_is_one_request(self) -> None:
        docs = joined(plain("a", "b"), parts("page", *range(60)), plain("c"), parts("next", 0, 1, 2))
        for options in ({"batch_size": 16}, {"batch_size": 1}, {}):
            self.index.add_documents(*docs, **options)
            self.assertEqual((len(self.index), self.index.stats()["passages"]), (5, 63), options)
            self.assertEqual(self.stored("page"), list(range(60)))
        with mock.patch("plaid_ir._ingest.MAX_VECTOR_BYTES", 4000):
            self.index.add_documents(*docs)
        self.assertEqual(self.stored("page"), list(range(60)))
        # Kept metadata make passages, too.
        self.index.add_documents(*docs[:2], keep_metadata=True, batch_size=16)
        self.assertEqual((len(self.index), self.stored("page")), (5, list(range(60))))

    def test_a_document_larger_than_a_request(self) -> None:
        docs = joined(plain("a"), parts("page", *range(60)))
        with mock.patch("plaid_ir._documents.MAX_BODY_BYTES", 10_000):
            with self.assertRaisesRegex(ValueError, r"^the passages of document 'page' have \d+ bytes, .* at most 10000"):
                self.index.add_documents(*docs, batch_size=1)
        self.assertEqual(len(self.index), 0)

    def test_passages_in_a_row(self) -> None:
        docs = joined(parts("page", 0, 1), plain("a"), parts("page", 2))
        with self.assertRaisesRegex(ValueError, "passages of document 'page' are not next to each other: 'page#2'"):
            self.index.add_documents(*docs, batch_size=2)
        self.assertEqual(len(self.index), 0)

    def test_a_part_of_a_document(self) -> None:
        self.index.add_documents(*joined(plain("a"), parts("page", *range(6))))
        ids, vectors, rows = parts("page", *range(6))
        lost = r"^document 'page' is stored as passages, and would lose .*\(%d\): 'page#0'.*delete\(\['page'\]\)"
        for options in ({}, {"keep_metadata": True}, {"metadata": rows[3:4]}):
            with self.subTest(options), self.assertRaisesRegex(ValueError, lost % 5):
                self.index.add_documents(ids[3:4], vectors[:1], **options)
        with self.assertRaisesRegex(ValueError, lost % 3):
            self.index.add_documents(ids[3:], vectors[3:], rows[3:])
        for batches in ([(ids[3:4], vectors[:1])], [(ids[3:4], vectors[:1], rows[3:4])]):
            with self.assertRaisesRegex(ValueError, lost % 5):
                self.index.add_batches(batches)
        self.assertEqual(self.stored("page"), list(range(6)))
        # All of them may come again, and fewer that are numbered from 0 are another document.
        self.index.add_batches([(ids[:3], vectors[:3]), (ids[3:], vectors[3:])])
        self.assertEqual(self.stored("page"), list(range(6)))
        self.index.add_documents(ids[:4], vectors[:4], rows[:4])
        self.assertEqual(self.stored("page"), list(range(4)))

    def test_batches(self) -> None:
        first, second = joined(plain("a"), parts("page", 0, 1, 2)), joined(parts("page", 3, 4), plain("b"), parts("end", 0))
        second[1] = [m.astype(np.float16) for m in second[1]]
        third = parts("end", 1, 2)
        for tokens in ((1 << 16), 1):  # sent, and built
            for wait in (True, False):
                with mock.patch.object(Connection, "train_tokens", tokens), Index(None) as index:
                    self.index = index
                    for _ in range(2):  # the second time they replace each other
                        index.add_batches([first, second, third], wait=wait)
                        self.assertEqual((index.ids(), len(index)), (["a", "page", "b", "end"], 4))
                        self.assertEqual((self.stored("page"), self.stored("end")), ([0, 1, 2, 3, 4], [0, 1, 2]))

    def test_a_document_that_returns(self) -> None:
        for wait in (True, False):
            with self.assertRaisesRegex(ValueError, "passages of document 'page' are not next to each other: 'page#2'"):
                self.index.add_batches([joined(parts("page", 0, 1), plain("a")), parts("page", 2, 3)], wait=wait)
            self.assertEqual((len(self.index), self.stored("page")), (2, [0, 1]))

    def test_a_source_that_breaks_off(self) -> None:
        def source() -> Iterator[Any]:
            yield joined(plain("a"), parts("page", 0, 1))
            raise OSError("gone")

        self.index.add_documents(*parts("page", 0, 1, 2, 3))
        with self.assertRaisesRegex(OSError, "gone"):
            self.index.add_batches(source())
        self.assertEqual((len(self.index), self.stored("page")), (2, [0, 1, 2, 3]))  # more of it might have come

    def test_texts(self) -> None:
        with tempfile.TemporaryDirectory() as folder, Index(folder, model=MODEL) as index:
            self.index = index
            ids, _, rows = joined(plain("a"), parts("page", *range(10)), plain("b"))
            texts = [row.pop("text") for row in rows]
            for wait in (True, False):
                index.add_texts(iter(texts), iter(ids), iter(rows), batch_size=4, wait=wait)
                self.assertEqual((len(index), self.stored("page")), (3, list(range(10))))
            index.add_texts(texts, ids, batch_size=4, keep_metadata=True)
            self.assertEqual((len(index), self.stored("page")), (3, list(range(10))))
            for options in ({}, {"metadata": rows[4:5]}, {"window": 100}):
                with self.assertRaisesRegex(ValueError, "document 'page' is stored as passages, and would lose"):
                    index.add_texts(["new"], ["page#3"], **options)
            self.assertEqual(self.stored("page"), list(range(10)))
