"""Errors."""

from __future__ import annotations

import inspect
import re
from typing import Any, Mapping


class PlaidError(Exception):
    """An error of the engine or of the way to it.

    Parameters
    ----------
    message
        The fault.
    code
        The code of the service, such as DIMENSION_MISMATCH (docs/service.md has the list).
    status
        The HTTP status.
    details
        The place of the fault in the request: ``document``, ``query`` and ``token`` count from 0.

    Attributes
    ----------
    stored
        The number of documents of the call that are stored, though it failed.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = dict(details or {})
        self.stored = 0


class RequestError(PlaidError, ValueError):
    """The request is wrong, and has changed nothing: a dimension, a value, an option."""


class EmptyIndexError(RequestError):
    """The index has no documents yet."""


class ServiceError(PlaidError):
    """The service cannot be started, cannot be reached, or has ended."""


class Unreachable(ServiceError):
    """The address does not answer, or the connection broke."""


def add_to_position(e: PlaidError, what: str, start: int) -> None:
    """Makes an error of a batch count ``what``, documents or queries, within all that were given. ``start`` is the
    position of the batch."""
    message = str(e.args[0])
    # A fault of the JSON has no other place than this.
    if what == "document" and (at := re.match(r"(?:documents|metadata|texts)\[(\d+)\]", message)):
        e.details.setdefault(what, int(at[1]))
    position = e.details.get(what)
    if isinstance(position, int) and start:
        now = e.details[what] = position + start
        message = re.sub(rf"\b({what}|text) {position}\b", lambda m: f"{m[1]} {now}", message)
        message = re.sub(rf"^(documents|metadata|texts|queries)\[{position}\]", lambda m: f"{m[1]}[{now}]", message)
        e.args = (message,)


def add_remark(e: BaseException, remark: str) -> None:
    """Adds something to the message of an error of this package, or as a note to that of a caller's source."""
    if isinstance(e, PlaidError) or type(e) in (TypeError, ValueError) and len(e.args) == 1:
        e.args = (f"{e.args[0]} ({remark})",)
    elif hasattr(e, "add_note"):  # from Python 3.11 on
        e.add_note(remark)


def caller_level() -> int:
    """The level of the stack at which a warning names the caller of this package."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __name__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    return level
