"""Metadata and conditions: from values of Python to those of JSON and the engine."""

from __future__ import annotations

import datetime
import math
from typing import Any, Mapping, Sequence, TypeAlias, Union, cast

import numpy as np

#: A condition: ``"year >= 2000"``, ``"year >= ?"`` with parameters, or fields and their values.
Where: TypeAlias = Union[str, Mapping[str, Any]]

#: Keys that the engine keeps for itself, in any case.
_RESERVED = ("_id", "_subset_", "_content_id_")


def to_json_value(value: Any, place: str) -> Any:
    """A value of JSON: numpy's numbers become Python's, dates ISO 8601 texts, sets and arrays lists. ``place`` names
    the value in errors."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.datetime64):
        date = cast("Any", value)
        if np.isnat(date):
            raise ValueError(f"{place} is NaT, which is no date: leave the key out, or take None")
        return str(cast("Any", np).datetime_as_string(date))
    if isinstance(value, np.generic):
        return to_json_value(value.item(), place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{place} is {value}, which is no number in JSON: leave the key out, or take None")
        return float(value)
    if isinstance(value, (datetime.date, datetime.time)):
        if value != value:  # NaT of pandas
            raise ValueError(f"{place} is NaT, which is no date: leave the key out, or take None")
        return value.isoformat()
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", cast("object", value))
        return {_key(k, place): to_json_value(v, f"{place}, key {k!r}") for k, v in fields.items()}
    if isinstance(value, np.ndarray):
        return to_json_value(cast("Any", value).tolist(), place)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = cast("list[Any]", sorted(cast("Any", value), key=str) if isinstance(value, (set, frozenset)) else value)
        return [to_json_value(v, f"{place}, item {i}") for i, v in enumerate(items)]
    kinds = "texts, numbers, True and False, None, dates, lists and dictionaries"
    raise TypeError(f"{place} is of type {type(value).__name__}; metadata has {kinds}")


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{place} has the key {key!r}, of type {type(key).__name__}: keys are texts")
    return key


def metadata_rows(metadata: Any, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The metadata of documents with their ids, from a list of dictionaries or a data frame."""
    if hasattr(metadata, "to_dict"):  # of pandas, without importing it
        metadata = metadata.to_dict("records")
    elif isinstance(metadata, Mapping):
        raise TypeError("metadata is one dictionary; want a list with one for each document")
    given: list[Any] = list(metadata)
    if len(given) != len(ids):
        raise ValueError(f"there are {len(ids)} documents and {len(given)} metadata: want one for each")
    made: list[dict[str, Any]] = []
    for i, more in zip(ids, given):
        place = f"metadata of document {i!r}"
        if not isinstance(more, Mapping):
            raise TypeError(f"{place} is a {type(more).__name__}; want a dictionary")
        if "_id" in more:
            raise ValueError(f"{place} has the key _id: ids are given by documents_ids")
        for key in cast("Any", more):
            if str(key).lower() in _RESERVED:
                raise ValueError(f"{place} has the key {key!r}, which is reserved")
        made.append({"_id": i, **to_json_value(more, place)})
    return made


def quoted(key: str) -> str:
    """A key of metadata, of any characters, as conditions name it."""
    return '"' + key.replace('"', '""') + '"'


def condition(where: Where | None, parameters: Sequence[Any] = ()) -> tuple[str, list[Any]] | None:
    """A condition and its parameters as the service takes them, or None."""
    if isinstance(parameters, (str, bytes)):
        raise TypeError("parameters is one text; want a list, with a value for each ?")
    if where is None:
        if len(parameters):
            raise ValueError("there are parameters without a condition (where)")
        return None
    if isinstance(where, str):
        if not where.strip():
            raise ValueError("the condition is empty; want where=None, or a test such as 'year >= 2000'")
        for i, p in enumerate(parameters):
            if isinstance(p, (Mapping, list, tuple, set)):
                kind = type(cast("object", p)).__name__
                raise TypeError(
                    f"parameter {i} is of type {kind}; want one value for each ? (IN takes as many ? as values)"
                )
        return where, [to_json_value(p, f"parameter {i}") for i, p in enumerate(parameters)]
    if len(parameters):
        raise ValueError("there are parameters for a where that is a dictionary, which has its values")
    if not where:
        raise ValueError("where is an empty dictionary; want where=None")
    tests: list[str] = []
    values: list[Any] = []
    for key, value in where.items():
        name, place = quoted(_key(key, "where")), f"where, key {key!r}"
        value = to_json_value(value, place)
        if value is None:
            tests.append(f"{name} IS NULL")
        elif isinstance(value, list):
            several = cast("list[Any]", cast("object", value))
            some = [v for v in several if v is not None]
            test = f"{name} IN ({', '.join('?' * len(some))})"
            if len(some) < len(several):  # NULL is in no list
                test = f"({test} OR {name} IS NULL)" if some else f"{name} IS NULL"
            tests.append(test)
            values += some
        elif isinstance(value, dict):
            raise TypeError(
                f'{place} is a dictionary; want a value, or a list of them. Other tests are written: "year >= ?"'
            )
        else:
            tests.append(f"{name} = ?")
            values.append(value)
    return " AND ".join(tests), values


def own_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the keys that the service adds."""
    return {k: v for k, v in row.items() if k not in ("_id", "_subset_")}


def passage_of(row: Mapping[str, Any]) -> str | None:
    """The id of the document that metadata make a passage of. What is wrong with them the service says."""
    passage: Any = row.get("_passage")
    document = cast("Mapping[str, Any]", passage).get("of") if isinstance(passage, Mapping) else None
    return document if isinstance(document, str) else None


def cells_of(grid: Any) -> int:
    """The number of cells of a ``grid``, which a page that is a picture has."""
    sides: list[Any] = cast("Any", grid)[:2] if isinstance(grid, list) else []
    return int(np.prod(sides)) if len(sides) == 2 and all(isinstance(n, int) for n in sides) else 0
