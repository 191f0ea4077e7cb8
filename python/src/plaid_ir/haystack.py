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

#: The types whose values can be compared.
_ORDERED = (bool, int, float, str)


class PlaidDocumentStore:
    """A document store of Haystack. It stores documents in an index, which it opens on first use.

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
        """The index. It is opened if necessary."""
        if self._index is None:
            folder = None if self.url is not None else self.index_folder
            token = self.token.resolve_value() if self.token is not None else None
            self._index = Index(folder, self.index_name, model=self.model, url=self.url, token=token)
        return self._index

    def close(self) -> None:
        """Closes the index. The next use opens it again."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings of the store as a dictionary, without its documents."""
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
        """Creates a store from a dictionary of `to_dict`."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["token"])
        return default_from_dict(cls, data)

    def count_documents(self) -> int:
        """Returns the number of documents."""
        return len(self.index)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Returns the documents that pass the filters, in the order in which they were added."""
        return list(self._documents(filters))

    def _documents(self, filters: dict[str, Any] | None) -> Iterator[Document]:
        ids = self._ids(filters)
        return map(_to_document, ids, self.index.get(ids) if ids else [])

    def _ids(self, filters: dict[str, Any] | None) -> list[str]:
        where, values = to_condition(filters)
        return self.index.ids(where, values)

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Stores documents and returns their number.

        Policy NONE is the same as FAIL. A document without content can be found only by its metadata.
        """
        given: Any = documents
        if not isinstance(given, list) or any(not isinstance(d, Document) for d in cast("Any", given)):
            raise ValueError("documents is not a list of Haystack Documents")
        stored = {d.id for d in documents if d.id in self.index}  # some may be stored as passages
        chosen: dict[str, Document] = {}
        for d in documents:
            if d.id in stored or d.id in chosen:
                if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
                    raise DuplicateDocumentError(f"document {d.id!r} already exists")
                if policy == DuplicatePolicy.SKIP:
                    continue
            chosen[d.id] = d
        if chosen:
            texts = [d.content or "" for d in chosen.values()]
            self.index.add_texts(texts, list(chosen), [_to_row(d) for d in chosen.values()], text_field="")
        return len(chosen)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents. Unknown ids are ignored."""
        self.index.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Deletes all documents."""
        self.index.delete(where="1=1")

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Deletes the documents that pass the filters, and returns their number."""
        where, values = to_condition(filters)
        if where is None:
            raise FilterError("the filters are empty: use delete_all_documents() to delete all documents")
        return self.index.delete(where=where, parameters=values)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Sets keys of the metadata of the documents that pass the filters, and returns their number.

        Documents that get the same metadata are changed in one request. If a request fails, the changes of earlier
        requests remain.
        """
        by_metadata: dict[str, tuple[dict[str, Any], list[str]]] = {}
        for d in self._documents(filters):
            changed = {**d.meta, **meta}
            by_metadata.setdefault(json.dumps(changed, default=repr), (changed, []))[1].append(d.id)
        connection = self.index._connection
        updated = 0
        for changed, ids in by_metadata.values():
            for names in split_ids(ids):  # ids also select documents that are stored as passages
                body = {"ids": names, "updates": to_json_value({"meta": changed}, "meta")}
                answer = connection.send_change("POST", connection.path + "/metadata/update", body)
                updated += int(answer["updated"])
        return updated

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Returns the number of documents that pass the filters."""
        return len(self._ids(filters))

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Returns the number of distinct values of metadata keys, in the documents that pass the filters."""
        keys = {name: name.removeprefix("meta.") for name in metadata_fields}
        found: dict[str, set[str]] = {name: set() for name in metadata_fields}
        for d in self._documents(filters):
            for name, key in keys.items():
                if d.meta.get(key) is not None:
                    found[name].add(_value_key(d.meta[key]))
        return {name: len(values) for name, values in found.items()}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Returns the keys of the metadata with their types: boolean, int, float or keyword."""
        kinds: dict[Any, str] = {bool: "boolean", int: "int", float: "float"}
        return {
            key: {"type": kinds.get(type(value), "keyword")}
            for d in self._documents(None)
            for key, value in d.meta.items()
            if value is not None
        }

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Returns the minimum and maximum of a metadata key as ``min`` and ``max``.

        Both are None if the key has no values, or both texts and numbers.
        """
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
        """Returns a page of the distinct values of a metadata key, sorted by their texts, and the number of all.

        Parameters
        ----------
        metadata_field
            The key, with or without the prefix ``meta.``.
        search_term
            Return only values whose text contains this term, ignoring case.
        from_, size
            The first value of the page, and the number of values.
        filters
            Read only the documents that pass these filters.
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
        """Returns the best documents for a question, with their scores. ``options`` are those of `Index.search`."""
        where, values = to_condition(filters)
        hits = search_for_framework(self.index, query, top_k, {**options, "where": where, "parameters": values})
        return [_to_document(hit["id"], hit.get("metadata", {}), hit["score"]) for hit in hits]


@component
class PlaidRetriever:
    """A component of a Haystack pipeline that returns the best documents of a store for a question.

    Parameters
    ----------
    document_store
        The store.
    filters, top_k
        The defaults of `run`.
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
        """Returns the component as a dictionary."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            options=self.options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaidRetriever:
        """Creates a component from a dictionary of `to_dict`."""
        given = data["init_parameters"]
        given["document_store"] = PlaidDocumentStore.from_dict(given["document_store"])
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the best documents for a question."""
        chosen = self.filters if filters is None else filters
        return {"documents": self.document_store.search(query, top_k or self.top_k, chosen, **(self.options or {}))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Does the same as `run`, for asyncio."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def _value_key(value: Any) -> str:
    """Returns a text that differs for different types: 1, 1.0, True and "1" have four."""
    return json.dumps(value, sort_keys=True)


def _to_row(document: Document) -> dict[str, Any]:
    fields = document.to_dict(flatten=False).items()
    return {k: v for k, v in fields if v is not None and k not in ("id", "score")}


def _to_document(id: Any, row: Mapping[str, Any], score: float | None = None) -> Document:
    return Document.from_dict({**row, "id": str(id), "score": score})


def to_condition(filters: dict[str, Any] | None) -> tuple[str | None, list[Any]]:
    """Converts filters of Haystack to a condition with its parameters. Without filters the condition is None."""
    try:
        return from_haystack(filters) or (None, [])
    except (TypeError, ValueError) as e:
        raise FilterError(str(e)) from e
