"""Haystack: a document store and a retriever; ``pip install "./python[haystack]"`` in a clone."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Iterator, Mapping, cast

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils import Secret, deserialize_secrets_inplace

from ._conditions import from_haystack
from ._documents import split_ids
from ._index import Index, search_for_framework, to_coroutine
from ._metadata import to_json_value

#: Types whose values have an order.
_ORDERED = (bool, int, float, str)


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
        return list(self._documents(filters))

    def _documents(self, filters: dict[str, Any] | None) -> Iterator[Document]:
        ids = self._ids(filters)
        return map(_to_document, ids, self.index.get(ids) if ids else [])

    def _ids(self, filters: dict[str, Any] | None) -> list[str]:
        where, values = to_condition(filters)
        return self.index.ids(where, values)

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
            self.index.add_texts(texts, list(chosen), [_to_row(d) for d in chosen.values()], text_field="")
        return len(chosen)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Removes documents; an id that is not there is ignored."""
        self.index.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Removes all documents."""
        self.index.delete(where="1=1")

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Removes the documents that pass filters of Haystack, and returns their number."""
        where, values = to_condition(filters)
        if where is None:
            raise FilterError("the filters are empty: delete_all_documents() removes all documents")
        return self.index.delete(where=where, parameters=values)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Sets keys of the metadata of the documents that pass filters of Haystack, and returns their number.

        Documents that have the same metadata afterwards are changed together; a failure between two changes leaves
        those before it.
        """
        together: dict[str, tuple[dict[str, Any], list[str]]] = {}
        for d in self._documents(filters):
            changed = {**d.meta, **meta}
            together.setdefault(json.dumps(changed, default=repr), (changed, []))[1].append(d.id)
        connection = self.index._connection
        done = 0
        for changed, ids in together.values():
            for names in split_ids(ids):  # by ids, which are also those of documents stored as passages
                body = {"ids": names, "updates": to_json_value({"meta": changed}, "meta")}
                done += int(connection.send_change("POST", connection.path + "/metadata/update", body)["updated"])
        return done

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """The number of documents that pass filters of Haystack."""
        return len(self._ids(filters))

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """The number of distinct values of each of some keys of the metadata, in the documents that pass filters."""
        keys = {name: name.removeprefix("meta.") for name in metadata_fields}
        found: dict[str, set[str]] = {name: set() for name in metadata_fields}
        for d in self._documents(filters):
            for name, key in keys.items():
                if d.meta.get(key) is not None:
                    found[name].add(_value_key(d.meta[key]))
        return {name: len(values) for name, values in found.items()}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The keys of the metadata with their types: boolean, int, float or keyword."""
        kinds: dict[Any, str] = {bool: "boolean", int: "int", float: "float"}
        return {
            key: {"type": kinds.get(type(value), "keyword")}
            for d in self._documents(None)
            for key, value in d.meta.items()
            if value is not None
        }

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The least and the greatest value, ``min`` and ``max``, of a key of the metadata; None if there is none, or
        if there are texts and numbers."""
        key = metadata_field.removeprefix("meta.")
        values: list[Any] = [v for v in (d.meta.get(key) for d in self._documents(None)) if isinstance(v, _ORDERED)]
        if not values or len({isinstance(v, str) for v in values}) == 2:
            return {"min": None, "max": None}
        return {"min": min(values), "max": max(values)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """The distinct values of a key of the metadata in the order of their texts, a page of them, and their number.

        Parameters
        ----------
        metadata_field
            The key, with ``meta.`` before it or without.
        search_term
            Only values that have it in their text, in any case.
        from_, size
            The first value of the page, and the number of values.
        filters
            Only those of the documents that pass filters of Haystack.
        """
        key, term = metadata_field.removeprefix("meta."), (search_term or "").lower()
        values = {_value_key(v): v for v in (d.meta.get(key) for d in self._documents(filters)) if v is not None}
        chosen = sorted((str(v), i) for i, v in values.items() if term in str(v).lower())
        return [values[i] for _, i in chosen[from_ : from_ + size]], len(chosen)

    count_documents_async = to_coroutine(count_documents, "{}_async")
    filter_documents_async = to_coroutine(filter_documents, "{}_async")
    write_documents_async = to_coroutine(write_documents, "{}_async")
    delete_documents_async = to_coroutine(delete_documents, "{}_async")
    delete_all_documents_async = to_coroutine(delete_all_documents, "{}_async")
    delete_by_filter_async = to_coroutine(delete_by_filter, "{}_async")
    update_by_filter_async = to_coroutine(update_by_filter, "{}_async")
    count_documents_by_filter_async = to_coroutine(count_documents_by_filter, "{}_async")
    count_unique_metadata_by_filter_async = to_coroutine(count_unique_metadata_by_filter, "{}_async")
    get_metadata_fields_info_async = to_coroutine(get_metadata_fields_info, "{}_async")
    get_metadata_field_min_max_async = to_coroutine(get_metadata_field_min_max, "{}_async")
    get_metadata_field_unique_values_async = to_coroutine(get_metadata_field_unique_values, "{}_async")

    def search(self, query: str, top_k: int, filters: dict[str, Any] | None = None, **options: Any) -> list[Document]:
        """The best documents for a question, with their scores; ``options`` are those of `Index.search`."""
        where, values = to_condition(filters)
        hits = search_for_framework(self.index, query, top_k, {**options, "where": where, "parameters": values})
        return [_to_document(hit["id"], hit.get("metadata", {}), hit["score"]) for hit in hits]


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

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """`run`, for asyncio."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def _value_key(value: Any) -> str:
    """A text that only a value of this type and size has: 1, 1.0, True and "1" are four."""
    return json.dumps(value, sort_keys=True)


def _to_row(document: Document) -> dict[str, Any]:
    fields = document.to_dict(flatten=False).items()
    return {k: v for k, v in fields if v is not None and k not in ("id", "score")}


def _to_document(id: Any, row: Mapping[str, Any], score: float | None = None) -> Document:
    return Document.from_dict({**row, "id": str(id), "score": score})


def to_condition(filters: dict[str, Any] | None) -> tuple[str | None, list[Any]]:
    """Filters of Haystack as a condition with its parameters; None for none."""
    try:
        return from_haystack(filters) or (None, [])
    except (TypeError, ValueError) as e:
        raise FilterError(str(e)) from e
