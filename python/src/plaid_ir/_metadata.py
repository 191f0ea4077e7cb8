"""Converts metadata, from Python values, rows and tables, to JSON values."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping
from typing import Any, Iterable, Sequence, cast

import numpy as np

from ._checks import describe_value, unexpected_type
from ._tables import to_rows

#: Keys that the engine reserves, in upper or lower case.
_RESERVED = ("_id", "_subset_", "_content_id_")
#: The largest power of ten that readers of JSON accept.
_MAX_EXPONENT = 308


def is_missing(value: Any) -> bool:
    """Reports whether a value is missing: None, NaN, NaT, or NA of pandas."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(cast("Any", value)))


def to_json_value(value: Any, place: str) -> Any:
    """Converts a value to a JSON value. Errors name it by ``place``.

    Missing values become None; numpy's numbers, Python numbers; dates and times, ISO 8601 texts; decimals, numbers;
    UUIDs, texts; sets, arrays, tensors and columns, lists.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # str() of a member of an enumeration returns another text
    if is_missing(value):
        return None
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        raise TypeError(f"{place} is a duration, {value!r}: convert it to a number of seconds")
    if isinstance(value, (int, np.integer)):
        return int(cast("int", value))
    if isinstance(value, (float, np.floating)):
        number = float(cast("float", value))
        if not math.isfinite(number):
            raise ValueError(f"{place} is {number}, which JSON cannot represent: use None, or leave the key out")
        return number
    if isinstance(value, np.bool_):
        return bool(cast("Any", value))
    if isinstance(value, decimal.Decimal):
        return _number_from_decimal(value, place)
    if isinstance(value, np.datetime64):
        return _text_from_datetime64(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", cast("object", value))
        return {check_key(k, place): to_json_value(v, f"{place}, key {describe_value(k)}") for k, v in fields.items()}
    if isinstance(value, np.ndarray):
        array: Any = cast("Any", value)
        # tolist() would convert times to whole numbers.
        return to_json_value(list(array) if array.dtype.kind in "mM" and array.ndim else array.tolist(), place)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = cast("list[Any]", sorted(cast("Any", value), key=str) if isinstance(value, (set, frozenset)) else value)
        return [to_json_value(v, f"{place}, item {i}") for i, v in enumerate(items)]
    for method in ("as_py", "to_pylist", "to_list", "tolist"):  # of Arrow, polars, pandas, torch
        if hasattr(value, method):
            return to_json_value(getattr(value, method)(), place)
    kinds = "texts, numbers, True and False, None, dates, times, UUIDs, lists and dictionaries"
    raise TypeError(f"{place} is of type {type(value).__name__}; metadata can have {kinds}")


def _number_from_decimal(value: decimal.Decimal, place: str) -> int | float:
    if value.is_infinite() or value.adjusted() > _MAX_EXPONENT:
        raise ValueError(f"{place} is {value}, which JSON cannot represent: use None, or leave the key out")
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    if decimal.Decimal(repr(number)) != value:
        raise ValueError(
            f"{place} is {value}, which has more digits than a number can store: convert it to a text or a float"
        )
    return number


def _text_from_datetime64(value: Any) -> str:
    """Writes a date or time as Python does; as numpy does if Python cannot represent its unit or year."""
    exact = value.astype("datetime64[us]")
    date = value.item() if np.datetime_data(value.dtype)[0] == "D" else exact.item()
    if isinstance(date, datetime.date) and exact == value:
        return date.isoformat()
    return str(cast("Any", np).datetime_as_string(value))


def check_key(key: Any, place: str) -> str:
    """Returns a key of a dictionary. Raises TypeError if it is not a text."""
    if not isinstance(key, str):
        raise TypeError(f"{place} has the key {key!r}, of type {type(key).__name__}: keys are texts")
    return str.__str__(key)


def metadata_rows(metadata: Any, ids: Sequence[str], start: int = 0) -> list[dict[str, Any]]:
    """Returns the metadata of documents with their ids, from dictionaries or a table with a row for each document.

    ``start`` is the position of the first document in the call, from which errors count.
    """
    given: list[Any] = list(to_rows(metadata))
    if len(given) != len(ids):
        raise ValueError(f"there are {len(ids)} documents and {len(given)} metadata: want one for each")
    return [{"_id": i, **_to_fields(more, i, n)} for n, (i, more) in enumerate(zip(ids, given), start)]


def check_metadata(metadata: Iterable[Any], ids: Iterable[str]) -> None:
    """Raises the errors of `metadata_rows` without storing anything."""
    for n, (i, more) in enumerate(zip(ids, metadata)):
        _to_fields(more, i, n)


def _to_fields(given: Any, id: str, position: int) -> dict[str, Any]:
    place = f"row {position}: metadata of document {describe_value(id)}"
    if is_missing(given):
        return {}
    if not isinstance(given, Mapping):
        raise unexpected_type(place, given, "a dictionary")
    fields: dict[str, Any] = to_json_value(given, place)
    if "_id" in fields:
        raise ValueError(f"{place} has the key _id, which is reserved: pass ids as documents_ids")
    for key in fields:
        if key.lower() in _RESERVED:
            raise ValueError(f"{place} has the key {key!r}, which is reserved")
    return fields


def without_service_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata without the keys that the service adds."""
    fields = dict(row)
    fields.pop("_id", None)
    fields.pop("_subset_", None)
    return fields


def parent_document(row: Mapping[str, Any]) -> str | None:
    """Returns the id of a passage's document; None for other rows.

    The service checks the other fields of a passage.
    """
    passage: Any = row.get("_passage")
    document = cast("Mapping[str, Any]", passage).get("of") if isinstance(passage, Mapping) else None
    return document if isinstance(document, str) else None


def count_cells(grid: Any) -> int:
    """Returns the number of cells of a page image, from its ``grid``, or 0 if the grid is missing or invalid."""
    sides: list[Any] = cast("Any", grid)[:2] if isinstance(grid, list) else []
    return int(np.prod(sides)) if len(sides) == 2 and all(isinstance(n, int) for n in sides) else 0
