"""Converts rows, which are dictionaries, to tables of pandas, polars and Arrow.

The type of a column is inferred here, so that the three libraries agree.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Mapping, NamedTuple, Sequence, cast

import numpy as np

from ._arrays import to_json
from ._checks import import_extra
from ._tables import MAX_WHOLE


class Kind(NamedTuple):
    """The type of a column: its name, the type of the items of a list, and the types of the fields of a dictionary."""

    name: str
    item: Kind | None = None
    fields: tuple[tuple[str, Kind], ...] = ()


NULL, BOOL, INT, UINT, FLOAT, FLOAT32, TEXT = map(
    Kind, ("null", "bool", "int64", "uint64", "float64", "float32", "text")
)


def infer_kind(values: Iterable[Any]) -> Kind:
    """Returns the type of a column. None does not count.

    A column has texts, booleans, 64-bit integers, floats, lists or dictionaries. Integers and floats together are
    floats, if all integers are exact as floats. Other mixtures are texts.
    """
    present = [v for v in values if v is not None]
    types = {bool if isinstance(v, (bool, np.bool_)) else _value_type(v) for v in present}
    if not types:
        return NULL
    if types == {float, int} and all(abs(v) <= MAX_WHOLE for v in present):
        return FLOAT
    if len(types) > 1:
        return TEXT
    (kind,) = types
    if kind is int:
        low, high = min(present), max(present)
        return INT if -(1 << 63) <= low and high < 1 << 63 else UINT if 0 <= low and high < 1 << 64 else TEXT
    if kind is list:
        return Kind("list", infer_kind(itertools.chain.from_iterable(present)))
    if kind is np.ndarray:
        return Kind("list", Kind("list", FLOAT32)) if all(v.ndim == 2 for v in present) else Kind("list", FLOAT32)
    if kind is dict:
        names = dict.fromkeys(name for v in present for name in v)
        fields = tuple((name, infer_kind(v.get(name) for v in present)) for name in names)
        return Kind("struct", None, fields) if fields else TEXT
    return BOOL if kind is bool else FLOAT if kind is float else TEXT


def _value_type(value: Any) -> type:
    if isinstance(value, np.ndarray):
        return np.ndarray
    if isinstance(value, (int, np.integer)):
        return int
    if isinstance(value, (float, np.floating)):
        return float
    return list if isinstance(value, (list, tuple)) else dict if isinstance(value, Mapping) else str


def to_kind(value: Any, kind: Kind) -> Any:
    """Converts a value to the type of its column. In a column of texts, other values become JSON."""
    if value is None:
        return None
    if kind.name == "text":
        return value if isinstance(value, str) else to_json(_to_plain(value)).decode()
    if kind.name == "float64":
        return float(value)
    if kind.item is not None:
        return value.tolist() if isinstance(value, np.ndarray) else [to_kind(v, kind.item) for v in value]
    return {name: to_kind(value.get(name), field) for name, field in kind.fields} if kind.fields else value


def _to_plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return cast("Any", value).tolist()
    if isinstance(value, Mapping):
        return {k: _to_plain(v) for k, v in cast("dict[str, Any]", dict(cast("Any", value))).items()}
    return [_to_plain(v) for v in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


class Columns:
    """The columns of rows. ``empty`` has the columns, and their types, of a table without rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], empty: Mapping[str, Kind]) -> None:
        names = dict.fromkeys(itertools.chain(empty if not rows else (), *rows))
        self.values: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
        self.kinds = {name: infer_kind(values) if rows else empty[name] for name, values in self.values.items()}

    def to_pandas(self) -> Any:
        pandas = import_extra("pandas", "to_pandas needs pandas", "pandas")
        series = {name: _to_series(pandas, values, self.kinds[name]) for name, values in self.values.items()}
        return pandas.DataFrame(series, columns=list(series))

    def to_polars(self) -> Any:
        polars = import_extra("polars", "to_polars needs polars", "polars")
        series: dict[str, Any] = {}
        for name, values in self.values.items():
            kind = self.kinds[name]
            series[name] = polars.Series(name, [to_kind(v, kind) for v in values], dtype=_to_polars_type(polars, kind))
        return polars.DataFrame(series)

    def to_arrow(self) -> Any:
        pyarrow = import_extra("pyarrow", "to_arrow needs pyarrow", "pyarrow")
        types = {name: _to_arrow_type(pyarrow, kind) for name, kind in self.kinds.items()}
        columns = [
            pyarrow.array([to_kind(v, self.kinds[name]) for v in values], type=types[name])
            for name, values in self.values.items()
        ]
        return pyarrow.Table.from_arrays(columns, names=list(types))


def _to_series(pandas: Any, values: list[Any], kind: Kind) -> Any:
    """Returns a pandas column. Integers and booleans keep their type if values are missing.

    Lists, dictionaries and arrays are objects.
    """
    missing = any(v is None for v in values)
    if kind.name in ("int64", "uint64", "bool"):
        nullable = {"int64": "Int64", "uint64": "UInt64", "bool": "boolean"}
        return pandas.Series(values, dtype=nullable[kind.name] if missing else kind.name)
    if kind.name == "float64":
        return pandas.Series([np.nan if v is None else v for v in values], dtype="float64")
    if kind.name == "text":
        return pandas.Series([to_kind(v, kind) for v in values], dtype=None if values else "object")
    objects = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):
        objects[i] = v
    return pandas.Series(objects, dtype="object")


def _to_polars_type(polars: Any, kind: Kind) -> Any:
    if kind.item is not None:
        return polars.List(_to_polars_type(polars, kind.item))
    if kind.fields:
        return polars.Struct([polars.Field(name, _to_polars_type(polars, field)) for name, field in kind.fields])
    names = {"null": "Null", "bool": "Boolean", "int64": "Int64", "uint64": "UInt64", "float64": "Float64"}
    return getattr(polars, names.get(kind.name) or {"float32": "Float32"}.get(kind.name, "String"))


def _to_arrow_type(pyarrow: Any, kind: Kind) -> Any:
    if kind.item is not None:
        return pyarrow.list_(_to_arrow_type(pyarrow, kind.item))
    if kind.fields:
        return pyarrow.struct([(name, _to_arrow_type(pyarrow, field)) for name, field in kind.fields])
    return getattr(pyarrow, {"text": "string", "bool": "bool_"}.get(kind.name, kind.name))()
