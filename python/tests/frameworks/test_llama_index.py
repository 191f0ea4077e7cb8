"""What LlamaIndex's own stores are tested for, on the adapter to it."""

from __future__ import annotations

import asyncio
from typing import Any, Iterator

import pytest
from conftest import MODEL, TEXTS
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, ImageNode, IndexNode, MediaResource, Node, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from plaid_ir import Index
from plaid_ir.llama_index import PlaidRetriever, PlaidVectorStore

MODE = VectorStoreQueryMode


def source(id: str) -> dict[NodeRelationship, Any]:
    return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=id)}


NODES: list[BaseNode] = [
    TextNode(id_="cat", text=TEXTS[0], metadata={"year": 2019, "tags": ["pet", "small"], "ptex.fullbanner": "TeX"}, relationships=source("animals"), embedding=[0.5]),
    TextNode(id_="dog", text=TEXTS[1], metadata={"year": 2020, "tags": ["pet"], "author": {"name": "Ann"}}, relationships=source("animals"), start_char_idx=3, end_char_idx=9),
    TextNode(id_="bird", text=TEXTS[2], metadata={"year": 2021, "tags": ["wild"]}, relationships=source("others"), excluded_embed_metadata_keys=["year", "tags"]),
    TextNode(id_="alone", text="snails are slow", metadata={"doc_id": "mine"}),
]


@pytest.fixture()
def store(folder: str) -> Iterator[PlaidVectorStore]:
    with Index(folder, "llama", override=True, model=MODEL) as index:
        yield PlaidVectorStore(index)


@pytest.fixture()
def filled(store: PlaidVectorStore) -> PlaidVectorStore:
    assert store.add(NODES) == ["cat", "dog", "bird", "alone"]
    return store


def one(key: str, value: Any, op: FilterOperator = FilterOperator.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=op)


def filters(*some: Any, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(some), condition=condition)


def asked(text: str = "who barks?", k: int = 9, **options: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_str=text, similarity_top_k=k, **options)


def plain(node: BaseNode) -> BaseNode:
    """A node without its embedding, which the store does not keep."""
    copy = node.model_copy()
    copy.embedding = None
    return copy


def test_nodes_come_back_whole(filled: PlaidVectorStore) -> None:
    assert filled.client.get("cat")[0]["year"] == 2019 and filled.client.get("cat")[0]["text"] == TEXTS[0]
    assert filled.get_nodes() == [plain(n) for n in NODES]
    found = filled.query(asked(TEXTS[1], 1))
    assert found.nodes == [plain(NODES[1])] and found.ids == ["dog"] and found.similarities is not None and found.similarities[0] > 0
    assert (found.nodes[0].ref_doc_id, found.nodes[0].start_char_idx) == ("animals", 3)
    kinds: list[BaseNode] = [
        Node(id_="node", text_resource=MediaResource(text="a node of any kind"), metadata={"n": 1}),
        IndexNode(id_="index", text="an index", index_id="elsewhere"),
        ImageNode(id_="image", text="a picture", image_url="cat.png"),
        Document(id_="document", text="a document", metadata={"n": 2}),
    ]
    filled.add(kinds)
    assert filled.get_nodes([n.node_id for n in kinds]) == kinds
    assert [type(n) for n in filled.get_nodes(["document", "index"])] == [Document, IndexNode]


def test_what_is_encoded(filled: PlaidVectorStore) -> None:
    index = filled.client
    for node in NODES:
        (kept,) = index.get_documents_embeddings([node.node_id])
        (want,) = index.encode([node.get_content("embed")])  # type: ignore[arg-type]
        assert len(kept) == len(want)
    assert NODES[2].get_content("embed") == TEXTS[2] != NODES[1].get_content("embed")  # type: ignore[arg-type]


def test_ids_and_filters(filled: PlaidVectorStore) -> None:
    pets = filters(one("tags", "pet"))
    for options, want in (
        ({}, "cat dog bird alone"),
        ({"filters": filters()}, "cat dog bird alone"),
        ({"filters": pets}, "cat dog"),
        ({"filters": filters(one("tags", ["pet"], FilterOperator.IN), one("year", 2019, FilterOperator.GT))}, "dog"),
        ({"filters": filters(one("tags", "pet", FilterOperator.CONTAINS))}, "cat dog"),
        ({"filters": filters(one("tags", ["wild", "small"], FilterOperator.ANY))}, "cat bird"),
        ({"filters": filters(one("tags", ["pet", "small"], FilterOperator.ALL))}, "cat"),
        ({"filters": filters(one("tags", None, FilterOperator.IS_EMPTY))}, "alone"),
        ({"filters": filters(one("tags", "pet", FilterOperator.NE))}, "bird alone"),
        ({"filters": filters(one("author.name", "Ann"))}, "dog"),
        ({"filters": filters(one("ptex.fullbanner", "TeX"))}, "cat"),
        ({"filters": filters(one("doc_id", "mine"))}, "alone"),
        ({"filters": filters(one("ref_doc_id", "animals"))}, "cat dog"),
        ({"filters": filters(pets, filters(one("year", 2021)), condition=FilterCondition.OR)}, "cat dog bird"),
        ({"filters": filters(one("year", 2019), condition=FilterCondition.NOT)}, "dog bird alone"),
        ({"node_ids": ["bird", "nobody", "cat"]}, "cat bird"),
        ({"node_ids": ["bird", "cat"], "filters": pets}, "cat"),
    ):  # fmt: skip
        found = filled.query(asked(**options)).ids
        assert found is not None and sorted(found) == sorted(want.split()), options
        assert {n.node_id for n in filled.get_nodes(**options)} == set(want.split())
    for options, want in (
        ({"doc_ids": ["others"]}, "bird"),
        ({"doc_ids": ["others", "animals"], "filters": filters(one("year", 2020, FilterOperator.LTE))}, "cat dog"),
        ({"doc_ids": ["nobody"]}, ""),
        ({"node_ids": [], "doc_ids": []}, "cat dog bird alone"),  # as VectorStoreIndex gives them
    ):  # fmt: skip
        found = filled.query(asked(**options)).ids
        assert found is not None and sorted(found) == sorted(want.split()), options
    assert filled.get_nodes(["bird", "cat"])[0].node_id == "bird" and filled.get_nodes([]) == []
    with pytest.raises(ValueError, match="unknown field .*yeer.*year"):
        filled.query(asked(filters=filters(one("yeer", 1))))


def test_operators_over_lists_are_those_of_llama_index(store: PlaidVectorStore) -> None:
    """Equality, `in` and order of a list are not: here an element is enough."""
    lists: dict[str, Any] = {"a": ["x", "y"], "b": ["xy"], "c": [], "d": None, "e": ["", "[x]"], "f": "y and x", "g": "", "h": ["it's", 'say "x"']}
    store.add([TextNode(id_=i, text="t", metadata={"tags": v}) for i, v in lists.items()])
    for op, values in (
        (FilterOperator.CONTAINS, ["x", "y", "xy", "", "[x]", "it's", 'say "x"', "nobody"]),
        (FilterOperator.ANY, [["x", "xy"], [], ["nobody"], ["y", "it's"]]),
        (FilterOperator.ALL, [["x", "y"], [], ["x", "nobody"]]),
        (FilterOperator.IS_EMPTY, [None]),
    ):
        for value in values:
            given = filters(one("tags", value, op))
            want = set(filter(build_metadata_filter_fn(lambda i: {"tags": lists[i]}, given), lists))
            if op == FilterOperator.ALL and value == []:
                want.add("d")  # all of none, as of a field that is there
            assert {n.node_id for n in store.get_nodes(filters=given)} == want, (op, value)


def test_modes(filled: PlaidVectorStore) -> None:
    words = "bark morning"
    for mode in (MODE.SPARSE, MODE.TEXT_SEARCH):
        assert set(filled.query(asked(words, mode=mode)).ids or ()) == {"dog", "bird"}
    assert len(filled.query(asked(words, mode=MODE.SPARSE, sparse_top_k=1)).ids or ()) == 1
    assert len(filled.query(asked(words, mode=MODE.HYBRID, hybrid_top_k=2)).ids or ()) == 2
    by_words, by_vectors = asked(words, mode=MODE.SPARSE), asked(words)
    for alpha, same in ((0.0, by_words), (1.0, by_vectors)):
        found = filled.query(asked(words, 2, mode=MODE.HYBRID, alpha=alpha)).ids
        assert found == (filled.query(same).ids or [])[:2]
    assert filled.query(asked(words, 1, mode=MODE.HYBRID), feedback=1).ids
    with pytest.raises(ValueError, match="unknown mode 'mmr'; want default"):
        filled.query(asked(mode=MODE.MMR))
    with pytest.raises(ValueError, match="has no text"):
        filled.query(VectorStoreQuery(query_embedding=[0.5]))


def test_deletes(filled: PlaidVectorStore) -> None:
    filled.delete("nobody")
    filled.delete("animals")
    assert [n.node_id for n in filled.get_nodes()] == ["bird", "alone"]
    filled.add(NODES)
    assert len(filled.get_nodes()) == 4  # those that are there are replaced
    filled.delete_nodes(["dog", "nobody"])
    filled.delete_nodes(["cat", "bird"], filters(one("year", 2019)))
    assert {n.node_id for n in filled.get_nodes()} == {"bird", "alone"}
    filled.delete_nodes(filters=filters(one("tags", "wild")))
    for nothing in ({}, {"filters": filters()}):
        with pytest.raises(ValueError, match="needs ids or filters; use clear"):
            filled.delete_nodes(**nothing)
    assert [n.node_id for n in filled.get_nodes()] == ["alone"]
    filled.clear()
    assert filled.get_nodes() == [] and filled.query(asked()).ids == []


def test_an_empty_store(store: PlaidVectorStore) -> None:
    assert store.add([]) == [] and store.get_nodes() == [] and store.get_nodes(["a"]) == []
    assert store.query(asked(filters=filters(one("year", 1)))).nodes == []
    store.delete("nobody")
    store.delete_nodes(["nobody"])
    store.clear()
    for key in ("text", "_node"):
        with pytest.raises(ValueError, match=f"metadata of node 'x' has the key {key}"):
            store.add([TextNode(id_="x", text="x", metadata={key: 1})])
    with Index(None, id_type=int) as numbers, pytest.raises(ValueError, match="ids of LlamaIndex are texts"):
        PlaidVectorStore(numbers)


async def test_async(store: PlaidVectorStore) -> None:
    assert await store.async_add(NODES) == ["cat", "dog", "bird", "alone"]
    assert (await store.aquery(asked(TEXTS[1], 1))).ids == ["dog"]
    assert await store.aget_nodes(["cat"]) == [plain(NODES[0])]
    await store.adelete("others")
    await store.adelete_nodes(["alone"])
    assert {n.node_id for n in await store.aget_nodes()} == {"cat", "dog"}
    await store.aclear()
    assert store.get_nodes() == []


def test_vector_store_index(store: PlaidVectorStore, tmp_path: Any) -> None:
    mock = MockEmbedding(embed_dim=1)
    documents = [Document(id_=f"d{i}", text=t, metadata={"n": i}) for i, t in enumerate(TEXTS)]
    context = StorageContext.from_defaults(vector_store=store)
    made = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=mock)
    context.persist(str(tmp_path))
    (best,) = made.as_retriever(similarity_top_k=1).retrieve(TEXTS[1])
    assert (best.text, best.node.ref_doc_id) == (TEXTS[1], "d1")
    again = VectorStoreIndex.from_vector_store(store, embed_model=mock)
    later = again.as_retriever(similarity_top_k=9, filters=filters(one("n", 1, FilterOperator.GTE)))
    assert {n.node.ref_doc_id for n in later.retrieve("cats")} == {"d1", "d2"}
    assert {n.node.ref_doc_id for n in asyncio.run(later.aretrieve("cats"))} == {"d1", "d2"}
    assert again.as_retriever(doc_ids=["d2"]).retrieve("cats")[0].node.ref_doc_id == "d2"
    hybrid = again.as_retriever(vector_store_query_mode="hybrid", alpha=0.5, similarity_top_k=1)
    assert hybrid.retrieve("bark")[0].node.ref_doc_id == "d1"
    again.insert(Document(id_="d3", text="snails are slow"))
    again.update_ref_doc(Document(id_="d0", text="cats purr", metadata={"n": 0}))
    assert {n.get_content() for n in store.get_nodes()} == {"cats purr", *TEXTS[1:], "snails are slow"}
    again.delete_ref_doc("d3")
    assert len(store.get_nodes()) == 3
    pipeline = IngestionPipeline(transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0), mock], vector_store=store)
    pipeline.run(documents=[Document(id_="long", text="Seals sleep on land. " * 40)])
    parts = store.get_nodes(filters=filters(one("ref_doc_id", "long")))
    assert len(parts) > 2 and parts[1].prev_node is not None and parts[1].prev_node.node_id == parts[0].node_id


def test_a_retriever_reads_what_a_store_has_written(filled: PlaidVectorStore) -> None:
    (found,) = PlaidRetriever(filled.client, similarity_top_k=1).retrieve(TEXTS[1])
    made_of = PlaidRetriever(filled.client, filters=filters(one("ref_doc_id", "others"))).retrieve("cats")
    assert [n.node.node_id for n in made_of] == ["bird"]
    with pytest.raises(ValueError, match="pass only one of them"):
        filled.query(asked(filters=filters(one("year", 2019))), where="year = 2020")
    assert found.node == plain(NODES[1])


def test_passages_are_nodes_of_their_document(folder: str) -> None:
    with Index(folder, "passages", override=True, model=MODEL) as index:
        passages = [{"_passage": {"of": "page", "n": n, "start": n, "end": n + 1}} for n in range(3)]
        index.add_texts(TEXTS, [f"page#{n}" for n in range(3)], passages)
        found = PlaidRetriever(index).retrieve("cats")
        assert {(n.node_id, n.node.ref_doc_id) for n in found} == {(f"page#{n}", "page") for n in range(3)}
        store = PlaidVectorStore(index)
        assert [n.node_id for n in store.get_nodes()] == ["page"]
        assert [n.node_id for n in store.get_nodes(["page", "page#1", "page#7"])] == ["page", "page#1"]
