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

#: Parameters of PyLate's PLAID without a counterpart: this engine derives these settings.
_PYLATE_OPTIONS = frozenset(
    "kmeans_niters max_points_per_centroid n_samples_kmeans n_ivf_probe n_full_scores batch_size use_fast use_triton "
    "low_memory show_progress num_threads ndocs ncells centroid_score_threshold search_batch_size kmeans_seed "
    "rank_device embedding_size nranks index_bsize".split()
)
#: Keywords of `search_batch` that `__call__` accepts.
_SEARCH_OPTIONS = frozenset(
    "where parameters metadata keywords hybrid fusion expression group passages highlight feedback like unlike "
    "mode offset min_score".split()
)
_warned_options: set[str] = set()


def ignore_pylate_options(given: Iterable[str], what: str) -> None:
    """Warns once of each keyword of PyLate's index that it is ignored. Raises TypeError for other keywords."""
    for name in given:
        if name not in _PYLATE_OPTIONS:
            raise TypeError(f"{what} got an unexpected keyword argument {name!r}")
        if name not in _warned_options:
            _warned_options.add(name)
            text = f"{name} is ignored: it is a parameter of PyLate's index that plaid does not need"
            warnings.warn(text, UserWarning, stacklevel=caller_level())


class IndexReader(StoredDocuments):
    """The methods of an `Index` that do not change it: searches, and those of `StoredDocuments`."""

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
        """Returns the k best documents for one query, best first. For several queries use `search_batch`.

        Parameters
        ----------
        query
            A text, which the model of the service encodes, or a matrix [tokens, dim].
        k
            The number of documents.
        where, parameters
            A condition on the metadata: ``"year >= 2000"``; or ``"year >= ?"`` with a value for each ``?`` in
            ``parameters`` (use this for input of users); or a dictionary of keys and their values or tests:
            ``{"lang": ["en", "de"], "draft": None, "year": {"$gte": 2000}}`` (docs/python.md lists the operators). An
            empty dictionary means no condition. A list in the metadata passes a test if one of its elements does. A key
            that no document has is an error.
        subset
            Ids of the documents to search. None searches all.
        metadata
            True returns the metadata of the hits.
        keywords
            Search the metadata for words by BM25, without vectors. True searches for the words of the query; a text,
            for its words. With ``hybrid`` the vectors of the query count as well.
        hybrid
            Combine the rankings by vectors and by keywords. The number is the weight of the vectors, 0 to 1; True means
            0.75.
        fusion
            How the two rankings are combined.
        expression
            True allows phrases in quotation marks, prefixes*, +required and -excluded words in keywords.
        group
            Return documents instead of passages. A document is scored by its ``"best"`` passage, by the ``"sum"`` of
            its passages' scores, or by ``"maxsim"`` over all of its tokens.
        passages
            The number of passages to return with each document of a ``group``; default 3.
        highlight
            True returns the words of the texts that match words of the query, and the metadata.
        feedback, like, unlike
            Search a second time with a query that is moved towards the ``feedback`` best documents and the documents
            with the ids ``like``, and away from those with the ids ``unlike``.
        mode
            ``"pruned"``, ``"exhaustive"``, or ``"candidates"``, which scores all documents of ``subset``. Default: the
            mode of the index.
        offset
            Skip this many of the best documents, to get a later page.
        min_score
            Return only documents with at least this score.

        Returns
        -------
        Hits
            A list of dictionaries with ``id``, ``score``, and the keys that the options add.

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
        """Returns the k best documents for each query, best first.

        Parameters
        ----------
        queries
            Texts, or matrices [tokens, dim]: a list of them, one matrix, or an array [queries, tokens, dim].
        k
            The number of documents for each query.
        subset
            Ids of the documents to search, or a list with such a list for each query.
        keywords
            A text with words for each query, or True.
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
        checked_queries = Queries(queries, keywords, hybrid, fusion, expression)
        return _search.search(self._connection, checked_queries, request, subset)

    def __call__(
        self,
        queries_embeddings: Sequence[str] | Embeddings,
        k: int = 10,
        subset: Sequence[Any] | None = None,
        **options: Any,
    ) -> Results:
        """Does the same as `search_batch`. PyLate's retriever calls an index like this.

        Parameters
        ----------
        queries_embeddings, k, subset
            As for `search_batch`. A single text is one query.
        **options
            Options of `search_batch`. Keywords of PyLate's index without a counterpart are ignored.

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
        """Does the same as `search_batch`, and adds the inner products of the tokens to each hit.

        Parameters
        ----------
        queries
            Texts, or matrices [tokens, dim].
        k, subset, **options
            As for `search_batch`.

        Returns
        -------
        Results
            Hits with ``token_scores``: a float32 matrix [query tokens, document tokens], for vectors of length 1.
        """
        if queries is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError("queries is None; want texts or matrices, whose tokens can be scored")
        texts, matrices = _search.texts_or_matrices(queries)
        # Texts are not encoded here: a search by keywords needs their words.
        results = self.search_batch(cast("Any", texts or matrices), k, subset, **options)
        if matrices is None:
            # The search has already warned of truncated texts.
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
        """Returns documents similar to a stored one: the hits of a search for its vectors, without the document itself.

        Parameters
        ----------
        id
            The id of the document. If it is stored as passages, the vectors of all passages are the query.
        k
            The number of documents.
        **options
            As for `search`.

        Returns
        -------
        Hits
            Best first.
        """
        names = self._connection.to_names([id], "id")
        (passages,) = fetch_documents(self._connection, names, vectors=True).values()
        text, values = f"_id NOT IN ({', '.join('?' * len(passages))})", [p["id"] for p in passages]
        condition = to_condition(options.pop("where", None), options.pop("parameters", ()))
        if condition is not None:
            text, values = f"{text} AND ({condition[0]})", [*values, *condition[1]]
        vectors = np.concatenate([p["vectors"] for p in passages])
        return self.search(vectors, k, where=text, parameters=values, **options)

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
        """Explains the score of a document in a search for the k best, and the stage at which the search dropped it.

        Parameters
        ----------
        id
            The id of the document. An unknown id is a KeyError.
        query
            A text, or a matrix [tokens, dim].
        k, where, parameters, mode
            The options of the search, as for `search`.

        Returns
        -------
        Explanation
            A dictionary; a notebook shows a heat map of the tokens.
        """
        return _search.explain(self._connection, id, query, k, where, parameters, self.mode if mode is None else mode)

    def rerank(self, query: Query, documents: Sequence[str] | Embeddings) -> list[dict[str, Any]]:
        """Scores documents that need not be in the index, and returns them best first.

        If the query is a text, the documents are texts; if it is a matrix, they are matrices. Vectors are not scaled to
        length 1. To rank documents of the index, use ``search(query, len(ids), subset=ids, mode="candidates")``.

        Parameters
        ----------
        query
            A text, or a matrix [tokens, dim].
        documents
            Texts, or matrices [tokens, dim], or an array [documents, tokens, dim].

        Returns
        -------
        list of dict
            Dictionaries with ``index``, the position in ``documents``, and ``score``; best first.

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
        """Encodes texts by the model of the service, and returns their vectors.

        Parameters
        ----------
        texts
            The texts.
        is_query
            True for queries, which models encode differently from documents.

        Returns
        -------
        list of numpy.ndarray
            A float32 matrix [tokens, dim] for each text.
        """
        truncated = TruncatedTexts()
        vectors = encode(self._connection, texts, check_bool(is_query, "is_query"), truncated)
        truncated.warn()
        return vectors
