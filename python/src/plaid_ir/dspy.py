"""DSPy: a retrieval module over an `Index`; ``pip install "./python[dspy]"`` in a clone."""

from __future__ import annotations

import asyncio
from typing import Any, Mapping

import dspy  # pyright: ignore[reportMissingTypeStubs]

from ._index import Index, check_index, search_for_framework


class PlaidRetriever(dspy.Retrieve):
    """A module of a DSPy program that returns the best documents of an index for a question.

    A call returns a ``Prediction`` with ``passages`` (texts), ``ids``, ``scores`` and ``metadata``, best first.

    Parameters
    ----------
    index
        An index with a model, which encodes the questions.
    k
        The number of documents.
    text_field
        The key of the metadata that has the text.
    options
        Keywords of `Index.search`, such as ``{"where": "year >= 2000", "hybrid": True}``.
    callbacks
        Callbacks of DSPy.
    """

    def __init__(
        self,
        index: Index,
        k: int = 3,
        text_field: str = "text",
        options: Mapping[str, Any] | None = None,
        callbacks: list[Any] | None = None,
    ) -> None:
        super().__init__(k=k, callbacks=callbacks)  # pyright: ignore[reportUnknownMemberType]
        self.index = check_index(index)
        self.text_field = text_field
        self.options = dict(options or {})

    def forward(self, query: str, k: int | None = None, **options: Any) -> dspy.Prediction:
        """Returns the best documents for a question. ``options`` override those of the module."""
        hits = search_for_framework(self.index, query, k or self.k, {**self.options, **options})
        rows: list[Any] = [dict(hit.get("metadata", {})) for hit in hits]
        return dspy.Prediction(
            passages=[str(row.pop(self.text_field, "")) for row in rows],
            ids=[hit["id"] for hit in hits],
            scores=[hit["score"] for hit in hits],
            metadata=rows,
        )

    async def acall(self, *args: Any, **kwargs: Any) -> dspy.Prediction:
        """Calls the module, for asyncio."""
        found: Any = await asyncio.to_thread(self, *args, **kwargs)
        return found

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Returns the state that a saved program keeps: ``k``."""
        return {"k": self.k}

    def __deepcopy__(self, memo: Any) -> PlaidRetriever:
        # Optimizers copy programs. All copies search the same index.
        callbacks: Any = getattr(self, "callbacks")  # untyped in DSPy
        return type(self)(self.index, self.k, self.text_field, self.options, list(callbacks))
