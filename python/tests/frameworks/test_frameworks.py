"""The standard tests of the frameworks, for the adapters to them."""

from __future__ import annotations

import asyncio
from typing import Any, Iterator

import pandas
import pyarrow
import pytest
from conftest import MODEL, TEXTS
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from langchain_core.documents import Document as LangchainDocument
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from plaid_ir import Index
from plaid_ir.evaluation import ranx_run, scored_docs
from plaid_ir.haystack import PlaidDocumentStore
from plaid_ir.langchain import PlaidRetriever, PlaidVectorStore
from plaid_ir.llama_index import PlaidRetriever as LlamaRetriever

class TestLangChainStore(VectorStoreIntegrationTests):
    @pytest.fixture()
    def vectorstore(self, index: Index) -> VectorStore:  # type: ignore[override]
        return PlaidVectorStore(index)


class TestLangChainRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _filled(self, filled: Index) -> None:
        self._index = filled

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return PlaidRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self._index}

    @property
    def retriever_query_example(self) -> str:
        return "when do dogs bark?"


def test_langchain_store_of_texts(folder: str) -> None:
    place: dict[str, Any] = {"index_folder": folder, "model": MODEL, "override": True}
    with PlaidVectorStore.from_texts(TEXTS, ids=["a", "b", "c"], index_name="made", window=4, overlap=1, **place).index as made:
        assert made.stats()["passages"] > 3 == len(made)
        store = PlaidVectorStore.from_texts(["x"], index=made, window=4)
        with pytest.raises(TypeError, match="index is already open: omit index_folder"):
            PlaidVectorStore.from_texts(["x"], index=made, index_folder=folder)
        with pytest.raises(TypeError, match="^row 1: .* is of type int; want a dictionary"):
            store.add_texts(["x", "y"], [{}, 1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="nonsense"):
        PlaidVectorStore.from_texts(TEXTS, index_name="other", nonsense=1, **place)


def test_langchain_filters(index: Index) -> None:
    store = PlaidVectorStore(index)
    assert store.similarity_search("cats", filter={"page": 1}) == []  # nothing is there yet
    pages = [LangchainDocument(t, id=str(i), metadata={"ptex.fullbanner": "TeX", "Page Number": i}) for i, t in enumerate(TEXTS)]
    store.add_documents(pages)
    assert [d.id for d in store.similarity_search("cats", filter={"ptex.fullbanner": "TeX", "Page Number": [1, 2]}, k=9)] in (["1", "2"], ["2", "1"])
    with pytest.raises(ValueError, match="unknown field .*nobody.has.*there are, nearest first"):
        store.similarity_search("cats", filter={"nobody.has": 1})
    with pytest.raises(TypeError, match="pass the condition as filter"):
        store.similarity_search("cats", where={"Page Number": 1})
    for none in ({}, None):
        vectors = index.encode(["cats"], is_query=True)[0].tolist()
        for found in (
            store.similarity_search("cats", k=9, filter=none),
            store.similarity_search_with_score("cats", k=9, filter=none),
            store.similarity_search_with_relevance_scores("cats", k=9, filter=none),
            store.similarity_search_by_vector(vectors, k=9, filter=none),
            store.max_marginal_relevance_search("cats", k=9, filter=none),
            store.max_marginal_relevance_search_by_vector(vectors, k=9, filter=none),
            store.as_retriever(search_kwargs={"k": 9, "filter": none}).invoke("cats"),
            store.as_retriever(search_type="mmr", search_kwargs={"k": 9, "filter": none}).invoke("cats"),
            PlaidRetriever(index=index, k=9, options={"where": none}).invoke("cats"),
            asyncio.run(store.asimilarity_search("cats", k=9, filter=none)),
        ):
            assert len(found) == 3
    over = {"$or": [{"Page Number": {"$gte": 2}}, {"Page Number": {"$nin": [1, 2]}}]}
    for found in (store.similarity_search("cats", k=9, filter=over), store.similarity_search_by_vector(vectors, 9, over)):
        assert {d.id for d in found} == {"0", "2"}
    with pytest.raises(ValueError, match="is not an operator; want"):
        store.similarity_search("cats", filter={"Page Number": {"$regex": 1}})
    found = store.similarity_search("dogs bark at night", k=1, filter='"Page Number" >= 1')
    assert found == [pages[1]]
    assert store.as_retriever(search_kwargs={"k": 1}).invoke("dogs bark at night") == [pages[1]]
    with pytest.raises(ValueError, match="page_content"):
        store.add_texts(["x"], [{"page_content": "y"}])
    for error, bad in ((ValueError, {"filter": {}}), (TypeError, {"where": "1=1"}), (TypeError, {"ids": ["1"], "filter": over})):
        with pytest.raises(error):
            store.delete(**bad)
    assert len(index) == 3
    assert store.delete(filter={"Page Number": {"$lt": 1}}) and len(index) == 2
    assert store.delete() and len(index) == 0
    assert len(PlaidVectorStore.from_texts(TEXTS, index=index).similarity_search("cats", k=9)) == 3
    store.add_texts(["a seal", "a whale"], [None, {"n": 1}], ids=["s", "w"])  # type: ignore[list-item]
    assert [d.metadata for d in store.get_by_ids(["s", "w"])] == [{}, {"n": 1}]


def test_columns_are_values_of_conditions(filled: Index) -> None:
    frame = pandas.DataFrame({"year": [2019, 2021], "name": ["TeX 1", "TeX 2"]})
    table = pyarrow.Table.from_pandas(frame)
    for columns in (frame, table):
        assert filled.ids({"year": columns["year"]}) == ["cat", "bird"]
        assert filled.ids({"ptex.fullbanner": {"$nin": columns["name"]}}) == ["cat"]
        assert filled.ids("year IN (?, ?)", columns["year"]) == ["cat", "bird"]
    assert filled.ids({"year": {"$in": frame["year"].unique()}}) == ["cat", "bird"]
    with pytest.raises(TypeError, match="key 'year'.* is a table; want one of its columns|want a value"):
        filled.ids({"year": frame})


def test_adapters_want_an_index(index: Index) -> None:
    import plaid_ir.dspy
    import plaid_ir.langchain
    import plaid_ir.llama_index

    stores: list[Any] = [plaid_ir.langchain.PlaidVectorStore, plaid_ir.llama_index.PlaidVectorStore]
    for make in (*stores, plaid_ir.llama_index.PlaidRetriever, plaid_ir.dspy.PlaidRetriever):
        for value in (None, "folder"):
            with pytest.raises(TypeError, match="index is .*; want an Index of plaid_ir"):
                make(value)
    with Index(None, id_type=int) as numbered:
        for store in stores:
            with pytest.raises(ValueError, match="are texts: want an index with id_type=str"):
                store(numbered)
    with pytest.raises(TypeError, match="texts is None; want a list of texts"):
        stores[0](index).add_texts(None)


def test_langchain_operators(index: Index) -> None:
    store = PlaidVectorStore(index)
    assert store.delete() and store.delete(filter={"year": 1}) and store.delete(["nobody"])  # nothing is there yet
    rows: list[dict[str, Any]] = [
        {"year": 2019, "tags": ["pet", "small"], "source": {"file": "A.md"}},
        {"year": 2020, "tags": ["pet"], "source.file": "b.md"},
        {"tags": "wild"},
    ]
    store.add_texts(TEXTS, rows, ids=["cat", "dog", "bird"])
    for given, want in (
        ({"year": {"$eq": 2019}}, "cat"),
        ({"year": {"$ne": 2019}}, "dog bird"),
        ({"year": {"$lt": 2020}}, "cat"),
        ({"year": {"$lte": 2020, "$gt": 2019}}, "dog"),
        ({"year": {"$gte": 2019}}, "cat dog"),
        ({"year": {"$in": [2019, 2021]}}, "cat"),
        ({"year": {"$nin": [2019, 2021]}}, "dog bird"),
        ({"year": {"$between": [2019, 2020]}}, "cat dog"),
        ({"year": {"$exists": False}}, "bird"),
        ({"source.file": {"$like": "%.md"}}, "cat dog"),
        ({"source.file": {"$ilike": "a%"}}, "cat"),
        ({"tags": "pet"}, "cat dog"),
        ({"tags": ["small", "wild"]}, "cat bird"),
        ({"tags": {"$contains": "pet"}}, "cat dog"),
        ({"tags": {"$all": ["pet", "small"]}}, "cat"),
        ({"$and": [{"tags": "pet"}, {"year": {"$gt": 2019}}]}, "dog"),
        ({"$or": [{"tags": "wild"}, {"year": 2019}]}, "cat bird"),
        ({"$not": {"tags": "pet"}}, "bird"),
        ({"$not": {"$or": [{"tags": "wild"}, {"year": {"$not": {"$lt": 2020}}}]}}, "cat"),
    ):  # fmt: skip
        found = store.similarity_search("cats", k=9, filter=given)
        assert {d.id for d in found} == set(want.split()), given
    assert store.delete(filter={"tags": ["small"]}) and len(index) == 2


def test_langchain_relevance(index: Index) -> None:
    store = PlaidVectorStore(index)
    assert store.max_marginal_relevance_search("cats", k=2) == []
    texts = ["cats sleep for most of the day", "cats sleep for most of the day.", "dogs bark at night"]
    store.add_texts(texts, [{"n": i} for i in range(3)], ids=["a", "b", "c"])
    plain = [d.id for d in store.similarity_search("when do cats sleep?", k=3)]
    assert plain[2] == "c"
    assert [d.id for d in store.max_marginal_relevance_search("when do cats sleep?", k=2, lambda_mult=0.2)] == [plain[0], "c"]
    assert [d.id for d in store.max_marginal_relevance_search("when do cats sleep?", k=3, lambda_mult=1)] == plain
    assert [d.id for d in store.max_marginal_relevance_search("when do cats sleep?", k=9, filter="n > 1")] == ["c"]
    for how in ({"hybrid": True}, {"hybrid": 0.5, "fusion": "rrf"}):  # whose scores have another scale
        assert {d.id for d in store.max_marginal_relevance_search("when do cats sleep?", k=2, lambda_mult=0.9, **how)} == {"a", "b"}
    scored = store.similarity_search_with_relevance_scores("when do cats sleep?", k=3)
    assert [d.id for d, _ in scored] == plain
    assert 1 >= scored[0][1] > scored[2][1] >= 0
    between = (scored[1][1] + scored[2][1]) / 2
    best = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": between, "k": 3})
    assert [d.id for d in best.invoke("when do cats sleep?")] == plain[:2]
    assert len(store.as_retriever(search_type="mmr", search_kwargs={"k": 2}).invoke("cats")) == 2
    with pytest.raises(ValueError, match="without keywords and hybrid"):
        store.similarity_search_with_relevance_scores("cats", hybrid=True)
    store.add_texts(["fish"], [{"n": None}], ids=["d"])
    assert {d.id for d in store.similarity_search("cats", k=9, filter={"n": [2, None]})} == {"c", "d"}


def test_llama_index(filled: Index) -> None:
    retriever = LlamaRetriever(filled, similarity_top_k=2, options={"where": "year >= 2020"})
    (first, second) = retriever.retrieve("dogs bark at night")
    assert (first.node.node_id, first.node.get_content(), first.node.metadata["year"]) == ("dog", TEXTS[1], 2020)
    assert first.score > second.score
    assert [n.node_id for n in asyncio.run(retriever.aretrieve("dogs bark at night"))] == [first.node_id, second.node_id]
    late = MetadataFilter(key="year", value=2020, operator=FilterOperator.GTE)
    ours = MetadataFilter(key="ptex.fullbanner", value="TeX 1")
    for filters, want in (
        (None, {"cat", "dog", "bird"}),
        (MetadataFilters(filters=[]), {"cat", "dog", "bird"}),
        (MetadataFilters(filters=[late]), {"dog", "bird"}),
        (MetadataFilters(filters=[late, ours]), {"dog"}),
        (MetadataFilters(filters=[ours, MetadataFilters(filters=[late], condition=FilterCondition.NOT)], condition=FilterCondition.OR), {"cat", "dog"}),
    ):
        assert {n.node_id for n in LlamaRetriever(filled, filters=filters).retrieve("dogs")} == want
    with pytest.raises(ValueError, match="pass only one of them"):
        LlamaRetriever(filled, filters=MetadataFilters(filters=[late]), options={"where": "year > 1"})


def test_every_operator_of_llama_index_is_known(filled: Index) -> None:
    assert len(FilterOperator) == 14
    for op in FilterOperator:
        value: Any = ["TeX 1"] if op in (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL) else "TeX 1"
        one = MetadataFilter(key="ptex.fullbanner", value=value, operator=op)
        lookup = {i: {"ptex.fullbanner": f"TeX {n}"} for n, i in enumerate(("cat", "dog", "bird"))}
        want = set(filter(build_metadata_filter_fn(lookup.__getitem__, MetadataFilters(filters=[one])), lookup))
        found = LlamaRetriever(filled, filters=MetadataFilters(filters=[one])).retrieve("dogs")
        assert {n.node_id for n in found} == want, op


@pytest.mark.filterwarnings("ignore:documents that were there")
def test_a_part_of_a_document(index: Index, folder: str) -> None:
    passages = [{"_passage": {"of": "page", "n": n, "start": n, "end": n + 1}} for n in range(3)]
    index.add_texts(TEXTS, [f"page#{n}" for n in range(3)], passages)
    store = PlaidVectorStore(index)
    found = store.get_by_ids(["page#1", "nobody"])
    assert [d.id for d in found] == ["page#1"]
    with pytest.raises(ValueError, match="document 'page' is stored as passages, and would lose"):
        store.add_documents(found)
    documents = PlaidDocumentStore(folder, "try", model=MODEL)
    for policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
        with pytest.raises(DuplicateDocumentError, match="'page' already exists"):
            documents.write_documents([Document("page", content="new")], policy)
    assert documents.write_documents([Document("page", content="new")], DuplicatePolicy.SKIP) == 0
    documents.close()
    assert index.stats()["passages"] == 3


def test_measures(filled: Index) -> None:
    import ir_measures
    import ranx

    results = filled.search_batch(["dogs bark at night", "birds sing in the morning"], k=3)
    queries, relevant = ["q1", "q2"], {"q1": {"dog": 1}, "q2": {"bird": 1}}
    assert ranx.evaluate(ranx.Qrels(relevant), ranx_run(queries, results), "mrr") == 1
    qrels = [ir_measures.Qrel(q, d, r) for q, docs in relevant.items() for d, r in docs.items()]
    assert ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, scored_docs(queries, results)) == {ir_measures.nDCG @ 10: 1}
    with pytest.raises(ValueError, match="1 query ids"):
        scored_docs(["q1"], results)
