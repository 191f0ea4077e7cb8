"""Requests about documents, in batches that are not too large."""

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

#: Bytes of the vectors of one request. A request is one transaction.
MAX_VECTOR_BYTES = 32 << 20
#: Bytes of the texts of one request.
MAX_TEXT_BYTES = 4 << 20
#: Queries, or documents that are asked for by id, of one request.
MAX_QUERIES = 1000
#: Documents with vectors of one request.
MAX_DOCUMENTS = 10 * MAX_QUERIES
#: Texts of one request.
MAX_TEXTS = 128
#: Bytes of a request that a service takes which is started here.
MAX_BODY_BYTES = 100 << 20
#: Bytes of an id.
MAX_ID = 4096
#: Bytes of all ids of one request.
_MAX_ID_BYTES = 1 << 20
#: Ids of one page of a listing.
_MAX_IDS = 100_000
#: Ids that a message names.
_MAX_SHOWN = 5
#: Bytes of an address with ids in it: proxies often refuse more than 8 KiB.
_MAX_ADDRESS = 6000


class StoredCount:
    """Counts the documents of a call that are stored, and says so in an error that ends it."""

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
    """Holds the passages of a document back until all of them are there: a document is replaced as a whole, and so has
    to come in one request."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._rows: list[dict[str, Any]] = []
        self._complete: set[str] = set()

    @property
    def unfinished_document(self) -> str | None:
        """The document whose passages are held."""
        return parent_document(self._rows[0]) if self._rows else None

    def add_batch(self, items: Sequence[Any], rows: Sequence[dict[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
        """Takes a batch, and returns what is held and the batch without the passages at its end, which may go on.
        ``rows`` have ids and metadata. A document whose passages are not in a row is an error."""
        items, rows = [*self._items, *items], [*self._rows, *rows]
        end, last = len(rows), parent_document(rows[-1]) if rows else None
        before: str | None = None
        for row in rows:
            document = parent_document(row)
            if before is not None and document != before:
                self._complete.add(before)
            if document is not None and document in self._complete:
                raise ValueError(
                    f"passages of document {describe_value(document)} are not in a row: {describe_value(row['_id'])} comes after others. "
                    "Give all passages of a document one after another, since a document is replaced as a whole"
                )
            before = document
        while last is not None and end > 0 and parent_document(rows[end - 1]) == last:
            end -= 1
        self._items, self._rows = items[end:], rows[end:]
        return items[:end], rows[:end]

    def flush(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """Returns what is held."""
        items, rows = self._items, self._rows
        self._items, self._rows = [], []
        return items, rows


def split_documents(
    connection: Connection, sizes: Sequence[int], rows: Sequence[Mapping[str, Any]], max_bytes: int, max_items: int
) -> list[slice]:
    """Splits documents of some sizes into batches of one request, and never the passages of one document.
    ``rows`` have ids and metadata."""
    together = [parent_document(row) for row in rows]
    parts = list(split_batches(sizes, max_bytes, max_items, together))
    for part in parts:
        size = sum(sizes[part])
        # The limits of other services are not known: they refuse the request.
        if connection.service is not None and size > MAX_BODY_BYTES and part.stop - part.start > 1:
            raise ValueError(
                f"the passages of document {describe_value(together[part.start])} have {size} bytes, and one request has "
                f"at most {MAX_BODY_BYTES}: make several documents of it, since a document comes as a whole"
            )
    return parts


def refuse_partial_documents(connection: Connection, rows: Sequence[Mapping[str, Any]], kept: Container[str]) -> None:
    """Refuses passages in place of a stored document that has other passages, which would be lost. ``rows`` have ids
    and metadata. Of the documents ``kept`` they have the metadata that are stored.

    Two passages or more of another document that are numbered from 0 replace all of it: it may have become shorter.
    """
    given: dict[str, list[str]] = {}
    for row in rows:
        document = parent_document(row)
        if document is not None:
            given.setdefault(document, []).append(row["_id"])
    for document, ids in list(given.items()):
        if document not in kept and len(ids) > 1 and ids == [f"{document}#{n}" for n in range(len(ids))]:
            del given[document]
    if not given or not connection.count():
        return
    for some in split_ids(list(given)):
        body = {"condition": f'"_passage"."of" IN ({", ".join("?" * len(some))})', "parameters": list(some)}
        lost: dict[str, list[str]] = {}
        # Most indexes have no passages, and then not this field.
        answer = connection.request("POST", connection.path + "/metadata/get", body, prefer="unknown-fields=null")
        for row in answer["metadata"]:
            document = row["_id"].rpartition("#")[0]
            if row["_id"] not in given[document]:
                lost.setdefault(document, []).append(row["_id"])
        for document, ids in lost.items():
            first = ", ".join(map(describe_value, ids[:_MAX_SHOWN])) + (", …" if len(ids) > _MAX_SHOWN else "")
            raise ValueError(
                f"document {describe_value(document)} is stored as passages, and would lose those that are not given "
                f"({len(ids)}): {first}. Give all of its passages at once, or delete([{describe_value(document)}]) before"
            )


def split_ids(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for part in split_batches([len(name) for name in names], _MAX_ID_BYTES, MAX_DOCUMENTS):
        yield names[part]


def check_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Texts; one that is missing (None, NaN) is empty. Anything else is an error."""
    for i, text in enumerate(texts):
        if isinstance(text, str):
            yield str.__str__(text)
        elif is_missing(text):
            yield ""
        else:
            raise unexpected_type(f"text {i}", text, "a text")


def split_texts(texts: Iterable[Any], batch_size: int) -> Iterator[list[str]]:
    """Texts in batches of one request. An error of their source comes after the texts before it."""
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
    """Counts texts that are longer than the model reads, for one warning about all of them."""

    def __init__(self) -> None:
        self._texts = self._tokens = 0

    def add(self, answer: Mapping[str, Any]) -> None:
        """Adds the counts in an answer of the service."""
        self._texts += answer.get("truncated", 0)
        self._tokens += answer.get("dropped_tokens", 0)

    def warn(self, advice: str = "") -> None:
        """Warns the caller of this package, if there were any."""
        if not self._texts:
            return
        warnings.warn(
            f"texts that were cut, since the model does not read all of them: {self._texts}. {self._tokens} tokens "
            f"have no vectors{advice}",
            UserWarning,
            stacklevel=caller_level(),
        )


def send_vectors(
    connection: Connection,
    matrices: Sequence[Matrix],
    fields: Sequence[Mapping[str, Any]],
    pooling: Mapping[str, Any],
    start: int,
    stored: StoredCount,
) -> None:
    """Stores one batch of documents; ``fields`` have their ids and metadata, ``pooling`` further fields of the request.
    ``start`` is the position of the first among all that were given: errors count from there."""
    connection.create_index()
    request: dict[str, Any] = {"metadata": fields, **pooling}
    if connection.page_model is not None:
        request["model"] = connection.page_model.identity
    _send_batch(connection, "/update", documents_body(matrices, request), start)
    stored.add([connection.to_id(row["_id"]) for row in fields])


def send_texts(
    connection: Connection,
    texts: Sequence[str],
    fields: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    start: int,
    cut: TruncatedTexts,
    stored: StoredCount,
) -> None:
    """Stores one batch of texts, which the service encodes; ``options`` are further fields of the request."""
    connection.create_index()
    body: dict[str, Any] = {"documents": texts, "metadata": fields, **options}
    cut.add(_send_batch(connection, "/update_with_encoding", body, start))
    stored.add([connection.to_id(row["_id"]) for row in fields])


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
    cut: TruncatedTexts,
    pool_factor: int | None = None,
    start: int = 0,
) -> list[Vectors]:
    """The vectors of texts by the model of the service. ``cut`` counts those that are cut."""
    texts = list(
        check_texts(check_iterable(to_items(check_ordered(texts, "texts", "texts"), "texts"), "texts", "texts"))
    )
    if connection.page_model is not None and is_query:
        return connection.page_model.encode_queries(texts)
    vectors: list[Vectors] = []
    left = list(split_batches([len(t) for t in texts], MAX_TEXT_BYTES, MAX_TEXTS))
    while left:
        part = left.pop(0)
        body: dict[str, Any] = {"texts": list(texts[part]), "input_type": "query" if is_query else "document"}
        if pool_factor is not None:
            body["pool_factor"] = pool_factor
        try:
            answer = connection.request("POST", "/encode", body, headers={"Accept": TENSORS})
        except PlaidError as e:
            if e.code == "PAYLOAD_TOO_LARGE" and part.stop - part.start > 1:  # the vectors of long texts
                middle = (part.start + part.stop) // 2
                left[:0] = slice(part.start, middle), slice(middle, part.stop)
                continue
            add_to_position(e, "query" if is_query else "document", start + part.start)
            raise
        cut.add(answer)
        vectors += answer["vectors"]
    return vectors


def fetch_documents(
    connection: Connection, names: Sequence[str], *, vectors: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """For each id the document, or the passages that it is stored as, in their order, with their ``vectors`` if they
    are wanted. An id that is not there is a KeyError."""
    too_long = next((i for i in names if len(i.encode()) > MAX_ID), None)
    if too_long is not None:
        raise KeyError(describe_value(too_long))
    headers = {"Accept": TENSORS} if vectors else None
    found: dict[str, dict[str, Any]] = {}
    passages: dict[str, list[str]] = {}
    for part in split_batches([len(quote(i, safe="")) + 4 for i in names], _MAX_ADDRESS, MAX_QUERIES):
        offset: int | None = 0
        while offset is not None:
            query = urlencode([("offset", offset), *(("id", i) for i in names[part])])
            try:
                answer = connection.request("GET", f"{connection.path}/documents?{query}", headers=headers)
            except RequestError as e:
                if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
                    raise KeyError(connection.to_id(str(e.details.get("id", names[part][0])))) from e
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
    """The ids of the documents that a condition is true of, or of all, each once. They come in pages, between which
    documents may change: one that is replaced is in a later page again."""
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
    """The metadata of the documents that are there, with their ids."""
    left = list(split_ids(names))
    while left:
        some = left.pop(0)
        body = {"condition": f"_id IN ({', '.join('?' * len(some))})", "parameters": list(some)}
        try:
            answer = connection.request("POST", connection.path + "/metadata/get", body)
        except EmptyIndexError:
            return
        except RequestError as e:
            if e.code == "PAYLOAD_TOO_LARGE" and len(some) > 1:  # long metadata
                left[:0] = some[: len(some) // 2], some[len(some) // 2 :]
                continue
            raise
        yield from answer["metadata"]


class KeptMetadata:
    """Collects the documents that keep their metadata, for one warning after they are stored."""

    def __init__(self, keep: bool | None) -> None:
        #: True keeps all metadata, None all but what described the old vectors, False none.
        self.keep = keep
        self._ids: list[Any] = []
        self._count = 0
        self._dropped: set[str] = set()

    def add(self, ids: Sequence[Any], dropped: set[str]) -> None:
        """Takes documents, and the keys that one or another loses."""
        self._ids += ids[: _MAX_SHOWN - len(self._ids)]
        self._count += len(ids)
        self._dropped |= dropped

    def warn(self) -> None:
        """Warns the caller of this package, unless they asked for it."""
        if not self._count or self.keep is not None:
            return
        names = ", ".join(map(describe_value, self._ids)) + (", …" if self._count > len(self._ids) else "")
        without = " without " + " and ".join(sorted(self._dropped)) if self._dropped else ""
        warnings.warn(
            f"documents that were there keep their metadata{without} ({self._count}): {names}. "
            "keep_metadata=True keeps all of it, False empties it",
            UserWarning,
            stacklevel=caller_level(),
        )


def add_stored_metadata(
    connection: Connection,
    fields: list[dict[str, Any]],
    kept: KeptMetadata,
    matrices: Sequence[Matrix] | None,
    text_field: str = "",
) -> list[dict[str, Any]]:
    """Adds the stored metadata of documents that are given again without any. Unless ``kept`` keeps all, ``text`` and
    ``grid`` are not added, since they described the old vectors; ``text_field`` is in ``fields`` already."""
    if kept.keep is False or not connection.count():
        return fields
    names = [f["_id"] for f in fields]
    stored: dict[str, dict[str, Any]] = {}
    dropped: set[str] = set()
    touched: set[str] = set()
    lengths = dict.fromkeys(names, 0) if matrices is None else {i: len(m) for i, m in zip(names, matrices)}
    for row in fetch_metadata(connection, names):
        name = row["_id"]
        stale = {"text", "grid"} if kept.keep is None else set[str]()
        if count_cells(row.get("grid")) > lengths[name]:
            stale.add("grid")
        gone = stale & row.keys() - {text_field}
        dropped |= gone
        stored[name] = {k: v for k, v in row.items() if k not in {"_id", "_subset_", text_field, *stale}}
        if stored[name] or gone:
            touched.add(name)
    kept.add([connection.to_id(i) for i in names if i in touched], dropped)
    return [{**f, **stored.get(f["_id"], {})} for f in fields]
