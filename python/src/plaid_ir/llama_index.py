"""LlamaIndex: a vector store and a retriever over an `Index`; ``pip install "./python[llama-index]"`` in a clone."""

from __future__ import annotations

import asyncio
from typing import Any, Mapping, Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from ._checks import unexpected_value
from ._conditions import from_llama_index, quote_key
from ._documents import fetch_metadata
from ._index import Index, check_index, search_for_framework, to_coroutine
from ._metadata import without_service_keys, parent_document

#: The key of the metadata that stores a node, without its text and its metadata.
NODE = "_node"
#: The document from which a node was created, as conditions name it.
_REF_DOC_ID = f'"{NODE}"."ref_doc_id"'
#: Fields of a node that the index stores elsewhere, or not at all.
_ELSEWHERE = {"id_", "metadata", "text", "text_resource", "embedding"}
_CLASSES: dict[str, type[BaseNode]] = {c.class_name(): c for c in (TextNode, Node, IndexNode, ImageNode, Document)}


def _to_row(node: BaseNode, text_field: str) -> dict[str, Any]:
    """Converts a node to metadata. It always has a key for the document, so that conditions can use it."""
    for key in (text_field, NODE):
        if key in node.metadata:
            raise ValueError(
                f"metadata of node {node.node_id!r} has the key {key}, which is reserved for the node itself"
            )
    fields = node.model_dump(mode="json", exclude=_ELSEWHERE, exclude_defaults=True)
    stored = {"ref_doc_id": node.ref_doc_id, **{k: v for k, v in fields.items() if k != "class_name"}}
    if node.class_name() != TextNode.class_name():
        stored["class"] = node.class_name()
    return {**node.metadata, text_field: node.get_content(MetadataMode.NONE), NODE: stored}


def _to_node(id: Any, metadata: Mapping[str, Any], text_field: str) -> BaseNode:
    """Converts a document to a node, even if it was not stored as one. The source of a passage is its document."""
    user_metadata = dict(metadata)
    stored: dict[str, Any] = dict(user_metadata.pop(NODE, None) or {})
    text = str(user_metadata.pop(text_field, None) or "")
    stored.pop("ref_doc_id", None)
    node_class = _CLASSES.get(stored.pop("class", ""), TextNode)
    node = node_class.from_dict({**stored, "id_": str(id), "metadata": user_metadata})
    node.set_content(text)
    document = parent_document(metadata)
    if document is not None and NodeRelationship.SOURCE not in node.relationships:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return node


def _quote_key(key: str) -> str:
    return _REF_DOC_ID if key == "ref_doc_id" else quote_key(key)


class PlaidVectorStore(BasePydanticVectorStore):
    """A vector store of LlamaIndex that stores nodes in an index.

    The model of the index encodes the text of a node with the metadata that LlamaIndex adds for embeddings, except
    ``excluded_embed_metadata_keys``. Embeddings of nodes have only one vector, and are not used: pass
    ``MockEmbedding(embed_dim=1)`` to `VectorStoreIndex`. In filters, ``ref_doc_id`` is the document from which a node
    was created.

    Parameters
    ----------
    index
        An index with a model: ``Index("folder", model="DIR")``, or ``Index(url=...)``.
    text_field
        The key of the index's metadata that stores the text.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    text_field: str = "text"
    _index: Index = PrivateAttr()

    def __init__(self, index: Index, text_field: str = "text") -> None:
        super().__init__(stores_text=True, is_embedding_query=False)
        self.text_field = text_field
        self._index = check_index(index, "LlamaIndex")

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class."""
        return "PlaidVectorStore"

    @property
    def client(self) -> Index:
        """The index."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Stores nodes and returns their ids. A node with the id of a stored one replaces it.

        ``kwargs`` are those of `Index.add_texts`.
        """
        for i, node in enumerate(nodes):
            if not isinstance(node, BaseNode):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise unexpected_value(f"nodes, item {i},", node, "a node of LlamaIndex")
        if not nodes:
            return []
        ids = [n.node_id for n in nodes]
        texts = [n.get_content(MetadataMode.EMBED) for n in nodes]
        self._index.add_texts(texts, ids, [_to_row(n, self.text_field) for n in nodes], text_field="", **kwargs)
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes that were created from a document."""
        self._index.delete(where=f"{_REF_DOC_ID} = ?", parameters=[ref_doc_id])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Deletes nodes by id, by filters, or by both. Unknown ids are ignored."""
        condition = from_llama_index(filters, _quote_key)
        if node_ids is not None:
            self._index.delete(self._select_ids(node_ids, condition))
        elif condition is not None:
            self._index.delete(where=condition[0], parameters=condition[1])
        else:
            raise ValueError("delete_nodes() needs ids or filters; use clear() to delete all nodes")

    def clear(self) -> None:
        """Deletes all nodes."""
        self._index.delete(where="1=1")

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Returns nodes by id, by filters, or by both; without arguments, all nodes. Unknown ids are ignored.

        With ids, the nodes are in the order of the ids; otherwise, in the order in which they were added.
        """
        ids = self._select_ids(node_ids, from_llama_index(filters, _quote_key))
        found = fetch_metadata(self._index._connection, list(dict.fromkeys(ids)))
        rows: dict[str, Mapping[str, Any]] = {row["_id"]: without_service_keys(row) for row in found}
        for i in ids:
            if i not in rows and i in self._index:  # a document that is stored as passages
                (rows[i],) = self._index.get(i)
        return [_to_node(i, rows[i], self.text_field) for i in ids if i in rows]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Returns the best nodes for a question, which must be a text.

        Mode ``default`` ranks by vectors; ``sparse`` and ``text_search``, by keywords; ``hybrid``, by both, with
        ``alpha`` as the weight of the vectors (default 0.75). ``kwargs`` are those of `Index.search`, such as
        ``feedback``.
        """
        if not query.query_str:
            raise ValueError("the query has no text (query_str) for the model of the index to encode")
        k, options = _search_options(query)
        condition = from_llama_index(query.filters, _quote_key)
        if query.doc_ids:
            text, values = f"{_REF_DOC_ID} IN ({', '.join('?' * len(query.doc_ids))})", [*query.doc_ids]
            if condition is not None:
                text, values = f"{text} AND ({condition[0]})", values + condition[1]
            condition = (text, values)
        if condition is not None:
            if kwargs.get("where"):
                raise ValueError("the query has filters and a condition (where): pass only one of them")
            options["where"], options["parameters"] = condition
        if query.node_ids:
            options["subset"] = query.node_ids
        found = search_for_framework(self._index, query.query_str, k, {**options, **kwargs})
        nodes = [_to_node(hit["id"], hit.get("metadata", {}), self.text_field) for hit in found]
        return VectorStoreQueryResult(nodes, [hit["score"] for hit in found], [n.node_id for n in nodes])

    async_add = to_coroutine(add, "async_{}")
    adelete = to_coroutine(delete)
    adelete_nodes = to_coroutine(delete_nodes)
    aclear = to_coroutine(clear)
    aget_nodes = to_coroutine(get_nodes)
    aquery = to_coroutine(query)

    def _select_ids(self, node_ids: Sequence[str] | None, chosen: tuple[str, list[Any]] | None) -> list[str]:
        """Returns the ids, of ``node_ids`` or of all nodes, that meet a condition."""
        if node_ids is not None and chosen is None:
            return list(node_ids)
        where, values = chosen or (None, [])
        passing: list[str] = self._index.ids(where, values)
        if node_ids is None:
            return passing
        passing_set = set(passing)
        return [i for i in node_ids if i in passing_set]


def _search_options(query: VectorStoreQuery) -> tuple[int, dict[str, Any]]:
    """Returns the number of nodes, and the keywords for `Index.search`."""
    k, mode = query.similarity_top_k, VectorStoreQueryMode(query.mode)
    if mode == VectorStoreQueryMode.DEFAULT:
        return k, {}
    if mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
        return query.sparse_top_k or k, {"keywords": True}
    if mode == VectorStoreQueryMode.HYBRID:
        return query.hybrid_top_k or k, {"hybrid": True if query.alpha is None else float(query.alpha)}
    raise ValueError(f"unknown mode {mode.value!r}; want default, sparse, text_search or hybrid")


class PlaidRetriever(BaseRetriever):
    """A retriever of LlamaIndex that returns the best documents of any index as nodes.

    Parameters
    ----------
    index
        An index with a model, which encodes the questions.
    similarity_top_k
        The number of nodes.
    text_field
        The key of the metadata that stores the text.
    options
        Keywords of `Index.search`, such as ``{"where": "year >= 2000", "hybrid": True}``.
    filters
        Filters of LlamaIndex, instead of ``where``.
    """

    def __init__(
        self,
        index: Index,
        similarity_top_k: int = 10,
        text_field: str = "text",
        options: Mapping[str, Any] | None = None,
        filters: MetadataFilters | None = None,
        **kwargs: Any,
    ) -> None:
        self.index = check_index(index)
        self.similarity_top_k = similarity_top_k
        self.text_field = text_field
        self.options = dict(options or {})
        chosen = from_llama_index(filters, _quote_key)
        if chosen is not None:
            if self.options.get("where"):
                raise ValueError("the query has filters and a condition (where): pass only one of them")
            self.options["where"], self.options["parameters"] = chosen
        super().__init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = search_for_framework(self.index, query_bundle.query_str, self.similarity_top_k, self.options)
        return [
            NodeWithScore(node=_to_node(hit["id"], hit.get("metadata", {}), self.text_field), score=hit["score"])
            for hit in found
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
