"""PyLate's and colpali-engine's score functions replaced by plaid's, on every device.

Both have a backend of their own for late-interaction-kernels, which `install()` serves, but for
GPUs alone. These functions replace what their modules have imported, so that losses, rerankers and
evaluators on the processor use plaid as well. A masked token counts as -inf in plaid; in PyLate's own
code its similarity is 0, which may win where all others are negative.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..torch import maxsim_inbatch, maxsim_kd
from .autograd import maxsim, maxsim_pairs

__all__ = ["patch_colpali_engine", "patch_pylate", "unpatch_colpali_engine", "unpatch_pylate"]

_Function = Callable[..., Any]
# By package: the functions that are replaced, and what replaces them.
_patched: dict[str, list[tuple[_Function, _Function]]] = {}


def patch_pylate() -> None:
    """PyLate scores with plaid until unpatch_pylate(); `backend=` other than auto and lik is as before."""
    if "pylate" in _patched:
        return
    scores = _first("pylate.scores.colbert", "pylate.scores.scores")
    makers = {"colbert_scores": _scores, "colbert_kd_scores": _scores, "colbert_scores_pairwise": _pairwise}
    old = {name: getattr(scores, name) for name in makers if hasattr(scores, name)}
    _patch("pylate", [(function, makers[name](function)) for name, function in old.items()])


def unpatch_pylate() -> None:
    """PyLate scores as it did before patch_pylate()."""
    _unpatch("pylate")


def patch_colpali_engine() -> None:
    """colpali-engine scores with plaid until unpatch_colpali_engine()."""
    if "colpali_engine" in _patched:
        return
    scores = importlib.import_module("colpali_engine.utils.maxsim")
    _patch("colpali_engine", [(scores.maxsim_inbatch, maxsim_inbatch), (scores.maxsim_kd, maxsim_kd)])


def unpatch_colpali_engine() -> None:
    """colpali-engine scores as it did before patch_colpali_engine()."""
    _unpatch("colpali_engine")


def _scores(original: _Function) -> _Function:
    def colbert_scores(
        queries_embeddings: Any,
        documents_embeddings: Any,
        queries_mask: Any = None,
        documents_mask: Any = None,
        backend: str | None = None,
    ) -> torch.Tensor:
        if backend not in (None, "auto", "lik"):
            return original(queries_embeddings, documents_embeddings, queries_mask, documents_mask, backend=backend)
        Q, D, q_mask, d_mask = map(_tensor, (queries_embeddings, documents_embeddings, queries_mask, documents_mask))
        return maxsim(Q, D, _kept(q_mask), _kept(d_mask))

    return colbert_scores


def _pairwise(original: _Function) -> _Function:
    def colbert_scores_pairwise(
        queries_embeddings: Any, documents_embeddings: Any, backend: str | None = None
    ) -> torch.Tensor:
        # Lists have items of different lengths.
        dense = isinstance(queries_embeddings, torch.Tensor) and isinstance(documents_embeddings, torch.Tensor)
        if not dense or backend not in (None, "auto", "lik"):
            return original(queries_embeddings, documents_embeddings, backend=backend)
        return maxsim_pairs(queries_embeddings, documents_embeddings)

    return colbert_scores_pairwise


def _tensor(x: Any) -> Any:
    if x is None or isinstance(x, torch.Tensor):
        return x
    return importlib.import_module("pylate.utils.tensor").convert_to_tensor(x)


def _kept(mask: torch.Tensor | None) -> torch.Tensor | None:
    return mask if mask is None or mask.dtype == torch.bool else mask != 0


def _first(*names: str) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as e:
            if e.name != name:
                raise
    return importlib.import_module(names[-1])


def _patch(package: str, functions: list[tuple[_Function, _Function]]) -> None:
    _patched[package] = functions
    _replace(package, {id(old): new for old, new in functions})


def _unpatch(package: str) -> None:
    _replace(package, {id(new): old for old, new in _patched.pop(package, [])})


def _replace(package: str, functions: dict[int, _Function]) -> None:
    """Puts functions in place of those with these ids in all loaded modules of a package, also where
    they are defaults of an __init__."""
    for name, module in list(sys.modules.items()):
        if name != package and not name.startswith(package + "."):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in functions:
                setattr(module, key, functions[id(value)])
            elif isinstance(value, type) and value.__module__ == name:
                init: Any = vars(value).get("__init__")
                defaults = getattr(init, "__defaults__", None)
                if defaults and any(id(x) in functions for x in defaults):
                    init.__defaults__ = tuple(functions.get(id(x), x) for x in defaults)
