"""Conditions: from dictionaries of Python and filters of frameworks to the engine's texts and their parameters.

A dictionary, a filter of LlamaIndex and one of Haystack become the same tests. A test of a field is true or false: a
document without the field, or with null in it, passes no test but the negations. A list in the metadata passes a test
if one of its elements does (docs/conditions.md). Names of fields are quoted, and values are parameters, whatever is in
them.
"""

from __future__ import annotations

import re
from collections.abc import KeysView, Mapping, ValuesView
from datetime import datetime
from typing import Any, Callable, Iterable, Literal, NamedTuple, Sequence, TypeAlias, Union, cast

import numpy as np

from ._arrays import to_json
from ._checks import wrong_type
from ._metadata import json_key, to_json_value
from ._tables import is_several, item_of, items_of

#: A condition: ``"year >= 2000"``, ``"year >= ?"`` with parameters, or fields and their values or tests.
Where: TypeAlias = Union[str, Mapping[str, Any]]

#: How deep conditions nest, as in the engine.
_MAX_DEPTH = 200
#: The numbers of a range. Every one is a parameter.
_MAX_RANGE = 100_000
#: An element of an array in JSON, and an array.
_ELEMENT = r'("([^"\\]|\\.)*"|-?[0-9][-+.0-9eE]*|true|false|null|\[.*\]|\{.*\})'
_ARRAY = rf"^\[({_ELEMENT}(,{_ELEMENT})*)?\]$"


class _Test(NamedTuple):
    """A test that is unknown of a document without the field, and its negation, which is true of it."""

    text: str
    negation: str
    values: Sequence[Any] = ()


class _Joined(NamedTuple):
    """Conditions that are true together, or one by one."""

    how: Literal["AND", "OR"]
    parts: Sequence[_Condition]


class _Not(NamedTuple):
    condition: _Condition


#: True stands for no condition.
_Condition: TypeAlias = Union[bool, _Test, _Joined, _Not]
#: Makes the test of a field, of its quoted name, the value to compare with, and the place of that for errors.
_Make: TypeAlias = Callable[[str, Any, str], _Condition]
_Written: TypeAlias = Union[bool, tuple[str, list[Any]]]


def _write(condition: _Condition, negated: bool = False) -> _Written:
    """The text of a condition, or of its negation, and the values. It is never unknown: negations are written at the
    tests."""
    if isinstance(condition, bool):
        return condition != negated
    if isinstance(condition, _Not):
        return _write(condition.condition, not negated)
    if isinstance(condition, _Test):
        return (condition.negation if negated else condition.text), list(condition.values)
    is_all = (condition.how == "AND") != negated
    texts: list[str] = []
    values: list[Any] = []
    for part in condition.parts:
        written = _write(part, negated)
        if isinstance(written, bool):
            if written != is_all:
                return written
        else:
            texts.append(written[0])
            values += written[1]
    if len(texts) < 2:
        return (texts[0], values) if texts else is_all
    return "(" + (" AND " if is_all else " OR ").join(texts) + ")", values


def _finish(condition: _Condition) -> tuple[str, list[Any]] | None:
    written = _write(condition)
    if isinstance(written, bool):
        return None if written else ("_id IS NULL", [])  # 1=0 would be no part of a longer condition
    return written


# Tests of one field


def quoted(key: str) -> str:
    """A key of metadata, of any characters, as conditions name it."""
    return '"' + key.replace('"', '""') + '"'


def _test(name: str, text: str, *values: Any) -> _Test:
    return _Test(f"{name} {text}", f"({name} IS NULL OR NOT {name} {text})", values)


def _null(name: str) -> _Test:
    return _Test(f"{name} IS NULL", f"{name} IS NOT NULL")


def _value(value: Any, place: str) -> Any:
    value = item_of(value)
    if isinstance(value, Mapping):
        raise TypeError(f"{place} is a dictionary; want a value")
    if not isinstance(value, str) and not is_several(value) and (hasattr(value, "__iter__") or callable(value)):
        raise wrong_type(place, value, "a value, or a list of values")
    several = isinstance(value, (range, KeysView, ValuesView))
    made = to_json_value(list(cast("Iterable[Any]", value)) if several else value, place)
    if made is None:
        hint = "want a value" if value is None else "None stands for documents without the field"
        raise ValueError(f"{place} is {value}, which is no value: {hint}")
    return made


def _scalar(value: Any, place: str) -> Any:
    made = _value(value, place)
    if isinstance(made, list):
        raise TypeError(f"{place} is a list; want one value")
    return made


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(place, value, "a text")
    return str.__str__(value)


def _items(value: Any, place: str) -> list[Any]:
    if not is_several(value):
        raise wrong_type(place, value, "a list")
    if isinstance(value, range) and len(value) > _MAX_RANGE:
        raise ValueError(
            f"{place} is {value}, of {len(value)} numbers; {_MAX_RANGE} are the most. Want {{'$gte': …, '$lt': …}}"
        )
    return list(cast("Iterable[Any]", items_of(value, place)))


def _equal(name: str, value: Any, place: str) -> _Condition:
    if value is None:
        return _null(name)
    made = _value(_items(value, place) if is_several(value) else value, place)
    return _test(name, "= ?", to_json(made).decode() if isinstance(made, list) else made)


def _within(name: str, value: Any, place: str) -> _Condition:
    items = _items(value, place)
    values = [_scalar(v, f"{place}, item {i}") for i, v in enumerate(items) if v is not None]
    test = _test(name, f"IN ({', '.join('?' * len(values))})", *values)
    if len(values) == len(items):
        return test
    return _Joined("OR", [test, _null(name)]) if values else _null(name)  # NULL is in no list


def _between(name: str, value: Any, place: str) -> _Condition:
    ends = _items(value, place)
    if len(ends) != 2:
        raise ValueError(f"{place} has {len(ends)} values; want two, the least and the greatest")
    return _test(name, "BETWEEN ? AND ?", *(_scalar(v, f"{place}, item {i}") for i, v in enumerate(ends)))


def _exists(name: str, value: Any, place: str) -> _Condition:
    if not isinstance(value, (bool, np.bool_)):
        raise wrong_type(place, value, "True or False")
    return _Not(_null(name)) if value else _null(name)


def _regexp(name: str, pattern: str) -> _Test:
    return _test(name, "REGEXP ?", pattern)


def _literal(text: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def _contains(name: str, value: Any, place: str) -> _Condition:
    """True of a list with the value in it, of the value itself, and of a text with the text in it."""
    made = _scalar(value, place)
    equal = _test(name, "= ?", made)
    if not isinstance(made, str):
        return equal
    # Arrays are also the text of their JSON.
    return _Joined("OR", [equal, _Joined("AND", [_regexp(name, _literal(made)), _Not(_regexp(name, _ARRAY))])])


def _for_each(how: Literal["AND", "OR"], make: _Make) -> _Make:
    def several(name: str, value: Any, place: str) -> _Condition:
        items = _items(value, place)
        return _Joined(how, [make(name, v, f"{place}, item {i}") for i, v in enumerate(items)])

    return several


def _negation(make: _Make) -> _Make:
    return lambda name, value, place: _Not(make(name, value, place))


def _order(sign: str) -> _Make:
    return lambda name, value, place: _test(name, f"{sign} ?", _scalar(value, place))


def _like(name: str, value: Any, place: str) -> _Condition:
    return _test(name, "LIKE ?", _text(value, place))


def _text_match(flags: str) -> _Make:
    return lambda name, value, place: _regexp(name, flags + _literal(_text(value, place)))


def _is_empty(name: str, value: Any, place: str) -> _Condition:
    text = _Joined("AND", [_test(name, "= ?", ""), _Not(_test(name, "LIKE ?", "[%"))])  # no list with an empty text
    return _Joined("OR", [_null(name), text, _test(name, "= ?", "[]")])


#: Tests by the operators of dictionaries.
_OPERATORS: dict[str, _Make] = {
    "$eq": _equal,
    "$ne": _negation(_equal),
    "$gt": _order(">"),
    "$gte": _order(">="),
    "$lt": _order("<"),
    "$lte": _order("<="),
    "$in": _within,
    "$nin": _negation(_within),
    "$exists": _exists,
    "$like": _like,
    "$ilike": _like,
    "$contains": _contains,
    "$all": _for_each("AND", _equal),
    "$between": _between,
}
_LLAMA_INDEX: dict[str, _Make] = {
    "==": _equal,
    "!=": _OPERATORS["$ne"],
    ">": _OPERATORS["$gt"],
    ">=": _OPERATORS["$gte"],
    "<": _OPERATORS["$lt"],
    "<=": _OPERATORS["$lte"],
    "in": _within,
    "nin": _OPERATORS["$nin"],
    "any": _for_each("OR", _contains),
    "all": _for_each("AND", _contains),
    "contains": _contains,
    "text_match": _text_match(""),
    "text_match_insensitive": _text_match("(?i)"),
    "is_empty": _is_empty,
}
_HAYSTACK: dict[str, _Make] = {op: _LLAMA_INDEX[op] for op in ("==", "!=", ">", ">=", "<", "<=", "in")}
_HAYSTACK["not in"] = _OPERATORS["$nin"]


def _check_depth(depth: int, what: str) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{what} nests deeper than {_MAX_DEPTH}")


# Dictionaries


def _of_dictionary(where: Mapping[Any, Any], place: str, depth: int) -> _Condition:
    _check_depth(depth, "where")
    parts: list[_Condition] = []
    for key, value in where.items():
        at = f"{place}, key {key!r}"
        name = json_key(key, place)
        if name in ("$and", "$or"):
            several = list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else []
            if not several:
                raise ValueError(f"{at} wants a list of dictionaries, with one at least")
            some = [_nested(v, f"{at}, item {i}", depth) for i, v in enumerate(several)]
            parts.append(_Joined("AND" if name == "$and" else "OR", some))
        elif name == "$not":
            parts.append(_Not(_nested(value, at, depth)))
        elif name.startswith("$"):
            there = "$and, $or and $not, and in a field " + ", ".join(_OPERATORS)
            raise ValueError(f"{at}: there is no such operator; there are {there}")
        else:
            parts.append(_of_field(quoted(name), value, at, depth))
    return _Joined("AND", parts)


def _nested(given: Any, place: str, depth: int) -> _Condition:
    if not isinstance(given, Mapping):
        raise wrong_type(place, given, "a dictionary")
    return _of_dictionary(cast("Mapping[Any, Any]", cast("object", given)), place, depth + 1)


def _of_field(name: str, value: Any, place: str, depth: int) -> _Condition:
    value = item_of(value)
    if not isinstance(value, Mapping):
        return (_within if is_several(value) else _equal)(name, value, place)
    _check_depth(depth, "where")
    tests = cast("Mapping[Any, Any]", cast("object", value))
    parts: list[_Condition] = []
    for op, operand in tests.items():
        at = f"{place}, {op}"
        if op == "$not":
            if not isinstance(operand, Mapping):
                raise wrong_type(at, operand, "a dictionary of tests")
            parts.append(_Not(_of_field(name, operand, at, depth + 1)))
        elif op in _OPERATORS:
            parts.append(_OPERATORS[op](name, operand, at))
        else:
            there = ", ".join([*_OPERATORS, "$not"])
            raise ValueError(
                f"{place}: {op!r} is no operator; there are {there}. A field within an object has its path as the "
                "key: {'author.name': 'Ann'}"
            )
    if not parts:
        raise ValueError(f"{place} is an empty dictionary; want a value, or tests such as {{'$gte': 2000}}")
    return _Joined("AND", parts)


def condition(where: Where | None, parameters: Sequence[Any] = ()) -> tuple[str, list[Any]] | None:
    """A condition and its parameters as the service takes them. None, of None and of an empty dictionary, is no
    condition."""
    values = _parameters(parameters)
    if where is None:
        if values:
            raise ValueError("there are parameters without a condition (where)")
        return None
    if isinstance(where, str):
        if not where.strip():
            raise ValueError("the condition is empty; want where=None, or a test such as 'year >= 2000'")
        for i, p in enumerate(values):
            if isinstance(p, Mapping) or is_several(p):
                raise wrong_type(f"parameter {i}", p, "one value for each ? (IN takes as many ? as values)")
        return where, [None if p is None else _scalar(p, f"parameter {i}") for i, p in enumerate(values)]
    if not isinstance(where, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong_type("the condition", where, "a text or a dictionary")
    if values:
        raise ValueError("there are parameters for a where that is a dictionary, which has its values")
    return _finish(_of_dictionary(where, "where", 0))


def _parameters(given: Any) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise TypeError("parameters is one text; want a list, with a value for each ?")
    if isinstance(given, (Mapping, set, frozenset)) or not is_several(given):
        raise wrong_type("parameters", given, "a list, with a value for each ?")
    return list(cast("Iterable[Any]", items_of(given, "parameters")))


# Frameworks


def of_llama_index(filters: Any, name: Callable[[str], str] = quoted) -> tuple[str, list[Any]] | None:
    """``MetadataFilters`` of LlamaIndex, or None, as `condition` returns it. ``name`` is how conditions name a key."""
    return None if filters is None else _finish(_of_llama_index(filters, name, "filters", 0))


def _of_llama_index(given: Any, name: Callable[[str], str], place: str, depth: int) -> _Condition:
    _check_depth(depth, "filters")
    if hasattr(given, "filters"):
        parts = [_of_llama_index(f, name, f"{place}.filters[{i}]", depth + 1) for i, f in enumerate(given.filters)]
        how = _member(given.condition) or "and"
        if how not in ("and", "or", "not"):
            raise ValueError(f"{place}: condition {how!r} is not known; there are and, or and not")
        if not parts:
            return True
        joined = _Joined("AND" if how == "and" else "OR", parts)
        return _Not(joined) if how == "not" else joined
    if not all(hasattr(given, name) for name in ("key", "value", "operator")):
        raise wrong_type(place, given, "MetadataFilters of LlamaIndex")
    op = _member(given.operator)
    if op not in _LLAMA_INDEX:
        raise ValueError(f"{place}: operator {op!r} is not known; there are {', '.join(_LLAMA_INDEX)}")
    return _LLAMA_INDEX[op](name(given.key), given.value, f"{place}, key {given.key!r}, {op}")


def _member(value: Any) -> Any:
    """The value of a member of an enumeration, or anything else as it is."""
    return getattr(value, "value", value)


def of_haystack(filters: Mapping[str, Any] | None) -> tuple[str, list[Any]] | None:
    """Filters of Haystack, or None, as `condition` returns it."""
    return _finish(_of_haystack(filters, "filters", 0)) if filters else None


def _of_haystack(given: Any, place: str, depth: int) -> _Condition:
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
            True if c is None or c == {} else _of_haystack(c, f"{place}.conditions[{i}]", depth + 1)
            for i, c in enumerate(cast("Sequence[Any]", conditions))
        ]
        if not parts:
            raise ValueError(f"{place}: conditions is empty: {f!r}")
        joined = _Joined("OR" if op == "OR" else "AND", parts)
        return _Not(joined) if op == "NOT" else joined
    if "value" not in f:
        raise ValueError(f"{place} has no value: {f!r}")
    if op not in _HAYSTACK:
        raise ValueError(f"{place}: operator {op!r} is not known; there are {', '.join(_HAYSTACK)}, AND, OR and NOT")
    value, at = f["value"], f"{place}, field {f['field']!r}, {op}"
    if op in ("in", "not in") and not isinstance(value, list):
        raise TypeError(f"{at} takes a list, not {value!r}")
    if op in (">", ">=", "<", "<="):
        if value is None:
            return False  # as in Haystack
        if isinstance(value, str) and not _is_date(value):
            raise TypeError(f"{at} takes a number or a date, not {value!r}")
    return _HAYSTACK[op](_haystack_name(str(f["field"])), value, at)


def _haystack_name(path: str) -> str:
    if path == "id":
        return '"_id"'
    if path == "content":
        return quoted(path)
    head, dot, key = path.partition(".")
    return f'"meta".{quoted(key if head == "meta" and dot else path)}'


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
