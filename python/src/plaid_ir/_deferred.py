"""The first documents of an index, which wait until it is known whether they are many.

Many documents are built into an index by `plaid index`, which trains it on all of them. Few documents go to the
service, as do all later ones.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Sequence

from . import _build
from ._arrays import Matrix
from ._connection import Connection
from ._documents import (
    MAX_DOCUMENTS,
    MAX_VECTOR_BYTES,
    StoredCount,
    TruncatedTexts,
    check_texts,
    encode,
    send_texts,
    send_vectors,
)
from ._errors import RequestError
from ._files import load
from ._locks import temporary_build_folder
from ._metadata import parent_document
from ._progress import Meter

#: Texts have at least one token in this many characters, as a rule.
_CHARACTERS_PER_TOKEN = 4


class DeferredDocuments:
    """Keeps the first documents of an index in files, until it is known whether they are many or few.

    At the end of the ``with`` block they are stored, even if it ends with an error. Call `can_defer` before
    `defer_vectors` or `defer_texts`; these return False if the caller has to store the documents itself.
    """

    def __init__(
        self,
        connection: Connection,
        meter: Meter,
        defer: bool,
        stored: StoredCount,
        truncated: TruncatedTexts | None = None,
    ) -> None:
        self._connection, self._meter, self._stored = connection, meter, stored
        self._truncated = truncated or TruncatedTexts()
        self._stack = contextlib.ExitStack()
        self._spool: _build.Spool | None = None
        #: Texts that are not encoded yet: the position of the first, the texts, and their ids and metadata.
        self._texts: list[tuple[int, list[str], list[dict[str, Any]]]] = []
        self._characters = self._count = 0
        self._ids: set[str] = set()
        self._pool_factor: int | None = None
        #: The service's model that encoded the texts, as `plaid index` reads it.
        self._model: Mapping[str, Any] | None = None
        self._active = defer and can_build(connection) and not connection.count()

    def __enter__(self) -> DeferredDocuments:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store_deferred()

    def can_defer(self, rows: Sequence[Mapping[str, Any]], unfinished: str | None) -> bool:
        """Reports whether the documents of ``rows`` can be deferred. If not, stores those that were.

        A document whose id is deferred already replaces that one, which only the service can do. The document
        ``unfinished`` is an exception: some of its passages were in earlier batches.
        """
        ids = {row["_id"] for row in rows} | parent_documents(rows) - {unfinished}
        full = self._spool is not None and self._spool.tokens >= _build.MAX_TOKENS
        if self._active and (full or not self._ids.isdisjoint(ids)):
            self._store_deferred()
        if self._active:
            self._ids.update(ids)
        return self._active

    def defer_vectors(self, matrices: Sequence[Matrix], rows: Sequence[Mapping[str, Any]]) -> bool:
        """Defers documents with vectors, and reports whether it did."""
        if not self._active:
            return False
        self._add_to_spool(matrices, rows)
        self._meter.add(len(rows))
        return True

    def defer_texts(self, texts: list[str], rows: list[dict[str, Any]], pool_factor: int | None) -> bool:
        """Defers texts, and reports whether it did. Encodes all of them once they are long enough for a build."""
        if not self._active:
            return False
        self._texts.append((self._count, texts, rows))
        self._count += len(texts)
        self._characters += sum(map(len, texts))
        self._pool_factor = pool_factor
        if self._characters >= _min_characters(self._connection, pool_factor):
            self._encode_texts()
        return True

    def _encode_texts(self) -> None:
        while self._texts:
            start, texts, rows = self._texts[0]
            matrices = encode(self._connection, texts, False, self._truncated, self._pool_factor, start)
            if self._model is None:
                model = self._connection.request("GET", "/health")["model"]
                keys = {"name": "path", "fingerprint": "fingerprint", "precision": "precision"}
                self._model = {name: model[key] for name, key in keys.items()}
            self._add_to_spool(matrices, rows)
            self._texts.pop(0)
            self._meter.add(len(texts))

    def _add_to_spool(self, matrices: Sequence[Matrix], rows: Sequence[Mapping[str, Any]]) -> None:
        if self._spool is None:
            self._spool = open_spool(self._connection, self._stack)
        self._spool.add(matrices, rows)

    def _store_deferred(self) -> None:
        """Stores the deferred documents, and defers no more."""
        self._active = False
        deferred_texts, self._texts = self._texts, []
        spool, self._spool = self._spool, None
        with self._stack:
            if spool is not None and spool.ids:
                self._store_spool(spool)
        for start, texts, rows in deferred_texts:
            options = {} if self._pool_factor is None else {"pool_factor": self._pool_factor}
            send_texts(self._connection, texts, rows, options, start, self._truncated, self._stored)
            self._meter.add(len(texts))

    def _store_spool(self, spool: _build.Spool) -> None:
        def show_progress(stage: str, share: float) -> None:
            self._meter.show_stage(f"{stage} {share:.0%}")
            self._meter.add(0)

        are_many = spool.tokens >= self._connection.train_tokens or self._model is not None
        if are_many and build_and_load(self._connection, spool, self._model, show_progress, self._stored):
            return
        start = 0
        for matrices, rows in spool.batches(MAX_VECTOR_BYTES, MAX_DOCUMENTS):
            send_vectors(self._connection, matrices, rows, {}, start, self._stored)
            start += len(rows)


def can_build(connection: Connection) -> bool:
    """Reports whether this process can build an index without documents.

    It can if it started or joined the service of a folder. The nodes of an object store build their indexes, which
    consist of shards.
    """
    service = connection.service
    return service is not None and "store" not in service.options and not connection.read_only


def open_spool(connection: Connection, stack: contextlib.ExitStack) -> _build.Spool:
    assert connection.service is not None
    folder = stack.enter_context(temporary_build_folder(connection.service.run_folder))
    return stack.enter_context(contextlib.closing(_build.Spool(folder)))


def build_and_load(
    connection: Connection,
    spool: _build.Spool,
    model: Mapping[str, Any] | None,
    show_progress: Callable[[str, float], None],
    stored: StoredCount,
) -> bool:
    """Builds an index and uploads it. Returns False if another process has added documents in the meantime."""
    assert connection.service is not None
    connection.create_index()
    if connection.page_model is not None:
        model = connection.page_model.identity
    path = spool.build(connection.service.binary, connection.config, model, show_progress)
    try:
        load(connection, path, None)
        stored.add([connection.to_id(i) for i in spool.ids])
        return True
    except RequestError as e:
        if e.code != "INDEX_ALREADY_EXISTS":
            raise
        return False


def are_many(connection: Connection, matrices: Sequence[Matrix]) -> bool:
    return sum(len(m) for m in matrices) >= connection.train_tokens


def may_be_many(connection: Connection, texts: Iterable[Any], pool_factor: int | None) -> bool:
    return sum(map(len, check_texts(texts))) >= _min_characters(connection, pool_factor)


def _min_characters(connection: Connection, pool_factor: int | None) -> int:
    return _CHARACTERS_PER_TOKEN * connection.train_tokens * (pool_factor or 1)


def parent_documents(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Returns the ids of the documents that have passages in ``rows``."""
    return {document for document in map(parent_document, rows) if document is not None}
