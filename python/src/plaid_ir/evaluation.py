"""Converts results for ranx and ir_measures; ``pip install "./python[evaluation]"`` in a clone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Sequence

if TYPE_CHECKING:
    import ir_measures
    import ranx  # pyright: ignore[reportMissingTypeStubs]

    from ._results import Hit


def _pair_results(query_ids: Sequence[Any], results: Sequence[Sequence[Hit]]) -> Iterable[tuple[str, Sequence[Hit]]]:
    if len(query_ids) != len(results):
        raise ValueError(
            f"there are {len(query_ids)} query ids and results of {len(results)} queries: want one for each"
        )
    return zip(map(str, query_ids), results)


def ranx_run(query_ids: Sequence[Any], results: Sequence[Sequence[Hit]], name: str = "plaid") -> ranx.Run:
    """Converts results to a run of ranx.

    Parameters
    ----------
    query_ids
        An id for each query.
    results
        The results of `Index.search_batch`.
    name
        The name of the run.

    Returns
    -------
    ranx.Run
        The scores of the hits of each query, including queries without hits.
    """
    import ranx  # pyright: ignore[reportMissingTypeStubs]

    scores = {q: {str(hit["id"]): float(hit["score"]) for hit in hits} for q, hits in _pair_results(query_ids, results)}
    return ranx.Run(scores, name=name)


def scored_docs(query_ids: Sequence[Any], results: Sequence[Sequence[Hit]]) -> list[ir_measures.ScoredDoc]:
    """Converts results to scored documents of ir_measures.

    Parameters
    ----------
    query_ids
        An id for each query.
    results
        The results of `Index.search_batch`.

    Returns
    -------
    list of ir_measures.ScoredDoc
        One for each hit.
    """
    import ir_measures

    pairs = _pair_results(query_ids, results)
    return [ir_measures.ScoredDoc(q, str(hit["id"]), float(hit["score"])) for q, hits in pairs for hit in hits]
