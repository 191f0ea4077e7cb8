"""The methods of an index that change it."""

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
    """The methods of an `Index` that change it. When a method returns, the change is on disk."""

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
        """Adds documents. A document with the id of a stored one replaces it.

        Passages (``_passage`` in the metadata, docs/python.md) replace their document as a whole. Give all of them, one
        after another; otherwise an error names the document that would lose some.

        Documents are sent in batches. Each batch is stored as a whole or not at all. If a batch is refused, the batches
        before it stay stored. If the first documents of an index are many, they are built as ``plaid index`` builds
        them: all of them or none.

        Parameters
        ----------
        documents_ids
            An id for each document.
        documents_embeddings
            A list of matrices [tokens, dim], numpy arrays or torch tensors, or a padded array [documents, tokens,
            dim]. Zeros at the end of a document in such an array are padding, and are not stored. None, or None in the
            list, stands for a document without vectors; keywords, conditions and ids find it. To add its vectors later,
            add the document again, with ``keep_metadata=True``.
        metadata
            A dictionary for each document, or a table with a row for each: a data frame of pandas or polars, or a table
            of pyarrow. Values are texts, numbers, booleans, None, dates (stored as ISO 8601), lists and dictionaries.
            Missing values (NaN, NaT, NA) become null.
        pool_factor, pool_by
            Store one vector for each ``pool_factor`` vectors of a document. ``pool_by`` chooses which are joined:
            ``"similar"`` vectors; or, for page images (``image`` and ``grid`` in the metadata), square ``"tiles"`` of
            cells, or ``"neighbours"``, similar cells that touch. With tiles the stored page has the grid of the tiles;
            otherwise it has no grid.
        keep_metadata
            What happens to stored metadata if ``metadata`` is None. True: replaced documents keep it (except a ``grid``
            with more cells than the document now has vectors). False: it is removed. None: replaced documents keep all
            of it except ``text`` and ``grid``, which describe the old vectors, and a warning names the documents.
        batch_size
            The number of documents in a batch. Default: as many as have 32 MiB of vectors. The passages of a document
            stay in one batch, even if they are more.
        progress
            True shows a progress bar if tqdm is installed. A function gets the number of stored documents and the
            total.
        **ignored
            Keywords of PyLate's index without a counterpart here.

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
            self._connection,
            documents_ids,
            documents_embeddings,
            metadata,
            _ingest.pooling_options(pool_factor, pool_by),
            check_optional(check_bool, keep_metadata, "keep_metadata"),
            check_optional(check_int, batch_size, "batch_size", 1),
            progress,
        )
        return self._self

    def update_documents(
        self,
        documents_ids: Ids,
        documents_embeddings: Embeddings | None,
        metadata: Metadata | None = None,
        **options: Any,
    ) -> Index:
        """Does the same as `add_documents`. PyLate has both names.

        Parameters
        ----------
        documents_ids, documents_embeddings, metadata, **options
            As for `add_documents`.
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
        """Adds documents from a source that does not fit in memory.

        The first documents of an index wait in a file until the source ends or the file has some gigabytes. If they are
        many, they are then built as ``plaid index`` builds them. They are stored even if the source raises an error,
        but lost if the process is killed.

        Parameters
        ----------
        batches
            Yields ``(ids, embeddings)`` or ``(ids, embeddings, metadata)``, each as in `add_documents`. The passages of
            a document may be spread over consecutive batches: those at the end of a batch wait for the next batch. If
            the source raises an error instead, they are not stored. It is an error if passages of a document are not
            next to each other.
        total
            The number of documents, for ``progress``.
        pool_factor, pool_by, progress
            As for `add_documents`. Pooled documents are stored batch by batch.
        wait
            False stores each batch before the next one is read, except passages at its end. Use it for a source that
            runs for a long time. If the index has documents already, batches never wait.
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
        """Adds texts, which the model of the service encodes.

        Texts, ids and metadata may be generators, which are read batch by batch. The first documents of an index wait,
        as in `add_batches`, unless they are known to be few.

        Parameters
        ----------
        texts
            The documents. A text longer than the model's limit is truncated, unless ``window`` is given; a warning
            reports how many were. An empty or missing text (None, NaN) is a document without tokens.
        ids
            An id for each text. Without ids, texts are numbered from 0; the index must then be empty.
        metadata
            As for `add_documents`.
        text_field
            The key of the metadata that stores the text. "" does not store it; then highlights and explanations cannot
            show it.
        pool_factor
            Store one vector for each ``pool_factor`` similar vectors of a document.
        window
            Split texts into passages of at most this many tokens of the model, with ids like ``"doc#0"``. Shorter texts
            are not split. A search with ``group`` returns documents.
        overlap
            The number of tokens that a passage repeats from the passage before.
        window_by
            The units that are not split if they fit in a passage: ``"words"``, ``"sentences"``, ``"headings"`` (of
            Markdown) or ``"blocks"`` (of source code).
        keep_metadata, progress
            As for `add_documents`.
        batch_size
            The number of texts in a batch. The passages of a document stay in one batch, even if they are more.
        wait
            False stores each batch before the next one is read.
        """
        check_str(text_field, "text_field")
        _ingest.add_texts(
            self._connection,
            texts,
            ids,
            metadata,
            text_field,
            check_optional(check_int, pool_factor, "pool_factor", 1),
            _ingest.passage_options(window, overlap, window_by, text_field),
            check_optional(check_bool, keep_metadata, "keep_metadata"),
            check_int(batch_size, "batch_size", 1),
            progress,
            check_bool(wait, "wait"),
        )
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
        """Adds page images, which the model of this index encodes. Each page is a document.

        A page with the id of a stored one replaces it. Inputs are read one after another; pages are encoded in batches.

        Parameters
        ----------
        images
            One input or several: paths of pictures, PDFs and folders (with all folders inside), patterns such as
            ``"scans/**/*.pdf"``, bytes of files, Pillow images, arrays [rows, columns, channels]. May be a generator.
        ids
            An id for each input that is one file. Default: the path as given, or the input's number if it has no path.
            The pages of a PDF, and of a TIFF file with several pages, add their page numbers: ``"report.pdf#1"`` is the
            first.
        metadata
            A dictionary for each input, which all of its pages get, or a table. Pages also get ``source`` (the path),
            ``page`` (from 1, for PDFs and TIFF files), ``image`` and ``grid`` (docs/page-images.md).
        pool_factor, pool_by
            Store one vector for each ``pool_factor`` cells of a page: ``"tiles"`` or ``"neighbours"``, as for
            `add_documents`.
        batch_size
            The number of pages that the model encodes at a time.
        dpi
            The resolution, in dots per inch, at which PDF pages are rendered. It is reduced for pages that would have
            more than 4,096 pixels on a side.
        keep_pictures
            Store a picture of each page, which `explain` shows: a JPEG file of up to 1,600 pixels a side, in the folder
            ``pictures`` of `Index`. With a ``url``, pictures are stored only if that folder is given.
        on_error
            ``"raise"`` an error for files and pages that cannot be read, or ``"skip"`` them with a warning.
        progress
            As for `add_documents`.
        wait
            As for `add_batches`.
        """
        connection = self._connection
        if connection.page_model is None:
            raise TypeError("page images need a model: Index(…, model=NAME), or model=(model, processor)")
        pooling = {} if pool_factor is None else _ingest.pooling_options(pool_factor, pool_by)
        batch_size, dpi = check_int(batch_size, "batch_size", 1), check_int(dpi, "dpi", 1)
        problems = _images.Problems(on_error)
        pages = _images.read_pages(images, ids, metadata, dpi, problems, not connection.count())
        pictures = connection.pictures if check_bool(keep_pictures, "keep_pictures") else None
        batches = _images.encode_batches(connection.page_model, pages, pictures, batch_size, problems)
        _ingest.add_batches(connection, batches, pooling, None, progress, check_bool(wait, "wait"))
        return self._self

    def remove_documents(self, documents_ids: Ids) -> Index:
        """Deletes documents by id, as in PyLate. `delete` also accepts a condition, and returns a count.

        Parameters
        ----------
        documents_ids
            As ``ids`` of `delete`.
        """
        _ingest.delete(self._connection, self._connection.to_names(documents_ids, "documents_ids"))
        return self._self

    def update(self, *, where: Where, values: Mapping[str, Any], parameters: Sequence[Any] = ()) -> int:
        """Sets keys of the metadata of documents. Their vectors do not change.

        Parameters
        ----------
        where, parameters
            A condition that selects the documents, as for `search`. An empty condition is an error.
        values
            Keys and their new values. None removes a key.

        Returns
        -------
        int
            The number of changed documents.
        """
        condition = to_condition(where, parameters)
        if condition is None:
            raise TypeError("update() needs a condition (where); '1=1' selects all documents")
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unexpected_value("values", values, "a dictionary of keys and values")
        updates = to_json_value(values, "values")
        body = {"condition": condition[0], "parameters": condition[1], "updates": updates}
        try:
            return int(
                self._connection.send_change("POST", self._connection.path + "/metadata/update", body)["updated"]
            )
        except EmptyIndexError:
            return 0

    def delete(self, ids: Ids | None = None, *, where: Where | None = None, parameters: Sequence[Any] = ()) -> int:
        """Deletes documents by id, or those that meet a condition.

        Parameters
        ----------
        ids
            One id or several. Unknown ids are ignored. The id of a document that is stored as passages deletes all of
            them.
        where, parameters
            A condition, as for `search`. An empty condition is an error.

        Returns
        -------
        int
            The number of deleted documents. A document is not counted if some of its passages remain.
        """
        condition = to_condition(where, parameters)
        if (ids is None) == (condition is None):
            raise TypeError("delete() needs either ids or a condition (where)")
        return _ingest.delete(self._connection, condition or self._connection.to_names(ids))

    def compact(self) -> int:
        """Reclaims the disk space of deleted and replaced documents by rewriting the index.

        A service does this by itself once more is deleted than remains. For an index in an object store the nodes do
        it, and this call is refused.

        Returns
        -------
        int
            The number of bytes by which the index file has shrunk.
        """
        try:
            done = self._connection.send_change("POST", self._connection.path + "/compact")
        except EmptyIndexError:
            return 0
        return int(done["bytes_before"] - done["bytes_after"])

    def load(self, path: str | os.PathLike[str], documents_ids: Sequence[str] | Sequence[int] | None = None) -> Index:
        """Loads an index file, or an index folder of another engine, into an index without documents.

        Index files come from `save`, ``plaid index`` and ``plaid backup``; folders from ColBERT, PyLate, fast-plaid or
        next-plaid. Symbolic links in the folder are followed, such as those of the Hugging Face cache.

        Parameters
        ----------
        path
            The file or the folder.
        documents_ids
            The ids of the documents of a folder, in their order. Default: the ids in its file ``ids.txt``, or in the
            files that PyLate stores next to its index; without either, documents are numbered from 0.
        """
        _files.load(self._connection, path, documents_ids)
        return self._self
