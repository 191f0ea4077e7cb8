"""The index."""

from __future__ import annotations

import os
import ssl
from html import escape
from typing import Any, Iterable, Literal, Mapping, Sequence

from ._arrays import Embeddings, to_matrices
from ._aside import aside
from ._connection import Connection, ignore
from ._errors import PlaidError
from ._progress import Progress
from ._search import Searches


class Index(Searches):
    """An index of documents that are matrices of token vectors.

    It has the interface of PyLate's indexes, and `search`, `add_texts` and more beside it. What a
    method that changes something returns from is on the disk. Vectors are scaled to unit length.
    Any number of threads and processes may use an index: the first process that opens a folder
    starts a service for it, and the others find that. Names that begin with ``a`` are coroutines
    for asyncio.

    Parameters
    ----------
    index_folder
        The folder of the indexes; it is made if it is not there. None: a temporary one,
        which goes when the index is closed.
    index_name
        The name: 1 to 128 of ``A-Z a-z 0-9 . _ -``, not beginning or ending with a dot.
    override
        Remove an index of this name that is there.
    nbits
        Bits a component of large indexes: 1, 2, 4 (the default) or 8. Small ones have 8.
    seed
        Seed of the trainings; default 42.
    id_type
        ``str``, or ``int`` for an index whose ids are whole numbers.
    mode
        ``"pruned"``, or ``"exhaustive"`` to score every document.
    model
        The folder of a late-interaction model, which encodes texts. Where the folder of the indexes
        is open already, leave it out or name the same.
    read_only
        Change nothing. It also opens folders that cannot be written to; then no other process may
        change the index meanwhile.
    url, token
        The address of a service (``http://``, ``https://`` or ``unix:``) that has the index,
        and the bearer token for it. Without a url the service runs as long as this object.
    device, threads
        Of the service that is started: where it searches (``"cuda:0"`` or ``"cuda"``, ``"auto"``, a
        list of several; default the processor), and how many threads one search takes.
    timeout, start_timeout
        How long a request, and the start of the service, may take, in seconds.
    binary
        The program plaid; default: that of ``$PLAID_BINARY``, or the one in this package.
    ssl_context
        For an ``https://`` address.
    **ignored
        Keywords of PyLate's PLAID that have no counterpart, such as ``use_triton``. A warning says
        once that they do nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index
    >>> with Index(None) as index:
    ...     _ = index.add_documents(["a", "b"], [np.eye(4)[:2], np.eye(4)[2:]], [{"year": 1999}, {"year": 2001}])
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
        start_timeout: float = 300.0,
        binary: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        **ignored: Any,
    ) -> None:
        ignore(ignored, "Index()")
        Connection.__init__(
            self, index_folder, index_name, override, nbits=nbits, seed=seed, id_type=id_type, mode=mode, model=model, read_only=read_only, url=url, token=token,
            device=device, threads=threads, timeout=timeout, start_timeout=start_timeout, binary=binary, ssl_context=ssl_context,
        )  # fmt: skip

    @classmethod
    def from_embeddings(
        cls,
        documents_embeddings: Embeddings,
        documents_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        *,
        progress: Progress = None,
        **options: Any,
    ) -> Index:
        """An index of what an encoder returns, such as the lists of ``encode_document`` of
        sentence-transformers. It must not be there yet; ``override=True`` replaces it.

        Parameters
        ----------
        documents_embeddings
            Matrices [tokens, dim], or a padded array [documents, tokens, dim].
        documents_ids
            An id for each. Without them documents are numbered from 0: hits have the place in the
            list.
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
        if documents_ids is None:
            documents_embeddings = to_matrices(documents_embeddings, "document")
            documents_ids = range(len(documents_embeddings))
            options.setdefault("id_type", int)
        elif len(documents_ids) and not isinstance(documents_ids[0], str):
            options.setdefault("id_type", int)
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        index = cls(**options)
        try:
            if len(index) > 0:
                raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
            return index.add_documents(documents_ids, documents_embeddings, metadata, progress=progress)
        except BaseException:
            index.close()
            raise

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        ids: Iterable[str] | Iterable[int] | None = None,
        metadata: Iterable[Mapping[str, Any]] | None = None,
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
            The folder of a late-interaction model; left out with ``url``, whose service has one.
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
        if ids is None:
            options.setdefault("id_type", int)
        elif isinstance(ids, Sequence) and len(ids) and not isinstance(ids[0], str):
            options.setdefault("id_type", int)
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        index = cls(model=model, **options)
        try:
            if len(index) > 0:
                raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
            return index.add_texts(texts, ids, metadata, text_field=text_field, progress=progress)
        except BaseException:
            index.close()
            raise

    def __repr__(self) -> str:
        place = self._client.url if self._service is None else self._service.folder
        return f"Index({self.index_name!r} at {place}{', read only' if self.read_only else ''}{', closed' if self._closed else ''})"

    def _repr_html_(self) -> str:
        if self._closed:
            return f"<p>{escape(repr(self))}</p>"
        try:
            stats = self.stats()
        except PlaidError as e:
            return f"<p>{escape(repr(self))}: {escape(str(e))}</p>"
        rows = [(key, stats[key]) for key in ("documents", "tokens", "dim", "nbits", "file_bytes") if key in stats]
        cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows)
        return f"<p>{escape(repr(self))}</p><table>{cells}</table>"

    asearch = aside(Searches.search)
    asearch_batch = aside(Searches.search_batch)
    asearch_token_scores = aside(Searches.search_token_scores)
    asimilar = aside(Searches.similar)
    aexplain = aside(Searches.explain)
    arerank = aside(Searches.rerank)
    aencode = aside(Searches.encode)
    aadd_documents = aside(Searches.add_documents)
    aupdate_documents = aside(Searches.update_documents)
    aadd_batches = aside(Searches.add_batches)
    aadd_texts = aside(Searches.add_texts)
    aremove_documents = aside(Searches.remove_documents)
    aget = aside(Searches.get)
    aget_documents_embeddings = aside(Searches.get_documents_embeddings)
    aids = aside(Searches.ids)
    aupdate = aside(Searches.update)
    adelete = aside(Searches.delete)
    aload = aside(Searches.load)
    asave = aside(Searches.save)
    astats = aside(Searches.stats)
