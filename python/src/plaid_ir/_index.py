"""Defines `Index`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from html import escape
from types import CoroutineType, TracebackType
from typing import (
    Any, Callable, Generator, Iterable, Literal, Mapping, ParamSpec, Sequence, TypeVar, Union, cast,
)  # fmt: skip

import numpy as np

from ._arrays import Embeddings, to_matrices
from ._checks import check_choice, check_bool, check_optional, check_path, check_iterable, check_int, unexpected_value
from ._connection import Connection
from ._errors import EmptyIndexError, PlaidError, add_remark
from ._images import OnError
from ._ingest import PoolBy, WindowBy
from ._page_model import PageModel, to_page_model
from ._progress import Progress
from ._reader import ignore_pylate_options
from ._results import Hits
from ._tables import to_items
from ._writer import IndexWriter, Metadata

#: A text model by its folder or name; or a page model by its name, or as a pair (model, processor).
Model = Union[str, os.PathLike[str], PageModel, tuple[Any, Any]]
#: How searches choose the documents that they score, unless they set ``mode``.
_Mode = Literal["pruned", "exhaustive"]
P = ParamSpec("P")
R = TypeVar("R")


def check_index(value: Any, library: str | None = None) -> Index:
    """Returns the index that an adapter was given. If ``library`` has texts as ids, checks that the index does, too."""
    if not isinstance(value, Index):
        raise unexpected_value("index", value, "an Index of plaid_ir")
    if library is not None and value.id_type is not str:
        raise ValueError(f"the ids of {library} are texts: want an index with id_type=str")
    return value


def to_coroutine(method: Callable[P, R], name: str = "a{}") -> Callable[P, CoroutineType[Any, Any, R]]:
    """Returns a coroutine method that runs ``method`` in a thread. ``name`` is a pattern for its name."""

    @functools.wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, *args, **kwargs)

    run.__doc__ = f"`{method.__name__}`, for asyncio."
    run.__name__ = name.format(method.__name__)
    return run  # type: ignore[return-value,unused-ignore]


class Index(IndexWriter):
    """An index of documents, which are matrices of token vectors.

    It has the interface of PyLate's indexes, and more methods such as `search` and `add_texts`. When a method that
    changes the index returns, the change is on disk; such a method returns the index itself or a number of documents.
    Vectors are scaled to length 1. Threads and processes can share an index: the first process that opens a folder
    starts a service for it, and other processes use the same service. Methods whose names begin with ``a`` are
    coroutines for asyncio.

    Parameters
    ----------
    index_folder
        The folder of the indexes, which is created if it does not exist; or the address of an object store,
        ``"s3://BUCKET/PREFIX"`` or ``"file:///FOLDER"``, which this machine caches. None means a temporary folder,
        which is removed when the index is closed.
    index_name
        The name: 1 to 128 of ``A-Z a-z 0-9 . _ -``, not beginning or ending with a dot.
    override
        True removes an index of this name first.
    nbits
        Bits for each component of a vector in large indexes: 1, 2, 4 (the default) or 8. Small indexes use 8.
    seed
        The random seed of training; default 42.
    id_type
        ``str``, or ``int`` for an index whose ids are whole numbers.
    mode
        ``"pruned"``, or ``"exhaustive"`` to score every document.
    model
        The model that encodes texts: the folder of a late-interaction model, or its name at the Hugging Face hub,
        ``"ORG/NAME"`` or ``"ORG/NAME@REVISION"``, which is downloaded unless the hub's cache has it. If another process
        has the folder open, omit the model or name the same one. Or a page model, which encodes page images in this
        process (`from_images`).
    pictures
        The folder of page pictures; default: ``.images`` in the folder of the indexes.
    read_only
        True refuses all changes, and also opens a folder that is not writable. No other process may change the index of
        such a folder while it is open.
    url, token
        The address of a service (``http://``, ``https://`` or ``unix:``) that has the index, and its bearer token.
        Without a url, this object starts a service, which stops when the object is closed.
    device, threads
        For a service that this object starts: the devices that search (``"cuda:0"`` or ``"cuda"``, ``"auto"``, or a
        list; default: the processor), and the number of threads of one search.
    timeout
        The time limit in seconds, for each request and for the start of the service.
    binary
        The path of the program plaid. Default: ``$PLAID_BINARY``, or the program in this package.
    **ignored
        Keywords of PyLate's PLAID without a counterpart, such as ``use_triton``. A warning says once that they are
        ignored.

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

    #: Tells PyLate's retriever that the index ranks documents by itself.
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
        mode: _Mode = "pruned",
        model: Model | None = None,
        pictures: str | os.PathLike[str] | None = None,
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
        check_choice(mode, "mode", _Mode)
        for name, value in (("override", override), ("read_only", read_only)):
            check_bool(value, name)
        if nbits is not None and check_int(nbits, "nbits") not in (1, 2, 4, 8):
            raise ValueError(f"nbits is {nbits}; want 1, 2, 4 or 8")
        if seed is not None:
            check_int(seed, "seed", 0)
        check_optional(check_path, pictures, "pictures")
        config = {name: value for name, value in (("nbits", nbits), ("seed", seed)) if value is not None}
        page_model = to_page_model(model)
        text_model = None if page_model is not None else cast("Union[str, os.PathLike[str], None]", model)
        self._connection = Connection(
            index_folder, index_name, override=override, config=config, id_type=id_type, model=text_model,
            read_only=read_only, url=url, token=token, device=device, threads=threads, timeout=timeout, binary=binary,
        )  # fmt: skip
        self._connection.use_pictures(pictures, override)
        if page_model is not None:
            try:
                self._connection.use_page_model(page_model)
            except BaseException:
                self._connection.close()
                raise
        self.index_folder = self._connection.index_folder
        self.index_name, self.id_type, self.mode, self.read_only = index_name, id_type, mode, read_only

    @classmethod
    @contextlib.contextmanager
    def _open_new(cls, ids: Any, options: dict[str, Any]) -> Generator[Index, None, None]:
        """Opens an index that must be empty, and closes it if the block fails.

        The ids of the index are whole numbers if ``ids`` are, or if ``ids`` is None.
        """
        is_list = hasattr(ids, "__getitem__") and not isinstance(ids, Mapping) and len(ids) > 0
        if ids is None or is_list and isinstance(ids[0], (int, np.integer)):
            options.setdefault("id_type", int)
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        index = cls(**options)
        if len(index) > 0:
            index.close()
            raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
        try:
            yield index
        except BaseException as e:
            index._abandon(e)
            raise

    @classmethod
    def from_embeddings(
        cls,
        documents_embeddings: Embeddings,
        documents_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Metadata | None = None,
        *,
        pool_factor: int | None = None,
        pool_by: PoolBy = "similar",
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """Creates an index from the output of an encoder, such as ``encode_document`` of sentence-transformers.

        The index must not exist, or have no documents; ``override=True`` replaces it.

        Parameters
        ----------
        documents_embeddings
            Matrices [tokens, dim], or a padded array [documents, tokens, dim].
        documents_ids
            An id for each document. Default: documents are numbered from 0.
        metadata, pool_factor, pool_by, progress
            As for `add_documents`.
        **options
            Options of `Index`. Without ``index_folder`` and ``url``, the folder is temporary.

        Returns
        -------
        Index
            The open index; close it after use.

        Examples
        --------
        >>> import numpy as np
        >>> with Index.from_embeddings([np.eye(4)[:2], np.eye(4)[2:]]) as index:
        ...     print(index.search(np.eye(4)[3:], k=1)[0]["id"])
        1
        """
        ids = documents_ids = to_items(documents_ids, "documents_ids")
        if ids is None:
            check_iterable(documents_embeddings, "documents_embeddings", "matrices")
            documents_embeddings = to_matrices(documents_embeddings, "document")
            ids = range(len(documents_embeddings))
        with cls._open_new(documents_ids, options) as index:
            return index.add_documents(
                ids, documents_embeddings, metadata, pool_factor=pool_factor, pool_by=pool_by, progress=progress
            )

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        ids: Iterable[str] | Iterable[int] | None = None,
        metadata: Iterable[Mapping[str, Any]] | Any = None,
        *,
        model: str | os.PathLike[str] | None = None,
        text_field: str = "text",
        pool_factor: int | None = None,
        window: int | None = None,
        overlap: int = 0,
        window_by: WindowBy = "words",
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """Creates an index from texts, which a model encodes.

        Parameters
        ----------
        texts, ids, metadata, text_field, pool_factor, window, overlap, window_by, progress
            As for `add_texts`. Without ids, texts are numbered from 0.
        model
            The folder of a late-interaction model, or its name at the Hugging Face hub. Omit it with ``url``: that
            service has its own model.
        **options
            Options of `Index`. Without ``index_folder`` and ``url``, the folder is temporary.

        Returns
        -------
        Index
            The open index; close it after use.

        Examples
        --------
        >>> texts = ["cats sleep most of the day", "dogs bark at night"]
        >>> with Index.from_texts(texts, model="docs/examples/quickstart/colbert-nano") as index:
        ...     print(index.search("who barks?", k=1)[0]["id"])
        1
        """
        ids = to_items(ids, "ids")
        with cls._open_new(ids, {"model": model, **options}) as index:
            return index.add_texts(
                texts, ids, metadata, text_field=text_field, pool_factor=pool_factor, window=window, overlap=overlap,
                window_by=window_by, progress=progress,
            )  # fmt: skip

    @classmethod
    def from_images(
        cls,
        images: Any,
        ids: str | Iterable[str] | None = None,
        metadata: Any = None,
        *,
        model: Model,
        pool_factor: int | None = None,
        pool_by: PoolBy = "tiles",
        batch_size: int = 4,
        dpi: int = 150,
        keep_pictures: bool = True,
        on_error: OnError = "raise",
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """Creates an index from page images, which a model of colpali-engine encodes in this process.

        The same model encodes questions.

        Parameters
        ----------
        images, ids, metadata, pool_factor, pool_by, batch_size, dpi, keep_pictures, on_error, progress
            As for `add_images`.
        model
            The name of a model at the Hugging Face hub, its folder, a pair (model, processor), or a `PageModel`.
        **options
            Options of `Index`. Without ``index_folder`` and ``url``, the folder is temporary.

        Returns
        -------
        Index
            The open index; close it after use.

        Examples
        --------
        >>> index = Index.from_images("reports", model="vidore/colqwen2-v1.0")  # doctest: +SKIP
        >>> hit = index.search("revenue by region", k=1)[0]                     # doctest: +SKIP
        >>> index.explain(hit["id"], "revenue by region").region                # doctest: +SKIP
        """
        with cls._open_new(ids, {"id_type": str, **options, "model": to_page_model(model, text=False)}) as index:
            return index.add_images(
                images, ids, metadata, pool_factor=pool_factor, pool_by=pool_by, batch_size=batch_size, dpi=dpi,
                keep_pictures=keep_pictures, on_error=on_error, progress=progress,
            )  # fmt: skip

    def _abandon(self, e: BaseException) -> None:
        """Closes an index after the error ``e``. If a temporary index with documents is removed, ``e`` reports it."""
        loses_documents = False
        if self._connection.service is not None and self.index_folder is None:
            with contextlib.suppress(PlaidError):
                loses_documents = len(self) > 0
        self.close()
        if loses_documents:
            add_remark(e, "the index was temporary, and was removed")

    def close(self) -> None:
        """Closes the index. Stops the service if this process started it and no other index uses it.

        Closing an index twice does nothing.
        """
        self._connection.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an Index cannot be pickled: open it again in each process, with the same folder or url")

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
        keys = ("documents", "passages", "tokens", "dim", "nbits", "file_bytes")
        rows = [(key, stats[key]) for key in keys if key in stats]
        cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows)
        return f"{title}</p><table>{cells}</table>"

    asearch = to_coroutine(IndexWriter.search)
    asearch_batch = to_coroutine(IndexWriter.search_batch)
    asearch_token_scores = to_coroutine(IndexWriter.search_token_scores)
    asimilar = to_coroutine(IndexWriter.similar)
    aexplain = to_coroutine(IndexWriter.explain)
    arerank = to_coroutine(IndexWriter.rerank)
    aencode = to_coroutine(IndexWriter.encode)
    aget = to_coroutine(IndexWriter.get)
    aget_documents_embeddings = to_coroutine(IndexWriter.get_documents_embeddings)
    aids = to_coroutine(IndexWriter.ids)
    afacets = to_coroutine(IndexWriter.facets)
    astats = to_coroutine(IndexWriter.stats)
    asave = to_coroutine(IndexWriter.save)
    aadd_documents = to_coroutine(IndexWriter.add_documents)
    aupdate_documents = to_coroutine(IndexWriter.update_documents)
    aadd_batches = to_coroutine(IndexWriter.add_batches)
    aadd_texts = to_coroutine(IndexWriter.add_texts)
    aadd_images = to_coroutine(IndexWriter.add_images)
    aremove_documents = to_coroutine(IndexWriter.remove_documents)
    aupdate = to_coroutine(IndexWriter.update)
    adelete = to_coroutine(IndexWriter.delete)
    acompact = to_coroutine(IndexWriter.compact)
    aload = to_coroutine(IndexWriter.load)


def search_for_framework(index: Index, query: Any, k: int, options: Mapping[str, Any]) -> Hits:
    """Returns the hits of a search with their metadata. An empty index has no hits: frameworks expect no error."""
    try:
        return index.search(query, k, metadata=True, **options)
    except EmptyIndexError:
        return Hits()
