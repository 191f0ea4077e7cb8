"""Converts dictionaries and filters of frameworks to the engine's conditions, which are texts with parameters.

Dictionaries and the filters of LlamaIndex and Haystack become the same tests. A test of a field is true or false. A
document without the field, or with null in it, passes only negated tests. A list in the metadata passes a test if one
of its elements does (docs/conditions.md). Names of fields are always quoted, and values are always parameters.
"""

from __future__ import annotations

import re
from collections.abc import KeysView, Mapping, ValuesView
from datetime import datetime
from typing import Any, Callable, Iterable, Literal, NamedTuple, Sequence, TypeAlias, Union, cast

import numpy as np

from ._arrays import to_json
from ._checks import unexpected_type
from ._metadata import check_key, to_json_value
from ._tables import is_several, to_item, to_items

#: A condition: a text such as ``"year >= 2000"``, or a dictionary of fields and their values or tests.
Where: TypeAlias = Union[str, Mapping[str, Any]]

#: The depth to which conditions may nest, as in the engine.
_MAX_DEPTH = 200
#: The largest number of values in a range. Each of them becomes a parameter.
_MAX_RANGE = 100_000
#: Regular expressions for an element of a JSON array, and for an array.
_ELEMENT = r'("([^"\\]|\\.)*"|-?[0-9][-+.0-9eE]*|true|false|null|\[.*\]|\{.*\})'
_ARRAY = rf"^\[({_ELEMENT}(,{_ELEMENT})*)?\]$"


class _Test(NamedTuple):
    """A test, and its negation. For a document without the field the test is unknown, and the negation true."""

    text: str
    negation: str
    values: Sequence[Any] = ()


class _Joined(NamedTuple):
    """Conditions joined by AND or OR."""

    how: Literal["AND", "OR"]
    parts: Sequence[_Condition]


class _Not(NamedTuple):
    condition: _Condition


#: True means no condition; False, one that no document meets.
_Condition: TypeAlias = Union[bool, _Test, _Joined, _Not]
#: Returns a test, from the quoted name of a field, the value to compare with, and the value's name for errors.
_Make: TypeAlias = Callable[[str, Any, str], _Condition]
_Written: TypeAlias = Union[bool, tuple[str, list[Any]]]


def _write_condition(condition: _Condition, negated: bool = False) -> _Written:
    """Returns the text and the parameters of a condition, or of its negation.

    Negations are pushed down to the tests, so that the result is never unknown.
    """
    if isinstance(condition, bool):
        return condition != negated
    if isinstance(condition, _Not):
        return _write_condition(condition.condition, not negated)
    if isinstance(condition, _Test):
        return (condition.negation if negated else condition.text), list(condition.values)
    is_all = (condition.how == "AND") != negated
    texts: list[str] = []
    values: list[Any] = []
    for part in condition.parts:
        written = _write_condition(part, negated)
        if isinstance(written, bool):
            if written != is_all:
                return written
        else:
            texts.append(written[0])
            values += written[1]
    if len(texts) < 2:
        return (texts[0], values) if texts else is_all
    return "(" + (" AND " if is_all else " OR ").join(texts) + ")", values


def _to_text(condition: _Condition) -> tuple[str, list[Any]] | None:
    written = _write_condition(condition)
    if isinstance(written, bool):
        return None if written else ("_id IS NULL", [])  # 1=0 cannot be joined with another condition
    return written


# Tests of one field


def quote_key(key: str) -> str:
    """Quotes a key of the metadata, which may have any characters, for a condition."""
    return '"' + key.replace('"', '""') + '"'


def _field_test(name: str, text: str, *values: Any) -> _Test:
    return _Test(f"{name} {text}", f"({name} IS NULL OR NOT {name} {text})", values)


def _null_test(name: str) -> _Test:
    return _Test(f"{name} IS NULL", f"{name} IS NOT NULL")


def _check_value(value: Any, place: str) -> Any:
    value = to_item(value)
    if isinstance(value, Mapping):
        raise TypeError(f"{place} is a dictionary; want a value")
    if not isinstance(value, str) and not is_several(value) and (hasattr(value, "__iter__") or callable(value)):
        raise unexpected_type(place, value, "a value, or a list of values")
    is_list = isinstance(value, (range, KeysView, ValuesView))
    converted = to_json_value(list(cast("Iterable[Any]", value)) if is_list else value, place)
    if converted is None:
        hint = "want a value" if value is None else "use None to find documents without the field"
        raise ValueError(f"{place} is {value}, which is not a value: {hint}")
    return converted


def _check_scalar(value: Any, place: str) -> Any:
    converted = _check_value(value, place)
    if isinstance(converted, list):
        raise TypeError(f"{place} is a list; want one value")
    return converted


def _check_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise unexpected_type(place, value, "a text")
    return str.__str__(value)


def _check_items(value: Any, place: str) -> list[Any]:
    if not is_several(value):
        raise unexpected_type(place, value, "a list")
    if isinstance(value, range) and len(value) > _MAX_RANGE:
        raise ValueError(
            f"{place} is {value}, with {len(value)} numbers, more than {_MAX_RANGE}: use {{'$gte': …, '$lt': …}}"
        )
    return list(cast("Iterable[Any]", to_items(value, place)))


def _equal_test(name: str, value: Any, place: str) -> _Condition:
    if value is None:
        return _null_test(name)
    converted = _check_value(_check_items(value, place) if is_several(value) else value, place)
    return _field_test(name, "= ?", to_json(converted).decode() if isinstance(converted, list) else converted)


def _in_test(name: str, value: Any, place: str) -> _Condition:
    items = _check_items(value, place)
    values = [_check_scalar(v, f"{place}, item {i}") for i, v in enumerate(items) if v is not None]
    test = _field_test(name, f"IN ({', '.join('?' * len(values))})", *values)
    if len(values) == len(items):
        return test
    return _Joined("OR", [test, _null_test(name)]) if values else _null_test(name)  # IN never matches NULL


def _between_test(name: str, value: Any, place: str) -> _Condition:
    ends = _check_items(value, place)
    if len(ends) != 2:
        raise ValueError(f"{place} has {len(ends)} values; want two, the minimum and the maximum")
    return _field_test(name, "BETWEEN ? AND ?", *(_check_scalar(v, f"{place}, item {i}") for i, v in enumerate(ends)))


def _exists_test(name: str, value: Any, place: str) -> _Condition:
    if not isinstance(value, (bool, np.bool_)):
        raise unexpected_type(place, value, "True or False")
    return _Not(_null_test(name)) if value else _null_test(name)


def _regexp_test(name: str, pattern: str) -> _Test:
    return _field_test(name, "REGEXP ?", pattern)


def _escape_regexp(text: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def _contains_test(name: str, value: Any, place: str) -> _Condition:
    """Returns a test that finds the value itself, a list with the value in it, and a text with the text in it."""
    converted = _check_scalar(value, place)
    equal = _field_test(name, "= ?", converted)
    if not isinstance(converted, str):
        return equal
    # Patterns also match the JSON text of a list, which must not count as a text.
    in_text = _regexp_test(name, _escape_regexp(converted))
    return _Joined("OR", [equal, _Joined("AND", [in_text, _Not(_regexp_test(name, _ARRAY))])])


def _for_each(how: Literal["AND", "OR"], make: _Make) -> _Make:
    def make_all(name: str, value: Any, place: str) -> _Condition:
        items = _check_items(value, place)
        return _Joined(how, [make(name, v, f"{place}, item {i}") for i, v in enumerate(items)])

    return make_all


def _negate(make: _Make) -> _Make:
    return lambda name, value, place: _Not(make(name, value, place))


def _comparison(sign: str) -> _Make:
    return lambda name, value, place: _field_test(name, f"{sign} ?", _check_scalar(value, place))


def _like_test(name: str, value: Any, place: str) -> _Condition:
    return _field_test(name, "LIKE ?", _check_text(value, place))


def _text_match(flags: str) -> _Make:
    return lambda name, value, place: _regexp_test(name, flags + _escape_regexp(_check_text(value, place)))


def _empty_test(name: str, value: Any, place: str) -> _Condition:
    # LIKE excludes a list with an empty text.
    text = _Joined("AND", [_field_test(name, "= ?", ""), _Not(_field_test(name, "LIKE ?", "[%"))])
    return _Joined("OR", [_null_test(name), text, _field_test(name, "= ?", "[]")])


#: The operators of dictionaries, and their tests.
_OPERATORS: dict[str, _Make] = {
    "$eq": _equal_test,
    "$ne": _negate(_equal_test),
    "$gt": _comparison(">"),
    "$gte": _comparison(">="),
    "$lt": _comparison("<"),
    "$lte": _comparison("<="),
    "$in": _in_test,
    "$nin": _negate(_in_test),
    "$exists": _exists_test,
    "$like": _like_test,
    "$ilike": _like_test,
    "$contains": _contains_test,
    "$all": _for_each("AND", _equal_test),
    "$between": _between_test,
}
_LLAMA_INDEX: dict[str, _Make] = {
    "==": _equal_test,
    "!=": _OPERATORS["$ne"],
    ">": _OPERATORS["$gt"],
    ">=": _OPERATORS["$gte"],
    "<": _OPERATORS["$lt"],
    "<=": _OPERATORS["$lte"],
    "in": _in_test,
    "nin": _OPERATORS["$nin"],
    "any": _for_each("OR", _contains_test),
    "all": _for_each("AND", _contains_test),
    "contains": _contains_test,
    "text_match": _text_match(""),
    "text_match_insensitive": _text_match("(?i)"),
    "is_empty": _empty_test,
}
_HAYSTACK: dict[str, _Make] = {op: _LLAMA_INDEX[op] for op in ("==", "!=", ">", ">=", "<", "<=", "in")}
_HAYSTACK["not in"] = _OPERATORS["$nin"]


def _check_depth(depth: int, what: str) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{what} nests deeper than {_MAX_DEPTH}")


# Dictionaries


def _parse_dictionary(where: Mapping[Any, Any], place: str, depth: int) -> _Condition:
    _check_depth(depth, "where")
    conditions: list[_Condition] = []
    for key, value in where.items():
        key_place = f"{place}, key {key!r}"
        name = check_key(key, place)
        if name in ("$and", "$or"):
            alternatives = list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else []
            if not alternatives:
                raise ValueError(f"{key_place} needs a list with at least one dictionary")
            nested = [_parse_nested(v, f"{key_place}, item {i}", depth) for i, v in enumerate(alternatives)]
            conditions.append(_Joined("AND" if name == "$and" else "OR", nested))
        elif name == "$not":
            conditions.append(_Not(_parse_nested(value, key_place, depth)))
        elif name.startswith("$"):
            known = "$and, $or and $not, and in a field " + ", ".join(_OPERATORS)
            raise ValueError(f"{key_place}: unknown operator; want {known}")
        else:
            conditions.append(_parse_field(quote_key(name), value, key_place, depth))
    return _Joined("AND", conditions)


def _parse_nested(given: Any, place: str, depth: int) -> _Condition:
    if not isinstance(given, Mapping):
        raise unexpected_type(place, given, "a dictionary")
    return _parse_dictionary(cast("Mapping[Any, Any]", cast("object", given)), place, depth + 1)


def _parse_field(name: str, value: Any, place: str, depth: int) -> _Condition:
    value = to_item(value)
    if not isinstance(value, Mapping):
        return (_in_test if is_several(value) else _equal_test)(name, value, place)
    _check_depth(depth, "where")
    tests = cast("Mapping[Any, Any]", cast("object", value))
    conditions: list[_Condition] = []
    for op, operand in tests.items():
        op_place = f"{place}, {op}"
        if op == "$not":
            if not isinstance(operand, Mapping):
                raise unexpected_type(op_place, operand, "a dictionary of tests")
            conditions.append(_Not(_parse_field(name, operand, op_place, depth + 1)))
        elif op in _OPERATORS:
            conditions.append(_OPERATORS[op](name, operand, op_place))
        else:
            known = ", ".join([*_OPERATORS, "$not"])
            raise ValueError(
                f"{place}: {op!r} is not an operator; want {known}. For a field inside an object use its path as "
                "the key: {'author.name': 'Ann'}"
            )
    if not conditions:
        raise ValueError(f"{place} is an empty dictionary; want a value, or tests such as {{'$gte': 2000}}")
    return _Joined("AND", conditions)


def to_condition(where: Where | None, parameters: Sequence[Any] = ()) -> tuple[str, list[Any]] | None:
    """Returns a condition and its parameters for the service. None, for None and an empty dictionary, means all."""
    values = _check_parameters(parameters)
    if where is None:
        if values:
            raise ValueError("parameters needs a condition (where)")
        return None
    if isinstance(where, str):
        if not where.strip():
            raise ValueError("the condition is empty; want where=None, or a test such as 'year >= 2000'")
        for i, p in enumerate(values):
            if isinstance(p, Mapping) or is_several(p):
                raise unexpected_type(f"parameter {i}", p, "one value for each ? (IN needs a ? for each value)")
        return where, [None if p is None else _check_scalar(p, f"parameter {i}") for i, p in enumerate(values)]
    if not isinstance(where, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unexpected_type("the condition", where, "a text or a dictionary")
    if values:
        raise ValueError("parameters cannot be used if where is a dictionary, which has its values in it")
    return _to_text(_parse_dictionary(where, "where", 0))


def _check_parameters(given: Any) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise TypeError("parameters is one text; want a list with a value for each ?")
    if isinstance(given, (Mapping, set, frozenset)) or not is_several(given):
        raise unexpected_type("parameters", given, "a list with a value for each ?")
    return list(cast("Iterable[Any]", to_items(given, "parameters")))


# Frameworks


def from_llama_index(filters: Any, name: Callable[[str], str] = quote_key) -> tuple[str, list[Any]] | None:
    """Converts ``MetadataFilters`` of LlamaIndex, or None, as `to_condition` does. ``name`` quotes a key."""
    return None if filters is None else _to_text(_parse_llama_index(filters, name, "filters", 0))


def _parse_llama_index(given: Any, name: Callable[[str], str], place: str, depth: int) -> _Condition:
    _check_depth(depth, "filters")
    if hasattr(given, "filters"):
        parts = [_parse_llama_index(f, name, f"{place}.filters[{i}]", depth + 1) for i, f in enumerate(given.filters)]
        how = _enum_value(given.condition) or "and"
        if how not in ("and", "or", "not"):
            raise ValueError(f"{place}: unknown condition {how!r}; want and, or or not")
        if not parts:
            return True
        joined = _Joined("AND" if how == "and" else "OR", parts)
        return _Not(joined) if how == "not" else joined
    if not all(hasattr(given, name) for name in ("key", "value", "operator")):
        raise unexpected_type(place, given, "MetadataFilters of LlamaIndex")
    op = _enum_value(given.operator)
    if op not in _LLAMA_INDEX:
        raise ValueError(f"{place}: unknown operator {op!r}; want one of {', '.join(_LLAMA_INDEX)}")
    return _LLAMA_INDEX[op](name(given.key), given.value, f"{place}, key {given.key!r}, {op}")


def _enum_value(value: Any) -> Any:
    """Returns the value of a member of an enumeration. Returns other values unchanged."""
    return getattr(value, "value", value)


def from_haystack(filters: Mapping[str, Any] | None) -> tuple[str, list[Any]] | None:
    """Converts filters of Haystack, or None, as `to_condition` does."""
    return _to_text(_parse_haystack(filters, "filters", 0)) if filters else None


def _parse_haystack(given: Any, place: str, depth: int) -> _Condition:
    _check_depth(depth, "filters")
    if not isinstance(given, Mapping) or "operator" not in given:
        raise ValueError(f"{place} has no operator: {given!r}")
    f = cast("Mapping[str, Any]", given)
    op = f["operator"]
    if "field" not in f:
        if "conditions" not in f or op not in ("AND", "OR", "NOT"):
            raise ValueError(f"{place}: want a field, or AND, OR or NOT with conditions: {f!r}")
        conditions: Any = f["conditions"]
        if not isinstance(conditions, (list, tuple)):
            raise ValueError(f"{place}: conditions is of type {type(conditions).__name__}; want a list: {f!r}")
        parts = [
            True if c is None or c == {} else _parse_haystack(c, f"{place}.conditions[{i}]", depth + 1)
            for i, c in enumerate(cast("Sequence[Any]", conditions))
        ]
        if not parts:
            raise ValueError(f"{place}: conditions is empty: {f!r}")
        joined = _Joined("OR" if op == "OR" else "AND", parts)
        return _Not(joined) if op == "NOT" else joined
    if "value" not in f:
        raise ValueError(f"{place} has no value: {f!r}")
    if op not in _HAYSTACK:
        raise ValueError(f"{place}: unknown operator {op!r}; want {', '.join(_HAYSTACK)}, AND, OR or NOT")
    value, value_place = f["value"], f"{place}, field {f['field']!r}, {op}"
    if op in ("in", "not in") and not isinstance(value, list):
        raise TypeError(f"{value_place} needs a list, not {value!r}")
    if op in (">", ">=", "<", "<="):
        if value is None:
            return False  # as in Haystack
        if isinstance(value, str) and not _is_date(value):
            raise TypeError(f"{value_place} needs a number or a date, not {value!r}")
    return _HAYSTACK[op](_haystack_name(str(f["field"])), value, value_place)


def _haystack_name(path: str) -> str:
    if path == "id":
        return '"_id"'
    if path == "content":
        return quote_key(path)
    head, dot, key = path.partition(".")
    return f'"meta".{quote_key(key if head == "meta" and dot else path)}'


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
