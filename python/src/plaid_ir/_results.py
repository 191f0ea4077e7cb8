"""Hits, documents and facets, as dictionaries, tables and HTML."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Mapping, Sequence, SupportsIndex, TypedDict, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ._frames import FLOAT, INT, NULL, TEXT, Columns

T = TypeVar("T")
L = TypeVar("L", bound="TableList[Any]")
#: Columns of tables of hits that are not metadata.
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


class TableList(list[T]):
    """A list that makes tables. A slice of it, a sum and a copy are such lists as well."""

    def to_pandas(self) -> Any:
        """The list as a table of pandas. Whole numbers and truth values keep their types next to missing ones
        (``Int64``, ``boolean``); lists, dictionaries and matrices are objects. A column whose values are of several
        types has texts: other values become their JSON.

        Returns
        -------
        pandas.DataFrame
            The columns are those of the class.
        """
        return self._columns().to_pandas()

    def to_polars(self) -> Any:
        """The list as a table of polars. Lists and matrices are lists, dictionaries structs; a column whose values are
        of several types has texts: other values become their JSON.

        Returns
        -------
        polars.DataFrame
            The columns are those of the class.
        """
        return self._columns().to_polars()

    def to_arrow(self) -> Any:
        """The list as a table of Arrow, with the types of `to_polars`.

        Returns
        -------
        pyarrow.Table
            The columns are those of the class.
        """
        return self._columns().to_arrow()

    def copy(self: L) -> L:
        """A list of the same items."""
        return self._new_list(self)

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self: L, key: slice, /) -> L: ...

    def __getitem__(self, key: Any, /) -> Any:
        found: Any = cast("Any", super()).__getitem__(key)
        return self._new_list(found) if isinstance(key, slice) else found

    def __add__(self: L, other: list[Any], /) -> L:  # type: ignore[override]
        return self._new_list(super().__add__(other))

    def _new_list(self: L, items: Iterable[Any]) -> L:
        made = type(self)()
        made.extend(items)
        return made

    def _columns(self) -> Columns:
        raise NotImplementedError


class Hits(TableList[Hit]):
    """The hits of one query, best first: a list of dictionaries.

    A table of them has the columns ``rank``, ``id``, ``score`` and a column for each key of the metadata; a key that is
    the name of another column has ``metadata.`` in front.

    Examples
    --------
    >>> hits = Hits([{"id": "a", "score": 2.0}])
    >>> hits[0]["id"]
    'a'
    """

    def _columns(self) -> Columns:
        return Columns(_flat_rows(self), {"rank": INT, "id": NULL, "score": FLOAT})

    def _repr_html_(self) -> str:
        return _hits_html(self)


class Results(TableList[Hits]):
    """The hits of several queries, in their order. A table of them has the columns of `Hits` and a column ``query``,
    which counts from 0."""

    def _columns(self) -> Columns:
        rows = [{"query": i, **row} for i, hits in enumerate(self) for row in _flat_rows(hits)]
        return Columns(rows, {"query": INT, "rank": INT, "id": NULL, "score": FLOAT})

    def _repr_html_(self) -> str:
        return "".join(f"<p>query {i}</p>{_hits_html(hits)}" for i, hits in enumerate(self))


class Document(dict[str, Any]):
    """The metadata of a document: a dictionary. ``id`` has its id."""

    id: Any = None


class Documents(TableList[dict[str, Any]]):
    """The metadata of documents, in their order. A table of them has the column ``id`` and a column for each key; the
    key ``id`` becomes ``metadata.id``.

    Parameters
    ----------
    rows, ids
        The metadata, and the id of each.

    Examples
    --------
    >>> documents = Documents([{"year": 1999}, {"year": 2001}], ["a", "b"])
    >>> documents[1], documents[1:].ids
    ({'year': 2001}, ['b'])
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = (), ids: Iterable[Any] = ()) -> None:
        super().__init__(row if isinstance(row, Document) else Document(row) for row in rows)
        for row, id in zip(self, ids):
            cast("Document", row).id = id

    @property
    def ids(self) -> list[Any]:
        """The ids of the documents."""
        return [getattr(row, "id", None) for row in self]

    def _columns(self) -> Columns:
        rows = [{"id": i, **{_column_name(k, ("id",)): v for k, v in row.items()}} for i, row in zip(self.ids, self)]
        return Columns(rows, {"id": NULL})


class Facets(TableList[dict[str, Any]]):
    """A dictionary for each field: ``field``, ``docs`` that were counted, those where it is ``missing`` or ``null``,
    the commonest ``values``, each with a ``value`` and its ``docs``, and how many ``others`` there are. A table of them
    has a row for each value, with the columns ``field``, ``value`` and ``documents``."""

    def _columns(self) -> Columns:
        rows = [{"field": f["field"], "value": v["value"], "documents": v["docs"]} for f in self for v in f["values"]]
        return Columns(rows, {"field": TEXT, "value": NULL, "documents": INT})


def _flat_rows(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """A dictionary for each hit with the metadata in it."""
    rows: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"rank": rank, **{k: v for k, v in hit.items() if k != "metadata"}}
        row |= {_column_name(key, _COLUMNS): value for key, value in hit.get("metadata", {}).items()}
        rows.append(row)
    return rows


def _column_name(key: str, columns: Sequence[str]) -> str:
    """The name of the column of a key: no two keys have the same."""
    plain = key
    while plain.startswith("metadata."):
        plain = plain[len("metadata.") :]
    return "metadata." + key if plain in columns else key


def _mark_spans(text: str, spans: Sequence[Span], field: str) -> str:
    """A text as HTML, in which the spans of a field are marked."""
    done = 0
    parts: list[str] = []
    for s in sorted((s for s in spans if s["field"] == field), key=lambda s: s["start"]):
        if s["start"] < done or s["start"] > _MAX_SHOWN:
            continue
        parts += [escape(text[done : s["start"]]), "<mark>", escape(text[s["start"] : s["end"]]), "</mark>"]
        done = s["end"]
    rest = text[done : max(done, _MAX_SHOWN)]
    return "".join(parts) + escape(rest) + ("…" if done + len(rest) < len(text) else "")


def _hits_html(hits: Sequence[Hit]) -> str:
    """A table of hits. Texts of documents are escaped."""
    keys = list(dict.fromkeys(k for hit in hits for k in hit.get("metadata", {})))
    head = "".join(f"<th>{escape(str(k))}</th>" for k in ("", "id", "score", *keys))
    lines: list[str] = []
    for rank, hit in enumerate(hits, 1):
        cells = [str(rank), escape(str(hit["id"])), f"{hit['score']:.4f}"]
        for key in keys:
            value = hit.get("metadata", {}).get(key, "")
            text = value if isinstance(value, str) else str(value)
            cells.append(_mark_spans(text, hit.get("spans", []), key))
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def to_character_spans(found: Sequence[dict[str, Any]], metadata: dict[str, Any]) -> list[Span]:
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
