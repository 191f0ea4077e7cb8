"""Texts of one call with their ids and metadata, checked and in batches."""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, Sequence, cast

from ._checks import check_iterable, check_ordered, describe_value
from ._connection import Connection
from ._documents import check_texts, split_texts
from ._metadata import check_metadata, metadata_rows
from ._tables import to_items, to_rows


class TextSource:
    """Yields texts with their ids and metadata in batches.

    Checks lists before the first text is encoded, and generators batch by batch.
    """

    def __init__(self, connection: Connection, texts: Any, ids: Any, metadata: Any, text_field: str) -> None:
        self._connection, self._text_field = connection, text_field
        self.texts = _check_source(texts, "texts", "texts")
        self._numbered = ids is None
        if ids is None and connection.count():
            raise ValueError("the index has documents already: give ids for the new ones")
        given_ids = cast("Iterable[Any]", itertools.count()) if ids is None else _check_source(ids, "ids", "ids")
        given_metadata = None if metadata is None else check_iterable(to_rows(metadata), "metadata", "dictionaries")
        #: The number of texts; None if they come from a generator.
        self.total = known_length(self.texts)
        for what, values in (("ids", given_ids), ("metadata", given_metadata)):
            length = known_length(values)
            if self.total is not None and length is not None and length != self.total:
                raise ValueError(f"there are {self.total} texts and {length} {what}: want one for each")
        self._check_lists(given_ids, given_metadata)
        self._ids = iter(given_ids)
        self._metadata: Iterator[Any] | None = None if given_metadata is None else iter(given_metadata)
        #: The number of texts that `batches` has read.
        self.count = 0

    def _check_lists(self, ids: Iterable[Any], metadata: Any) -> None:
        """Checks everything that can be read twice, so that the model does not encode texts in vain."""
        if self.total is not None:
            for _ in check_texts(self.texts):
                pass
        names = self._connection.to_names(ids) if known_length(ids) is not None else None
        if names is not None:
            refuse_duplicates(names)
        if metadata is not None and known_length(metadata) is not None:
            check_metadata(metadata, map(str, itertools.count()) if names is None else names)

    @property
    def has_metadata(self) -> bool:
        return self._metadata is not None

    def batches(self, batch_size: int) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
        """Yields batches of texts and of rows: a row has the id and the metadata of a text."""
        for texts in split_texts(self.texts, batch_size):
            ids: list[Any] = list(itertools.islice(self._ids, len(texts)))
            if len(ids) < len(texts):
                raise ValueError(f"there are {self.count + len(ids)} ids, and more texts: want one for each")
            names = [str(i) for i in ids] if self._numbered else self._connection.to_names(ids, start=self.count)
            refuse_duplicates(names)
            rows: list[dict[str, Any]] = [{"_id": name} for name in names]
            if self._metadata is not None:
                rows = metadata_rows(list(itertools.islice(self._metadata, len(texts))), names, self.count)
            if self._text_field:
                rows = [{self._text_field: text, **row} for row, text in zip(rows, texts)]
            yield texts, rows
            self.count += len(texts)

    def refuse_remaining(self) -> None:
        """Raises ValueError if ids or metadata remain after the last text."""
        ids: Iterator[Any] = iter(()) if isinstance(self._ids, itertools.count) else self._ids  # count() never ends
        for what, remaining in (("ids", ids), ("metadata", self._metadata or iter(()))):
            for _ in remaining:
                raise ValueError(f"there are {self.count} texts, which are stored, and more {what}: want one for each")


def known_length(values: Any) -> int | None:
    """Returns the number of items of a list or the like; None for an iterator, which can be read only once."""
    return None if isinstance(values, Iterator) or not hasattr(values, "__len__") else len(values)


def refuse_duplicates(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        duplicate = next(i for i in names if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise ValueError(f"id {describe_value(duplicate)} is given twice")


def _check_source(values: Any, name: str, items: str) -> Iterable[Any]:
    checked: Iterable[Any] = check_iterable(to_items(check_ordered(values, name, items), name), name, items)
    return checked
