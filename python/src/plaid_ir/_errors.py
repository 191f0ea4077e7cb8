"""What can go wrong."""

from __future__ import annotations

import re
from typing import Any, Mapping


class PlaidError(Exception):
    """An error of the engine or of the way to it.

    Parameters
    ----------
    message
        What is wrong.
    code
        One of those of the service, such as DIMENSION_MISMATCH (docs/service.md has the list).
    status
        Its HTTP status.
    details
        Where in the request the fault is: ``document``, ``query`` and ``token`` count from 0.
    """

    def __init__(self, message: str, code: str | None = None, status: int | None = None, details: Mapping[str, Any] | None = None) -> None:
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
    """Nobody answers at the address, or the connection broke."""


def counted_from(e: PlaidError, what: str, start: int, more: str = "") -> None:
    """Has an error of a batch count documents or queries within all that were given."""
    within = e.details.get(what)
    if isinstance(within, int) and start:
        e.details[what] = within + start
        text = re.sub(rf"\b({what}|text) {within}\b", lambda m: f"{m[1]} {within + start}", str(e.args[0]))
        e.args = (text + more,)
