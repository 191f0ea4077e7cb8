"""The methods of an index that change nothing."""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any, Iterable, Mapping, Sequence, TypeAlias, Union, cast, overload

import numpy as np
import numpy.typing as npt

from . import _files, _search
from ._arrays import Embeddings, Matrix, Vectors, to_float32, to_matrices
from ._conditions import Where, condition
from ._connection import Connection
from ._documents import Cut, encode, fetch_documents, fetch_metadata
from ._errors import EmptyIndexError
from ._metadata import own_fields
from ._results import Explanation, Hits, Results
from ._search import Fusion, Group, Mode, Queries, Query

IdList: TypeAlias = Union[Sequence[str], Sequence[int], npt.NDArray[np.integer[Any]]]
IdLists: TypeAlias = Sequence[Union[list[str], list[int], tuple[str, ...], tuple[int, ...], set[str], set[int]]]

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
            warnings.warn(text, UserWarning, stacklevel=3)


class IndexReader:
    """The part of an `Index` that changes nothing: searches, documents, metadata."""

    _connection: Connection
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
            "draft": None, "year": {"$gte": 2000}}`` (docs/python.md has the operators). An empty one is none. A key
            that no document has is an error.
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
            if isinstance(query, (list, tuple)) and query and isinstance(query[0], str):
                raise TypeError("search takes one query; search_batch takes a list of texts")
            queries = to_matrices(query, "query")
            if len(queries) != 1:
                raise ValueError(f"search takes one query, and there are {len(queries)}: search_batch takes several")
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
        request = _search.base_request(k, mode or self.mode, offset, min_score)
        request |= {"metadata": metadata or highlight, **_search.filter_fields(where, parameters)}
        if highlight:
            request["highlight"] = True
        if group is not None:
            request["group"] = group
        if passages is not None:
            request["passages"] = operator.index(passages)
        if feedback or len(like) or len(unlike):
            request["feedback"] = {"documents": feedback, "like": to_names(like), "unlike": to_names(unlike)}
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
        texts, matrices = _search.texts_or_matrices(queries)
        if texts is None and matrices is None:
            raise ValueError("there are no queries, whose tokens could be scored")
        # Texts stay texts: a search by keywords needs their words.
        results = self.search_batch(cast("Any", texts or matrices), k, subset, **options)
        if matrices is None:
            # What is cut of them the search has said.
            matrices = cast("list[Matrix]", encode(self._connection, texts or [], True, Cut()))
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
        (parts,) = fetch_documents(self._connection, self._connection.to_names([id]), vectors=True).values()
        text, values = f"_id NOT IN ({', '.join('?' * len(parts))})", [d["id"] for d in parts]
        chosen = condition(options.pop("where", None), options.pop("parameters", ()))
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
        return _search.explain(self._connection, id, query, k, where, parameters, mode or self.mode)

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
        cut = Cut()
        vectors = encode(self._connection, texts, is_query, cut)
        cut.warn()
        return vectors

    @overload
    def get_documents_embeddings(self, documents_ids: IdList) -> list[Vectors]: ...

    @overload
    def get_documents_embeddings(self, documents_ids: IdLists) -> list[list[Vectors]]: ...

    def get_documents_embeddings(self, documents_ids: IdList | IdLists) -> list[Vectors] | list[list[Vectors]]:
        """The vectors of documents as they are stored: decoded, of unit length, float32.

        Parameters
        ----------
        documents_ids
            Ids, or lists of them. An id that is not there is a KeyError. That of a document that is stored as passages
            stands for the vectors of all of them, one after another.

        Returns
        -------
        list of numpy.ndarray, or list of list of numpy.ndarray
            A matrix [tokens, dim] for each id; for lists of ids lists of matrices.
        """
        if isinstance(documents_ids, (str, int)):
            raise TypeError("want a list of ids, or a list of lists of them")
        nested = len(documents_ids) > 0 and isinstance(documents_ids[0], (list, tuple, set, frozenset, np.ndarray))
        to_names = self._connection.to_names
        lists = [to_names(ids) for ids in documents_ids] if nested else [to_names(documents_ids)]
        names = list(dict.fromkeys(i for ids in lists for i in ids))
        documents = fetch_documents(self._connection, names, vectors=True)
        found = {name: np.concatenate([d["vectors"] for d in parts]) for name, parts in documents.items()}
        matrices = [[found[i] for i in ids] for ids in lists]
        return matrices if nested else matrices[0]

    def get(self, ids: str | int | Iterable[str] | Iterable[int]) -> list[dict[str, Any]]:
        """The metadata of documents.

        Parameters
        ----------
        ids
            One id or several. An id that is not there is a KeyError.

        Returns
        -------
        list of dict
            The metadata of each, in the order of the ids. Those of a document that is stored as passages are without
            their texts and places.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     _ = index.add_documents(["a", "b"], np.ones((2, 3, 4)), [{"n": 1}, {"n": 2}])
        ...     print(index.get("b"), index.ids("n < 2"), index.update(where={"n": 2}, values={"n": 3}))
        [{'n': 2}] ['a'] 1
        """
        names = self._connection.to_names(ids)
        found: dict[str, Mapping[str, Any]] = {}
        for row in fetch_metadata(self._connection, list(dict.fromkeys(names))):
            found[str(row["_id"])] = own_fields(row)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        for name, parts in fetch_documents(self._connection, missing).items():
            fields = own_fields(parts[0]["metadata"])
            found[name] = {k: v for k, v in fields.items() if k not in ("_passage", "text")}
        return [dict(found[name]) for name in names]

    def ids(self, where: Where | None = None, parameters: Sequence[Any] = ()) -> list[Any]:
        """The ids of documents.

        Parameters
        ----------
        where, parameters
            A condition, as for `search`; None: all documents. One that is stored as passages is there once, if the
            condition is true of any of them.

        Returns
        -------
        list of str or int
            In the order in which the documents were added.
        """
        chosen = condition(where, parameters)
        body: dict[str, Any] = {} if chosen is None else {"condition": chosen[0], "parameters": chosen[1]}
        try:
            answer = self._connection.request("POST", self._connection.path + "/metadata/get", body)
        except EmptyIndexError:
            return []
        names = dict.fromkeys(row.get("_passage", {}).get("of", row["_id"]) for row in answer["metadata"])
        return [self._connection.to_id(name) for name in names]

    def stats(self) -> dict[str, Any]:
        """Figures of the index that cost little to find.

        Returns
        -------
        dict
            ``documents``, ``passages`` (in which some of them are stored), ``tokens``, ``dim``, ``nbits``, sizes, growth
            and configuration, as the service has them (docs/service.md); ``sampled`` has the recall of the questions
            that a service samples.
        """
        return self._connection.stats()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as it is now to a file, which `load` and the command line (``plaid search FILE``) take.

        Parameters
        ----------
        path
            The file. A file that is there is replaced when the new one is complete.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index, Index(None) as copy:
        ...     index.add_documents(["a"], [np.eye(4)]).save("docs.plaid")
        ...     print(copy.load("docs.plaid").ids())
        ['a']
        """
        _files.save(self._connection, path)

    def __len__(self) -> int:
        """The number of documents; all passages of one count as one."""
        return self._connection.count()

    def __contains__(self, id: object) -> bool:
        """Reports whether a document is there."""
        try:
            fetch_documents(self._connection, self._connection.to_names([id]))
        except (TypeError, KeyError, UnicodeEncodeError):  # half of a character is in no id
            return False
        return True
