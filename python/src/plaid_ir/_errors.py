"""Errors."""

from __future__ import annotations

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


class RequestError(PlaidError, ValueError):
    """The request is wrong, and has changed nothing: a dimension, a value, an option."""


class EmptyIndexError(RequestError):
    """The index has no documents yet."""


class ServiceError(PlaidError):
    """The service cannot be started, cannot be reached, or has ended."""


class Unreachable(ServiceError):
    """The address does not answer, or the connection broke."""


def add_to_position(e: PlaidError, what: str, start: int, note: str = "") -> None:
    """Makes an error of a batch count ``what``, documents or queries, within all that were given. ``start`` is the
    position of the batch, ``note`` is added to the message of one that is not the first."""
    position = e.details.get(what)
    if isinstance(position, int) and start:
        e.details[what] = position + start
        message = re.sub(rf"\b({what}|text) {position}\b", lambda m: f"{m[1]} {position + start}", str(e.args[0]))
        e.args = (message + note,)
