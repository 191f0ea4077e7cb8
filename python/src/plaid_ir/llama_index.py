"""LlamaIndex: a retriever over an `Index`; ``pip install "./python[llama-index]"`` in a clone."""

from __future__ import annotations

from typing import Any, Mapping

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from ._conditions import of_llama_index
from ._errors import EmptyIndexError
from ._index import Index


class PlaidRetriever(BaseRetriever):
    """The best documents of an index as nodes.

    Parameters
    ----------
    index
        An index with a model, which encodes the questions.
    similarity_top_k
        The number of nodes.
    text_field
        The key of the metadata that has the text.
    options
        Keywords of `Index.search`, such as ``{"where": "year >= 2000", "hybrid": True}``.
    filters
        Filters of LlamaIndex, in place of ``where``.
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
        self.index = index
        self.similarity_top_k = similarity_top_k
        self.text_field = text_field
        self.options = dict(options or {})
        chosen = of_llama_index(filters)
        if chosen is not None:
            if self.options.get("where"):
                raise ValueError("there are filters and a condition (where): want one of the two")
            self.options["where"], self.options["parameters"] = chosen
        super().__init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            hits = self.index.search(query_bundle.query_str, self.similarity_top_k, metadata=True, **self.options)
        except EmptyIndexError:
            return []
        nodes: list[NodeWithScore] = []
        for hit in hits:
            rest = dict(hit.get("metadata", {}))
            text = str(rest.pop(self.text_field, ""))
            nodes.append(NodeWithScore(node=TextNode(id_=str(hit["id"]), text=text, metadata=rest), score=hit["score"]))
        return nodes

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        import asyncio

        return await asyncio.to_thread(self._retrieve, query_bundle)
