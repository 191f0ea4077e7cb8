"""Checks parameters before anything costs time. Errors name the parameter."""

from __future__ import annotations

import importlib
import operator
import os
from collections.abc import Mapping
from typing import Any, Callable, cast, get_args

import numpy as np

#: The number of characters of a value that a message shows.
_MAX_SHOWN = 80


def describe_value(value: Any) -> str:
    """Returns a value as messages show it: only its beginning if it is long."""
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{value[:_MAX_SHOWN]!r}… ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= 2 * _MAX_SHOWN else text[: 2 * _MAX_SHOWN] + "…"


def unexpected_value(name: str, value: Any, wanted: str) -> TypeError:
    """Returns the error for a parameter of a wrong type. It shows the value."""
    return TypeError(f"{name} is {describe_value(value)}; want {wanted}")


def unexpected_type(place: str, value: Any, wanted: str) -> TypeError:
    """Returns the error for a value of a wrong type that may be long. It shows only the type."""
    return TypeError(f"{place} is of type {type(value).__name__}; want {wanted}")


def import_extra(module: str, needed: str, package: str) -> Any:
    """Imports a module of an optional package. If it is not installed, the error begins with ``needed``, the reason."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise ImportError(f"{needed}: pip install {package}") from e


def check_int(value: Any, name: str, minimum: int | None = None) -> int:
    """Returns a whole number of Python or numpy as an int."""
    wanted = "a whole number" if minimum is None else f"a whole number, {minimum} or more"
    if isinstance(value, (bool, np.bool_)):
        raise unexpected_value(name, value, wanted)
    try:
        number = operator.index(value)
    except TypeError:
        raise unexpected_value(name, value, wanted) from None
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} is {number}; want {minimum} or more")
    return number


def check_number(value: Any, name: str) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__") or np.ndim(value) > 0:
        raise unexpected_value(name, value, "a number")
    return float(value)


def check_bool(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise unexpected_value(name, value, "True or False")
    return bool(cast("Any", value))


def check_choice(value: Any, name: str, literal: Any) -> str:
    """Returns a value of a ``Literal`` type."""
    choices: tuple[str, ...] = get_args(literal)
    wanted = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
    if not isinstance(value, str):
        raise unexpected_value(name, value, wanted)
    if value not in choices:
        raise ValueError(f"{name} is {describe_value(value)}; want {wanted}")
    return value


def check_str(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise unexpected_value(name, value, "a text")
    return str.__str__(value)


def check_path(value: Any, name: str) -> str:
    """Returns the path of a file or folder as a text."""
    if isinstance(value, bytes) or not isinstance(value, (str, os.PathLike)):
        raise unexpected_value(name, value, "a path")
    return os.fspath(value)  # type: ignore[no-any-return,unused-ignore]


def check_iterable(value: Any, name: str, items: str) -> Any:
    """Returns an iterable of ``items``. Refuses a text, and a dictionary unless its keys are ids."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is one text; want a list of {items}")
    if isinstance(cast("object", value), Mapping) and items != "ids":
        raise TypeError(f"{name} is a dictionary; want a list of {items}")
    if not any(hasattr(value, method) for method in ("__iter__", "__getitem__", "__array__", "detach")):
        raise unexpected_value(name, value, f"a list of {items}")
    return value


def check_ordered(value: Any, name: str, items: str) -> Any:
    """Returns the value. Refuses a set, which has no order."""
    if isinstance(value, (set, frozenset)):
        raise TypeError(f"{name} is a set, which has no order; want a list of {items}")
    return value


def check_progress(value: Any) -> Any:
    if value is not None and not isinstance(value, (bool, np.bool_)) and not callable(value):
        raise unexpected_value("progress", value, "True, False, or a function of (done, total)")
    return cast("Any", value)


def check_optional(check: Callable[..., Any], value: Any, *rest: Any) -> Any:
    """Returns None for None, and otherwise the result of ``check``."""
    return None if value is None else check(value, *rest)
