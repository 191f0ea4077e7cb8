"""Sends and fetches documents, in batches that one request can hold."""

from __future__ import annotations

import itertools
import warnings
from types import TracebackType
from typing import Any, Container, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode

from ._arrays import TENSORS, Matrix, Vectors, split_batches, documents_body
from ._checks import check_ordered, check_iterable, describe_value, unexpected_type
from ._connection import Connection
from ._errors import EmptyIndexError, PlaidError, RequestError, add_remark, add_to_position, caller_level
from ._metadata import count_cells, is_missing, parent_document
from ._tables import to_items

#: The largest number of bytes of vectors in one request. A request is one transaction.
MAX_VECTOR_BYTES = 32 << 20
#: The largest number of bytes of texts in one request.
MAX_TEXT_BYTES = 4 << 20
#: The largest number of queries in one request, and of documents that one request fetches by id.
MAX_QUERIES = 1000
#: The largest number of documents with vectors in one request.
MAX_DOCUMENTS = 10 * MAX_QUERIES
#: The largest number of texts in one request.
MAX_TEXTS = 128
#: The largest request, in bytes, that a service accepts if this process starts it.
MAX_BODY_BYTES = 100 << 20
#: The largest id, in bytes.
MAX_ID = 4096
#: The largest number of bytes of ids in one request.
_MAX_ID_BYTES = 1 << 20
#: The number of ids in one page of a listing.
_MAX_IDS = 100_000
#: The number of ids that a message names.
_MAX_SHOWN = 5
#: The largest URL with ids in it, in bytes: proxies often refuse more than 8 KiB.
_MAX_ADDRESS = 6000


class StoredCount:
    """Counts the stored documents of a call. An error that ends the call reports the count."""

    def __init__(self) -> None:
        self.count = 0
        self._last: Any = None

    def add(self, ids: Sequence[Any]) -> None:
        self.count += len(ids)
        self._last = ids[-1] if ids else self._last

    def __enter__(self) -> StoredCount:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, PlaidError):
            error.stored = self.count
        if self.count:
            remark = (
                f"{self.count} of the documents of this call are stored, the last of them {describe_value(self._last)}"
            )
            add_remark(error, remark)


class PassageBuffer:
    """Collects the passages of a document until all of them have arrived.

    A document is replaced as a whole, so one request must have all of its passages.
    """

    def __init__(self) -> None:
        #: Matrices or texts.
        self._items: list[Any] = []
        self._rows: list[dict[str, Any]] = []
        self._complete: set[str] = set()

    @property
    def unfinished_document(self) -> str | None:
        """The id of the document whose passages are in the buffer; None if it is empty."""
        return parent_document(self._rows[0]) if self._rows else None

    def add_batch(self, items: Sequence[Any], rows: Sequence[dict[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
        """Adds a batch, and returns the documents that are complete.

        The passages at the end of the batch stay in the buffer, since the next batch may have more of them. ``rows``
        have ids and metadata. Raises ValueError if the passages of a document are not next to each other.
        """
        items, rows = [*self._items, *items], [*self._rows, *rows]
        end, last = len(rows), parent_document(rows[-1]) if rows else None
        previous: str | None = None
        for row in rows:
            document = parent_document(row)
            if previous is not None and document != previous:
                self._complete.add(previous)
            if document is not None and document in self._complete:
                raise ValueError(
                    f"passages of document {describe_value(document)} are not next to each other: "
                    f"{describe_value(row['_id'])} comes after another document. Give all passages of a document "
                    "one after another, since a document is replaced as a whole"
                )
            previous = document
        while last is not None and end > 0 and parent_document(rows[end - 1]) == last:
            end -= 1
        self._items, self._rows = items[end:], rows[end:]
        return items[:end], rows[:end]

    def flush(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """Empties the buffer, and returns the documents that were in it."""
        items, rows = self._items, self._rows
        self._items, self._rows = [], []
        return items, rows


def split_documents(
    connection: Connection, sizes: Sequence[int], rows: Sequence[Mapping[str, Any]], max_bytes: int, max_items: int
) -> list[slice]:
    """Splits documents into batches, each for one request, without splitting the passages of a document.

    ``sizes`` are in bytes. ``rows`` have ids and metadata.
    """
    parents = [parent_document(row) for row in rows]
    batches = list(split_batches(sizes, max_bytes, max_items, parents))
    for batch in batches:
        size = sum(sizes[batch])
        # The limits of a service at a url are not known: it refuses a request that is too large.
        if connection.service is not None and size > MAX_BODY_BYTES and batch.stop - batch.start > 1:
            raise ValueError(
                f"the passages of document {describe_value(parents[batch.start])} have {size} bytes, and one request "
                f"has at most {MAX_BODY_BYTES}: split it into several documents, since one request stores a document"
            )
    return batches


def refuse_partial_documents(
    connection: Connection, rows: Sequence[Mapping[str, Any]], kept_documents: Container[str]
) -> None:
    """Raises ValueError if a stored document would lose passages, because ``rows`` have only some of them.

    ``rows`` have ids and metadata. Passages that are numbered from 0 without a gap, two or more, are a complete
    document: it may have become shorter. For ``kept_documents`` this does not hold, since their metadata came from
    the stored passages.
    """
    given: dict[str, list[str]] = {}
    for row in rows:
        document = parent_document(row)
        if document is not None:
            given.setdefault(document, []).append(row["_id"])
    for document, ids in list(given.items()):
        is_numbered = len(ids) > 1 and ids == [f"{document}#{n}" for n in range(len(ids))]
        if is_numbered and document not in kept_documents:
            del given[document]
    if not given or not connection.count():
        return
    for names in split_ids(list(given)):
        body = {"condition": f'"_passage"."of" IN ({", ".join("?" * len(names))})', "parameters": list(names)}
        lost: dict[str, list[str]] = {}
        # Most indexes have no passages, and then the field _passage is unknown.
        answer = connection.request("POST", connection.path + "/metadata/get", body, prefer="unknown-rows=null")
        for row in answer["metadata"]:
            document = row["_id"].rpartition("#")[0]
            if row["_id"] not in given[document]:
                lost.setdefault(document, []).append(row["_id"])
        for document, ids in lost.items():
            first = ", ".join(map(describe_value, ids[:_MAX_SHOWN])) + (", …" if len(ids) > _MAX_SHOWN else "")
            raise ValueError(
                f"document {describe_value(document)} is stored as passages, and would lose those that are not given "
                f"({len(ids)}): {first}. Give all of its passages at once, "
                f"or call delete([{describe_value(document)}]) first"
            )


def split_ids(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields ids in batches, each for one request."""
    for batch in split_batches([len(name) for name in names], _MAX_ID_BYTES, MAX_DOCUMENTS):
        yield names[batch]


def check_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Yields texts. A missing text (None, NaN) becomes an empty one. Raises TypeError for other values."""
    for i, text in enumerate(texts):
        if isinstance(text, str):
            yield str.__str__(text)
        elif is_missing(text):
            yield ""
        else:
            raise unexpected_type(f"text {i}", text, "a text")


def split_texts(texts: Iterable[Any], batch_size: int) -> Iterator[list[str]]:
    """Yields texts in batches, each for one request.

    If the source of the texts raises an error, the texts before it are yielded first.
    """
    batch: list[str] = []
    size = 0
    failure: Exception | None = None
    try:
        for text in check_texts(texts):
            if batch and (len(batch) >= batch_size or size + len(text) > MAX_TEXT_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += len(text)
    except Exception as e:
        failure = e
    if batch:
        yield batch
    if failure is not None:
        raise failure


class TruncatedTexts:
    """Counts texts that the model truncated, for one warning about all of them."""

    def __init__(self) -> None:
        self._texts = self._tokens = 0

    def add(self, answer: Mapping[str, Any]) -> None:
        """Adds the counts of an answer of the service."""
        self._texts += answer.get("truncated", 0)
        self._tokens += answer.get("dropped_tokens", 0)

    def warn(self, advice: str = "") -> None:
        """Warns the caller of this package if texts were truncated."""
        if not self._texts:
            return
        warnings.warn(
            f"texts that are longer than the model's limit were truncated: {self._texts}. "
            f"{self._tokens} tokens have no vectors{advice}",
            UserWarning,
            stacklevel=caller_level(),
        )


def send_vectors(
    connection: Connection,
    matrices: Sequence[Matrix],
    rows: Sequence[Mapping[str, Any]],
    pooling: Mapping[str, Any],
    start: int,
    stored: StoredCount,
) -> None:
    """Stores one batch of documents with vectors.

    ``rows`` have their ids and metadata; ``pooling`` has more fields of the request. ``start`` is the position of the
    batch in the call, from which errors count.
    """
    connection.create_index()
    request: dict[str, Any] = {"metadata": rows, **pooling}
    if connection.page_model is not None:
        request["model"] = connection.page_model.identity
    _send_batch(connection, "/update", documents_body(matrices, request), start)
    stored.add([connection.to_id(row["_id"]) for row in rows])


def send_texts(
    connection: Connection,
    texts: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    start: int,
    truncated: TruncatedTexts,
    stored: StoredCount,
) -> None:
    """Stores one batch of texts, which the service encodes. ``options`` has more fields of the request."""
    connection.create_index()
    body: dict[str, Any] = {"documents": texts, "metadata": rows, **options}
    truncated.add(_send_batch(connection, "/update_with_encoding", body, start))
    stored.add([connection.to_id(row["_id"]) for row in rows])


def _send_batch(connection: Connection, path: str, body: Any, start: int) -> Any:
    try:
        return connection.send_change("POST", connection.path + path, body)
    except PlaidError as e:
        add_to_position(e, "document", start)
        raise


def encode(
    connection: Connection,
    texts: Sequence[str],
    is_query: bool,
    truncated: TruncatedTexts,
    pool_factor: int | None = None,
    start: int = 0,
) -> list[Vectors]:
    """Encodes texts by the model of the service, and returns their vectors.

    Queries of an index with a page model are encoded by that one.
    """
    texts = list(
        check_texts(check_iterable(to_items(check_ordered(texts, "texts", "texts"), "texts"), "texts", "texts"))
    )
    if connection.page_model is not None and is_query:
        return connection.page_model.encode_queries(texts)
    vectors: list[Vectors] = []
    batches = list(split_batches([len(t) for t in texts], MAX_TEXT_BYTES, MAX_TEXTS))
    while batches:
        batch = batches.pop(0)
        body: dict[str, Any] = {"texts": list(texts[batch]), "input_type": "query" if is_query else "document"}
        if pool_factor is not None:
            body["pool_factor"] = pool_factor
        try:
            answer = connection.request("POST", "/encode", body, headers={"Accept": TENSORS})
        except PlaidError as e:
            if e.code == "PAYLOAD_TOO_LARGE" and batch.stop - batch.start > 1:  # the vectors of long texts
                middle = (batch.start + batch.stop) // 2
                batches[:0] = slice(batch.start, middle), slice(middle, batch.stop)
                continue
            add_to_position(e, "query" if is_query else "document", start + batch.start)
            raise
        truncated.add(answer)
        vectors += answer["vectors"]
    return vectors


def fetch_documents(
    connection: Connection, names: Sequence[str], *, vectors: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Returns for each id its document, or its passages in order. Raises KeyError for an unknown id.

    With ``vectors`` each has its matrix under that key.
    """
    too_long = next((i for i in names if len(i.encode()) > MAX_ID), None)
    if too_long is not None:
        raise KeyError(describe_value(too_long))
    headers = {"Accept": TENSORS} if vectors else None
    found: dict[str, dict[str, Any]] = {}
    passages: dict[str, list[str]] = {}
    for batch in split_batches([len(quote(i, safe="")) + 4 for i in names], _MAX_ADDRESS, MAX_QUERIES):
        offset: int | None = 0
        while offset is not None:
            query = urlencode([("offset", offset), *(("id", i) for i in names[batch])])
            try:
                answer = connection.request("GET", f"{connection.path}/documents?{query}", headers=headers)
            except RequestError as e:
                if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
                    raise KeyError(connection.to_id(str(e.details.get("id", names[batch][0])))) from e
                raise
            for d, m in zip(answer["documents"], answer.get("vectors") or itertools.repeat(None)):
                if m is not None:
                    d["vectors"] = m
                document = d.get("passage", {}).get("of")
                if document is not None and d["id"] not in passages.setdefault(document, []):
                    passages[document].append(d["id"])
                found[d["id"]] = d
            offset = answer.get("next")
    return {i: [found[i]] if i in found else [found[p] for p in passages[i]] for i in names}


def fetch_ids(connection: Connection, chosen: tuple[str, list[Any]] | None) -> Iterator[str]:
    """Yields the ids of the documents that meet a condition, or of all documents; each id once.

    They are fetched in pages. A document that is replaced in the meantime is in a later page again, which is skipped.
    """
    body: dict[str, Any] = {"limit": _MAX_IDS}
    if chosen is not None:
        body |= {"condition": chosen[0], "parameters": chosen[1]}
    seen: set[str] = set()
    while True:
        try:
            answer = connection.request("POST", connection.path + "/ids", body)
        except EmptyIndexError:
            return
        names: list[str] = answer["ids"]
        yield from (name for name in names if name not in seen)
        if "next" not in answer:
            return
        seen.update(names)
        body["from"] = answer["next"]


def fetch_metadata(connection: Connection, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the metadata of documents, with their ids. Unknown ids are skipped."""
    batches = list(split_ids(names))
    while batches:
        batch = batches.pop(0)
        body = {"condition": f"_id IN ({', '.join('?' * len(batch))})", "parameters": list(batch)}
        try:
            answer = connection.request("POST", connection.path + "/metadata/get", body)
        except EmptyIndexError:
            return
        except RequestError as e:
            if e.code == "PAYLOAD_TOO_LARGE" and len(batch) > 1:  # long metadata
                batches[:0] = batch[: len(batch) // 2], batch[len(batch) // 2 :]
                continue
            raise
        yield from answer["metadata"]


class KeptMetadata:
    """Collects the documents that keep their stored metadata, for one warning about all of them."""

    def __init__(self, keep: bool | None) -> None:
        #: True keeps all metadata, None all except keys that describe the old vectors, False none.
        self.keep = keep
        self._ids: list[Any] = []
        self._count = 0
        self._dropped: set[str] = set()

    def add(self, ids: Sequence[Any], dropped: set[str]) -> None:
        """Adds documents, and the keys that some of them lose."""
        self._ids += ids[: _MAX_SHOWN - len(self._ids)]
        self._count += len(ids)
        self._dropped |= dropped

    def warn(self) -> None:
        """Warns the caller of this package, unless they set ``keep_metadata``."""
        if not self._count or self.keep is not None:
            return
        names = ", ".join(map(describe_value, self._ids)) + (", …" if self._count > len(self._ids) else "")
        without = " without " + " and ".join(sorted(self._dropped)) if self._dropped else ""
        warnings.warn(
            f"replaced documents keep their metadata{without} ({self._count}): {names}. "
            "keep_metadata=True keeps all metadata, keep_metadata=False removes it",
            UserWarning,
            stacklevel=caller_level(),
        )


def add_stored_metadata(
    connection: Connection,
    rows: list[dict[str, Any]],
    kept: KeptMetadata,
    matrices: Sequence[Matrix] | None,
    text_field: str = "",
) -> list[dict[str, Any]]:
    """Adds stored metadata to the rows of documents that are replaced without new metadata.

    ``text`` and ``grid`` are left out unless ``kept`` keeps all, since they describe the old vectors. ``text_field``
    is already in ``rows``.
    """
    if kept.keep is False or not connection.count():
        return rows
    names = [row["_id"] for row in rows]
    stored: dict[str, dict[str, Any]] = {}
    dropped: set[str] = set()
    kept_names: set[str] = set()
    lengths = dict.fromkeys(names, 0) if matrices is None else {i: len(m) for i, m in zip(names, matrices)}
    for found in fetch_metadata(connection, names):
        name = found["_id"]
        stale = {"text", "grid"} if kept.keep is None else set[str]()
        if count_cells(found.get("grid")) > lengths[name]:
            stale.add("grid")
        removed = stale & found.keys() - {text_field}
        dropped |= removed
        stored[name] = {k: v for k, v in found.items() if k not in {"_id", "_subset_", text_field, *stale}}
        if stored[name] or removed:
            kept_names.add(name)
    kept.add([connection.to_id(i) for i in names if i in kept_names], dropped)
    return [{**row, **stored.get(row["_id"], {})} for row in rows]
