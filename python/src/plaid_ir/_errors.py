"""What can go wrong."""

from __future__ import annotations

from typing import Any, Mapping


class PlaidError(Exception):
    """An error of the engine or of the way to it.

    `code` is one of those of the service, such as DIMENSION_MISMATCH (docs/service.md has
    the list), `status` its HTTP status, and `details` say where in the request the fault
    is: `document`, `query` and `token` count from 0.
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
