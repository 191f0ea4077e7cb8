"""The exceptions of this package."""

from __future__ import annotations

import inspect
import re
from typing import Any, Mapping


class PlaidError(Exception):
    """An error of the engine, or of the connection to it.

    Parameters
    ----------
    message
        The message.
    code
        The service's error code, such as DIMENSION_MISMATCH (docs/service.md lists them).
    status
        The HTTP status.
    details
        The position of the fault in the request: ``document``, ``query`` and ``token`` count from 0.

    Attributes
    ----------
    stored
        The number of documents that the call stored before it failed.
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
    """The request is invalid and changed nothing: for example, a wrong dimension, value or option."""


class EmptyIndexError(RequestError):
    """The index has no documents yet."""


class ServiceError(PlaidError):
    """The service cannot be started, cannot be reached, or has ended."""


class Unreachable(ServiceError):
    """The address does not answer, or the connection was lost."""


def add_to_position(e: PlaidError, what: str, start: int) -> None:
    """Changes an error of a batch so that its position counts from the first document or query of the call.

    ``what`` is "document" or "query"; ``start`` is the position of the batch in the call.
    """
    message = str(e.args[0])
    # Errors in the JSON have the position only in the message.
    if what == "document" and (at := re.match(r"(?:documents|metadata|texts)\[(\d+)\]", message)):
        e.details.setdefault(what, int(at[1]))
    position = e.details.get(what)
    if isinstance(position, int) and start:
        new = e.details[what] = position + start
        message = re.sub(rf"\b({what}|text) {position}\b", lambda m: f"{m[1]} {new}", message)
        message = re.sub(rf"^(documents|metadata|texts|queries)\[{position}\]", lambda m: f"{m[1]}[{new}]", message)
        e.args = (message,)


def add_remark(e: BaseException, remark: str) -> None:
    """Adds a remark to the message of an error of this package. Other errors get it as a note."""
    if isinstance(e, PlaidError) or type(e) in (TypeError, ValueError) and len(e.args) == 1:
        e.args = (f"{e.args[0]} ({remark})",)
    elif hasattr(e, "add_note"):  # from Python 3.11 on
        e.add_note(remark)


def caller_level() -> int:
    """Returns the stack level at which a warning names the caller of this package."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __name__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    return level
