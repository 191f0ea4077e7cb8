"""LangChain: a vector store and a retriever over an `Index`; ``pip install "./python[langchain]"`` in a clone."""

from __future__ import annotations

import inspect
import uuid
from typing import Any, Iterable, Mapping, Sequence

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict

from ._checks import check_iterable
from ._conditions import Where
from ._index import Index, check_index, search_for_framework
from ._metadata import is_missing
from ._tables import to_items, to_rows

#: The key of the metadata that stores the text of a document.
TEXT = "page_content"
#: The keywords that `PlaidVectorStore.from_texts` passes to `Index.add_texts`.
_ADD_OPTIONS = frozenset(inspect.signature(Index.add_texts).parameters) - {"self", "texts", "ids", "metadata"}


def _to_document(id: Any, metadata: Mapping[str, Any]) -> Document:
    rest = {k: v for k, v in metadata.items() if k != TEXT}
    return Document(page_content=str(metadata.get(TEXT, "")), metadata=rest, id=str(id))


def _search_documents(index: Index, query: Any, k: int, options: Mapping[str, Any]) -> list[tuple[Document, float]]:
    hits = search_for_framework(index, query, k, options)
    return [(_to_document(hit["id"], hit.get("metadata", {})), hit["score"]) for hit in hits]


def _to_matrix(embedding: Any) -> Any:
    vectors = np.asarray(embedding, dtype=np.float32)
    return vectors[None] if vectors.ndim == 1 else vectors


class PlaidVectorStore(VectorStore):
    """A vector store of LangChain that stores documents in an index.

    The model of the index encodes the texts. LangChain's ``Embeddings`` have one vector for a text, and are not used.
    The ``filter`` of a search is a condition, or a dictionary with operators such as ``$gte`` (``where`` of
    `Index.search`). Other keywords are passed to `Index.search`.

    Parameters
    ----------
    index
        An index with a model: ``Index("folder", model="DIR")``, or ``Index(url=...)``.
    """

    def __init__(self, index: Index) -> None:
        self.index = check_index(index, "LangChain")

    @property
    def embeddings(self) -> Embeddings | None:
        """None, since the index has its own model."""
        return None

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Stores texts and returns their ids. A text with the id of a stored one replaces it."""
        texts = list(check_iterable(to_items(texts, "texts"), "texts", "texts"))
        if ids is not None and len(ids) != len(texts):
            raise ValueError(f"there are {len(texts)} texts and {len(ids)} ids: want one for each")
        names = [i or str(uuid.uuid4()) for i in ([None] * len(texts) if ids is None else to_items(ids, "ids"))]
        rows: list[Any] = [{} for _ in texts]
        if metadatas is not None:
            rows = [{} if is_missing(m) else m for m in to_rows(metadatas)]
        for i, row in enumerate(rows):
            if isinstance(row, Mapping) and TEXT in row:
                raise ValueError(f"metadata of text {i} has the key {TEXT}, which is reserved for the text")
        if texts:
            self.index.add_texts(texts, names, rows, text_field=TEXT, **kwargs)
        return list(map(str, names))

    def delete(self, ids: list[str] | None = None, *, filter: Where | None = None, **kwargs: Any) -> bool | None:
        """Deletes documents by id, or those that pass a filter. Without arguments, deletes all documents."""
        if kwargs:
            raise TypeError(f"delete() takes ids or a filter, not {', '.join(kwargs)}")
        if filter is not None and not filter:
            raise ValueError("the filter is empty: call delete() without arguments to delete all documents")
        everything = "1=1" if ids is None and filter is None else None
        self.index.delete(ids, where=filter or everything)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Returns documents by id, in the order of the ids. Unknown ids are ignored."""
        names = [i for i in ids if i in self.index]  # some may be passages, or stored as passages
        return [_to_document(i, m) for i, m in zip(names, self.index.get(names))] if names else []

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Where | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Returns the k best documents with their MaxSim scores, best first."""
        return self._search(query, k, filter, kwargs)

    def _search(
        self, query: Any, k: int, filter: Where | None, options: Mapping[str, Any]
    ) -> list[tuple[Document, float]]:
        if "where" in options:
            raise TypeError("where is not accepted here: pass the condition as filter")
        return _search_documents(self.index, query, k, {**options, "where": filter})

    def similarity_search(self, query: str, k: int = 4, filter: Where | None = None, **kwargs: Any) -> list[Document]:
        """Returns the k best documents, best first."""
        return [d for d, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_by_vector(
        self, embedding: Any, k: int = 4, filter: Where | None = None, **kwargs: Any
    ) -> list[Document]:
        """Returns the k best documents for the vectors of a question, [tokens, dim], or for one vector."""
        return [d for d, _ in self._search(_to_matrix(embedding), k, filter, kwargs)]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        # MaxSim is a sum over the tokens of the query, each at most 1.
        if kwargs.get("keywords") or kwargs.get("hybrid") not in (None, False):
            raise ValueError("relevance scores need a search by vectors alone, without keywords and hybrid")
        tokens = len(self.index.encode([query], is_query=True)[0])
        found = self.similarity_search_with_score(query, k, **kwargs)
        return [(d, min(max(score / tokens, 0.0), 1.0)) for d, score in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Where | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Selects, from the ``fetch_k`` best documents, k that are similar to the query and unlike each other.

        The similarity to the query is MaxSim divided by the number of tokens. The similarity of two documents is the
        mean of both directions. ``keywords`` and ``hybrid`` affect only the search for the ``fetch_k`` documents.
        ``lambda_mult`` is the weight of the query, 0 to 1.
        """
        found = self.similarity_search(query, fetch_k, filter, **kwargs)
        query_vectors = self.index.encode([query], is_query=True)[0]
        return self._select_diverse(found, query_vectors, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Any,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Where | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Does the same as `max_marginal_relevance_search` for vectors [tokens, dim], or for one vector."""
        query_vectors = _to_matrix(embedding)
        found = [d for d, _ in self._search(query_vectors, fetch_k, filter, kwargs)]
        return self._select_diverse(found, query_vectors, k, lambda_mult)

    def _select_diverse(self, found: list[Document], query_vectors: Any, k: int, lambda_mult: float) -> list[Document]:
        vectors = self.index.get_documents_embeddings([str(d.id) for d in found]) if found else []
        vectors = [m if len(m) else np.zeros((1, query_vectors.shape[1]), np.float32) for m in vectors]
        to_query = [float((query_vectors @ m.T).max(axis=1).mean()) for m in vectors]
        chosen: list[int] = []
        to_chosen = [-1.0] * len(found)  # similarity to the most similar chosen document

        def gain(i: int) -> float:
            return lambda_mult * to_query[i] - (1 - lambda_mult) * to_chosen[i] * bool(chosen)

        while len(chosen) < min(k, len(found)):
            best = max((i for i in range(len(found)) if i not in chosen), key=gain)
            for i, m in enumerate(vectors):
                table = vectors[best] @ m.T
                similarity = float(table.max(axis=1).mean() + table.max(axis=0).mean()) / 2
                to_chosen[i] = max(to_chosen[i], similarity)
            chosen.append(best)
        return [found[i] for i in chosen]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> PlaidVectorStore:
        """Creates a store with texts. ``embedding`` is not used.

        The keywords are those of `Index` (or ``index``, an open one) and of `Index.add_texts`, such as ``window``.
        """
        index = kwargs.pop("index", None)
        options = {name: kwargs.pop(name) for name in list(kwargs) if name in _ADD_OPTIONS}
        if index is not None and kwargs:
            raise TypeError(f"index is already open: omit {', '.join(kwargs)}")
        opened = Index(**kwargs) if index is None else index
        try:
            store = cls(opened)
            store.add_texts(texts, metadatas, ids=ids, **options)
        except BaseException:
            if index is None:
                opened.close()
            raise
        return store


class PlaidRetriever(BaseRetriever):
    """A retriever of LangChain that returns the k best documents of an index.

    ``options`` are keywords of `Index.search`, such as ``{"where": "year >= 2000", "hybrid": True}``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Index
    k: int = 4
    options: dict[str, Any] = {}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **kwargs: Any
    ) -> list[Document]:
        return [d for d, _ in _search_documents(self.index, query, k or self.k, {**self.options, **kwargs})]
