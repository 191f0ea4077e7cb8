"""Questions and answers."""

from __future__ import annotations

import base64
import operator
from typing import Any, Literal, Mapping, Sequence, TypeVar, Union, cast

import numpy as np

from ._arrays import Embeddings, Matrix, MatrixLike, batches, matrix_of, tensors_body, to_matrices
from ._connection import Mode, ignore
from ._documents import MANY
from ._errors import EmptyIndexError, PlaidError, counted_from
from ._explanation import Explanation
from ._hits import Hit, Hits, Passage, Results, spans_of
from ._metadata import Metadata
from ._values import Where, condition, own_fields

#: How many bytes of vectors go into one request.
_BATCH = 32 << 20

#: One query: a text for the model of the service, or a matrix [tokens, dim].
Query = Union[str, MatrixLike]
Group = Literal["best", "sum", "maxsim"]
S = TypeVar("S")


class Searches(Metadata):
    """The part of an index that searches."""

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
        fusion: Literal["relative_score", "rrf"] = "relative_score",
        expression: bool = False,
        group: Group | None = None,
        passages: int | None = None,
        highlight: bool = False,
        feedback: int = 0,
        like: Sequence[Any] = (),
        unlike: Sequence[Any] = (),
        mode: Mode | None = None,
    ) -> Hits:
        """The k best documents for one query, best first. Several queries: `search_batch`.

        Parameters
        ----------
        query
            A text, which the model of the service encodes, or a matrix [tokens, dim].
        k
            How many documents.
        where, parameters
            A condition over the metadata: ``"year >= 2000"``, or ``"year >= ?"`` with a value for
            each ``?`` (take these for what users type), or a dictionary of keys and their values:
            ``{"lang": ["en", "de"], "draft": None}``. A key that no document has is NULL.
        subset
            Ids of the documents that may be returned.
        metadata
            Return the metadata of the hits.
        keywords
            Find words of the metadata by BM25, without vectors: ``True`` those of the query, or the
            words themselves. Beside a query that is to count as well, see ``hybrid``.
        hybrid
            Join the rankings by vectors and by keywords: the share of the vectors, 0 to 1, or True
            for 0.75.
        fusion
            How the two are joined.
        expression
            In keywords know phrases in quotation marks, prefixes*, +must and -must not.
        group
            Return documents, not their passages, by the score of the ``"best"`` passage, the ``"sum"``
            of them, or ``"maxsim"`` over all tokens.
        passages
            How many passages come with each document of a ``group``; default 3.
        highlight
            Return the words of the texts that words of the query have found, and the metadata.
        feedback, like, unlike
            Add to the query what the best documents, so many of them, and those of the ids ``like``
            have in common and those of ``unlike`` have not, and search again.
        mode
            ``"pruned"``, ``"exhaustive"``, or ``"candidates"``: score all of ``subset``.

        Returns
        -------
        Hits
            A list of dictionaries with ``id``, ``score``, and what was asked for.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     _ = index.add_documents(["a", "b"], [np.eye(4)[:2], np.eye(4)[2:]], [{"year": 1999}, {"year": 2001}])
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
            queries, k, subset, where=where, parameters=parameters, metadata=metadata, keywords=words, hybrid=hybrid, fusion=fusion, expression=expression,
            group=group, passages=passages, highlight=highlight, feedback=feedback, like=like, unlike=unlike, mode=mode,
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
        fusion: Literal["relative_score", "rrf"] = "relative_score",
        expression: bool = False,
        group: Group | None = None,
        passages: int | None = None,
        highlight: bool = False,
        feedback: int = 0,
        like: Sequence[Any] = (),
        unlike: Sequence[Any] = (),
        mode: Mode | None = None,
    ) -> Results:
        """The k best documents for each query, best first.

        Parameters
        ----------
        queries
            Texts, or matrices [tokens, dim]: a list of them, one matrix, or an array
            [queries, tokens, dim].
        k
            How many documents for each.
        subset
            Ids that may be returned, or a list of such a list for each query.
        keywords
            Words for each query, or True.
        where, parameters, metadata, hybrid, fusion, expression, group, passages, highlight, feedback, like, unlike, mode
            As for `search`.

        Returns
        -------
        Results
            The hits of each query, in their order.
        """
        try:
            k = operator.index(k)
        except TypeError:
            raise TypeError(f"k is {k!r}; want a whole number") from None
        if k < 1:
            raise ValueError(f"k is {k}; want 1 or more")
        if (mode or self.mode) not in ("pruned", "exhaustive", "candidates"):
            raise ValueError(f"mode is {mode!r}; want 'pruned', 'exhaustive' or 'candidates'")
        texts, matrices = _texts_or_matrices(queries)
        words = _words(texts, matrices, keywords, hybrid)
        if words is not None and hybrid is False:
            texts = matrices = None
        count = len(texts or matrices or words or ())
        show = metadata or highlight
        common: dict[str, Any] = {"params": {"top_k": k, "mode": mode or self.mode}, "metadata": show}
        if highlight:
            common["highlight"] = True
        if group is not None:
            common["group"] = group
        if passages is not None:
            common["passages"] = operator.index(passages)
        if feedback or len(like) or len(unlike):
            common["feedback"] = {"documents": feedback, "like": self._names(like), "unlike": self._names(unlike)}
        if words is not None:
            common["fusion"], common["text_mode"] = fusion, "expression" if expression else "words"
            if hybrid is not False and hybrid is not True:
                common["alpha"] = float(hybrid)
        own: list[list[str]] | None = None
        if subset is not None:
            subset = [subset] if isinstance(subset, (str, int)) else list(subset)
            if len(subset) and isinstance(subset[0], (list, tuple, set, frozenset, np.ndarray)):
                own = [self._names(s) for s in subset]
                if len(own) != count:
                    raise ValueError(f"there are {count} queries and {len(own)} subsets: want one for each, or one list of ids for all")
                if texts is None and matrices is None:
                    raise ValueError("keywords without vectors take one subset for all queries")
            else:
                common["ids"] = self._names(subset)
        chosen = condition(where, parameters)
        if chosen is not None:
            common["filter_condition"], common["filter_parameters"] = chosen
        sizes = [m.nbytes for m in matrices] if matrices is not None else [len(t) for t in texts or words or ()]
        results = Results()
        for part in batches(sizes, _BATCH, MANY):
            request = dict(common)
            if words is not None:
                request["text_query"] = words[part]
            try:
                answer = self._ask(request, None if texts is None else texts[part], None if matrices is None else matrices[part], None if own is None else own[part])
            except EmptyIndexError as e:
                raise EmptyIndexError(f"index {self.index_name!r} is empty: add documents before asking for them", e.code, e.status) from e
            except PlaidError as e:
                counted_from(e, "query", part.start)
                raise
            for r in answer["results"]:
                results.append(self._hits(r, show))
        return results

    def __call__(self, queries_embeddings: Sequence[str] | Embeddings, k: int = 10, subset: Sequence[Any] | None = None, **options: Any) -> Results:
        """`search_batch`, as PyLate's retriever calls an index.

        Parameters
        ----------
        queries_embeddings, k, subset
            Those of `search_batch`. One text is one query.
        **options
            Those of `search_batch`. Keywords of PyLate's index that have no counterpart are taken.

        Returns
        -------
        Results
            The hits of each query, in their order.
        """
        known = {key: options.pop(key) for key in list(options) if key in _OPTIONS}
        ignore(options, "Index()")
        return self.search_batch([queries_embeddings] if isinstance(queries_embeddings, str) else queries_embeddings, k, subset, **known)

    def _ask(self, request: dict[str, Any], texts: Sequence[str] | None, matrices: Sequence[Matrix] | None, own: Sequence[list[str]] | None) -> Any:
        path = self._path + "/search"
        if matrices is not None:
            if own is not None:
                request["queries"] = [{"ids": ids} for ids in own]
            return self._request("POST", path, tensors=tensors_body(matrices, request))
        if texts is not None:
            request["queries"] = list(texts) if own is None else [{"text": t, "ids": ids} for t, ids in zip(texts, own)]
            path += "_with_encoding"
        return self._request("POST", path, request)

    def _hits(self, result: Mapping[str, Any], metadata: bool) -> Hits:
        given, hits = self._given, Hits()
        if not metadata:
            hits.extend([{"id": given(i), "score": float(s)} for i, s in zip(result["ids"], result["scores"])])
        else:
            for row, score in zip(result["metadata"], result["scores"]):
                hits.append({"id": given(row["_id"]), "score": float(score), "metadata": own_fields(row)})
        for hit, found in zip(hits, result.get("spans") or ()):
            hit["spans"] = spans_of(found or (), hit.get("metadata", {}))
        several: list[list[dict[str, Any]]] = result.get("passages") or []
        for hit, of in zip(hits, several):
            hit["passages"] = [self._passage(p) for p in of]
        return hits

    def _passage(self, p: Mapping[str, Any]) -> Passage:
        # The id of a passage has a "#": it is a text where those of documents are numbers.
        name = p["id"] if self.id_type is int and "#" in p["id"] else self._given(p["id"])
        made: Passage = {"id": name, "score": p["score"], "n": p["n"], "start": p["start"], "end": p["end"]}
        if "metadata" in p:
            made["metadata"] = own_fields(p["metadata"])
            made["spans"] = spans_of(p.get("spans") or (), made["metadata"])
        return made

    def search_token_scores(self, queries: Sequence[str] | Embeddings, k: int = 10, subset: Sequence[Any] | None = None, **options: Any) -> Results:
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
            Hits with ``token_scores``, [query tokens, document tokens] in float32, of unit length both.
        """
        texts, matrices = _texts_or_matrices(queries)
        if texts is None and matrices is None:
            raise ValueError("there are no queries, whose tokens could be scored")
        if matrices is None:
            matrices = cast("list[Matrix]", self.encode(texts or [], is_query=True))
        # Texts stay texts: a search by keywords needs their words.
        results = self.search_batch(cast("Any", texts or matrices), k, subset, **options)
        wanted = list(dict.fromkeys(hit["id"] for hits in results for hit in hits))
        there = dict(zip(wanted, self.get_documents_embeddings(wanted))) if wanted else {}
        for m, hits in zip(matrices, results):
            q: Matrix = m.astype(np.float32)
            length: Matrix = np.linalg.norm(q, axis=1, keepdims=True)
            q = (q / np.where(length == 0, 1, length)).astype(np.float32)
            for hit in hits:
                hit["token_scores"] = q @ there[hit["id"]].T
        return results

    def similar(self, id: Any, k: int = 10, **options: Any) -> Hits:
        """The documents that are most similar to one that is there: those that a search for its
        vectors finds, without itself.

        Parameters
        ----------
        id
            The document. If it is stored as passages its vectors are those of all of them.
        k
            How many documents.
        **options
            Those of `search`.

        Returns
        -------
        Hits
            Best first.
        """
        (parts,) = self._looked_up(self._names([id]), "base64").values()
        text, values = f"_id NOT IN ({', '.join('?' * len(parts))})", [d["id"] for d in parts]
        chosen = condition(options.pop("where", None), options.pop("parameters", ()))
        if chosen is not None:
            text, values = f"{text} AND ({chosen[0]})", [*values, *chosen[1]]
        return self.search(matrix_of(parts), k, where=text, parameters=values, **options)

    def explain(self, id: Any, query: Query, *, k: int = 10, where: Where | None = None, parameters: Sequence[Any] = (), mode: Mode | None = None) -> Explanation:
        """Why a document is where it is in a search for the k best, or where it was lost.

        Parameters
        ----------
        id
            The document. One that is not there is a KeyError.
        query
            A text, or a matrix [tokens, dim].
        k, where, parameters, mode
            Those of the search, as for `search`.

        Returns
        -------
        Explanation
            A dictionary; in a notebook a heat map of the tokens.
        """
        body: dict[str, Any] = {"id": self._names([id])[0], "similarities": True, "params": {"top_k": k, "mode": mode or self.mode}}
        if isinstance(query, str):
            body["text"] = query
        else:
            (m,) = to_matrices(query, "query")
            values = m.astype("<f4")
            body["query"] = {"embeddings_b64": base64.b64encode(values.tobytes()).decode(), "shape": list(values.shape)}
        chosen = condition(where, parameters)
        if chosen is not None:
            body["filter_condition"], body["filter_parameters"] = chosen
        try:
            answer = self._request("POST", self._path + "/explain", body)
        except PlaidError as e:
            if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
                raise KeyError(id) from e
            raise
        answer["metadata"] = own_fields(answer["metadata"])
        return Explanation(answer)

    def rerank(self, query: Query, documents: Sequence[str] | Embeddings) -> list[dict[str, Any]]:
        """Scores documents that need not be in the index: texts for a query that is a text,
        matrices [tokens, dim] for a matrix. Vectors are taken as they are, not scaled.

        Documents of the index are ranked by ``search(query, len(ids), subset=ids, mode="candidates")``.

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
        if len(cast("Any", documents)) == 0:
            return []
        texts, matrices = _texts_or_matrices(documents, "document")
        if isinstance(query, str):
            if texts is None:
                raise TypeError("the query is a text, and the documents are vectors")
            answer = self._request("POST", "/rerank_with_encoding", {"query": query, "documents": texts})
        else:
            if matrices is None:
                raise TypeError("the query is vectors, and the documents are texts")
            (q,) = to_matrices(query, "query")
            given = [{"embeddings_b64": base64.b64encode(m.astype("<f4").tobytes()).decode(), "shape": list(m.shape)} for m in matrices]
            values = q.astype("<f4")
            body = {"query_b64": base64.b64encode(values.tobytes()).decode(), "query_shape": list(values.shape), "documents": given}
            answer = self._request("POST", "/rerank", body)
        return cast("list[dict[str, Any]]", answer["results"])


#: What `Index()` passes on.
_OPTIONS = frozenset("where parameters metadata keywords hybrid fusion expression group passages highlight feedback like unlike mode".split())


def _texts_or_matrices(given: Any, what: str = "query") -> tuple[list[str] | None, list[Matrix] | None]:
    """Texts, or matrices; neither for None."""
    if given is None:
        return None, None
    if isinstance(given, str):
        raise TypeError("want a list of texts, not one text")
    if isinstance(given, np.ndarray) and cast("Matrix", given).dtype.kind in "OU" and all(isinstance(t, str) for t in cast("Any", given)):
        return [str(t) for t in cast("Any", given)], None
    if isinstance(given, (list, tuple)) and given and all(isinstance(t, str) for t in cast("Sequence[Any]", given)):
        return list(cast("Sequence[str]", given)), None
    return None, to_matrices(cast("Any", given), what)


def _words(texts: list[str] | None, matrices: list[Matrix] | None, keywords: Sequence[str] | bool, hybrid: bool | float) -> list[str] | None:
    """The words to look for; None: no search by words."""
    if not isinstance(hybrid, bool) and not 0 <= hybrid <= 1:
        raise ValueError(f"hybrid is {hybrid}; want the share of the vectors, 0 to 1")
    asked = keywords if keywords is not False else hybrid is not False
    if asked is False:
        if texts is None and matrices is None:
            raise ValueError("there is no query and there are no keywords")
        return None
    count = len(texts or matrices or ())
    if asked is True:
        if texts is None:
            raise ValueError("the words of a query that is vectors are not known: give them as keywords")
        return list(texts)
    if isinstance(keywords, str):
        raise TypeError("keywords is one text; want one for each query")
    words = list(cast("Sequence[str]", keywords))
    if hybrid is not False and texts is None and matrices is None:
        raise ValueError("hybrid joins keywords with a query, and there is none")
    if (texts is not None or matrices is not None) and len(words) != count:
        raise ValueError(f"there are {count} queries and {len(words)} keywords: want one for each")
    if (texts is not None or matrices is not None) and hybrid is False:
        raise ValueError("there are a query and keywords: hybrid=True joins them, and keywords=True looks for the words of the query alone")
    return words


__all__ = ["Hit", "Searches"]
