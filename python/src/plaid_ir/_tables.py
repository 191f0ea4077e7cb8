"""Rows and columns of data frames, without importing the libraries that make them."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

import numpy as np

#: Rows that become dictionaries at a time.
_CHUNK = 1024
#: Whole numbers up to this one are exact as floats.
_MAX_WHOLE = 2.0**53


def _kind(x: Any) -> str | None:
    """The library of a data frame or another table; None for anything else."""
    if hasattr(x, "iloc") and hasattr(x, "columns"):
        return "pandas"
    library, name = type(x).__module__.partition(".")[0], type(x).__name__
    if library == "polars" and name in ("DataFrame", "LazyFrame"):
        if name == "LazyFrame":
            raise TypeError("a LazyFrame has no rows yet: collect() it")
        return library
    return "pyarrow" if library == "pyarrow" and name in ("Table", "RecordBatch") else None


class _Rows:
    """The rows of a table as dictionaries, which are made as they are asked for."""

    def __init__(self, table: Any, kind: str) -> None:
        self._table, self._kind = table, kind
        names: list[Any] = list(table.schema.names if kind == "pyarrow" else table.columns)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ValueError(f"metadata has two columns {name!r}: rename one, or leave it out")
        self._names = names

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Mapping[Any, Any]]:
        if self._kind == "polars":
            yield from self._table.iter_rows(named=True)
            return
        whole = [_is_whole(self._table.iloc[:, j]) for j in range(len(self._names))] if self._kind == "pandas" else []
        for begin in range(0, len(self), _CHUNK):
            if self._kind == "pyarrow":
                yield from self._table.slice(begin, _CHUNK).to_pylist()
                continue
            part = self._table.iloc[begin : begin + _CHUNK]
            columns: list[list[Any]] = [part.iloc[:, j].tolist() for j in range(len(self._names))]
            for j, column in enumerate(columns):
                if whole[j]:
                    columns[j] = [int(v) if v == v else None for v in column]
            for i in range(len(part)):
                yield {name: column[i] for name, column in zip(self._names, columns)}


def _is_whole(column: Any) -> bool:
    """Reports whether a column of floats has values that are missing, and whole numbers: pandas makes floats of whole
    numbers next to a missing one."""
    if getattr(column.dtype, "kind", "") != "f":
        return False
    values = column.to_numpy(dtype="float64", na_value=np.nan)
    there = values[~np.isnan(values)]
    return len(there) < len(values) and bool((np.abs(there) <= _MAX_WHOLE).all() and (there == np.rint(there)).all())


def rows_of(metadata: Any) -> Iterable[Any]:
    """Dictionaries with metadata: those given, or the rows of a data frame."""
    kind = _kind(metadata)
    if kind is not None:
        return _Rows(metadata, kind)
    if isinstance(metadata, Mapping):
        raise TypeError(
            "metadata is one dictionary; want a list with one for each document, "
            "or a data frame (of columns pandas.DataFrame makes one)"
        )
    if isinstance(metadata, (str, bytes)):
        raise TypeError("metadata is one text; want a list with a dictionary for each document")
    return metadata  # type: ignore[no-any-return]


def items_of(column: Any, what: str) -> Any:
    """Texts, ids or vectors: those given, or the items of a column of a data frame, as a list. ``what`` names them in
    errors."""
    if _kind(column) is not None:
        raise TypeError(f"{what} is a table; want one of its columns")
    for method in ("to_pylist", "to_list"):  # of pyarrow, of pandas and polars
        if hasattr(column, method):
            return getattr(column, method)()
    return column
