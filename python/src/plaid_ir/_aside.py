"""Methods for asyncio: each runs in a thread, which waits for the service."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Callable, Coroutine, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def aside(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The method as a coroutine."""

    @functools.wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, *args, **kwargs)

    run.__doc__ = f"`{method.__name__}`, for asyncio."
    run.__name__ = f"a{method.__name__}"
    return run
