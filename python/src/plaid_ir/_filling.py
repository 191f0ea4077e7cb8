"""The way of documents into an index that has none: they wait until it is known how many there are."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from . import _build
from ._arrays import Matrix
from ._locks import build_folder
from ._progress import Meter

if TYPE_CHECKING:
    from ._documents import Documents

#: Bytes of the texts of one request.
TEXT_BYTES = 4 << 20
#: Characters of texts that are as many tokens as a build begins at.
_CHARACTERS = 4


def many(texts: Sequence[str], pool_factor: int | None) -> bool:
    """Whether texts may be enough for a build of their own."""
    # What is no text is refused when its batch comes.
    return sum(len(t) for t in texts if isinstance(t, str)) >= least(pool_factor)  # pyright: ignore[reportUnnecessaryIsInstance]


def least(pool_factor: int | None) -> int:
    return _CHARACTERS * _build.LEAST * (pool_factor or 1)


class Filling:
    """Takes the first documents of an index. If they become many they are built as `plaid index`
    does it, at the end of the source or when there are enough; otherwise the service gets them.

    Its end stores what waits, whatever it ended by: a source that breaks off loses nothing.
    """

    def __init__(self, index: Documents, meter: Meter, waits: bool) -> None:
        self._index, self._meter = index, meter
        self._stack = contextlib.ExitStack()
        self._spool: _build.Spool | None = None
        #: Texts that are not many yet: where they begin, themselves and their metadata.
        self._texts: list[tuple[int, list[str], list[dict[str, Any]]]] = []
        self._characters = self._count = 0
        self._ids: set[str] = set()
        self._pool: int | None = None
        self._model: Mapping[str, Any] | None = None
        self._waits = waits and index._fillable()

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._store()

    def _takes(self, ids: Sequence[str]) -> bool:
        if self._waits and (not self._ids.isdisjoint(ids) or self._spool is not None and self._spool.tokens >= _build.MOST):
            self._store()  # one whose id is there replaces it: the service does that
        if self._waits:
            self._ids.update(ids)
        return self._waits

    def _spooled(self) -> _build.Spool:
        if self._spool is None:
            service = self._index._service
            assert service is not None
            self._spool = _build.Spool(self._stack.enter_context(build_folder(service.place)))
            self._stack.callback(self._spool.close)
        return self._spool

    def vectors(self, ids: Sequence[str], matrices: Sequence[Matrix], fields: Sequence[Mapping[str, Any]]) -> bool:
        """Whether documents wait now; otherwise they go the usual way."""
        if not self._takes(ids):
            return False
        self._spooled().add(ids, matrices, fields)
        self._meter.add(len(ids))
        return True

    def texts(self, ids: Sequence[str], texts: list[str], fields: list[dict[str, Any]], pool_factor: int | None) -> bool:
        """The same of texts."""
        if not self._takes(ids):
            return False
        self._texts.append((self._count, texts, fields))
        self._count += len(texts)
        self._characters += sum(map(len, texts))
        self._pool = pool_factor
        if self._characters >= least(pool_factor):
            while self._texts:
                start, some, rows = self._texts[0]
                matrices = self._index._encoded(some, False, pool_factor, start)
                if self._model is None:  # which is loaded now
                    model = self._index._request("GET", "/health")["model"]
                    self._model = {"name": model["path"], "fingerprint": model["fingerprint"], "precision": model["precision"]}
                self._spooled().add([row["_id"] for row in rows], matrices, rows)
                self._texts.pop(0)
                self._meter.add(len(some))
        return True

    def _store(self) -> None:
        """Stores what waits; from then on the documents go the usual way."""
        self._waits = False
        texts, self._texts = self._texts, []
        spool, self._spool = self._spool, None
        with self._stack:
            if spool is not None:
                self._index._store(spool, self._model, self._meter)
        for start, some, rows in texts:
            self._index._update_texts(some, rows, self._pool, start)
            self._meter.add(len(some))


def text_batches(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """Texts in batches of one request; what is no text is an error."""
    part: list[str] = []
    size = 0
    for i, text in enumerate(texts):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"text {i} is a {type(text).__name__}")
        if part and (len(part) >= most or size + len(text) > TEXT_BYTES):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part
