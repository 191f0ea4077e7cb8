"""mteb: an index backend for evaluations, over an `Index`; ``pip install "./python[mteb]"`` in a clone."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Callable, Iterable, Mapping, Sequence, cast

from ._arrays import Matrix, to_array, to_matrices
from ._index import Index


class PlaidSearchIndex:
    """An index backend of mteb (``IndexEncoderSearchProtocol``) that scores by MaxSim.

    It accepts the vectors of models with a vector for each token: matrices [tokens, dim], or padded arrays [documents,
    tokens, dim]. The vectors [documents, dim] of a model with one vector for a text become matrices with one row, for
    which MaxSim is the cosine. The similarity function of the model is not used.

    Parameters
    ----------
    **options
        Options of `Index`. Without ``index_folder`` and ``url``, the index is temporary.

    Examples
    --------
    >>> import numpy as np
    >>> backend = PlaidSearchIndex()
    >>> backend.add_documents(np.eye(3, dtype=np.float32)[:, None], ["a", "b", "c"])
    >>> scores, places = backend.search(np.eye(3, dtype=np.float32)[:1, None], 1, None)
    >>> places
    [[0]]
    >>> backend.clear()
    """

    def __init__(self, **options: Any) -> None:
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        options.setdefault("index_name", "mteb")
        self._options = options
        self._index: Index | None = None
        self._ids: list[str] = []

    def add_documents(self, embeddings: Any, idxs: Iterable[str]) -> None:
        """Adds documents.

        Parameters
        ----------
        embeddings
            Matrices [tokens, dim], an array [documents, tokens, dim] or [documents, dim].
        idxs
            An id for each.
        """
        names = [str(i) for i in idxs]
        matrices = _to_matrices(embeddings, "document")
        if len(names) != len(matrices):
            raise ValueError(f"there are {len(names)} ids and {len(matrices)} documents: want one for each")
        if self._index is None:
            index = Index(id_type=int, **self._options)
            if len(index) > 0:
                index.close()
                raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
            self._index = index
        start = len(self._ids)
        self._index.add_documents(range(start, start + len(names)), matrices)
        self._ids += names

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any] | None = None,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Returns the best documents for each query.

        Parameters
        ----------
        embeddings
            The queries, in one of the forms that documents can have.
        top_k
            The number of documents.
        similarity_fn
            Not used.
        top_ranked, query_idx_to_id
            The ids of the documents to rank, by the id of the query; and the id of each query, by its number.

        Returns
        -------
        tuple of list
            For each query the scores, best first, and the positions of the documents: among all
            documents, in the order in which they were added; with ``top_ranked``, among those to rank.
        """
        if self._index is None:
            raise ValueError("the index has no documents: call add_documents before search")
        queries = _to_matrices(embeddings, "query")
        if top_ranked is None:
            results = self._index.search_batch(queries, top_k)
            return [[h["score"] for h in hits] for hits in results], [[int(h["id"]) for h in hits] for hits in results]
        if query_idx_to_id is None:
            raise ValueError("top_ranked needs query_idx_to_id, the id of each query")
        positions = {name: n for n, name in enumerate(self._ids)}
        subsets: list[list[int]] = []
        for i in range(len(queries)):
            ranked = top_ranked.get(query_idx_to_id[i], ())
            for name in ranked:
                if name not in positions:
                    query = query_idx_to_id[i]
                    raise KeyError(f"document {name!r}, in top_ranked of query {query!r}, was not added")
            subsets.append([positions[name] for name in ranked])
        results = self._index.search_batch(queries, top_k, subsets, mode="candidates")
        ranks = [{n: rank for rank, n in reversed(list(enumerate(subset)))} for subset in subsets]
        found = [[subset_ranks[int(h["id"])] for h in hits] for subset_ranks, hits in zip(ranks, results)]
        return [[h["score"] for h in hits] for hits in results], found

    def clear(self) -> None:
        """Deletes all documents. mteb calls it after each search."""
        if self._index is not None:
            self._index._connection.send_change("DELETE", self._index._connection.path)
            self._index.close()
            self._index = None
        self._ids = []


class _Encoder:
    """The encoder of an mteb model that has its own search."""

    def __init__(self, model: Any) -> None:
        self.mteb_model_meta = model.mteb_model_meta
        self.encode = model._encode

    def similarity(self, a: Any, b: Any) -> Any:
        raise NotImplementedError("PlaidSearchIndex scores by MaxSim")

    similarity_pairwise = similarity


def with_index(model: Any, index_backend: PlaidSearchIndex | None = None) -> Any:
    """Returns a model of mteb that searches by an index.

    mteb's wrappers of late-interaction models of PyLate and sentence-transformers have their own search. This one uses
    only their vectors.

    Parameters
    ----------
    model
        A model of ``mteb.get_model``.
    index_backend
        The index. Default: a temporary index.

    Returns
    -------
    mteb.SearchEncoderWrapper
        The model to pass to ``mteb.evaluate``.
    """
    wrapper = import_module("mteb.models").SearchEncoderWrapper  # imported late: it imports torch
    encoder = model if callable(getattr(model, "encode", None)) else _Encoder(model)
    return wrapper(encoder, index_backend=PlaidSearchIndex() if index_backend is None else index_backend)


def _to_matrices(embeddings: Any, what: str) -> list[Matrix]:
    if not isinstance(embeddings, (list, tuple)) and getattr(embeddings, "ndim", 0) == 2:
        return [cast("Matrix", row[None]) for row in to_array(embeddings)]
    return to_matrices(cast("Any", embeddings), what)
