"""The index."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from html import escape
from types import TracebackType
from typing import Any, Callable, Coroutine, Iterable, Literal, Mapping, ParamSpec, Sequence, TypeVar, Union

from . import _files, _ingest
from ._arrays import Embeddings, to_matrices
from ._conditions import Where, condition
from ._connection import Connection
from ._documents import MAX_TEXTS, id_batches
from ._errors import EmptyIndexError, PlaidError, add_remark
from ._metadata import to_json_value
from ._progress import Progress
from ._reader import IndexReader, ignore_pylate_options
from ._tables import items_of

Ids = Union[str, int, Iterable[str], Iterable[int]]
#: Dictionaries, or a table of pandas, polars or pyarrow.
Metadata = Union[Sequence[Mapping[str, Any]], Any]
P = ParamSpec("P")
R = TypeVar("R")


def _coroutine(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A method for asyncio, which waits for the service in a thread."""

    @functools.wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, *args, **kwargs)

    run.__doc__ = f"`{method.__name__}`, for asyncio."
    run.__name__ = f"a{method.__name__}"
    return run


class Index(IndexReader):
    """An index of documents that are matrices of token vectors.

    It has the interface of PyLate's indexes, and `search`, `add_texts` and more. When a method that changes
    something returns, the change is on the disk; such a method returns the index itself, or a number of documents.
    Vectors are scaled to unit length. Any number of threads and processes may use an index: the first process that
    opens a folder starts a service for it, and the others find that. Methods whose names begin with ``a`` are
    coroutines for asyncio.

    Parameters
    ----------
    index_folder
        The folder of the indexes; it is made if it is not there. Or the address of an object store,
        ``"s3://BUCKET/PREFIX"`` or ``"file:///FOLDER"``, of which this machine keeps a cache. None: a temporary folder,
        which is removed when the index is closed.
    index_name
        The name: 1 to 128 of ``A-Z a-z 0-9 . _ -``, not beginning or ending with a dot.
    override
        Remove an index of this name.
    nbits
        Bits a component of large indexes: 1, 2, 4 (the default) or 8. Small ones have 8.
    seed
        Seed of the trainings; default 42.
    id_type
        ``str``, or ``int`` for an index whose ids are whole numbers.
    mode
        ``"pruned"``, or ``"exhaustive"`` to score every document.
    model
        The folder of a late-interaction model, which encodes texts, or the name of one at the Hugging Face hub,
        ``"ORG/NAME"`` or ``"ORG/NAME@REVISION"``, which is fetched unless the hub's cache has it. Where the folder of
        the indexes is open already, leave it out or name the same.
    read_only
        Change nothing. This also opens a folder that cannot be written to; then no other process may change the index
        meanwhile.
    url, token
        The address of a service (``http://``, ``https://`` or ``unix:``) that has the index, and the bearer token for
        it. Without a url the service runs as long as this object.
    device, threads
        For the service that is started: the devices that search (``"cuda:0"`` or ``"cuda"``, ``"auto"``, a list of
        several; default the processor), and the number of threads of one search.
    timeout
        The longest time of a request, and of the start of the service, in seconds.
    binary
        The program plaid; default: that of ``$PLAID_BINARY``, or the one in this package.
    **ignored
        Keywords of PyLate's PLAID that have no counterpart, such as ``use_triton``. A warning says once that they do
        nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index
    >>> with Index(None) as index:
    ...     years = [{"year": 1999}, {"year": 2001}]
    ...     _ = index.add_documents(["a", "b"], [np.eye(4)[:2], np.eye(4)[2:]], years)
    ...     print([hit["id"] for hit in index.search(np.eye(4)[2:], k=1)])
    ...     print(index.ids("year < 2000"), "b" in index)
    ['b']
    ['a'] True
    """

    #: The index ranks documents by itself; PyLate's retriever only passes queries on.
    is_end_to_end_index = True

    def __init__(
        self,
        index_folder: str | os.PathLike[str] | None = "indexes",
        index_name: str = "plaid",
        override: bool = False,
        *,
        nbits: int | None = None,
        seed: int | None = None,
        id_type: type[str] | type[int] = str,
        mode: Literal["pruned", "exhaustive"] = "pruned",
        model: str | os.PathLike[str] | None = None,
        read_only: bool = False,
        url: str | None = None,
        token: str | None = None,
        device: str | Sequence[str] | None = None,
        threads: int | None = None,
        timeout: float = 300.0,
        binary: str | os.PathLike[str] | None = None,
        **ignored: Any,
    ) -> None:
        ignore_pylate_options(ignored, "Index()")
        if mode not in ("pruned", "exhaustive"):
            raise ValueError(f"mode is {mode!r}; want 'pruned' or 'exhaustive'")
        config = {name: value for name, value in (("nbits", nbits), ("seed", seed)) if value is not None}
        self._connection = Connection(
            index_folder, index_name, override=override, config=config, id_type=id_type, model=model,
            read_only=read_only, url=url, token=token, device=device, threads=threads, timeout=timeout, binary=binary,
        )  # fmt: skip
        self.index_folder = self._connection.index_folder
        self.index_name, self.id_type, self.mode, self.read_only = index_name, id_type, mode, read_only

    @classmethod
    def _open_empty(cls, ids: Any, options: dict[str, Any]) -> Index:
        """Opens an index that must have no documents yet. It is for whole numbers if ``ids`` are, or are None."""
        is_list = hasattr(ids, "__getitem__") and not isinstance(ids, Mapping) and len(ids) > 0
        if ids is None or is_list and not isinstance(ids[0], str):
            options.setdefault("id_type", int)
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        index = cls(**options)
        if len(index) > 0:
            index.close()
            raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
        return index

    @classmethod
    def from_embeddings(
        cls,
        documents_embeddings: Embeddings,
        documents_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Metadata | None = None,
        *,
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """An index of the output of an encoder, such as the lists of ``encode_document`` of sentence-transformers. It
        must not be there yet; ``override=True`` replaces it.

        Parameters
        ----------
        documents_embeddings
            Matrices [tokens, dim], or a padded array [documents, tokens, dim].
        documents_ids
            An id for each. Without them documents are numbered from 0.
        metadata, progress
            As for `add_documents`.
        **options
            Those of `Index`. Without ``index_folder`` and ``url`` the folder is a temporary one.

        Returns
        -------
        Index
            The index, to be closed.

        Examples
        --------
        >>> import numpy as np
        >>> with Index.from_embeddings([np.eye(4)[:2], np.eye(4)[2:]]) as index:
        ...     print(index.search(np.eye(4)[3:], k=1)[0]["id"])
        1
        """
        ids = documents_ids = items_of(documents_ids, "documents_ids")
        if ids is None:
            documents_embeddings = to_matrices(documents_embeddings, "document")
            ids = range(len(documents_embeddings))
        index = cls._open_empty(documents_ids, options)
        try:
            return index.add_documents(ids, documents_embeddings, metadata, progress=progress)
        except BaseException as e:
            index._abandon(e)
            raise

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        ids: Iterable[str] | Iterable[int] | None = None,
        metadata: Iterable[Mapping[str, Any]] | Any = None,
        *,
        model: str | os.PathLike[str] | None = None,
        text_field: str = "text",
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """An index of texts, which a model encodes.

        Parameters
        ----------
        texts, ids, metadata, text_field, progress
            As for `add_texts`. Without ids texts are numbered from 0.
        model
            The folder of a late-interaction model, or its name at the Hugging Face hub; left out with ``url``, whose
            service has one.
        **options
            Those of `Index`. Without ``index_folder`` and ``url`` the folder is a temporary one.

        Returns
        -------
        Index
            The index, to be closed.

        Examples
        --------
        >>> texts = ["cats sleep most of the day", "dogs bark at night"]
        >>> with Index.from_texts(texts, model="docs/examples/quickstart/colbert-nano") as index:
        ...     print(index.search("who barks?", k=1)[0]["id"])
        1
        """
        ids = items_of(ids, "ids")
        index = cls._open_empty(ids, {"model": model, **options})
        try:
            return index.add_texts(texts, ids, metadata, text_field=text_field, progress=progress)
        except BaseException as e:
            index._abandon(e)
            raise

    def _abandon(self, e: BaseException) -> None:
        """Closes an index that could not be filled."""
        gone = False
        if self._connection.service is not None and self.index_folder is None:
            with contextlib.suppress(PlaidError):
                gone = len(self) > 0
        self.close()
        if gone:
            add_remark(e, "the index was a temporary one, and is gone")

    def close(self) -> None:
        """Closes the index, and stops the service if it was started here and no other index uses it. Closing an index
        again does nothing."""
        self._connection.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_documents(
        self,
        documents_ids: Ids,
        documents_embeddings: Embeddings | None,
        metadata: Metadata | None = None,
        *,
        keep_metadata: bool | None = None,
        batch_size: int | None = None,
        progress: Progress = None,
        **ignored: Any,
    ) -> Index:
        """Adds documents. A document whose id is there replaces that one.

        Passages (``_passage`` in the metadata) replace their document as a whole, so that all of them have to be given,
        one after another; an error names a document that would lose some.

        Documents go in batches, each of which is stored as a whole or not at all. If a batch is refused, those before
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
            self._connection, documents_ids, documents_embeddings, metadata, keep_metadata, batch_size, progress
        )
        return self

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
        progress
            As for `add_documents`.
        wait
            False stores each batch, but for passages that may go on, before the next one is asked for, which is right
            for a source that goes on for long. An index that has documents already does so, too.
        """
        _ingest.add_batches(self._connection, batches, total, progress, wait)
        return self

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
        window_by: str = "words",
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
            What is kept whole where it is no longer than a passage: ``"words"``, ``"sentences"``, ``"headings"`` (of
            Markdown) or ``"blocks"`` (of source code).
        keep_metadata, progress
            As for `add_documents`.
        batch_size
            Texts of a batch. Passages of a document stay together, even if they are more.
        wait
            False stores each batch before the next one is asked for.
        """
        parting = None
        if window is not None:
            parting = {"window": window, "overlap": overlap, "window_by": window_by, "text_field": text_field}
        if window is None and (overlap or window_by != "words"):
            raise ValueError("overlap and window_by go with window")
        if window is not None and not text_field:
            raise ValueError("passages keep their texts: text_field is empty")
        _ingest.add_texts(
            self._connection,
            texts,
            ids,
            metadata,
            text_field,
            pool_factor,
            parting,
            keep_metadata,
            batch_size,
            progress,
            wait,
        )
        return self

    def remove_documents(self, documents_ids: Ids) -> Index:
        """PyLate's name for `delete` by ids.

        Parameters
        ----------
        documents_ids
            Those of `delete`.
        """
        self.delete(documents_ids)
        return self

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
        chosen = condition(where, parameters)
        if chosen is None:
            raise TypeError("update() takes a condition (where): '1=1' is true of every document")
        text, given = chosen
        updates = {k: to_json_value(v, f"values, key {k!r}") for k, v in values.items()}
        body = {"condition": text, "parameters": given, "updates": updates}
        return int(self._connection.change("POST", self._connection.path + "/metadata/update", body)["updated"])

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
            The number of documents that are gone. One of which other passages stay does not count.
        """
        chosen = condition(where, parameters)
        if (ids is None) == (chosen is None):
            raise TypeError("delete() takes ids or a condition (where), one of the two")
        path = self._connection.path + "/documents"
        if chosen is not None:
            body = {"condition": chosen[0], "parameters": chosen[1]}
            return int(self._connection.change("DELETE", path, body)["deleted"])
        removed = 0
        for names in id_batches(self._connection.to_names(ids)):
            try:
                removed += int(self._connection.change("DELETE", path, {"ids": names})["deleted"])
            except EmptyIndexError:
                break
        return removed

    def load(
        self, path: str | os.PathLike[str], documents_ids: Sequence[str] | Sequence[int] | None = None
    ) -> Index:
        """Fills an index that has no documents: from an index file (of `save`, ``plaid index``, ``plaid backup``), or
        from the index folder of ColBERT, PyLate, fast-plaid or next-plaid. Symbolic links in the folder are followed,
        such as those of the Hugging Face cache.

        Parameters
        ----------
        path
            The file or the folder.
        documents_ids
            The ids of the documents of a folder, in their order. Without them a file ``ids.txt`` in it names them, or
            what PyLate keeps beside its index, or they are numbered from 0.
        """
        _files.load(self._connection, path, documents_ids)
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an Index cannot be pickled: open one in each process, with the same folder or url")

    def __repr__(self) -> str:
        service = self._connection.service
        place = self._connection.client.url if service is None else service.place
        notes = [note for note, on in (("read only", self.read_only), ("closed", self._connection.closed)) if on]
        return f"Index({self.index_name!r} at {', '.join([place, *notes])})"

    def _repr_html_(self) -> str:
        title = f"<p>{escape(repr(self))}"
        if self._connection.closed:
            return f"{title}</p>"
        try:
            stats = self.stats()
        except PlaidError as e:
            return f"{title}: {escape(str(e))}</p>"
        rows = [(key, stats[key]) for key in ("documents", "passages", "tokens", "dim", "nbits", "file_bytes") if key in stats]
        cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows)
        return f"{title}</p><table>{cells}</table>"

    asearch = _coroutine(IndexReader.search)
    asearch_batch = _coroutine(IndexReader.search_batch)
    asearch_token_scores = _coroutine(IndexReader.search_token_scores)
    asimilar = _coroutine(IndexReader.similar)
    aexplain = _coroutine(IndexReader.explain)
    arerank = _coroutine(IndexReader.rerank)
    aencode = _coroutine(IndexReader.encode)
    aget = _coroutine(IndexReader.get)
    aget_documents_embeddings = _coroutine(IndexReader.get_documents_embeddings)
    aids = _coroutine(IndexReader.ids)
    astats = _coroutine(IndexReader.stats)
    asave = _coroutine(IndexReader.save)
    aadd_documents = _coroutine(add_documents)
    aupdate_documents = _coroutine(update_documents)
    aadd_batches = _coroutine(add_batches)
    aadd_texts = _coroutine(add_texts)
    aremove_documents = _coroutine(remove_documents)
    aupdate = _coroutine(update)
    adelete = _coroutine(delete)
    aload = _coroutine(load)
