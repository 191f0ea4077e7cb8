"""The ways of documents into an index.

The first documents of an index are held back in files. Once there are many of them, at the end of the source or when
the files are full, `plaid index` builds the index; fewer go to the service, as do all later documents.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from types import TracebackType
from typing import Any, Iterable, Iterator, Literal, Mapping, Sequence, cast

from . import _build
from ._arrays import Embeddings, Matrix, to_uniform, to_matrices, empty_matrices
from ._checks import check_choice, check_ordered, check_iterable, describe_value, check_int, unexpected_value
from ._connection import Connection
from ._documents import (
    MAX_DOCUMENTS,
    MAX_TEXT_BYTES,
    MAX_VECTOR_BYTES,
    TruncatedTexts,
    KeptMetadata,
    PassageBuffer,
    StoredCount,
    refuse_partial_documents,
    check_texts,
    split_documents,
    encode,
    fetch_ids,
    fetch_metadata,
    split_ids,
    send_texts,
    send_vectors,
    split_texts,
    add_stored_metadata,
)
from ._errors import EmptyIndexError, PlaidError, RequestError, add_to_position
from ._files import load
from ._locks import temporary_build_folder
from ._metadata import check_metadata, metadata_rows, parent_document
from ._progress import Meter, Progress
from ._tables import to_items, refuse_table, to_rows

#: The vectors of a document that pooling joins.
PoolBy = Literal["similar", "tiles", "neighbours"]
#: The units of a text that passages keep whole.
WindowBy = Literal["words", "sentences", "headings", "blocks"]
#: Characters of texts that make one token, at most.
_CHARACTERS_PER_TOKEN = 4


def add_documents(
    connection: Connection,
    ids: Any,
    embeddings: Embeddings | None,
    metadata: Any,
    pooling: Mapping[str, Any],
    keep_metadata: bool | None,
    batch_size: int | None,
    progress: Progress,
) -> None:
    matrices, fields = _to_documents(connection, ids, embeddings, metadata, "there are")
    kept = KeptMetadata(False if metadata is not None else keep_metadata)
    with StoredCount() as stored, Meter(progress, len(fields)) as meter:
        _add_matrices(connection, matrices, fields, pooling, kept, set(), batch_size, meter, stored)
    kept.warn()


def _add_matrices(
    connection: Connection,
    matrices: list[Matrix],
    fields: list[dict[str, Any]],
    pooling: Mapping[str, Any],
    kept: KeptMetadata,
    with_kept: set[str],
    batch_size: int | None,
    meter: Meter,
    stored: StoredCount,
) -> None:
    """Adds documents. ``with_kept`` are those whose passages have the metadata that are stored."""
    if not fields:
        return
    total = len(fields)
    may_build = batch_size is None and not pooling and _can_build(connection)
    if may_build and _are_many(connection, matrices) and not connection.count():
        with contextlib.ExitStack() as stack:
            spool = _open_spool(connection, stack)
            spool.add(matrices, fields)

            def show(stage: str, part: float) -> None:
                meter.raise_to(int(part * total) if stage == "encode" else 0)

            if _build_and_load(connection, spool, None, show, stored):
                meter.raise_to(total)
                return
    connection.create_index()
    if kept.keep is not False:
        fields = add_stored_metadata(connection, fields, kept, matrices)
        with_kept = _parent_documents(fields)
    PassageBuffer().add_batch(matrices, fields)  # refuses passages that are not in a row
    refuse_partial_documents(connection, fields, with_kept)
    sizes = [m.nbytes for m in matrices]
    if any(len(f) > 1 for f in fields):
        sizes = [n + len(json.dumps(row)) for n, row in zip(sizes, fields)]
    for part in split_documents(connection, sizes, fields, MAX_VECTOR_BYTES, batch_size or MAX_DOCUMENTS):
        send_vectors(connection, matrices[part], fields[part], pooling, part.start, stored)
        meter.add(part.stop - part.start)


def add_batches(
    connection: Connection,
    source: Iterable[Sequence[Any]],
    pooling: Mapping[str, Any],
    total: int | None,
    progress: Progress,
    hold: bool,
) -> None:
    count = 0
    run = PassageBuffer()
    kept = KeptMetadata(None)
    with_kept: set[str] = set()  # documents whose passages came without metadata
    hold = hold and not pooling
    with (
        StoredCount() as stored,
        Meter(progress, total) as meter,
        DeferredDocuments(connection, meter, hold, stored) as first,
    ):

        def store(matrices: list[Matrix], fields: list[dict[str, Any]]) -> None:
            nonlocal count
            matrices = to_uniform(matrices, "document")
            if fields and not first.defer_vectors(matrices, fields):
                try:
                    _add_matrices(
                        connection,
                        matrices,
                        fields,
                        pooling,
                        KeptMetadata(False),
                        with_kept,
                        None,
                        Meter(None, None),
                        stored,
                    )
                except PlaidError as e:
                    add_to_position(e, "document", count)
                    raise
                meter.add(len(fields))
            count += len(fields)

        for i, batch in enumerate(source):
            refuse_table(batch, f"batch {i}", "(ids, embeddings, metadata), which may be columns and a table")
            if not isinstance(batch, (tuple, list)):
                raise unexpected_value(f"batches, item {i},", batch, "(ids, embeddings) or (ids, embeddings, metadata)")
            if len(batch) not in (2, 3):
                raise ValueError(
                    f"batch {i} has {len(batch)} parts; want (ids, embeddings) or (ids, embeddings, metadata)"
                )
            metadata = batch[2] if len(batch) == 3 else None
            matrices, fields = _to_documents(connection, batch[0], batch[1], metadata, f"batch {i} has")
            if not first.can_defer(fields, run.unfinished_document) and metadata is None:
                fields = add_stored_metadata(connection, fields, kept, matrices)
                with_kept |= _parent_documents(fields)
            store(*run.add_batch(matrices, fields))
        store(*run.flush())
    kept.warn()


def add_texts(
    connection: Connection,
    texts: Iterable[str],
    ids: Iterable[str] | Iterable[int] | None,
    metadata: Iterable[Mapping[str, Any]] | None,
    text_field: str,
    pool_factor: int | None,
    window: Mapping[str, Any] | None,
    keep_metadata: bool | None,
    batch_size: int,
    progress: Progress,
    hold: bool,
) -> None:
    if isinstance(texts, Mapping):
        raise TypeError("texts is a dictionary; want a list of texts, such as its values()")
    texts = _check_ordered(texts, "texts", "texts")
    numbered = ids is None
    if ids is None:
        if connection.count():
            raise ValueError("the index has documents already: name the new ones by ids")
        ids = cast("Iterable[int]", itertools.count())
    else:
        ids = _check_ordered(ids, "ids", "ids")
    metadata = None if metadata is None else check_iterable(to_rows(metadata), "metadata", "dictionaries")
    total = _known_length(texts)
    for what, other in (("ids", ids), ("metadata", metadata)):
        length = _known_length(other)
        if total is not None and length is not None and length != total:
            raise ValueError(f"there are {total} texts and {length} {what}: want one for each")
    # Faults that can be seen are refused before the model has work.
    if total is not None:
        for _ in check_texts(texts):
            pass
    given = connection.to_names(ids) if _known_length(ids) is not None else None
    if given is not None:
        _refuse_duplicates(given)
    if metadata is not None and _known_length(metadata) is not None:
        check_metadata(metadata, map(str, itertools.count()) if given is None else given)
    # Only the service splits texts into passages: such texts are not built here.
    hold = hold and window is None and _can_build(connection)
    hold = hold and (total is None or _may_be_many(connection, texts, pool_factor))
    options: dict[str, Any] = {**(window or {}), **({} if pool_factor is None else {"pool_factor": pool_factor})}
    cut = TruncatedTexts()
    all_ids, all_metadata = iter(ids), None if metadata is None else iter(metadata)
    start = sent = 0
    run = PassageBuffer()
    kept = KeptMetadata(keep_metadata)
    with_kept: set[str] = set()  # documents whose passages came without metadata
    with (
        StoredCount() as stored,
        Meter(progress, total) as meter,
        DeferredDocuments(connection, meter, hold, stored, cut) as first,
    ):

        def store(some: list[str], rows: list[dict[str, Any]]) -> None:
            nonlocal sent
            if some and not first.defer_texts(some, rows, pool_factor):
                refuse_partial_documents(connection, rows, with_kept)
                sizes = [len(text) for text in some]
                for part in split_documents(connection, sizes, rows, MAX_TEXT_BYTES, batch_size):
                    send_texts(connection, some[part], rows[part], options, sent + part.start, cut, stored)
                    meter.add(part.stop - part.start)
            sent += len(some)

        for batch in split_texts(texts, batch_size):
            some: list[Any] = list(itertools.islice(all_ids, len(batch)))
            if len(some) < len(batch):
                raise ValueError(f"there are {start + len(some)} ids, and more texts: want one for each")
            names = [str(i) for i in some] if numbered else connection.to_names(some, start=start)
            _refuse_duplicates(names)
            fields: list[dict[str, Any]] = [{"_id": i} for i in names]
            if all_metadata is not None:
                fields = metadata_rows(list(itertools.islice(all_metadata, len(batch))), names, start)
            if text_field:
                fields = [{text_field: t, **f} for f, t in zip(fields, batch)]
            if not first.can_defer(fields, run.unfinished_document) and all_metadata is None:
                fields = add_stored_metadata(connection, fields, kept, None, text_field)
                with_kept |= _parent_documents(fields)
            store(*run.add_batch(batch, fields))
            start += len(batch)
        store(*run.flush())
    kept.warn()
    cut.warn("; window=N splits long texts into passages" if window is None else "")
    endless = isinstance(all_ids, itertools.count)
    for what, rest in (("ids", iter(()) if endless else all_ids), ("metadata", all_metadata or iter(()))):
        for _ in rest:
            raise ValueError(f"there are {start} texts, which are stored, and more {what}: want one for each")


def pooling_options(factor: int | None, by: str) -> dict[str, Any]:
    """The part of a request about pooling; empty without it."""
    check_choice(by, "pool_by", PoolBy)
    factor = 1 if factor is None else check_int(factor, "pool_factor", 1)
    if factor == 1 and by != "similar":
        raise ValueError(f"pool_by={by!r} needs a pool_factor of 2 or more")
    return {} if factor == 1 else {"pool_factor": factor, "pool_by": by}


def passage_options(window: int | None, overlap: int, by: str, text_field: str) -> dict[str, Any] | None:
    """The part of a request about passages of texts; None without ``window``."""
    check_int(overlap, "overlap", 0)
    check_choice(by, "window_by", WindowBy)
    if window is None:
        if overlap or by != "words":
            raise ValueError("overlap and window_by go with window")
        return None
    if not text_field:
        raise ValueError("passages keep their texts: text_field is empty, and window is given")
    if overlap >= check_int(window, "window", 1):
        raise ValueError(f"overlap is {overlap}, and window {window}: a passage would repeat all of the one before")
    return {"window": int(window), "overlap": int(overlap), "window_by": by, "text_field": text_field}


def delete(connection: Connection, chosen: tuple[str, list[Any]] | list[str]) -> int:
    """Removes the documents of ids, or those that a condition and its parameters choose, and the pictures of pages.
    Returns their number."""
    pictures = connection.pictures
    if pictures is None or connection.read_only or not pictures.exist():
        return _delete_documents(connection, chosen)
    names = list(fetch_ids(connection, chosen)) if isinstance(chosen, tuple) else chosen
    removed = _delete_documents(connection, chosen)
    # Another process may have changed or added some meanwhile.
    stay = {row["_id"] for row in fetch_metadata(connection, names)}
    pictures.remove_pages(name for name in names if name not in stay)
    return removed


def _delete_documents(connection: Connection, chosen: tuple[str, list[Any]] | list[str]) -> int:
    bodies: Iterable[dict[str, Any]]
    if isinstance(chosen, tuple):
        bodies = [{"condition": chosen[0], "parameters": chosen[1]}]
    else:
        bodies = ({"ids": names} for names in split_ids(chosen))
    removed = 0
    with contextlib.suppress(EmptyIndexError):
        for body in bodies:
            removed += int(connection.send_change("DELETE", connection.path + "/documents", body)["deleted"])
    return removed


class DeferredDocuments:
    """Holds the first documents of an index back, until they are known to be many or few.

    The end of the block stores them, even when it ends by an error: a source that breaks off loses nothing.
    `accept` is told of documents first. `hold_vectors` and `hold_texts` report whether they are held; the caller stores
    those that are not.
    """

    def __init__(
        self, connection: Connection, meter: Meter, hold: bool, stored: StoredCount, cut: TruncatedTexts | None = None
    ) -> None:
        self._connection, self._meter, self._stored, self._cut = connection, meter, stored, cut or TruncatedTexts()
        self._stack = contextlib.ExitStack()
        self._spool: _build.Spool | None = None
        #: Texts that are not many yet: the position of the first, the texts and their ids and metadata.
        self._texts: list[tuple[int, list[str], list[dict[str, Any]]]] = []
        self._characters = self._count = 0
        self._ids: set[str] = set()
        self._pool_factor: int | None = None
        #: The model of the service that encoded the texts, as `plaid index` takes it.
        self._model: Mapping[str, Any] | None = None
        self._holds = hold and _can_build(connection) and not connection.count()

    def __enter__(self) -> DeferredDocuments:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store_deferred()

    def defer_vectors(self, matrices: Sequence[Matrix], fields: Sequence[Mapping[str, Any]]) -> bool:
        if not self._holds:
            return False
        self._add_to_spool(matrices, fields)
        self._meter.add(len(fields))
        return True

    def defer_texts(self, texts: list[str], fields: list[dict[str, Any]], pool_factor: int | None) -> bool:
        if not self._holds:
            return False
        self._texts.append((self._count, texts, fields))
        self._count += len(texts)
        self._characters += sum(map(len, texts))
        self._pool_factor = pool_factor
        if self._characters >= _min_characters(self._connection, pool_factor):
            while self._texts:
                start, some, rows = self._texts[0]
                matrices = encode(self._connection, some, False, self._cut, pool_factor, start)
                if self._model is None:
                    model = self._connection.request("GET", "/health")["model"]
                    keys = {"name": "path", "fingerprint": "fingerprint", "precision": "precision"}
                    self._model = {name: model[key] for name, key in keys.items()}
                self._add_to_spool(matrices, rows)
                self._texts.pop(0)
                self._meter.add(len(some))
        return True

    def can_defer(self, fields: Sequence[Mapping[str, Any]], goes_on: str | None) -> bool:
        """Reports whether documents may be held. A document whose id is held already replaces that one, which only the
        service can do. Of ``goes_on`` passages have come before, and more may come."""
        ids = {row["_id"] for row in fields} | _parent_documents(fields) - {goes_on}
        full = self._spool is not None and self._spool.tokens >= _build.MAX_TOKENS
        if self._holds and (full or not self._ids.isdisjoint(ids)):
            self._store_deferred()
        if self._holds:
            self._ids.update(ids)
        return self._holds

    def _add_to_spool(self, matrices: Sequence[Matrix], fields: Sequence[Mapping[str, Any]]) -> None:
        if self._spool is None:
            self._spool = _open_spool(self._connection, self._stack)
        self._spool.add(matrices, fields)

    def _store_deferred(self) -> None:
        """Stores the documents that are held, and holds no more."""
        self._holds = False
        texts, self._texts = self._texts, []
        spool, self._spool = self._spool, None
        with self._stack:
            if spool is not None and spool.ids:
                self._store_spool(spool)
        for start, some, rows in texts:
            options = {} if self._pool_factor is None else {"pool_factor": self._pool_factor}
            send_texts(self._connection, some, rows, options, start, self._cut, self._stored)
            self._meter.add(len(some))

    def _store_spool(self, spool: _build.Spool) -> None:
        def show(stage: str, part: float) -> None:
            self._meter.show_stage(f"{stage} {part:.0%}")
            self._meter.add(0)

        many = spool.tokens >= self._connection.train_tokens or self._model is not None
        if many and _build_and_load(self._connection, spool, self._model, show, self._stored):
            return
        start = 0
        for matrices, fields in spool.batches(MAX_VECTOR_BYTES, MAX_DOCUMENTS):
            send_vectors(self._connection, matrices, fields, {}, start, self._stored)
            start += len(fields)


def _can_build(connection: Connection) -> bool:
    """Reports whether an index without documents can be built here: its service was started here, for a folder. An
    index of a store is in shards, which its services build."""
    service = connection.service
    return service is not None and "store" not in service.options and not connection.read_only


def _open_spool(connection: Connection, stack: contextlib.ExitStack) -> _build.Spool:
    assert connection.service is not None
    folder = stack.enter_context(temporary_build_folder(connection.service.run_folder))
    return stack.enter_context(contextlib.closing(_build.Spool(folder)))


def _build_and_load(
    connection: Connection, spool: _build.Spool, model: Mapping[str, Any] | None, show: Any, stored: StoredCount
) -> bool:
    """Builds an index and gives it to the service. Reports false if another process has added documents meanwhile."""
    assert connection.service is not None
    connection.create_index()
    if connection.page_model is not None:
        model = connection.page_model.identity
    path = spool.build(connection.service.binary, connection.config, model, show)
    try:
        load(connection, path, None)
        stored.add([connection.to_id(i) for i in spool.ids])
        return True
    except RequestError as e:
        if e.code != "INDEX_ALREADY_EXISTS":
            raise
        return False


def _check_ordered(given: Any, name: str, items: str) -> Iterable[Any]:
    listed: Iterable[Any] = check_iterable(to_items(check_ordered(given, name, items), name), name, items)
    return listed


def _known_length(given: Any) -> int | None:
    """The number of items of anything that can be gone through more than once; None of an iterator."""
    return None if isinstance(given, Iterator) or not hasattr(given, "__len__") else len(given)


def _are_many(connection: Connection, matrices: Sequence[Matrix]) -> bool:
    return sum(len(m) for m in matrices) >= connection.train_tokens


def _may_be_many(connection: Connection, texts: Iterable[Any], pool_factor: int | None) -> bool:
    return sum(map(len, check_texts(texts))) >= _min_characters(connection, pool_factor)


def _min_characters(connection: Connection, pool_factor: int | None) -> int:
    return _CHARACTERS_PER_TOKEN * connection.train_tokens * (pool_factor or 1)


def _to_documents(
    connection: Connection, ids: Any, embeddings: Embeddings | None, metadata: Any, subject: str
) -> tuple[list[Matrix], list[dict[str, Any]]]:
    """Documents as matrices and as dictionaries of their ids and metadata; ``subject`` begins an error."""
    names = connection.to_names(check_ordered(ids, "documents_ids", "ids"), "documents_ids")
    if embeddings is None:
        matrices = empty_matrices(len(names))
    else:
        check_iterable(
            check_ordered(embeddings, "documents_embeddings", "matrices"), "documents_embeddings", "matrices"
        )
        matrices = to_matrices(embeddings, "document")
    if len(names) != len(matrices):
        raise ValueError(f"{subject} {len(names)} ids and {len(matrices)} documents: want one for each")
    _refuse_duplicates(names)
    if metadata is None:
        return matrices, [{"_id": i} for i in names]
    check_iterable(to_rows(metadata), "metadata", "dictionaries")
    return matrices, metadata_rows(metadata, names)


def _parent_documents(fields: Iterable[Mapping[str, Any]]) -> set[str]:
    """The documents that metadata make passages of."""
    return {document for document in map(parent_document, fields) if document is not None}


def _refuse_duplicates(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(i for i in names if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise ValueError(f"id {describe_value(twice)} is there twice")
