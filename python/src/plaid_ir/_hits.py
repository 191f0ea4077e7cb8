"""What searches find."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Sequence, TypedDict, cast

import numpy as np
import numpy.typing as npt


class Span(TypedDict):
    """Characters ``start`` to ``end`` of a field that a word of the query has found."""

    field: str
    start: int
    end: int
    word: str


class _Scored(TypedDict):
    id: Any
    score: float


class Passage(_Scored, total=False):
    """A passage of a document: its number ``n``, and bytes ``start`` to ``end`` of the
    document's text in UTF-8. ``n`` is -1 where the document has no passages, and this is it."""

    n: int
    start: int
    end: int
    metadata: dict[str, Any]
    spans: list[Span]


class Hit(_Scored, total=False):
    """A document that was found: ``id``, ``score``, and what was asked for.

    ``metadata`` is there for ``metadata=True``, ``spans`` for ``highlight=True``, ``passages``
    for a ``group``, and ``token_scores`` [query tokens, document tokens] for
    `Index.search_token_scores`.
    """

    metadata: dict[str, Any]
    spans: list[Span]
    passages: list[Passage]
    token_scores: npt.NDArray[np.float32]


class Hits(list[Hit]):
    """The hits of one query, best first: a list of dictionaries.

    Examples
    --------
    >>> hits = Hits([{"id": "a", "score": 2.0}])
    >>> hits[0]["id"]
    'a'
    """

    def to_pandas(self) -> Any:
        """The hits as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            A row for each hit, and a column for each key of the metadata.
        """
        return _frame(_flat(self))

    def to_arrow(self) -> Any:
        """The hits as a table of Arrow.

        Returns
        -------
        pyarrow.Table
            A row for each hit, and a column for each key of the metadata.
        """
        return _table(_flat(self))

    def _repr_html_(self) -> str:
        return _html(self)


class Results(list[Hits]):
    """The hits of several queries, in their order."""

    def to_pandas(self) -> Any:
        """The hits of all queries as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            As that of `Hits`, with a column ``query``, which counts from 0.
        """
        return _frame(self._flat())

    def to_arrow(self) -> Any:
        """The hits of all queries as a table of Arrow.

        Returns
        -------
        pyarrow.Table
            As that of `Hits`, with a column ``query``, which counts from 0.
        """
        return _table(self._flat())

    def _flat(self) -> list[dict[str, Any]]:
        return [{"query": i, **row} for i, hits in enumerate(self) for row in _flat(hits)]

    def _repr_html_(self) -> str:
        return "".join(f"<p>query {i}</p>{_html(hits)}" for i, hits in enumerate(self))


def _flat(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """A dictionary for each hit with the metadata in it. Keys of the metadata that are names of
    columns get ``metadata.`` before them."""
    flat: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"rank": rank, **{k: v for k, v in hit.items() if k != "metadata"}}
        for key, value in hit.get("metadata", {}).items():
            row["metadata." + key if key in ("query", "rank", "id", "score", "spans", "passages", "token_scores") else key] = value
        flat.append(row)
    return flat


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys([*(["rank", "id", "score"] if not rows else []), *(k for row in rows for k in row)]))


def _frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError as e:
        raise ImportError("to_pandas needs pandas: pip install pandas") from e
    return cast("Any", pandas).DataFrame(rows, columns=_columns(rows))


def _table(rows: list[dict[str, Any]]) -> Any:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError as e:
        raise ImportError("to_arrow needs pyarrow: pip install pyarrow") from e

    def column(name: str) -> list[Any]:
        values = [row.get(name) for row in rows]
        return [v.tolist() if isinstance(v, np.ndarray) else v for v in values]

    return cast("Any", pyarrow).table({name: column(name) for name in _columns(rows)})


#: Characters of a value that a table shows.
_SHOWN = 300


def marked(text: str, spans: Sequence[Span], field: str) -> str:
    """A text as HTML, with what was found in it marked."""
    at = 0
    parts: list[str] = []
    for s in sorted((s for s in spans if s["field"] == field), key=lambda s: s["start"]):
        if s["start"] < at or s["start"] > _SHOWN:
            continue
        parts += [escape(text[at : s["start"]]), "<mark>", escape(text[s["start"] : s["end"]]), "</mark>"]
        at = s["end"]
    rest = text[at : max(at, _SHOWN)]
    return "".join(parts) + escape(rest) + ("…" if at + len(rest) < len(text) else "")


def _html(hits: Sequence[Hit]) -> str:
    """A table of hits. What comes from documents is escaped."""
    keys = list(dict.fromkeys(k for hit in hits for k in hit.get("metadata", {})))
    head = "".join(f"<th>{escape(str(k))}</th>" for k in ("", "id", "score", *keys))
    lines: list[str] = []
    for rank, hit in enumerate(hits, 1):
        cells = [str(rank), escape(str(hit["id"])), f"{hit['score']:.4f}"]
        for key in keys:
            value = hit.get("metadata", {}).get(key, "")
            cells.append(marked(value if isinstance(value, str) else str(value), hit.get("spans", []), key))
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def spans_of(found: Sequence[dict[str, Any]], metadata: dict[str, Any]) -> list[Span]:
    """Spans with places in characters, where the service counts bytes of UTF-8."""
    made: list[Span] = []
    for s in found:
        text = metadata.get(s["field"])
        if not isinstance(text, str):
            continue
        raw = text.encode()
        start, end = (len(raw[: s[k]].decode(errors="ignore")) for k in ("start", "end"))
        made.append(cast("Span", {**s, "start": start, "end": end}))
    return made
