"""How far something long is."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, TypeAlias, Union

#: True for a bar of tqdm, or a function of what is done and what there is in all (None: unknown).
Progress: TypeAlias = Union[bool, Callable[[int, Union[int, None]], None], None]


class Meter:
    """Tells how many documents are done. Without tqdm a bar is nothing."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._total, self._done = total, 0
        self._tell = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]  # pyright: ignore
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="doc")

    def add(self, documents: int) -> None:
        self._done += documents
        if self._bar is not None:
            self._bar.update(documents)
        if self._tell is not None:
            self._tell(self._done, self._total)

    def reach(self, documents: int) -> None:
        """So many are done, or more."""
        self.add(max(documents - self._done, 0))

    def say(self, stage: str) -> None:
        """What is done meanwhile."""
        if self._bar is not None:
            self._bar.set_postfix_str(stage)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
