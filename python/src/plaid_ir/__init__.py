"""An index for late-interaction (ColBERT-style, multi-vector) retrieval.

A document is a matrix of token vectors, [tokens, dim], and so is a query. Documents are
ranked by MaxSim: for each vector of the query, the largest inner product with a vector
of the document; the score is the sum of these.

    from plaid_ir import Index

    with Index(index_folder="indexes", index_name="papers") as index:
        index.add_documents(["a", "b"], [matrix_a, matrix_b])
        results = index([query], k=10)      # [[{"id": "a", "score": 12.3}, ...]]

`Index` has the interface of PyLate's indexes. The program plaid does the work. It comes
with this package and runs while an index is open; with `Index(url=...)` it runs elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._errors import EmptyIndexError, PlaidError, RequestError, ServiceError
    from ._explanation import Explanation
    from ._heatmap import Region
    from ._index import Index
    from ._indexes import delete_index, list_indexes
    from ._page_model import PageModel
    from ._results import Documents, Facets, Hit, Hits, Passage, Results, Span

__all__ = [
    "Documents", "EmptyIndexError", "Explanation", "Facets", "Hit", "Hits", "Index", "PageModel", "Passage",
    "PlaidError", "Region", "RequestError", "Results", "ServiceError", "Span", "__version__", "delete_index",
    "list_indexes",
]  # fmt: skip
#: The modules that define names other than errors and results.
_MODULES = {
    "Explanation": "_explanation", "Index": "_index", "PageModel": "_page_model", "Region": "_heatmap",
    "delete_index": "_indexes", "list_indexes": "_indexes",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Names are imported on first use, since the command line works without numpy.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "_errors" if name.endswith("Error") else _MODULES.get(name, "_results")
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
