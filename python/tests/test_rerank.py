"""Scores of vectors that are sent with the query, and vectors as they go to the service and come back."""

from __future__ import annotations

import importlib.util
import itertools
import socket
import threading
import unittest

import numpy as np

from plaid_ir import Index, RequestError
from plaid_ir._arrays import Body, read_tensors, tensors_body, to_array, to_float32, to_matrices
from plaid_ir._http import _join_pieces, _send_pieces

from .common import DIM, maxsim, unit


class Rerank(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.index = Index(None)
        rng = np.random.default_rng(7)
        cls.query = unit(rng, 5)
        cls.docs = [unit(rng, n) for n in rng.integers(1, 40, 300)]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.index.close()

    def agree(self, got: list, query: np.ndarray, docs: list) -> None:
        want = [maxsim(query, d) for d in docs]
        self.assertEqual(sorted(r["index"] for r in got), list(range(len(docs))))
        self.assertEqual([r["score"] for r in got], sorted((r["score"] for r in got), reverse=True))
        for r in got:
            self.assertAlmostEqual(r["score"], want[r["index"]], places=5)

    def test_matrices(self) -> None:
        self.agree(self.index.rerank(self.query, self.docs), self.query, self.docs)
        halves = [d.astype("<f2") for d in self.docs]
        self.agree(self.index.rerank(self.query, halves), self.query, [h.astype("<f4") for h in halves])
        for first, second in itertools.permutations([halves, self.docs]):
            mixed = [first[0], second[1], first[2]]
            self.agree(self.index.rerank(self.query.astype("<f2"), mixed), self.query.astype("<f2").astype("<f4"), [m.astype("<f4") for m in mixed])
        doubles = [np.asfortranarray(d, dtype=np.float64) for d in self.docs]
        self.agree(self.index.rerank(self.query, doubles), self.query, self.docs)

    def test_any_iterable(self) -> None:
        self.agree(self.index.rerank(self.query, (d for d in self.docs)), self.query, self.docs)
        self.assertEqual(self.index.rerank(self.query, iter([])), [])
        self.assertEqual(self.index.rerank(self.query, []), [])

    def test_padded(self) -> None:
        padded = np.zeros((len(self.docs), max(map(len, self.docs)) + 3, DIM), np.float32)
        for row, d in zip(padded, self.docs):
            row[: len(d)] = d
        self.agree(self.index.rerank(self.query, padded), self.query, self.docs)

    def test_more_than_a_body_may_have(self) -> None:
        docs = np.full((1200, 180, 128), 0.5, np.float32)  # 110 MB
        docs[777] = 1
        got = self.index.rerank(np.ones((2, 128), np.float32), docs)
        self.assertEqual([(r["index"], r["score"]) for r in got[:3]], [(777, 256), (0, 128), (1, 128)])
        self.assertEqual(len(got), len(docs))

    def test_errors(self) -> None:
        with self.assertRaisesRegex(ValueError, "have no vectors"):
            self.index.rerank(self.query, [[], []])
        with self.assertRaisesRegex(ValueError, "query has 2 matrices; want one"):
            self.index.rerank(np.ones((2, 3, DIM), np.float32), self.docs)
        with self.assertRaisesRegex(ValueError, "document 0 has vectors of dimension 0"):
            self.index.rerank(self.query, [np.ones((2, 0), np.float32)])
        with self.assertRaisesRegex(TypeError, "documents is None"):
            self.index.rerank(self.query, None)
        with self.assertRaisesRegex(RequestError, "the documents have dimension 3, the query"):
            self.index.rerank(self.query, [np.eye(3)])
        for at in (3, 299):  # the service answers before all of it was sent
            docs = [d.copy() for d in self.docs]
            docs[at][0, 7] = np.nan
            with self.assertRaisesRegex(RequestError, f"document {at}: token 0: component 7 is NaN") as raised:
                self.index.rerank(self.query, docs)
            self.assertEqual(raised.exception.details, {"document": at, "token": 0})
        with self.assertRaisesRegex(RequestError, "document 1: there are no vectors"):
            self.index.rerank(self.query, [self.docs[0], [], self.docs[1]])
        self.agree(self.index.rerank(self.query, self.docs), self.query, self.docs)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_of_torch(self) -> None:
        import torch

        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            docs = [torch.from_numpy(d).to(dtype) for d in self.docs]
            query = torch.from_numpy(self.query).to(dtype)
            numbers = [d.float().numpy() for d in docs]
            self.agree(self.index.rerank(query, docs), query.float().numpy(), numbers)
            padded = torch.nn.utils.rnn.pad_sequence(docs, batch_first=True)
            self.agree(self.index.rerank(query, padded), query.float().numpy(), numbers)
            for m, want in zip(to_matrices(padded, "document"), numbers):
                np.testing.assert_array_equal(to_float32(m), want)
        eighths = [torch.ones(2, DIM).to(torch.float8_e4m3fn)]
        self.agree(self.index.rerank(self.query, eighths), self.query, [np.ones((2, DIM), np.float32)])
        mixed = to_matrices([docs[0].to(torch.bfloat16), docs[1]], "document")
        self.assertEqual([m.dtype.str for m in mixed], ["<f4", "<f4"])
        with Index(None) as index:
            index.add_documents(["a", "b"], [d.to(torch.bfloat16) for d in docs[:2]])
            index.add_batches([(["c"], [docs[2].to(torch.bfloat16)]), (["d"], [docs[3]])])
            query = docs[2].to(torch.bfloat16)
            self.assertEqual([h["id"] for h in index.search(query, 1)], ["c"])
            self.assertEqual(index.explain("c", query)["rank"], 1)
            (hits,) = index.search_token_scores([query], 1)
            np.testing.assert_allclose(np.diag(hits[0]["token_scores"]), 1, atol=0.02)


class Wire(unittest.TestCase):
    def test_bodies_are_safetensors(self) -> None:
        lib = importlib.util.find_spec("safetensors")
        matrices = [np.arange(6, dtype="<f4").reshape(2, 3), np.zeros((0, 3), "<f4"), np.ones((1, 3), "<f4")]
        body = tensors_body(matrices, {"a": "ü"}, np.ones((2, 3), "<f2"))
        raw = b"".join(_join_pieces(body.pieces))
        self.assertEqual((len(raw), body.media_type), (body.size, "application/safetensors"))
        if lib is None:
            return
        from safetensors.numpy import load

        got = load(raw)
        np.testing.assert_array_equal(got["vectors"], np.concatenate(matrices))
        self.assertEqual(got["lengths"].tolist(), [2, 0, 1])
        self.assertEqual(bytes(got["request"]).decode().strip(), '{"a":"ü"}')
        np.testing.assert_array_equal(got["query"], np.ones((2, 3)))

    def test_blocks(self) -> None:
        rng = np.random.default_rng(1)
        pieces = [bytes(rng.integers(0, 256, n, dtype="u1")) for n in (0, 5, 300_000, 31 << 10, 40 << 10, *[20_000] * 40)]
        blocks = list(_join_pieces([memoryview(p) for p in pieces]))
        self.assertEqual(b"".join(blocks), b"".join(pieces))
        self.assertLess(len(blocks), 10)

    @unittest.skipUnless(hasattr(socket.socket, "sendmsg"), "the system has no sendmsg")
    def test_pieces_are_sent_whole(self) -> None:
        rng = np.random.default_rng(2)
        sizes = [0, 1, *[3] * 1500, 70_000, 0, *rng.integers(1, 5000, 300), 9 << 20, 0, 7]
        pieces = [rng.integers(0, 256, n, dtype="u1").data for n in sizes]
        near, far = socket.socketpair()
        with near, far:
            near.settimeout(60)  # so that it does not block, and sends what there is room for
            sender = threading.Thread(target=lambda: (_send_pieces(near, iter(pieces)), near.shutdown(socket.SHUT_WR)))
            sender.start()
            got = bytearray()
            while piece := far.recv(1 << 16):
                got += piece
            sender.join()
        self.assertEqual(bytes(got), b"".join(pieces))

    def test_answers(self) -> None:
        with Index(None) as index:
            index.add_documents(["a", "b"], [np.eye(4)[:1], np.eye(4)[1:]])
            (got,) = index.get_documents_embeddings(["b"])
            np.testing.assert_allclose(got, np.eye(4)[1:], atol=1e-2)
            got[0, 0] = 3  # can be written to
            index.add_documents(["none"], [[]])
            self.assertEqual(index.get_documents_embeddings(["none", "a"])[0].shape, (0, 4))
        with self.assertRaises((ValueError, KeyError)):
            read_tensors(b"\x02\0\0\0\0\0\0\0{}")

    def test_types(self) -> None:
        for given, want in ((np.float64, "<f4"), (np.int8, "<f4"), (np.float16, "<f2"), (">f4", "<f4"), (np.float32, "<f4")):
            self.assertEqual(to_array(np.ones((2, 2), given)).dtype.str, want)
        with self.assertRaisesRegex(TypeError, "vectors are numbers"):
            to_array(np.array([["a"]]))
        self.assertIsInstance(tensors_body([np.ones((1, 2), "<f4")], None), Body)


if __name__ == "__main__":
    unittest.main()
