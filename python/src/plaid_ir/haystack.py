"""Haystack: a document store and a retriever; ``pip install "./python[haystack]"`` in a clone."""

from __future__ import annotations

from typing import Any, Mapping, cast

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils import Secret, deserialize_secrets_inplace

from ._conditions import of_haystack
from ._errors import EmptyIndexError
from ._index import Index


class PlaidDocumentStore:
    """Documents of Haystack in an index, which is opened at the first use.

    Parameters
    ----------
    index_folder, index_name, model, url
        As for `Index`.
    token
        The bearer token for the service at ``url``.
    """

    def __init__(
        self,
        index_folder: str | None = "indexes",
        index_name: str = "plaid",
        *,
        model: str | None = None,
        url: str | None = None,
        token: Secret | None = None,
    ) -> None:
        self.index_folder, self.index_name, self.model = index_folder, index_name, model
        self.url, self.token = url, token
        self._index: Index | None = None

    @property
    def index(self) -> Index:
        """The index."""
        if self._index is None:
            folder = None if self.url is not None else self.index_folder
            token = self.token.resolve_value() if self.token is not None else None
            self._index = Index(folder, self.index_name, model=self.model, url=self.url, token=token)
        return self._index

    def close(self) -> None:
        """Closes the index; the next use opens it again."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def to_dict(self) -> dict[str, Any]:
        """The store as a dictionary, without its documents."""
        token = self.token.to_dict() if self.token is not None else None
        return default_to_dict(
            self,
            index_folder=self.index_folder,
            index_name=self.index_name,
            model=self.model,
            url=self.url,
            token=token,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaidDocumentStore:
        """The store of a dictionary that `to_dict` has made."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["token"])
        return default_from_dict(cls, data)

    def count_documents(self) -> int:
        """The number of documents."""
        return len(self.index)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents that pass filters of Haystack, in the order in which they were added."""
        where, values = condition(filters)
        ids = self.index.ids(where, values)
        return [_document(i, row) for i, row in zip(ids, self.index.get(ids))] if ids else []

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Stores documents and returns their number. Policy NONE is FAIL. A document without content is found by its
        metadata only."""
        given: Any = documents
        if not isinstance(given, list) or any(not isinstance(d, Document) for d in cast("Any", given)):
            raise ValueError("documents is not a list of Documents of Haystack")
        there = {d.id for d in documents if d.id in self.index}  # some may be stored as passages
        chosen: dict[str, Document] = {}
        for d in documents:
            if d.id in there or d.id in chosen:
                if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
                    raise DuplicateDocumentError(f"document {d.id!r} is there already")
                if policy == DuplicatePolicy.SKIP:
                    continue
            chosen[d.id] = d
        if chosen:
            texts = [d.content or "" for d in chosen.values()]
            self.index.add_texts(texts, list(chosen), [_row_of(d) for d in chosen.values()], text_field="")
        return len(chosen)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Removes documents; an id that is not there is ignored."""
        self.index.delete(document_ids)

    def search(self, query: str, top_k: int, filters: dict[str, Any] | None = None, **options: Any) -> list[Document]:
        """The best documents for a question, with their scores; ``options`` are those of `Index.search`."""
        where, values = condition(filters)
        try:
            hits = self.index.search(query, top_k, where=where, parameters=values, metadata=True, **options)
        except EmptyIndexError:
            return []
        return [_document(hit["id"], hit.get("metadata", {}), hit["score"]) for hit in hits]


@component
class PlaidRetriever:
    """The best documents of a store for a question, as a component of a pipeline.

    Parameters
    ----------
    document_store
        The store.
    filters, top_k
        Those of a `run` without any.
    options
        Keywords of `Index.search`, such as ``{"hybrid": True}``.
    """

    def __init__(
        self,
        document_store: PlaidDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.document_store, self.filters, self.top_k, self.options = document_store, filters, top_k, options

    def to_dict(self) -> dict[str, Any]:
        """The component as a dictionary."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            options=self.options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaidRetriever:
        """The component of a dictionary that `to_dict` has made."""
        given = data["init_parameters"]
        given["document_store"] = PlaidDocumentStore.from_dict(given["document_store"])
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents for a question."""
        chosen = self.filters if filters is None else filters
        return {"documents": self.document_store.search(query, top_k or self.top_k, chosen, **(self.options or {}))}


def _row_of(document: Document) -> dict[str, Any]:
    fields = document.to_dict(flatten=False).items()
    return {k: v for k, v in fields if v is not None and k not in ("id", "score")}


def _document(id: Any, row: Mapping[str, Any], score: float | None = None) -> Document:
    return Document.from_dict({**row, "id": str(id), "score": score})


def condition(filters: dict[str, Any] | None) -> tuple[str | None, list[Any]]:
    """Filters of Haystack as a condition with its parameters; None for none."""
    try:
        return of_haystack(filters) or (None, [])
    except (TypeError, ValueError) as e:
        raise FilterError(str(e)) from e
