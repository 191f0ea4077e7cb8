"""The results of searches and lookups, as dictionaries, tables and HTML."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Mapping, Sequence, SupportsIndex, TypedDict, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ._frames import FLOAT, INT, NULL, TEXT, Columns

T = TypeVar("T")
L = TypeVar("L", bound="TableList[Any]")
#: The columns of tables of hits that are not metadata.
_COLUMNS = ("query", "rank", "id", "score", "spans", "passages", "token_scores")
#: The number of characters of a value that HTML shows.
_MAX_SHOWN = 300


class Span(TypedDict):
    """A match of a word of the query: the characters ``start`` to ``end`` of a field."""

    field: str
    start: int
    end: int
    word: str


class _Scored(TypedDict):
    id: Any
    score: float


class Passage(_Scored, total=False):
    """A passage of a document: its number ``n``, and the bytes ``start`` to ``end`` of the
    document's text in UTF-8. ``n`` is -1 if the document is not split; then this is all of it."""

    n: int
    start: int
    end: int
    metadata: dict[str, Any]
    spans: list[Span]


class Hit(_Scored, total=False):
    """A document that a search found, with its ``id`` and ``score``.

    Options of the search add keys: ``metadata=True`` adds ``metadata``, ``highlight=True`` adds
    ``spans``, and ``group`` adds ``passages``. `Index.search_token_scores` adds ``token_scores``
    [query tokens, document tokens].
    """

    metadata: dict[str, Any]
    spans: list[Span]
    passages: list[Passage]
    token_scores: npt.NDArray[np.float32]


class TableList(list[T]):
    """A list that can be converted to a table. Slices, sums and copies of it are such lists, too."""

    def to_pandas(self) -> Any:
        """Converts the list to a pandas data frame.

        Columns of integers or booleans with missing values have the types ``Int64`` and ``boolean``. Lists,
        dictionaries and matrices are objects. If the values of a column have several types, all become texts: those
        that are not texts, as JSON.

        Returns
        -------
        pandas.DataFrame
            A data frame with the columns that the class of the list describes.
        """
        return self._columns().to_pandas()

    def to_polars(self) -> Any:
        """Converts the list to a polars data frame.

        Lists and matrices become lists; dictionaries, structs. If the values of a column have several types, all become
        texts: those that are not texts, as JSON.

        Returns
        -------
        polars.DataFrame
            A data frame with the columns that the class of the list describes.
        """
        return self._columns().to_polars()

    def to_arrow(self) -> Any:
        """Converts the list to an Arrow table, with the same types as `to_polars`.

        Returns
        -------
        pyarrow.Table
            A table with the columns that the class of the list describes.
        """
        return self._columns().to_arrow()

    def copy(self: L) -> L:
        """Returns a list of the same items."""
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
        new = type(self)()
        new.extend(items)
        return new

    def _columns(self) -> Columns:
        raise NotImplementedError


class Hits(TableList[Hit]):
    """The hits of one query, best first: a list of dictionaries.

    As a table they have the columns ``rank``, ``id`` and ``score``, and a column for each key of the metadata. A key
    with the name of another column gets the prefix ``metadata.``.

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
    """The hits of several queries, in the order of the queries.

    As a table they have the columns of `Hits`, and a column ``query``, which counts from 0.
    """

    def _columns(self) -> Columns:
        rows = [{"query": i, **row} for i, hits in enumerate(self) for row in _flat_rows(hits)]
        return Columns(rows, {"query": INT, "rank": INT, "id": NULL, "score": FLOAT})

    def _repr_html_(self) -> str:
        return "".join(f"<p>query {i}</p>{_hits_html(hits)}" for i, hits in enumerate(self))


class Document(dict[str, Any]):
    """The metadata of a document: a dictionary with the document's id as its attribute ``id``."""

    id: Any = None


class Documents(TableList[dict[str, Any]]):
    """The metadata of documents: a list of dictionaries.

    As a table they have the column ``id`` and a column for each key. A key ``id`` becomes ``metadata.id``.

    Parameters
    ----------
    rows, ids
        The metadata and the id of each document.

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
    """The counts of the values of metadata fields: a dictionary for each field.

    It has ``field``; ``docs``, the number of documents that were counted; the numbers of documents in which the field
    is ``missing`` or ``null``; the most frequent ``values``, each with a ``value`` and its ``docs``; and ``others``,
    the number of other values. As a table they have a row for each value, with the columns ``field``, ``value`` and
    ``documents``.
    """

    def _columns(self) -> Columns:
        rows = [{"field": f["field"], "value": v["value"], "documents": v["docs"]} for f in self for v in f["values"]]
        return Columns(rows, {"field": TEXT, "value": NULL, "documents": INT})


def _flat_rows(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """Returns a dictionary for each hit, with its rank and the keys of its metadata."""
    rows: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"rank": rank, **{k: v for k, v in hit.items() if k != "metadata"}}
        row |= {_column_name(key, _COLUMNS): value for key, value in hit.get("metadata", {}).items()}
        rows.append(row)
    return rows


def _column_name(key: str, columns: Sequence[str]) -> str:
    """Returns the name of the column for a key. Different keys get different names."""
    plain = key
    while plain.startswith("metadata."):
        plain = plain[len("metadata.") :]
    return "metadata." + key if plain in columns else key


def _mark_spans(text: str, spans: Sequence[Span], field: str) -> str:
    """Returns the beginning of a text as HTML, with the spans of a field marked."""
    position = 0
    parts: list[str] = []
    for s in sorted((s for s in spans if s["field"] == field), key=lambda s: s["start"]):
        if s["start"] < position or s["start"] > _MAX_SHOWN:
            continue
        parts += [escape(text[position : s["start"]]), "<mark>", escape(text[s["start"] : s["end"]]), "</mark>"]
        position = s["end"]
    end = text[position : max(position, _MAX_SHOWN)]
    return "".join(parts) + escape(end) + ("…" if position + len(end) < len(text) else "")


def _hits_html(hits: Sequence[Hit]) -> str:
    """Returns a table of hits as HTML. Texts of documents are escaped."""
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
    """Converts the service's spans, which count bytes of UTF-8, to spans that count characters."""
    spans: list[Span] = []
    for s in found:
        text = metadata.get(s["field"])
        if not isinstance(text, str):
            continue
        raw = text.encode()
        start, end = (len(raw[: s[k]].decode(errors="ignore")) for k in ("start", "end"))
        spans.append(cast("Span", {**s, "start": start, "end": end}))
    return spans
