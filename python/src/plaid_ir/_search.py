"""Sends searches, explanations and reranking, and converts their answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Sequence, Union, cast

import numpy as np

from ._arrays import Body, Embeddings, Matrix, MatrixLike, split_batches, tensors_body, to_matrices
from ._checks import (
    check_choice,
    check_bool,
    check_ordered,
    check_number,
    check_iterable,
    describe_value,
    check_str,
    check_int,
    unexpected_value,
)
from ._conditions import Where, to_condition
from ._connection import Connection
from ._documents import MAX_ID, MAX_QUERIES, MAX_VECTOR_BYTES, TruncatedTexts
from ._errors import EmptyIndexError, PlaidError, add_to_position
from ._explanation import Explanation
from ._metadata import without_service_keys
from ._results import Hits, Passage, Results, to_character_spans
from ._tables import is_several, to_item, to_items, column_vectors

#: One query: a text for the model of the service, or a matrix [tokens, dim].
Query = Union[str, MatrixLike]
#: The advice of the warning about truncated queries.
_LONGER = (
    ": ask shorter queries, or raise query_length in the model's folder, or start plaid serve with --query-length "
    "and use Index(url=...)"
)
#: How a search chooses the documents that it scores.
Mode = Literal["pruned", "exhaustive", "candidates"]
Fusion = Literal["relative_score", "rrf"]
Group = Literal["best", "sum", "maxsim"]


class Queries:
    """The queries of one call: texts or matrices, words for a keyword search, or both."""

    def __init__(
        self,
        queries: Sequence[str] | Embeddings | None,
        keywords: Sequence[str] | bool,
        hybrid: bool | float,
        fusion: Fusion,
        expression: bool,
    ) -> None:
        check_choice(fusion, "fusion", Fusion)
        check_bool(expression, "expression")
        hybrid = bool(hybrid) if isinstance(hybrid, (bool, np.bool_)) else check_number(hybrid, "hybrid")
        self.texts, self.matrices = texts_or_matrices(queries)
        self.words = _query_words(self.texts, self.matrices, keywords, hybrid)
        #: The fields of a request for the keyword search.
        self.options: dict[str, Any] = {}
        if self.words is None:
            return
        self.options = {"fusion": fusion, "text_mode": "expression" if expression else "words"}
        if hybrid is False:
            self.texts = self.matrices = None
        elif hybrid is not True:
            self.options["alpha"] = float(hybrid)

    def __len__(self) -> int:
        return len(self.texts or self.matrices or self.words or ())

    def sizes(self) -> list[int]:
        if self.matrices is not None:
            return [m.nbytes for m in self.matrices]
        return [len(t) for t in self.texts or self.words or ()]


def base_request(k: Any, mode: str, offset: int = 0, min_score: float | None = None) -> dict[str, Any]:
    """Returns the fields that the requests of all searches have."""
    params: dict[str, Any] = {"top_k": check_int(k, "k", 1), "mode": check_choice(mode, "mode", Mode)}
    offset = check_int(offset, "offset", 0)
    if offset:
        params["offset"] = offset
    if min_score is not None:
        params["min_score"] = check_number(min_score, "min_score")
        if not math.isfinite(params["min_score"]):
            raise ValueError(f"min_score is {min_score}; want a finite number, or None")
    return {"params": params}


def search(connection: Connection, queries: Queries, request: dict[str, Any], subset: Sequence[Any] | None) -> Results:
    """Sends queries in batches. ``request`` has the fields that all batches share."""
    subsets: list[list[str]] | None = None
    if subset is not None:
        given: Any = to_items(subset, "subset")
        subset = [given] if isinstance(given, (str, int)) else list(check_iterable(given, "subset", "ids"))
        if len(subset) and is_several(subset[0]):
            subsets = [connection.to_names(s, "subset") for s in subset]
            if len(subsets) != len(queries):
                raise ValueError(
                    f"there are {len(queries)} queries and {len(subsets)} subsets: "
                    "want one for each, or one list of ids for all"
                )
            if queries.texts is None and queries.matrices is None:
                raise ValueError("a search by keywords alone needs one subset for all queries, not one for each")
        else:
            request["ids"] = connection.to_names(subset, "subset")
    if queries.texts is not None and connection.page_model is not None:
        queries.matrices = to_matrices(connection.page_model.encode_queries(queries.texts), "query")
        queries.texts = None
    results = Results()
    truncated = TruncatedTexts()
    for batch in split_batches(queries.sizes(), MAX_VECTOR_BYTES, MAX_QUERIES):
        try:
            answer = _send_queries(connection, queries, batch, request, None if subsets is None else subsets[batch])
        except EmptyIndexError as e:
            message = f"index {connection.index_name!r} has no documents: add some before searching"
            raise EmptyIndexError(message, e.code, e.status) from e
        except PlaidError as e:
            add_to_position(e, "query", batch.start)
            raise
        truncated.add(answer)
        results += [_to_hits(connection, r, request["metadata"]) for r in answer["results"]]
    truncated.warn(_LONGER)
    return results


def _send_queries(
    connection: Connection, queries: Queries, batch: slice, shared: Mapping[str, Any], subsets: list[list[str]] | None
) -> Any:
    request, path = {**shared, **queries.options}, connection.path + "/search"
    if queries.words is not None:
        request["text_query"] = queries.words[batch]
    if queries.matrices is not None:
        if subsets is not None:
            request["queries"] = [{"ids": ids} for ids in subsets]
        return connection.request("POST", path, tensors_body(queries.matrices[batch], request))
    if queries.texts is not None:
        texts = queries.texts[batch]
        request["queries"] = texts if subsets is None else [{"text": t, "ids": i} for t, i in zip(texts, subsets)]
        path += "_with_encoding"
    return connection.request("POST", path, request)


def _to_hits(connection: Connection, result: Mapping[str, Any], metadata: bool) -> Hits:
    hits = Hits([{"id": i, "score": float(s)} for i, s in zip(connection.to_ids(result["ids"]), result["scores"])])
    if metadata:
        for hit, row in zip(hits, result["metadata"]):
            hit["metadata"] = without_service_keys(row)
    for hit, spans in zip(hits, result.get("spans") or ()):
        hit["spans"] = to_character_spans(spans or (), hit.get("metadata", {}))
    passages: list[list[dict[str, Any]]] = result.get("passages") or []
    for hit, hit_passages in zip(hits, passages):
        hit["passages"] = [_to_passage(connection, p) for p in hit_passages]
    return hits


def _to_passage(connection: Connection, p: Mapping[str, Any]) -> Passage:
    # The id of a passage is a text even if the ids of documents are numbers.
    passage_id = p["id"] if p["n"] >= 0 else connection.to_id(p["id"])
    passage: Passage = {"id": passage_id, "score": p["score"], "n": p["n"], "start": p["start"], "end": p["end"]}
    if "metadata" in p:
        passage["metadata"] = without_service_keys(p["metadata"])
        passage["spans"] = to_character_spans(p.get("spans") or (), passage["metadata"])
    return passage


def explain(
    connection: Connection, id: Any, query: Query, k: int, where: Where | None, parameters: Sequence[Any], mode: str
) -> Explanation:
    body = {**base_request(k, mode), "id": connection.to_names([id], "id")[0], "similarities": True}
    body |= filter_fields(where, parameters)
    asked: Mapping[str, Any] | Body
    pieces: list[str] | None = None
    if isinstance(query, str) and connection.page_model is not None:
        ((query, pieces),) = connection.page_model.encode_questions([query])
    if isinstance(query, str):
        asked = {**body, "text": query}
    else:
        asked = tensors_body(None, body, to_query_matrix(query))
    try:
        answer = connection.request("POST", connection.path + "/explain", asked)
    except PlaidError as e:
        if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
            raise KeyError(describe_value(id) if len(str(id)) > MAX_ID else id) from e
        raise
    answer["metadata"] = without_service_keys(answer["metadata"])
    if pieces is not None:
        answer["query_tokens"] = [{"piece": piece} for piece in pieces]
    answer["id"] = connection.to_id(answer["id"]) if answer["id"] == body["id"] else answer["id"]
    explanation = Explanation(answer)
    explanation._pictures = connection.pictures
    return explanation


def to_query_matrix(query: Any, unit: bool = True) -> Matrix:
    """Returns the matrix of a single query."""
    if isinstance(query, (list, tuple)) and query and isinstance(query[0], str):
        raise TypeError("query is a list of texts; want one text, or a matrix (use search_batch for several queries)")
    matrices = to_matrices(cast("Any", query), "query", unit=unit)
    if len(matrices) != 1:
        raise ValueError(
            f"query has {len(matrices)} matrices; want one, [tokens, dim] (use search_batch for several queries)"
        )
    return matrices[0]


def rerank(connection: Connection, query: Query, documents: Sequence[str] | Embeddings) -> list[dict[str, Any]]:
    check_iterable(documents, "documents", "texts or matrices")  # None is neither
    texts, matrices = texts_or_matrices(documents, "documents", "document", unit=False)
    if not texts and not matrices:
        return []
    if isinstance(query, str):
        if texts is None:
            raise TypeError("the query is a text, and the documents are vectors: want both of one kind")
        answer = connection.request("POST", "/rerank_with_encoding", {"query": query, "documents": texts})
    else:
        if query is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise unexpected_value("query", query, "a text, or a matrix, [tokens, dim]")
        if matrices is None:
            raise TypeError("the query has vectors, and the documents are texts: want both of one kind")
        q = to_query_matrix(query, unit=False)
        if not any(len(m) for m in matrices):
            raise ValueError("the documents have no vectors: want at least one that has some")
        body = tensors_body(matrices, None, q)
        answer = connection.request("POST", "/rerank", body)
    truncated = TruncatedTexts()
    truncated.add(answer)
    truncated.warn()
    return cast("list[dict[str, Any]]", answer["results"])


def filter_fields(where: Where | None, parameters: Sequence[Any]) -> dict[str, Any]:
    """Returns the fields of a request for a condition."""
    condition = to_condition(where, parameters)
    return {} if condition is None else {"filter_condition": condition[0], "filter_parameters": condition[1]}


def texts_or_matrices(
    given: Any, name: str = "queries", what: str = "query", unit: bool = True
) -> tuple[list[str] | None, list[Matrix] | None]:
    """Returns texts and None, or None and matrices; twice None for None.

    Errors name the parameter by ``name``, and its items by ``what`` and their number. For ``unit`` see `to_array`.
    """
    if given is None:
        return None, None
    check_iterable(check_ordered(given, name, "texts or matrices"), name, "texts or matrices")
    rows = column_vectors(given, what)
    if rows is not None:
        items = rows
    elif isinstance(given, np.ndarray) and cast("Matrix", given).dtype.kind == "U":
        items = list(cast("Any", given))
    elif hasattr(cast("Any", given), "__iter__") and not hasattr(cast("Any", given), "ndim"):  # no array or tensor
        items = given = list(cast("Any", given))
        if items and isinstance(to_item(items[0]), str):  # texts of Arrow
            items = list(map(to_item, items))
    else:
        items = []
    is_text = [isinstance(t, str) for t in items]
    if items and all(is_text):
        return [str(t) for t in items], None
    if any(is_text):
        other = is_text.index(False)
        kind = type(items[other]).__name__
        raise TypeError(f"{what} {other} is of type {kind}, and others are texts: want only texts")
    return None, to_matrices(cast("Any", given), what, unit)


def _query_words(
    texts: list[str] | None, matrices: list[Matrix] | None, keywords: Sequence[str] | bool, hybrid: bool | float
) -> list[str] | None:
    """Returns the words of the keyword search, or None for a search by vectors alone."""
    if not isinstance(hybrid, bool) and not 0 <= hybrid <= 1:
        raise ValueError(f"hybrid is {hybrid}; want the weight of the vectors, 0 to 1")
    queries = texts if texts is not None else matrices
    if keywords is False and hybrid is False:
        if queries is None:
            raise ValueError("the search has neither a query nor keywords")
        return None
    if isinstance(keywords, bool):
        if texts is None:
            raise ValueError("keywords=True needs queries that are texts: for vectors pass the words as keywords")
        return list(texts)
    if isinstance(keywords, str):
        raise TypeError("keywords is one text; want a list with a text for each query")
    words = [check_str(w, f"keywords, item {i},") for i, w in enumerate(check_iterable(keywords, "keywords", "texts"))]
    if queries is None:
        if hybrid is not False:
            raise ValueError("hybrid combines keywords with a query: pass a query, too, or hybrid=False")
        return words
    if len(words) != len(queries):
        raise ValueError(f"there are {len(queries)} queries and {len(words)} keywords: want one for each")
    if hybrid is False:
        raise ValueError(
            "the search has a query and keywords: hybrid=True combines them; "
            "keywords=True searches only for the words of the query"
        )
    return words
