"""Adds documents to an index, and deletes them.

`_deferred` keeps the first documents of an index back, until it is known whether they are many.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Iterable, Literal, Mapping, Sequence, cast

from ._arrays import Embeddings, Matrix, empty_matrices, to_matrices, to_uniform
from ._checks import check_choice, check_int, check_iterable, check_ordered, unexpected_value
from ._connection import Connection
from ._deferred import (
    DeferredDocuments,
    are_many,
    build_and_load,
    can_build,
    may_be_many,
    open_spool,
    parent_documents,
)
from ._documents import (
    MAX_DOCUMENTS,
    MAX_TEXT_BYTES,
    MAX_VECTOR_BYTES,
    KeptMetadata,
    PassageBuffer,
    StoredCount,
    TruncatedTexts,
    add_stored_metadata,
    fetch_ids,
    fetch_metadata,
    refuse_partial_documents,
    send_texts,
    send_vectors,
    split_documents,
    split_ids,
)
from ._errors import EmptyIndexError, PlaidError, add_to_position
from ._metadata import metadata_rows
from ._progress import Meter, Progress
from ._tables import refuse_table, to_rows
from ._texts import TextSource, refuse_duplicates

#: How pooling chooses the vectors of a document that it joins.
PoolBy = Literal["similar", "tiles", "neighbours"]
#: The units of a text that passages do not split.
WindowBy = Literal["words", "sentences", "headings", "blocks"]


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
    """Adds documents that are all in memory."""
    matrices, rows = _to_documents(connection, ids, embeddings, metadata, "there are")
    kept = KeptMetadata(False if metadata is not None else keep_metadata)
    with StoredCount() as stored, Meter(progress, len(rows)) as meter:
        _add_matrices(connection, matrices, rows, pooling, kept, set(), batch_size, meter, stored)
    kept.warn()


def _add_matrices(
    connection: Connection,
    matrices: list[Matrix],
    rows: list[dict[str, Any]],
    pooling: Mapping[str, Any],
    kept: KeptMetadata,
    kept_documents: set[str],
    batch_size: int | None,
    meter: Meter,
    stored: StoredCount,
) -> None:
    """Adds documents: many by a build, few by requests. ``rows`` have their ids and metadata.

    The passages of ``kept_documents`` have the metadata of the stored passages, which they replace one by one.
    """
    if not rows:
        return
    # 1. Build the index, if it has no documents yet and gets many.
    total = len(rows)
    may_build = batch_size is None and not pooling and can_build(connection)
    if may_build and are_many(connection, matrices) and not connection.count():
        with contextlib.ExitStack() as stack:
            spool = open_spool(connection, stack)
            spool.add(matrices, rows)

            def show_progress(stage: str, share: float) -> None:
                meter.raise_to(int(share * total) if stage == "encode" else 0)

            if build_and_load(connection, spool, None, show_progress, stored):
                meter.raise_to(total)
                return
    # 2. Check that passages are complete.
    connection.create_index()
    if kept.keep is not False:
        rows = add_stored_metadata(connection, rows, kept, matrices)
        kept_documents = parent_documents(rows)
    PassageBuffer().add_batch(matrices, rows)  # raises if passages of a document are not next to each other
    refuse_partial_documents(connection, rows, kept_documents)
    # 3. Send batch by batch.
    sizes = [m.nbytes for m in matrices]
    if any(len(row) > 1 for row in rows):
        sizes = [n + len(json.dumps(row)) for n, row in zip(sizes, rows)]
    for batch in split_documents(connection, sizes, rows, MAX_VECTOR_BYTES, batch_size or MAX_DOCUMENTS):
        send_vectors(connection, matrices[batch], rows[batch], pooling, batch.start, stored)
        meter.add(batch.stop - batch.start)


def add_batches(
    connection: Connection,
    source: Iterable[Sequence[Any]],
    pooling: Mapping[str, Any],
    total: int | None,
    progress: Progress,
    defer: bool,
) -> None:
    """Adds documents of a source that yields batches of them. ``defer`` allows the first documents to wait."""
    count = 0
    passages = PassageBuffer()
    kept = KeptMetadata(None)
    kept_documents: set[str] = set()  # documents whose passages were given without metadata
    with (
        StoredCount() as stored,
        Meter(progress, total) as meter,
        DeferredDocuments(connection, meter, defer and not pooling, stored) as deferred,
    ):

        def store(matrices: list[Matrix], rows: list[dict[str, Any]]) -> None:
            nonlocal count
            matrices = to_uniform(matrices, "document")
            if rows and not deferred.defer_vectors(matrices, rows):
                no_kept, no_meter = KeptMetadata(False), Meter(None, None)
                try:
                    _add_matrices(connection, matrices, rows, pooling, no_kept, kept_documents, None, no_meter, stored)
                except PlaidError as e:
                    add_to_position(e, "document", count)
                    raise
                meter.add(len(rows))
            count += len(rows)

        for i, batch in enumerate(source):
            ids, embeddings, metadata = _split_batch(batch, i)
            matrices, rows = _to_documents(connection, ids, embeddings, metadata, f"batch {i} has")
            if not deferred.can_defer(rows, passages.unfinished_document) and metadata is None:
                rows = add_stored_metadata(connection, rows, kept, matrices)
                kept_documents |= parent_documents(rows)
            store(*passages.add_batch(matrices, rows))
        store(*passages.flush())
    kept.warn()


def _split_batch(batch: Any, i: int) -> tuple[Any, Any, Any]:
    """Returns the ids, embeddings and metadata of batch number ``i``; metadata may be None."""
    refuse_table(batch, f"batch {i}", "(ids, embeddings, metadata), which may be columns and a table")
    if not isinstance(batch, (tuple, list)):
        raise unexpected_value(f"batches, item {i},", batch, "(ids, embeddings) or (ids, embeddings, metadata)")
    items: Sequence[Any] = cast("Any", batch)
    if len(items) not in (2, 3):
        raise ValueError(f"batch {i} has {len(items)} items; want (ids, embeddings) or (ids, embeddings, metadata)")
    return items[0], items[1], items[2] if len(items) == 3 else None


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
    defer: bool,
) -> None:
    """Adds texts, which the service encodes.

    ``defer`` allows the first texts to wait until there are enough to build the index of all of them at once.

    ``window`` has the options for passages (`passage_options`); None stores each text as one document.
    """
    # 1. Refuse faults that can be found before the model encodes anything.
    if isinstance(texts, Mapping):
        raise TypeError("texts is a dictionary; want a list of texts, such as its values()")
    source = TextSource(connection, texts, ids, metadata, text_field)
    # 2. Defer the first texts, unless they are few or split into passages, which only the service can do.
    defer = defer and window is None and can_build(connection)
    defer = defer and (source.total is None or may_be_many(connection, source.texts, pool_factor))
    options: dict[str, Any] = {**(window or {}), **({} if pool_factor is None else {"pool_factor": pool_factor})}
    # 3. Store batch by batch. The passages of a document stay in one batch.
    sent = 0
    truncated = TruncatedTexts()
    passages = PassageBuffer()
    kept = KeptMetadata(keep_metadata)
    kept_documents: set[str] = set()  # documents whose passages were given without metadata
    with (
        StoredCount() as stored,
        Meter(progress, source.total) as meter,
        DeferredDocuments(connection, meter, defer, stored, truncated) as deferred,
    ):

        def store(batch_texts: list[str], rows: list[dict[str, Any]]) -> None:
            nonlocal sent
            if batch_texts and not deferred.defer_texts(batch_texts, rows, pool_factor):
                refuse_partial_documents(connection, rows, kept_documents)
                sizes = [len(text) for text in batch_texts]
                for b in split_documents(connection, sizes, rows, MAX_TEXT_BYTES, batch_size):
                    send_texts(connection, batch_texts[b], rows[b], options, sent + b.start, truncated, stored)
                    meter.add(b.stop - b.start)
            sent += len(batch_texts)

        for batch_texts, rows in source.batches(batch_size):
            if not deferred.can_defer(rows, passages.unfinished_document) and not source.has_metadata:
                rows = add_stored_metadata(connection, rows, kept, None, text_field)
                kept_documents |= parent_documents(rows)
            store(*passages.add_batch(batch_texts, rows))
        store(*passages.flush())
    # 4. Warn, and refuse ids and metadata without a text.
    kept.warn()
    truncated.warn("; window=N splits long texts into passages" if window is None else "")
    source.refuse_remaining()


def pooling_options(factor: int | None, by: str) -> dict[str, Any]:
    """Returns the fields of a request for pooling. A factor of 1 needs no fields."""
    check_choice(by, "pool_by", PoolBy)
    factor = 1 if factor is None else check_int(factor, "pool_factor", 1)
    if factor == 1 and by != "similar":
        raise ValueError(f"pool_by={by!r} needs a pool_factor of 2 or more")
    return {} if factor == 1 else {"pool_factor": factor, "pool_by": by}


def passage_options(window: int | None, overlap: int, by: str, text_field: str) -> dict[str, Any] | None:
    """Returns the fields of a request for splitting texts into passages; None without ``window``."""
    check_int(overlap, "overlap", 0)
    check_choice(by, "window_by", WindowBy)
    if window is None:
        if overlap or by != "words":
            raise ValueError("overlap and window_by need window")
        return None
    if not text_field:
        raise ValueError("passages keep their texts, so window needs a text_field, which is empty")
    if overlap >= check_int(window, "window", 1):
        raise ValueError(
            f"overlap is {overlap} and window is {window}: want a smaller overlap, or each passage repeats "
            "all of the one before"
        )
    return {"window": int(window), "overlap": int(overlap), "window_by": by, "text_field": text_field}


def delete(connection: Connection, selection: tuple[str, list[Any]] | list[str]) -> int:
    """Deletes documents and their page pictures, and returns the number of documents.

    ``selection`` is a list of ids, or a condition and its parameters.
    """
    pictures = connection.pictures
    if pictures is None or connection.read_only or not pictures.exist():
        return _delete_documents(connection, selection)
    names = list(fetch_ids(connection, selection)) if isinstance(selection, tuple) else selection
    deleted = _delete_documents(connection, selection)
    # Another process may have changed or added some of them in the meantime.
    remaining = {row["_id"] for row in fetch_metadata(connection, names)}
    pictures.remove_pages(name for name in names if name not in remaining)
    return deleted


def _delete_documents(connection: Connection, selection: tuple[str, list[Any]] | list[str]) -> int:
    bodies: Iterable[dict[str, Any]]
    if isinstance(selection, tuple):
        bodies = [{"condition": selection[0], "parameters": selection[1]}]
    else:
        bodies = ({"ids": names} for names in split_ids(selection))
    deleted = 0
    with contextlib.suppress(EmptyIndexError):
        for body in bodies:
            deleted += int(connection.send_change("DELETE", connection.path + "/documents", body)["deleted"])
    return deleted


def _to_documents(
    connection: Connection, ids: Any, embeddings: Embeddings | None, metadata: Any, subject: str
) -> tuple[list[Matrix], list[dict[str, Any]]]:
    """Returns documents as matrices and as rows with their ids and metadata. Errors begin with ``subject``."""
    names = connection.to_names(check_ordered(ids, "documents_ids", "ids"), "documents_ids")
    if embeddings is None:
        matrices = empty_matrices(len(names))
    else:
        ordered = check_ordered(embeddings, "documents_embeddings", "matrices")
        check_iterable(ordered, "documents_embeddings", "matrices")
        matrices = to_matrices(embeddings, "document")
    if len(names) != len(matrices):
        raise ValueError(f"{subject} {len(names)} ids and {len(matrices)} documents: want one for each")
    refuse_duplicates(names)
    if metadata is None:
        return matrices, [{"_id": name} for name in names]
    check_iterable(to_rows(metadata), "metadata", "dictionaries")
    return matrices, metadata_rows(metadata, names)
