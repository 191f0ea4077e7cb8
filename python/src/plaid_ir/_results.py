"""Hits of searches and explanations, as dictionaries, tables and HTML."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Sequence, TypedDict, cast

import numpy as np
import numpy.typing as npt

from ._explained import as_text
from ._heatmap import Region, as_html, best_region
from ._images import Pictures

#: Columns of tables that are not metadata.
_COLUMNS = ("query", "rank", "id", "score", "spans", "passages", "token_scores")
#: Characters of a value that HTML shows.
_MAX_SHOWN = 300


class Span(TypedDict):
    """Characters ``start`` to ``end`` of a field, which match a word of the query."""

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
    """A document that was found: ``id``, ``score``, and the parts that were asked for.

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
        return _to_pandas(_flat_rows(self))

    def to_arrow(self) -> Any:
        """The hits as a table of Arrow.

        Returns
        -------
        pyarrow.Table
            A row for each hit, and a column for each key of the metadata.
        """
        return _to_arrow(_flat_rows(self))

    def _repr_html_(self) -> str:
        return _hits_as_html(self)


class Results(list[Hits]):
    """The hits of several queries, in their order."""

    def to_pandas(self) -> Any:
        """The hits of all queries as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            As that of `Hits`, with a column ``query``, which counts from 0.
        """
        return _to_pandas(self._flat_rows())

    def to_arrow(self) -> Any:
        """The hits of all queries as a table of Arrow.

        Returns
        -------
        pyarrow.Table
            As that of `Hits`, with a column ``query``, which counts from 0.
        """
        return _to_arrow(self._flat_rows())

    def _flat_rows(self) -> list[dict[str, Any]]:
        return [{"query": i, **row} for i, hits in enumerate(self) for row in _flat_rows(hits)]

    def _repr_html_(self) -> str:
        return "".join(f"<p>query {i}</p>{_hits_as_html(hits)}" for i, hits in enumerate(self))


class Documents(list[dict[str, Any]]):
    """The metadata of documents, as dictionaries, in their order; ``ids`` has the ids in the same order."""

    def __init__(self, rows: Iterable[dict[str, Any]] = (), ids: Iterable[Any] = ()) -> None:
        super().__init__(rows)
        self.ids: list[Any] = list(ids)


class Facets(list[dict[str, Any]]):
    """A dictionary for each field: ``field``, ``docs`` that were counted, those where it is ``missing`` or ``null``,
    the commonest ``values``, each with a ``value`` and its ``docs``, and how many ``others`` there are."""


def _flat_rows(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """A dictionary for each hit with the metadata in it. Keys of the metadata that are names of columns get the prefix
    ``metadata.``."""
    rows: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"rank": rank, **{k: v for k, v in hit.items() if k != "metadata"}}
        for key, value in hit.get("metadata", {}).items():
            row["metadata." + key if key in _COLUMNS else key] = value
        rows.append(row)
    return rows


def _column_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(k for row in rows for k in row)) if rows else ["rank", "id", "score"]


def _to_pandas(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError as e:
        raise ImportError("to_pandas needs pandas: pip install pandas") from e
    return cast("Any", pandas).DataFrame(rows, columns=_column_names(rows))


def _to_arrow(rows: list[dict[str, Any]]) -> Any:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError as e:
        raise ImportError("to_arrow needs pyarrow: pip install pyarrow") from e

    def column(name: str) -> list[Any]:
        values = [row.get(name) for row in rows]
        return [v.tolist() if isinstance(v, np.ndarray) else v for v in values]

    return cast("Any", pyarrow).table({name: column(name) for name in _column_names(rows)})


def _text_with_marks(text: str, spans: Sequence[Span], field: str) -> str:
    """A text as HTML, in which the spans of a field are marked."""
    at = 0
    parts: list[str] = []
    for s in sorted((s for s in spans if s["field"] == field), key=lambda s: s["start"]):
        if s["start"] < at or s["start"] > _MAX_SHOWN:
            continue
        parts += [escape(text[at : s["start"]]), "<mark>", escape(text[s["start"] : s["end"]]), "</mark>"]
        at = s["end"]
    rest = text[at : max(at, _MAX_SHOWN)]
    return "".join(parts) + escape(rest) + ("…" if at + len(rest) < len(text) else "")


def _hits_as_html(hits: Sequence[Hit]) -> str:
    """A table of hits. Texts of documents are escaped."""
    keys = list(dict.fromkeys(k for hit in hits for k in hit.get("metadata", {})))
    head = "".join(f"<th>{escape(str(k))}</th>" for k in ("", "id", "score", *keys))
    lines: list[str] = []
    for rank, hit in enumerate(hits, 1):
        cells = [str(rank), escape(str(hit["id"])), f"{hit['score']:.4f}"]
        for key in keys:
            value = hit.get("metadata", {}).get(key, "")
            text = value if isinstance(value, str) else str(value)
            cells.append(_text_with_marks(text, hit.get("spans", []), key))
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def spans_of(found: Sequence[dict[str, Any]], metadata: dict[str, Any]) -> list[Span]:
    """Spans whose places count characters; those of the service count bytes of UTF-8."""
    spans: list[Span] = []
    for s in found:
        text = metadata.get(s["field"])
        if not isinstance(text, str):
            continue
        raw = text.encode()
        start, end = (len(raw[: s[k]].decode(errors="ignore")) for k in ("start", "end"))
        spans.append(cast("Span", {**s, "start": start, "end": end}))
    return spans


class Explanation(dict[str, Any]):
    """How the score of a document comes about, and how far the document got in a search: the answer of the service
    (docs/service.md) as a dictionary. A notebook shows a heat map.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index
    >>> with Index(None) as index:
    ...     why = index.add_documents(["a"], [np.eye(4)[:3]]).explain("a", np.eye(4)[:2])
    >>> why.stage, why.similarities.shape
    ('returned', (2, 3))
    """

    #: Where the pictures of pages are.
    _pictures: Pictures | None = None

    @property
    def score(self) -> float:
        """MaxSim, at whatever stage the document left the search."""
        return float(self["score"])

    @property
    def stage(self) -> str:
        """The stage at which the document left the search; ``"returned"`` for a hit."""
        return str(self["stage"])

    @property
    def similarities(self) -> npt.NDArray[np.float32]:
        """Inner products of the tokens, [query tokens, document tokens]."""
        return np.asarray(self["similarities"], dtype=np.float32)

    @property
    def cells(self) -> npt.NDArray[np.float32] | None:
        """Inner products with the cells of a page that is a picture, [query tokens, rows, columns]; None without a
        grid, or where pooling has lost it."""
        grid = self.get("grid")
        if not grid:
            return None
        scores = [s["cells"] for s in grid["scores"]]
        return np.asarray(scores, dtype=np.float32).reshape(len(scores), grid["rows"], grid["columns"])

    @property
    def region(self) -> Region | None:
        """Where on a page that is a picture the query matches best; None where ``cells`` is."""
        cells = self.cells
        return None if cells is None or cells.size == 0 else best_region(cells)

    @property
    def picture(self) -> str | None:
        """The file with the picture of the page, or its address; None if there is none here."""
        image = self.get("image")
        if not isinstance(image, str) or image.startswith(("http://", "https://")):
            return image if isinstance(image, str) else None
        return None if self._pictures is None else self._pictures.find(image)

    def query_tokens(self) -> list[str]:
        """The tokens of the query.

        Returns
        -------
        list of str
            Their texts; their numbers where the query was vectors.
        """
        return _token_texts(self.get("query_tokens"), self.similarities.shape[0])

    def document_tokens(self) -> list[str]:
        """The tokens of the document.

        Returns
        -------
        list of str
            Their texts; their numbers where the text or the model is not known.
        """
        return _token_texts(self.get("document_tokens"), self.similarities.shape[1])

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        rank = f", rank {self['rank']}" if self.get("rank") else ""
        return f"<Explanation of {self['id']!r}: score {self.score:.4f}, {self.stage}{rank}>"

    def _repr_html_(self) -> str:
        table = self.similarities
        asked, there = self.query_tokens(), self.document_tokens()
        rank = f", rank {self['rank']}" if self.get("rank") else ""
        parts = [f"<p><b>{escape(str(self['id']))}</b>: {self.score:.4f}, {escape(self.stage)}{rank}</p>"]
        cells = self.cells
        if cells is not None:
            parts.append(as_html(cells, self.picture))
        parts.append('<table style="font-size:small"><tr><th></th><th>best</th>')
        shown = range(min(len(there), 200))
        parts += [f"<th>{escape(there[j])}</th>" for j in shown]
        parts.append("</tr>")
        for i, name in enumerate(asked):
            row = table[i]
            best = int(row.argmax()) if len(row) else 0
            parts.append(f"<tr><th>{escape(name)}</th><td>{escape(there[best]) if there else ''}</td>")
            for j in shown:
                depth = min(max(float(row[j]), 0.0), 1.0)
                edge = ";outline:1px solid" if j == best else ""
                style = f"background:rgba(33,110,200,{depth:.2f}){edge}"
                parts.append(f'<td style="{style}" title="{escape(there[j])}: {row[j]:.3f}">{row[j]:.2f}</td>')
            parts.append("</tr>")
        parts.append("</table>")
        if len(there) > len(shown):
            parts.append(f"<p>{len(there) - len(shown)} more tokens</p>")
        return "".join(parts)


def _token_texts(tokens: Sequence[dict[str, Any]] | None, count: int) -> list[str]:
    if tokens is None or len(tokens) != count:
        return [str(i) for i in range(count)]
    return [str(t["piece"]) for t in tokens]
