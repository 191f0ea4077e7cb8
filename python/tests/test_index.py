"""The index against exact scores in numpy."""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import threading
import unittest

import numpy as np

from plaid_ir import EmptyIndexError, Index, RequestError, ServiceError

from .common import DIM, collection, maxsim, ranking, unit


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.docs, cls.queries = collection(400, 20)
        cls.ids = [f"doc-{i}" for i in range(len(cls.docs))]
        cls.by_id = dict(zip(cls.ids, cls.docs))
        cls.index = Index(None)
        cls.index.add_documents(
            cls.ids, cls.docs, [{"n": i, "even": i % 2 == 0} for i in range(len(cls.docs))], batch_size=150
        )

    @classmethod
    def tearDownClass(cls) -> None:
        cls.index.close()

    def agree(self, hits: list, query: np.ndarray, k: int, among: dict | None = None) -> None:
        """The hits are the k best, up to the error of 8 bits a component."""
        best = ranking(query, self.by_id if among is None else among)
        self.assertEqual(len(hits), min(k, len(best)))
        self.assertEqual([h["score"] for h in hits], sorted((h["score"] for h in hits), reverse=True))
        tolerance = 0.01 * len(query)
        for hit, (score, _) in zip(hits, best):
            self.assertAlmostEqual(hit["score"], maxsim(query, self.by_id[hit["id"]]), delta=tolerance)
            self.assertAlmostEqual(hit["score"], score, delta=tolerance)

    def test_agrees_with_exact_scores(self) -> None:
        self.assertEqual(len(self.index), 400)
        for mode in ("pruned", "exhaustive"):
            results = self.index(self.queries, k=10, mode=mode)
            self.assertEqual(len(results), len(self.queries))
            for hits, query in zip(results, self.queries):
                self.assertEqual(set(hits[0]), {"id", "score"})
                self.agree(hits, query, 10)

    def test_default_is_ten(self) -> None:
        self.assertEqual(len(self.index(self.queries[:1])[0]), 10)
        self.assertEqual(len(self.index(self.queries[:1], k=1000)[0]), 400)
        self.assertEqual(self.index([]), [])

    def test_subset_for_all(self) -> None:
        some = self.ids[5:25]
        for hits, query in zip(self.index(self.queries, k=5, subset=[*some, "nobody"]), self.queries):
            self.agree(hits, query, 5, {i: self.by_id[i] for i in some})
        self.assertEqual(self.index(self.queries[:2], subset=[]), [[], []])

    def test_subset_for_each(self) -> None:
        subsets = [self.ids[3 * i : 3 * i + 6] for i in range(len(self.queries))]
        subsets[1] = []
        results = self.index(self.queries, k=4, subset=subsets)
        for hits, query, own in zip(results, self.queries, subsets):
            self.agree(hits, query, 4, {i: self.by_id[i] for i in own})
        self.assertEqual(results[1], [])
        with self.assertRaisesRegex(ValueError, "20 queries and 19 subsets"):
            self.index(self.queries, subset=subsets[1:])

    def test_where(self) -> None:
        hits = self.index(self.queries[:1], k=3, where="n < ? AND even = ?", parameters=[50, True], metadata=True)[0]
        self.agree(hits, self.queries[0], 3, {self.ids[i]: self.docs[i] for i in range(0, 50, 2)})
        self.assertEqual(hits[0]["metadata"], {"n": int(hits[0]["id"][4:]), "even": True})
        both = self.index(self.queries[:1], where="n < ?", parameters=[50], subset=[self.ids[49], self.ids[50]])[0]
        self.assertEqual([h["id"] for h in both], [self.ids[49]])
        for asked in (
            lambda: self.index(self.queries[:1], where="no_such = ?", parameters=[1]),
            lambda: self.index.search(self.queries[0], where={"no_such": None}),
            lambda: self.index.search(self.queries[0], where={"$or": [{"n": 1}, {"no_such": {"$ne": 1}}]}),
            lambda: self.index.search_token_scores(self.queries[:1], where="no_such IS NULL"),
            lambda: self.index.similar(self.ids[0], where="no_such = 1"),
            lambda: self.index.explain(self.ids[0], self.queries[0], where="no_such = 1"),
            lambda: self.index.ids("no_such = 1"),
        ):
            with self.assertRaisesRegex(
                RequestError, r"unknown field (\")?no_such(\")? \(there are, nearest first: n, even\)"
            ):
                asked()
        with self.assertRaisesRegex(ValueError, "needs a condition"):
            self.index(self.queries[:1], parameters=[1])

    def test_queries_of_every_kind(self) -> None:
        query = self.queries[0]
        want = self.index([query])
        same = {
            "one matrix": query,
            "an array of matrices": query[None],
            "a padded array": np.concatenate([query, np.zeros((3, DIM), np.float32)])[None],
            "lists": query.tolist(),
            "lists of lists": [query.tolist()],
            "float64": [query.astype(np.float64)],
            "other byte order": [query.astype(">f4")],
            "Fortran order": [np.asfortranarray(query)],
            "not contiguous": [np.repeat(query, 2, axis=0)[::2]],
            "a tensor": [Tensor(query)],
            "a tensor of bfloat16": [Tensor(query, "torch.bfloat16")],
            "one tensor": Tensor(query[None]),
            "a list of padded arrays": [np.concatenate([query, np.zeros((3, DIM), np.float32)])[None]],
            "a tuple": (query,),
        }
        for name, given in same.items():
            with self.subTest(name):
                self.assertEqual(self.index(given), want)
        half = self.index([query.astype(np.float16)])[0]
        for a, b in zip(half, want[0]):
            self.assertAlmostEqual(a["score"], b["score"], delta=0.01)
        mixed = self.index([query.astype(np.float16), query])
        self.assertEqual(mixed[1], want[0])

    def test_embeddings_come_back(self) -> None:
        first, second = self.index.get_documents_embeddings([["doc-3", "doc-5"], ["doc-3"]])
        self.assertEqual((len(first), len(second)), (2, 1))
        np.testing.assert_array_equal(first[0], second[0])
        for i, m in ((3, first[0]), (5, first[1])):
            self.assertEqual((m.shape, m.dtype), (self.docs[i].shape, np.float32))
            np.testing.assert_allclose(m, self.docs[i], atol=0.01)
        all_of_them = self.index.get_documents_embeddings(self.ids)
        self.assertEqual([len(m) for m in all_of_them], [len(d) for d in self.docs])
        with self.assertRaises(KeyError) as e:
            self.index.get_documents_embeddings(["doc-3", "nobody"])
        self.assertEqual(e.exception.args, ("nobody",))

    def test_many_threads(self) -> None:
        want = self.index(self.queries, k=5)
        wrong: list[object] = []

        def ask() -> None:
            for _ in range(5):
                got = self.index(self.queries, k=5)
                if got != want:
                    wrong.append(got)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_a_forked_child_may_search(self) -> None:
        want = self.index(self.queries[:1])
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if self.index(self.queries[:1]) == want else 2
                self.index.close()  # of the child alone
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(self.index(self.queries[:1]), want)
        self.index.add_documents(["new"], self.queries[:1]).remove_documents(["new"])
        self.assertTrue(os.path.exists(self.index._connection.service.folder))


class Tensor:
    """The part of a torch tensor that this package uses."""

    def __init__(self, values: np.ndarray, dtype: str = "torch.float32") -> None:
        self.values, self.dtype, self.ndim = values, dtype, values.ndim

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self.values)

    def numpy(self) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("numpy has no bfloat16")
        return self.values


class Changes(unittest.TestCase):
    def setUp(self) -> None:
        self.docs, self.queries = collection(30, 3, seed=2)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "indexes")

    def open(self, name: str = "x", **options: object) -> Index:
        index = Index(self.folder, name, **options)
        self.addCleanup(index.close)
        return index

    def test_documents_come_and_go(self) -> None:
        index = self.open()
        self.assertEqual(len(index), 0)
        with self.assertRaises(EmptyIndexError):
            index(self.queries)
        self.assertIs(index.remove_documents(["nobody"]), index)
        self.assertEqual((index.delete(["nobody"]), index.delete(where="a = 1")), (0, 0))
        self.assertEqual(index.update(where="a = 1", values={"a": 2}), 0)
        with self.assertRaises(KeyError):
            index.get_documents_embeddings(["nobody"])
        self.assertIs(index.add_documents("a", self.docs[0]), index)
        self.assertIs(index.add_documents([], []), index)
        with self.assertRaisesRegex(TypeError, "documents_ids is a set, which has no order"):
            index.add_documents({"b", "c"}, self.docs[1:3])
        index.add_documents(["b", "c"], self.docs[1:3])
        self.assertEqual([h["id"] for h in index([self.docs[1]], k=1)[0]], ["b"])
        # An id that is there is replaced, by whatever name.
        self.assertIs(index.update_documents(["b", "d"], [self.docs[5], self.docs[6]]), index)
        self.assertEqual(len(index), 4)
        self.assertEqual([h["id"] for h in index([self.docs[5]], k=1)[0]], ["b"])
        self.assertEqual(index.remove_documents("b").delete(["d", "nobody"]), 1)
        self.assertEqual(sorted(h["id"] for h in index([self.docs[0]], k=9)[0]), ["a", "c"])
        index.remove_documents(["a", "c"])
        self.assertEqual(len(index), 0)
        self.assertEqual(index([self.docs[0]]), [[]])

    def test_opened_again(self) -> None:
        with self.open() as index:
            index.add_documents(["a", "b"], self.docs[:2])
            want = index(self.queries)
        with self.assertRaisesRegex(ValueError, "closed"):
            index(self.queries)
        index.close()
        again = self.open()
        self.assertEqual(again(self.queries), want)
        over = self.open(override=True)
        self.assertEqual(len(over), 0)
        self.assertEqual(len(again), 0)

    def test_indexes_of_a_folder_share_a_service(self) -> None:
        one, two = self.open("one"), self.open("two")
        self.assertIs(one._connection.service, two._connection.service)
        one.add_documents(["a"], self.docs[:1])
        two.add_documents(["b", "c"], self.docs[1:3])
        process = one._connection.service.process
        one.close()
        self.assertEqual(len(two), 2)
        two.close()
        self.assertEqual(process.returncode, 0)
        self.open("one", threads=1)
        with self.assertRaisesRegex(ValueError, "threads is 2 here.*has threads 1"):
            self.open("two", threads=2)
        self.assertEqual(len(self.open("two")), 2)  # an option that is left out cannot differ

    def test_forgotten_indexes_end_their_service(self) -> None:
        index = Index(None)
        process, folder = index._connection.service.process, index._connection.service.folder
        del index
        gc.collect()
        self.assertIsNotNone(process.returncode)
        self.assertFalse(os.path.exists(folder))

    def test_whole_numbers_as_ids(self) -> None:
        index = self.open(id_type=int)
        index.add_documents(range(len(self.docs)), self.docs)
        hits = index([self.docs[7]], k=3, subset=np.array([[7, 8]]))[0]
        self.assertEqual(hits[0]["id"], 7)
        self.assertIs(type(hits[0]["id"]), int)
        index.remove_documents(np.int64(7))
        self.assertEqual(index([self.docs[7]], subset=[7]), [[]])
        with self.assertRaisesRegex(TypeError, "want a whole number"):
            index.add_documents(["7"], self.docs[:1])
        with self.assertRaisesRegex(TypeError, "want a whole number"):
            index.add_documents([True], self.docs[:1])
        with self.assertRaisesRegex(TypeError, r"id_type=int\) is for whole numbers"):
            self.open("other").add_documents([7], self.docs[:1])

    def test_from_embeddings(self) -> None:
        told: list[object] = []
        with Index.from_embeddings(self.docs, progress=lambda *x: told.append(x)) as index:
            self.assertEqual(index(self.docs[4], k=1)[0][0]["id"], 4)
        self.assertEqual(told, [(30, 30)])
        with Index.from_embeddings(
            self.docs, [f"d{i}" for i in range(30)], index_folder=self.folder, index_name="y", nbits=2
        ) as index:
            self.assertEqual(index(self.docs[4], k=1)[0][0]["id"], "d4")
            self.assertEqual(index.stats()["config"]["nbits"], 2)
        with self.assertRaisesRegex(ValueError, "documents already"):
            Index.from_embeddings(self.docs, index_folder=self.folder, index_name="y")
        with self.assertRaisesRegex(ValueError, "nbits 2, not 4"):
            Index(self.folder, "y", nbits=4)
        with Index.from_embeddings(
            self.docs[:3], [7, 8, 9], [{"a": 1}, {"a": 2}, {}], index_folder=self.folder, index_name="y", override=True
        ) as index:
            self.assertEqual(
                index(self.docs[1], k=1, metadata=True)[0],
                [{"id": 8, "score": index(self.docs[1])[0][0]["score"], "metadata": {"a": 2}}],
            )

    def test_odd_ids(self) -> None:
        index = self.open("a.b-c_D")
        ids = ["", "é/?&=+ %", "x" * 4000, "日本"]
        with self.assertRaises(RequestError):
            index.add_documents(ids, self.docs[:4])
        ids[0] = "0"
        index.add_documents(ids, self.docs[:4])
        self.assertEqual([len(m) for m in index.get_documents_embeddings(ids)], [len(d) for d in self.docs[:4]])
        self.assertEqual(sorted(h["id"] for h in index(self.queries)[0]), sorted(ids))
        for name in ("a/b", "", ".a", "a.", "x" * 129, "ä"):
            with self.assertRaisesRegex(ValueError, "index_name"):
                self.open(name)

    def test_what_is_refused_changes_nothing(self) -> None:
        index = self.open()
        index.add_documents(["a"], self.docs[:1])
        bad = self.docs[1].copy()
        bad[1, 3] = np.nan
        with self.assertRaises(RequestError) as e:
            index.add_documents(["b", "c"], [self.docs[2], bad])
        self.assertEqual(
            (e.exception.code, e.exception.status, e.exception.details),
            ("BAD_REQUEST", 400, {"document": 1, "token": 1}),
        )
        with self.assertRaisesRegex(
            RequestError, "^document 1: token 1.*1 of the documents of this call are stored, the last of them 'b'"
        ) as e:
            index.add_documents(["b", "c"], [self.docs[2], bad], batch_size=1)
        self.assertEqual(e.exception.details["document"], 1)
        self.assertEqual(len(index), 2)
        with self.assertRaises(RequestError) as e:
            index.add_documents(["d"], [np.ones((2, DIM + 1))])
        self.assertEqual(e.exception.code, "DIMENSION_MISMATCH")
        for want, ids, docs in (
            ("2 ids and 1 documents", ["b", "c"], self.docs[:1]),
            ("'b' is given twice", ["b", "b"], self.docs[:2]),
            ("document 1 has dimension 3", ["b", "c"], [self.docs[0], np.ones((2, 3))]),
            ("document 0 has one axis", ["b"], [np.ones(DIM)]),
            ("document 0 has 3 axes", ["b"], [np.ones((2, 2, DIM))]),
        ):
            with self.assertRaisesRegex(ValueError, want):
                index.add_documents(ids, docs)
        with self.assertRaisesRegex(TypeError, "not object"):
            index.add_documents(["b"], [np.array([[object()]])])
        with self.assertRaisesRegex(ValueError, "2 metadata"):
            index.add_documents(["b"], self.docs[:1], [{}, {}])
        with self.assertRaisesRegex(ValueError, "_id"):
            index.add_documents(["b"], self.docs[:1], [{"_id": "c"}])
        with self.assertRaisesRegex(ValueError, "k is 0"):
            index(self.queries, k=0)
        self.assertEqual(len(index), 2)

    def test_errors_count_queries_of_all_batches(self) -> None:
        index = self.open()
        index.add_documents(["a"], self.docs[:1])
        queries = [self.queries[0]] * 1500
        queries[1200] = np.full((2, DIM), np.nan, np.float32)
        with self.assertRaisesRegex(RequestError, "^query 1200: ") as e:
            index.search_batch(queries, k=1)
        self.assertEqual(e.exception.details["query"], 1200)

    def test_bad_options(self) -> None:
        for error, options in (
            (TypeError, {"id_type": float}),
            (ValueError, {"mode": "fast"}),
            (FileNotFoundError, {"binary": "/nowhere/plaid"}),
            (ServiceError, {"device": "abacus"}),
        ):
            with self.subTest(str(options)), self.assertRaises(error):
                self.open(**options)
        for error, want, options in (
            (ValueError, "index_folder", {"url": "http://localhost:1", "index_folder": self.folder}),
            (ValueError, "device", {"url": "http://localhost:1", "device": "cpu"}),
            (ValueError, "is not an address", {"url": "localhost:8080"}),
            (ValueError, "no path", {"url": "unix:"}),
            (ServiceError, "cannot be reached", {"url": "http://127.0.0.1:1"}),
            (ServiceError, "/nowhere/socket", {"url": "unix:/nowhere/socket"}),
        ):
            with self.subTest(str(options)), self.assertRaisesRegex(error, want):
                Index(**options)
        with self.assertRaises(TypeError):
            pickle.dumps(self.open())

    def test_padding_is_left_out(self) -> None:
        index = self.open()
        rng = np.random.default_rng(3)
        padded = np.zeros((2, 6, DIM), np.float32)
        padded[0, :6], padded[1, :2] = unit(rng, 6), unit(rng, 2)
        index.add_documents(["a", "b"], padded)
        self.assertEqual([len(m) for m in index.get_documents_embeddings(["a", "b"])], [6, 2])

    def test_files(self) -> None:
        index = self.open()
        index.add_documents(["a", "b", "c"], self.docs[:3], [{"n": 1}, {"n": 2}, {}])
        want = index(self.queries, metadata=True)
        file = os.path.join(self.folder, "saved.plaid")
        index.save(file)
        index.remove_documents(["a"])
        copy = self.open("copy").load(file)
        self.assertEqual(copy(self.queries, metadata=True), want)
        with self.assertRaises(RequestError) as e:
            copy.load(file)
        self.assertEqual(e.exception.code, "INDEX_ALREADY_EXISTS")
        copy.add_documents(["d"], self.docs[3:4])
        self.assertEqual(len(copy), 4)
        with self.assertRaisesRegex(ValueError, "has its own ids"):
            self.open("other").load(file, ["a"])
        before = os.listdir(self.folder)
        with self.assertRaises(RequestError):
            self.open("none").save(file)  # it has no documents
        self.assertEqual(os.listdir(self.folder), before)
        empty = self.open("empty")
        with self.assertRaises(RequestError):
            empty.load(__file__)
        with self.assertRaises(RequestError):
            empty.load(os.path.dirname(__file__))
        self.assertEqual(len(empty), 0)
