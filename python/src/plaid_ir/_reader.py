"""The methods of an index that search."""

from __future__ import annotations

import warnings
from typing import Any, Iterable, Sequence, cast

import numpy as np

from . import _search
from ._arrays import Embeddings, Matrix, Vectors, to_float32
from ._checks import check_choice, check_bool, check_iterable, check_int
from ._conditions import Where, to_condition
from ._documents import TruncatedTexts, encode, fetch_documents
from ._errors import caller_level
from ._explanation import Explanation
from ._lookup import StoredDocuments
from ._results import Hits, Results
from ._search import Fusion, Group, Mode, Queries, Query

#: Parameters of PyLate's PLAID that have no counterpart: the engine derives what they tune.
_PYLATE_OPTIONS = frozenset(
    "kmeans_niters max_points_per_centroid n_samples_kmeans n_ivf_probe n_full_scores batch_size use_fast use_triton "
    "low_memory show_progress num_threads ndocs ncells centroid_score_threshold search_batch_size kmeans_seed "
    "rank_device embedding_size nranks index_bsize".split()
)
#: Keywords of `search_batch` that `__call__` takes.
_SEARCH_OPTIONS = frozenset(
    "where parameters metadata keywords hybrid fusion expression group passages highlight feedback like unlike "
    "mode offset min_score".split()
)
_warned_options: set[str] = set()


def ignore_pylate_options(given: Iterable[str], what: str) -> None:
    """Takes keywords of PyLate's index, warns once of each that it does nothing, and refuses other keywords."""
    for name in given:
        if name not in _PYLATE_OPTIONS:
            raise TypeError(f"{what} got an unexpected keyword argument {name!r}")
        if name not in _warned_options:
            _warned_options.add(name)
            text = f"{name} is a parameter of PyLate's index that plaid does not need; it is ignored"
            warnings.warn(text, UserWarning, stacklevel=caller_level())


class IndexReader(StoredDocuments):
    """The part of an `Index` that changes nothing: searches, and the methods of `StoredDocuments`."""

    mode: str

    def search(
        self,
        query: Query | None = None,
        k: int = 10,
        *,
        where: Where | None = None,
        parameters: Sequence[Any] = (),
        subset: Sequence[Any] | None = None,
        metadata: bool = False,
        keywords: str | bool = False,
        hybrid: bool | float = False,
        fusion: Fusion = "relative_score",
        expression: bool = False,
        group: Group | None = None,
        passages: int | None = None,
        highlight: bool = False,
        feedback: int = 0,
        like: Sequence[Any] = (),
        unlike: Sequence[Any] = (),
        mode: Mode | None = None,
        offset: int = 0,
        min_score: float | None = None,
    ) -> Hits:
        """The k best documents for one query, best first. Several queries: `search_batch`.

        Parameters
        ----------
        query
            A text, which the model of the service encodes, or a matrix [tokens, dim].
        k
            The number of documents.
        where, parameters
            A condition over the metadata: ``"year >= 2000"``, or ``"year >= ?"`` with a value for each ``?`` (pass
            input of users like this), or a dictionary of keys and their values or tests: ``{"lang": ["en", "de"],
            "draft": None, "year": {"$gte": 2000}}`` (docs/python.md has the operators). An empty dictionary is no
            condition. A list in the metadata passes a test if one of its elements does. A key that no document has
            is an error.
        subset
            Ids of the documents that may be returned.
        metadata
            Return the metadata of the hits.
        keywords
            Find words in the metadata by BM25, without vectors: ``True`` for those of the query, or the words
            themselves. With ``hybrid`` the query counts as well.
        hybrid
            Join the rankings by vectors and by keywords: the share of the vectors, 0 to 1, or True for 0.75.
        fusion
            The way to join the two rankings.
        expression
            In keywords, accept phrases in quotation marks, prefixes*, +required and -excluded words.
        group
            Return documents, not their passages, by the score of the ``"best"`` passage, the ``"sum"`` of them, or
            ``"maxsim"`` over all tokens.
        passages
            The number of passages with each document of a ``group``; default 3.
        highlight
            Return the words of the texts that match words of the query, and the metadata.
        feedback, like, unlike
            Search again with a query that has moved towards the ``feedback`` best documents and those of the ids
            ``like``, and away from those of ``unlike``.
        mode
            ``"pruned"``, ``"exhaustive"``, or ``"candidates"``: score all of ``subset``.
        offset
            Leave this many of the best out: the next page begins where this one ends.
        min_score
            Leave documents out that score less.

        Returns
        -------
        Hits
            A list of dictionaries with ``id``, ``score``, and the parts that were asked for.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     years = [{"year": 1999}, {"year": 2001}]
        ...     _ = index.add_documents(["a", "b"], [np.eye(4)[:2], np.eye(4)[2:]], years)
        ...     print(index.search(np.eye(4)[2:], 1, where="year >= 2000", metadata=True)[0]["metadata"])
        {'year': 2001}
        """
        queries: Any = None
        if isinstance(query, str):
            queries = [query]
        elif query is not None:
            queries = [_search.to_query_matrix(query)]
        words: list[str] | bool = [keywords] if isinstance(keywords, str) else keywords
        return self.search_batch(
            queries, k, subset, where=where, parameters=parameters, metadata=metadata, keywords=words, hybrid=hybrid,
            fusion=fusion, expression=expression, group=group, passages=passages, highlight=highlight,
            feedback=feedback, like=like, unlike=unlike, mode=mode, offset=offset, min_score=min_score,
        )[0]  # fmt: skip

    def search_batch(
        self,
        queries: Sequence[str] | Embeddings | None = None,
        k: int = 10,
        subset: Sequence[Any] | None = None,
        *,
        where: Where | None = None,
        parameters: Sequence[Any] = (),
        metadata: bool = False,
        keywords: Sequence[str] | bool = False,
        hybrid: bool | float = False,
        fusion: Fusion = "relative_score",
        expression: bool = False,
        group: Group | None = None,
        passages: int | None = None,
        highlight: bool = False,
        feedback: int = 0,
        like: Sequence[Any] = (),
        unlike: Sequence[Any] = (),
        mode: Mode | None = None,
        offset: int = 0,
        min_score: float | None = None,
    ) -> Results:
        """The k best documents for each query, best first.

        Parameters
        ----------
        queries
            Texts, or matrices [tokens, dim]: a list of them, one matrix, or an array [queries, tokens, dim].
        k
            The number of documents for each.
        subset
            Ids that may be returned, or a list of such a list for each query.
        keywords
            Words for each query, or True.
        where, parameters, metadata, hybrid, fusion, expression, group
            As for `search`.
        passages, highlight, feedback, like, unlike, mode, offset, min_score
            As for `search`.

        Returns
        -------
        Results
            The hits of each query, in the order of the queries.
        """
        to_names = self._connection.to_names
        request = _search.base_request(k, self.mode if mode is None else mode, offset, min_score)
        highlight = check_bool(highlight, "highlight")
        request |= {
            "metadata": check_bool(metadata, "metadata") or highlight,
            **_search.filter_fields(where, parameters),
        }
        if highlight:
            request["highlight"] = True
        if group is not None:
            request["group"] = check_choice(group, "group", Group)
        if passages is not None:
            request["passages"] = check_int(passages, "passages", 0)
        feedback, liked, unliked = (
            check_int(feedback, "feedback", 0),
            to_names(like, "like"),
            to_names(unlike, "unlike"),
        )
        if feedback or liked or unliked:
            request["feedback"] = {"documents": feedback, "like": liked, "unlike": unliked}
        asked = Queries(queries, keywords, hybrid, fusion, expression)
        return _search.search(self._connection, asked, request, subset)

    def __call__(
        self,
        queries_embeddings: Sequence[str] | Embeddings,
        k: int = 10,
        subset: Sequence[Any] | None = None,
        **options: Any,
    ) -> Results:
        """`search_batch`, as PyLate's retriever calls an index.

        Parameters
        ----------
        queries_embeddings, k, subset
            Those of `search_batch`. One text is one query.
        **options
            Those of `search_batch`, and keywords of PyLate's index that have no counterpart.

        Returns
        -------
        Results
            The hits of each query, in the order of the queries.
        """
        ignore_pylate_options([name for name in options if name not in _SEARCH_OPTIONS], "Index()")
        known = {name: value for name, value in options.items() if name in _SEARCH_OPTIONS}
        if isinstance(queries_embeddings, str):
            queries_embeddings = [queries_embeddings]
        if queries_embeddings is not None:  # pyright: ignore[reportUnnecessaryComparison]
            check_iterable(queries_embeddings, "queries_embeddings", "texts or matrices")
        return self.search_batch(queries_embeddings, k, subset, **known)

    def search_token_scores(
        self,
        queries: Sequence[str] | Embeddings,
        k: int = 10,
        subset: Sequence[Any] | None = None,
        **options: Any,
    ) -> Results:
        """`search_batch` with the inner products of the tokens in each hit.

        Parameters
        ----------
        queries
            Texts, or matrices [tokens, dim].
        k, subset, **options
            Those of `search_batch`.

        Returns
        -------
        Results
            Hits with ``token_scores``, [query tokens, document tokens] in float32, of vectors of unit length.
        """
        if queries is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError("queries is None: there are no tokens that could be scored")
        texts, matrices = _search.texts_or_matrices(queries)
        # Texts stay texts: a search by keywords needs their words.
        results = self.search_batch(cast("Any", texts or matrices), k, subset, **options)
        if matrices is None:
            # The search has warned of texts that are cut.
            matrices = cast("list[Matrix]", encode(self._connection, texts or [], True, TruncatedTexts()))
        ids = list(dict.fromkeys(hit["id"] for hits in results for hit in hits))
        documents = dict(zip(ids, self.get_documents_embeddings(ids))) if ids else {}
        for m, hits in zip(matrices, results):
            q: Matrix = to_float32(m)
            length: Matrix = np.linalg.norm(q.astype(np.float64), axis=1, keepdims=True)
            q = (q / np.where(length == 0, 1, length)).astype(np.float32)
            for hit in hits:
                d = documents[hit["id"]]
                hit["token_scores"] = q @ (d.T if len(d) else np.zeros((q.shape[1], 0), np.float32))
        return results

    def similar(self, id: Any, k: int = 10, **options: Any) -> Hits:
        """The documents that a search for the vectors of a stored document finds, without the document itself.

        Parameters
        ----------
        id
            The document. If it is stored as passages, its vectors are those of all of them.
        k
            The number of documents.
        **options
            Those of `search`.

        Returns
        -------
        Hits
            Best first.
        """
        names = self._connection.to_names([id], "id")
        (parts,) = fetch_documents(self._connection, names, vectors=True).values()
        text, values = f"_id NOT IN ({', '.join('?' * len(parts))})", [d["id"] for d in parts]
        chosen = to_condition(options.pop("where", None), options.pop("parameters", ()))
        if chosen is not None:
            text, values = f"{text} AND ({chosen[0]})", [*values, *chosen[1]]
        return self.search(np.concatenate([d["vectors"] for d in parts]), k, where=text, parameters=values, **options)

    def explain(
        self,
        id: Any,
        query: Query,
        *,
        k: int = 10,
        where: Where | None = None,
        parameters: Sequence[Any] = (),
        mode: Mode | None = None,
    ) -> Explanation:
        """How the score of a document comes about in a search for the k best, and where it left the search.

        Parameters
        ----------
        id
            The document. An id that is not there is a KeyError.
        query
            A text, or a matrix [tokens, dim].
        k, where, parameters, mode
            Those of the search, as for `search`.

        Returns
        -------
        Explanation
            A dictionary; a notebook shows a heat map of the tokens.
        """
        return _search.explain(self._connection, id, query, k, where, parameters, self.mode if mode is None else mode)

    def rerank(self, query: Query, documents: Sequence[str] | Embeddings) -> list[dict[str, Any]]:
        """Scores documents, which need not be in the index: texts for a query that is a text, matrices for
        a matrix. Vectors are not scaled to unit length.

        To rank documents of the index use ``search(query, len(ids), subset=ids, mode="candidates")``.

        Parameters
        ----------
        query
            A text, or a matrix [tokens, dim].
        documents
            Texts, or matrices [tokens, dim], or an array [documents, tokens, dim].

        Returns
        -------
        list of dict
            ``index``, the place in ``documents``, and ``score``, best first.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     print([r["index"] for r in index.rerank(np.eye(4), [np.eye(4)[:1], np.eye(4)[:3]])])
        [1, 0]
        """
        return _search.rerank(self._connection, query, documents)

    def encode(self, texts: Sequence[str], *, is_query: bool = False) -> list[Vectors]:
        """The vectors of texts by the model of the service.

        Parameters
        ----------
        texts
            The texts.
        is_query
            True for queries, which models encode in another way than documents.

        Returns
        -------
        list of numpy.ndarray
            A matrix [tokens, dim] of float32 for each.
        """
        cut = TruncatedTexts()
        vectors = encode(self._connection, texts, check_bool(is_query, "is_query"), cut)
        cut.warn()
        return vectors
