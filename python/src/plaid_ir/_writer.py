"""The methods of an index that change something."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence, Union, cast

from . import _files, _images, _ingest
from ._arrays import Embeddings
from ._checks import check_bool, check_optional, check_iterable, check_str, check_int, unexpected_value
from ._conditions import Where, to_condition
from ._documents import MAX_TEXTS
from ._errors import EmptyIndexError
from ._images import OnError
from ._ingest import PoolBy, WindowBy
from ._metadata import to_json_value
from ._progress import Progress
from ._reader import IndexReader, ignore_pylate_options

if TYPE_CHECKING:
    from ._index import Index

Ids = Union[str, int, Iterable[str], Iterable[int]]
#: Dictionaries, or a table of pandas, polars or pyarrow.
Metadata = Union[Sequence[Mapping[str, Any]], Any]


class IndexWriter(IndexReader):
    """The part of an `Index` that changes it. When a method returns, the change is on the disk."""

    @property
    def _self(self) -> Index:
        return cast("Index", self)

    def add_documents(
        self,
        documents_ids: Ids,
        documents_embeddings: Embeddings | None,
        metadata: Metadata | None = None,
        *,
        pool_factor: int | None = None,
        pool_by: PoolBy = "similar",
        keep_metadata: bool | None = None,
        batch_size: int | None = None,
        progress: Progress = None,
        **ignored: Any,
    ) -> Index:
        """Adds documents. A document whose id is there replaces that one.

        Passages (``_passage`` in the metadata, docs/python.md) replace their document as a whole, so that all of them
        have to be given, one after another; an error names a document that would lose some.

        Documents go in batches; each batch is stored as a whole or not at all. If a batch is refused, those before
        it are stored. The first documents of an index, if they are many, are built as ``plaid index`` does it: all of
        them or none.

        Parameters
        ----------
        documents_ids
            An id for each document.
        documents_embeddings
            A list of matrices [tokens, dim], numpy arrays or torch tensors, or a padded array [documents, tokens,
            dim], whose zeros at the end of a document are left out. None, or None in the list, is a document without
            vectors, which words, conditions and ids find. They may come later: add it again, with ``keep_metadata``.
        metadata
            A dictionary for each document, or a table with a row for each: a data frame of pandas or polars, or a table
            of pyarrow. Values are texts, numbers, booleans, None, dates (stored as ISO 8601), lists and dictionaries;
            those that are missing (NaN, NaT, NA) are null.
        pool_factor, pool_by
            Join vectors of a document, this many into one: ``"similar"`` ones, or of page images (``image`` and
            ``grid`` in the metadata) squares of cells (``"tiles"``), or ``"neighbours"``, similar cells that touch. The
            page is stored with the grid of its tiles, or with none.
        keep_metadata
            Where ``metadata`` is left out: True lets documents that are there already keep theirs (but a ``grid`` with
            more cells than the document now has vectors), False empties it. None keeps all but ``text`` and ``grid``,
            which described the old vectors, and a warning names the documents.
        batch_size
            Documents of a batch, default: 32 MiB of vectors. Passages of a document stay together, even if they are
            more.
        progress
            True shows a bar if tqdm is installed; or a function of the number of documents stored and of all.
        **ignored
            Keywords of PyLate's index that have no counterpart.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     print(len(index.add_documents(["a", "b"], np.ones((2, 3, 4)), [{"n": 1}, {}])))
        2
        """
        if ignored.pop("show_progress", False) and progress is None:
            progress = True
        ignore_pylate_options(ignored, "add_documents()")
        _ingest.add_documents(
            self._connection, documents_ids, documents_embeddings, metadata, _ingest.pooling_options(pool_factor, pool_by),
            check_optional(check_bool, keep_metadata, "keep_metadata"), check_optional(check_int, batch_size, "batch_size", 1), progress,
        )  # fmt: skip
        return self._self

    def update_documents(
        self,
        documents_ids: Ids,
        documents_embeddings: Embeddings | None,
        metadata: Metadata | None = None,
        **options: Any,
    ) -> Index:
        """Another name for `add_documents`, since PyLate has both.

        Parameters
        ----------
        documents_ids, documents_embeddings, metadata, **options
            Those of `add_documents`.
        """
        return self.add_documents(documents_ids, documents_embeddings, metadata, **options)

    def add_batches(
        self,
        batches: Iterable[Sequence[Any]],
        *,
        total: int | None = None,
        pool_factor: int | None = None,
        pool_by: PoolBy = "similar",
        progress: Progress = None,
        wait: bool = True,
    ) -> Index:
        """Adds documents of a source that does not fit in memory.

        The first documents of an index wait in a file, until the source ends or there are some gigabytes of them: if
        they are many they are built as ``plaid index`` does it. They are also stored if the source raises an error; a
        process that is killed loses them.

        Parameters
        ----------
        batches
            Yields ``(ids, embeddings)`` or ``(ids, embeddings, metadata)``, as `add_documents` takes them. The passages
            of a document may go on from one batch to the next: those at the end of a batch wait for the next one, and
            are not stored if the source raises an error instead. A document whose passages return later is an error.
        total
            The number of documents, for ``progress``.
        pool_factor, pool_by, progress
            As for `add_documents`. Pooled documents are stored batch by batch.
        wait
            False stores each batch before the next one is asked for, except passages that may go on. Use it for a
            source that goes on for long. An index that has documents already always does so.
        """
        check_iterable(batches, "batches", "(ids, embeddings)")
        total, wait = check_optional(check_int, total, "total", 0), check_bool(wait, "wait")
        _ingest.add_batches(
            self._connection, batches, _ingest.pooling_options(pool_factor, pool_by), total, progress, wait
        )
        return self._self

    def add_texts(
        self,
        texts: Iterable[str],
        ids: Iterable[str] | Iterable[int] | None = None,
        metadata: Iterable[Mapping[str, Any]] | Any = None,
        *,
        text_field: str = "text",
        pool_factor: int | None = None,
        window: int | None = None,
        overlap: int = 0,
        window_by: WindowBy = "words",
        keep_metadata: bool | None = None,
        batch_size: int = MAX_TEXTS,
        progress: Progress = None,
        wait: bool = True,
    ) -> Index:
        """Adds texts, which the model of the service encodes. Texts, ids and metadata may be generators: they are taken
        batch by batch. The first documents of an index wait, as in `add_batches`, unless they are known to be few.

        Parameters
        ----------
        texts
            The documents. A text that is longer than the model reads is cut off, and a warning counts such texts,
            unless ``window`` is given. An empty one, or one that is missing (None, NaN), is a document without tokens.
        ids
            An id for each; without them texts are numbered from 0, if the index is empty.
        metadata
            As for `add_documents`.
        text_field
            The key of the metadata that keeps the text; "" does not keep it, and then neither highlights nor
            explanations can show it.
        pool_factor
            Join similar vectors of a document, this many into one.
        window
            Split texts into passages of at most this many tokens of the model, with ids like ``"doc#0"``. A search with
            ``group`` finds documents. Texts that fit stay whole.
        overlap
            How many tokens a passage repeats of the one before.
        window_by
            The units that stay whole if they fit in a passage: ``"words"``, ``"sentences"``, ``"headings"`` (of
            Markdown) or ``"blocks"`` (of source code).
        keep_metadata, progress
            As for `add_documents`.
        batch_size
            Texts of a batch. Passages of a document stay together, even if they are more.
        wait
            False stores each batch before the next one is asked for.
        """
        check_str(text_field, "text_field")
        parting = _ingest.passage_options(window, overlap, window_by, text_field)
        _ingest.add_texts(
            self._connection, texts, ids, metadata, text_field, check_optional(check_int, pool_factor, "pool_factor", 1), parting,
            check_optional(check_bool, keep_metadata, "keep_metadata"), check_int(batch_size, "batch_size", 1), progress,
            check_bool(wait, "wait"),
        )  # fmt: skip
        return self._self

    def add_images(
        self,
        images: Any,
        ids: str | Iterable[str] | None = None,
        metadata: Any = None,
        *,
        pool_factor: int | None = None,
        pool_by: PoolBy = "tiles",
        batch_size: int = 4,
        dpi: int = 150,
        keep_pictures: bool = True,
        on_error: OnError = "raise",
        progress: Progress = None,
        wait: bool = True,
    ) -> Index:
        """Adds page images, which the model of this index encodes: each page is a document. A page whose id is there
        replaces that one. Inputs are read one after another, and pages encoded in batches.

        Parameters
        ----------
        images
            An input or several: paths of pictures, PDFs and folders (with all of their folders), patterns such as
            ``"scans/**/*.pdf"``, bytes of files, pictures of Pillow, arrays [rows, columns, channels]. May be a
            generator.
        ids
            An id for each input that is one file. Default: its path as given; its number for one without a path. The
            pages of a PDF, and of a TIFF file of several, add their numbers: ``"report.pdf#1"`` is the first.
        metadata
            A dictionary for each input, for all of its pages, or a table. To it come ``source`` (the path), ``page``
            (from 1, of PDFs and TIFF files), ``image`` and ``grid`` (docs/page-images.md).
        pool_factor, pool_by
            Join cells of a page, this many into one: ``"tiles"`` or ``"neighbours"``, as for `add_documents`.
        batch_size
            Pages that the model gets at a time.
        dpi
            Dots an inch at which pages of PDFs are drawn, less for those that would have more than 4,096 on a side.
        keep_pictures
            Keep a picture of each page, which `explain` shows: a JPEG file of up to 1,600 pixels a side, in the folder
            ``pictures`` of `Index`. An index at a ``url`` keeps them only if that is given.
        on_error
            What becomes of files and pages that cannot be read: ``"raise"`` an error, or ``"skip"`` them with a
            warning.
        progress
            As for `add_documents`.
        wait
            As for `add_batches`.
        """
        connection = self._connection
        if connection.page_model is None:
            raise TypeError("page images need a model: Index(…, model=…) with a name, or a pair (model, processor)")
        pooling = {} if pool_factor is None else _ingest.pooling_options(pool_factor, pool_by)
        batch_size, dpi = check_int(batch_size, "batch_size", 1), check_int(dpi, "dpi", 1)
        problems = _images.Problems(on_error)
        pages = _images.read_pages(images, ids, metadata, dpi, problems, not connection.count())
        pictures = connection.pictures if check_bool(keep_pictures, "keep_pictures") else None
        batches = _images.encode_batches(connection.page_model, pages, pictures, batch_size, problems)
        _ingest.add_batches(connection, batches, pooling, None, progress, check_bool(wait, "wait"))
        return self._self

    def remove_documents(self, documents_ids: Ids) -> Index:
        """Removes documents by their ids, as in PyLate. `delete` also takes a condition, and counts.

        Parameters
        ----------
        documents_ids
            Those of `delete`.
        """
        _ingest.delete(self._connection, self._connection.to_names(documents_ids, "documents_ids"))
        return self._self

    def update(self, *, where: Where, values: Mapping[str, Any], parameters: Sequence[Any] = ()) -> int:
        """Sets keys of the metadata of documents. Vectors stay as they are.

        Parameters
        ----------
        where, parameters
            The documents: a condition, as for `search`. An empty one is an error.
        values
            Keys and their new values; None removes a key.

        Returns
        -------
        int
            The number of documents that were changed.
        """
        chosen = to_condition(where, parameters)
        if chosen is None:
            raise TypeError("update() takes a condition (where): '1=1' is true of every document")
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unexpected_value("values", values, "a dictionary of keys and values")
        updates = to_json_value(values, "values")
        body = {"condition": chosen[0], "parameters": chosen[1], "updates": updates}
        try:
            return int(
                self._connection.send_change("POST", self._connection.path + "/metadata/update", body)["updated"]
            )
        except EmptyIndexError:
            return 0

    def delete(self, ids: Ids | None = None, *, where: Where | None = None, parameters: Sequence[Any] = ()) -> int:
        """Removes documents: those of ids, or those that meet a condition.

        Parameters
        ----------
        ids
            An id that is not there is ignored; that of a document that is stored as passages removes them.
        where, parameters
            A condition, as for `search`. An empty one is an error.

        Returns
        -------
        int
            The number of documents that are gone. A document that keeps other passages does not count.
        """
        chosen = to_condition(where, parameters)
        if (ids is None) == (chosen is None):
            raise TypeError("delete() takes ids or a condition (where), one of the two")
        return _ingest.delete(self._connection, chosen or self._connection.to_names(ids))

    def compact(self) -> int:
        """Writes the index without deleted and replaced documents, and gives the space back. A service does so by
        itself where more is deleted than there is; the nodes of an object store do it, and refuse this.

        Returns
        -------
        int
            The bytes by which the index file is smaller.
        """
        try:
            done = self._connection.send_change("POST", self._connection.path + "/compact")
        except EmptyIndexError:
            return 0
        return int(done["bytes_before"] - done["bytes_after"])

    def load(self, path: str | os.PathLike[str], documents_ids: Sequence[str] | Sequence[int] | None = None) -> Index:
        """Fills an index that has no documents: from an index file (of `save`, ``plaid index``, ``plaid backup``), or
        from the index folder of ColBERT, PyLate, fast-plaid or next-plaid. Symbolic links in the folder are followed,
        such as those of the Hugging Face cache.

        Parameters
        ----------
        path
            The file or the folder.
        documents_ids
            The ids of the documents of a folder, in their order. Without them a file ``ids.txt`` in it names them, or
            the files that PyLate keeps next to its index, or they are numbered from 0.
        """
        _files.load(self._connection, path, documents_ids)
        return self._self
