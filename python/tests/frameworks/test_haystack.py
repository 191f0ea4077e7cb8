"""Haystack's tests for document stores, and more, on the adapter to it."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from conftest import MODEL, TEXTS
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.errors import FilterError
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)
from haystack.utils import Secret

from plaid_ir import Index
from plaid_ir.haystack import PlaidDocumentStore, PlaidRetriever


class TestHaystack(
    DocumentStoreBaseExtendedTests,
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldUniqueValuesTest,
    CountDocumentsAsyncTest,
    WriteDocumentsAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    UpdateByFilterAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
):
    @pytest.fixture
    def document_store(self, folder: str) -> Iterator[PlaidDocumentStore]:  # type: ignore[override]
        store = PlaidDocumentStore(folder, "haystack", model=MODEL)
        store.delete_all_documents()
        yield store
        store.close()

    def test_write_documents(self, document_store: PlaidDocumentStore) -> None:  # type: ignore[override]
        document = Document(content="test doc", meta={"a.b": {"c": [1]}})
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        assert document_store.filter_documents() == [document]
        assert document_store.filter_documents({"field": "meta.a.b", "operator": "!=", "value": None}) == [document]
        assert document_store.filter_documents({"field": "id", "operator": "==", "value": document.id}) == [document]

    async def test_write_documents_async(self, document_store: PlaidDocumentStore) -> None:  # type: ignore[override]
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
        assert await document_store.filter_documents_async() == [document]

    def test_none_in_lists(self, document_store: PlaidDocumentStore) -> None:
        document_store.write_documents([Document(id=i, content="x", meta=m) for i, m in (("a", {"n": 1}), ("b", {"n": 2}), ("c", {}))])

        def found(op: str, *values: Any) -> list[str]:
            return [d.id for d in document_store.filter_documents({"field": "meta.n", "operator": op, "value": list(values)})]

        assert (found("in", 1, None), found("not in", 1, None), found("not in", 1)) == (["a", "c"], ["b"], ["b", "c"])

    def test_lists_and_nested_fields(self, document_store: PlaidDocumentStore) -> None:
        metas: dict[str, dict[str, Any]] = {
            "a": {"tags": ["x", "y"], "page": {"number": 3}},
            "b": {"tags": ["xy"], "page.number": 3},
            "c": {"tags": [], "authors": [{"name": "Ann"}, {"name": "Bo"}]},
            "d": {},
        }
        document_store.write_documents([Document(id=i, content="x", meta=m) for i, m in metas.items()])
        for field, op, value, want in (
            ("tags", "==", "x", "a"),
            ("tags", "==", ["x", "y"], "a"),
            ("tags", "!=", "x", "bcd"),
            ("tags", "in", ["y", "xy"], "ab"),
            ("tags", "not in", ["y", "xy"], "cd"),
            ("tags", "==", None, "d"),
            ("page.number", "==", 3, "ab"),
            ("page.number", ">", 2, "ab"),
            ("authors.name", "==", "Bo", "c"),
        ):  # fmt: skip
            found = document_store.filter_documents({"field": f"meta.{field}", "operator": op, "value": value})
            assert "".join(d.id for d in found) == want, (field, op, value)
        assert [d.meta for d in document_store.filter_documents()] == list(metas.values())

    def test_documents_that_are_stored_as_passages(self, document_store: PlaidDocumentStore) -> None:
        passages = [{"meta": {"n": 1}, "_passage": {"of": "page", "n": n, "start": n, "end": n + 1}} for n in range(3)]
        document_store.index.add_texts(TEXTS, [f"page#{n}" for n in range(3)], passages)
        (page,) = document_store.filter_documents({"field": "meta.n", "operator": "==", "value": 1})
        assert (page.id, page.meta) == ("page", {"n": 1})

    def test_updates_of_every_kind(self, document_store: PlaidDocumentStore) -> None:
        metas: dict[str, dict[str, Any]] = {"a": {"n": 1, "tags": ["x"]}, "b": {"n": 1, "tags": ["x"]}, "c": {"n": 1.0}, "d": {"n": "1"}, "e": {"n": 2}}
        document_store.write_documents([Document(id=i, content="x", meta=m) for i, m in metas.items()])
        ones = {"field": "meta.n", "operator": "==", "value": 1}
        assert document_store.update_by_filter(ones, {"tags": ["new"], "at": {"x": None}}) == 4
        now = [{**m, "tags": ["new"], "at": {"x": None}} if i != "e" else m for i, m in metas.items()]
        assert [repr(d.meta) for d in document_store.filter_documents()] == [repr(m) for m in now]
        assert document_store.count_unique_metadata_by_filter({}, ["n", "meta.tags", "nobody"]) == {"n": 4, "meta.tags": 1, "nobody": 0}
        assert document_store.get_metadata_field_unique_values("tags") == ([["new"]], 1)
        assert document_store.get_metadata_field_min_max("n") == {"min": None, "max": None}
        assert document_store.get_metadata_fields_info()["tags"] == {"type": "keyword"}
        with pytest.raises(FilterError, match="delete_all_documents"):
            document_store.delete_by_filter({})
        assert document_store.count_documents() == 5

    async def test_pipeline_async(self, document_store: PlaidDocumentStore) -> None:
        document_store.write_documents([Document(content=t) for t in TEXTS])
        pipeline = Pipeline()
        pipeline.add_component("retriever", PlaidRetriever(document_store, top_k=1))
        found = await pipeline.run_async({"retriever": {"query": TEXTS[1]}})
        assert found["retriever"]["documents"][0].content == TEXTS[1]

    def test_pipeline(self, document_store: PlaidDocumentStore) -> None:
        pipeline = Pipeline()
        pipeline.add_component("retriever", PlaidRetriever(document_store, top_k=1))
        assert pipeline.run({"retriever": {"query": "dogs"}})["retriever"]["documents"] == []
        document_store.write_documents([Document(content=t, meta={"n": i}) for i, t in enumerate(TEXTS)])
        text = pipeline.dumps()
        again = Pipeline.loads(text, allowed_modules=["plaid_ir.haystack"])
        assert again.dumps() == text
        (best,) = again.run({"retriever": {"query": "dogs bark at night"}})["retriever"]["documents"]
        assert best.content == TEXTS[1] and best.meta == {"n": 1} and best.score > 0
        (best,) = again.run({"retriever": {"query": "dogs", "filters": {"field": "meta.n", "operator": "==", "value": 2}}})["retriever"]["documents"]
        assert best.content == TEXTS[2]
        again.get_component("retriever").document_store.close()

    def test_secret(self) -> None:
        store = PlaidDocumentStore(url="http://localhost:1", token=Secret.from_env_var("PLAID_TOKEN"))
        assert PlaidDocumentStore.from_dict(store.to_dict()).to_dict() == store.to_dict()


def test_update_reaches_documents_stored_as_passages(folder: str) -> None:
    with Index(folder, "pages", model=MODEL) as index:
        texts = ["a b c d e f g h i j k l m n o p", "x y"]
        index.add_texts(texts, ["long", "short"], [{"meta": {"n": 1}}] * 2, text_field="content", window=8)
        assert index.stats()["passages"] == 2
        store = PlaidDocumentStore(folder, "pages", model=MODEL)
        assert store.update_by_filter({"field": "meta.n", "operator": "==", "value": 1}, {"tag": "t"}) == 2
        assert [d.meta for d in store.filter_documents()] == [{"n": 1, "tag": "t"}] * 2
        # No document has the text of one of its passages.
        assert [d.content for d in store.filter_documents()] == [None, "x y"]
        store.close()
