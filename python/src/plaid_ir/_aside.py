"""Methods for asyncio: each runs in a thread, which waits for the service."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Awaitable, Callable, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")


def aside(method: Callable[Concatenate[I, P], R]) -> Callable[Concatenate[I, P], Awaitable[R]]:
    """The method as a coroutine."""

    @functools.wraps(method)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    run.__doc__ = f"`{method.__name__}`, for asyncio."
    run.__name__ = f"a{method.__name__}"
    return run
