"""Reports the progress of long calls."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, TypeAlias, Union

from ._checks import check_progress

#: True shows a tqdm bar. A function gets the number of documents done and the total, which is None if unknown.
Progress: TypeAlias = Union[bool, Callable[[int, Union[int, None]], None], None]


class Meter:
    """Reports the number of documents done, by a bar or a function. The bar needs tqdm; without it nothing is shown."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        check_progress(progress)
        self._total, self._done = total, 0
        self._callback = progress if callable(progress) else None
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
        if self._callback is not None:
            self._callback(self._done, self._total)

    def raise_to(self, documents: int) -> None:
        """Raises the number of documents done to ``documents``, if it is lower."""
        self.add(max(documents - self._done, 0))

    def show_stage(self, stage: str) -> None:
        """Shows the current stage on the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(stage)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
