"""A module and functions for the losses of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from ._maxsim import maxsim, maxsim_pairs, maxsim_varlen, score_pairs_packed
from ._operands import describe

_KINDS: Final = ("all", "own", "pairs")
_Side: TypeAlias = Tensor | Sequence[Any]


class MaxSim(torch.nn.Module):
    """MaxSim for losses: `score_metric=` of PyLate and `similarity_fct=` of sentence-transformers.

    kind selects the queries and documents that are scored with each other:

    - "all": each query with each document; the result is [B, N]. Documents [Bd, N, tokens, dim] count as Bd * N
      documents, those of a query one after another; the result is [B, Bd * N].
    - "own": query i with its own documents [B, N, tokens, dim]; the result is [B, N].
    - "pairs": query i with document i; the result is [B].

    normalize scales vectors to length 1. mean divides scores by the query's number of tokens. Queries and documents may
    also be lists of matrices [tokens, dim]. The module has no parameters.

    Its arguments are queries_embeddings [B, tokens, dim], documents_embeddings, queries_mask and documents_mask,
    positional or by name. Types, masks, gradients and errors are as for maxsim.
    """

    def __init__(self, kind: str = "all", *, normalize: bool = False, mean: bool = False) -> None:
        super().__init__()
        if kind not in _KINDS:
            raise ValueError(f"kind is {kind!r}; it has to be one of {', '.join(map(repr, _KINDS))}")
        self.kind, self.normalize, self.mean = kind, normalize, mean

    def extra_repr(self) -> str:
        return f"{self.kind!r}, normalize={self.normalize}, mean={self.mean}"

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the arguments, for model cards of sentence-transformers."""
        return {"kind": self.kind, "normalize": self.normalize, "mean": self.mean}

    def forward(
        self, queries_embeddings: _Side, documents_embeddings: _Side, queries_mask: Tensor | None = None,
        documents_mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if isinstance(queries_embeddings, Tensor) and isinstance(documents_embeddings, Tensor):
            scores = self._score_tensors(queries_embeddings, documents_embeddings, queries_mask, documents_mask)
            tokens = _count_tokens(queries_embeddings, queries_mask) if self.mean else None
        else:
            scores, tokens = self._score_lists(queries_embeddings, documents_embeddings, queries_mask, documents_mask)
        if self.mean and tokens is not None:
            scores = scores / (tokens.unsqueeze(-1) if scores.dim() > 1 else tokens)
        return scores

    def _score_tensors(self, q: Tensor, d: Tensor, q_mask: Tensor | None, d_mask: Tensor | None) -> Tensor:
        if self.kind == "pairs":
            return maxsim_pairs(q, d, q_mask, d_mask, normalize=self.normalize)
        if self.kind == "all" and d.dim() == 4:
            d = d.flatten(0, 1)
            d_mask = None if d_mask is None else d_mask.flatten(0, 1)
        if self.kind == "own" and d.dim() != 4:
            raise ValueError(f"documents of {list(d.shape)} have to be [B, N, tokens, dim] for kind='own'")
        return maxsim(q, d, q_mask, d_mask, normalize=self.normalize)

    def _score_lists(self, q: _Side, d: _Side, q_mask: Tensor | None, d_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.kind == "own":
            raise TypeError("kind='own' needs tensors: queries [B, tokens, dim] and documents [B, N, tokens, dim]")
        queries = _to_matrices("queries_embeddings", q, q_mask)
        documents = _to_matrices("documents_embeddings", d, d_mask)
        if self.kind == "pairs" and len(queries) != len(documents):
            raise ValueError(f"there are {len(queries)} queries and {len(documents)} documents for kind='pairs'")
        if not queries or not documents:
            shape = (len(queries), len(documents)) if self.kind == "all" else (0,)
            return torch.zeros(shape), torch.ones(len(queries))
        device = documents[0].device
        packed_q, offsets_q, longest_q = _pack_matrices(queries, device)
        packed_d, offsets_d, longest_d = _pack_matrices(documents, device)
        if self.kind == "all":
            scores = maxsim_varlen(
                packed_q, packed_d, offsets_q, offsets_d, longest_q, longest_d, normalize=self.normalize
            )
        else:
            numbers = list(range(len(queries)))
            scores = score_pairs_packed(
                packed_q, packed_d, offsets_q, offsets_d, numbers, numbers, max_seqlen_q=longest_q,
                max_seqlen_d=longest_d, normalize=self.normalize,
            )  # fmt: skip
        return scores, torch.tensor([max(len(x), 1) for x in queries], device=device)


def _count_tokens(q: Tensor, mask: Tensor | None) -> Tensor | None:
    """Returns the number of tokens of each query, at least 1."""
    if mask is None:
        return torch.tensor(max(q.shape[-2], 1), device=q.device)
    return (mask != 0).sum(-1).clamp_min(1)


def _to_matrices(name: str, side: _Side, mask: Tensor | None) -> list[Tensor]:
    if isinstance(side, Tensor) and side.dim() == 2:
        side = side.unsqueeze(0)
    matrices = [x if isinstance(x, Tensor) else torch.as_tensor(x) for x in side]
    for i, x in enumerate(matrices):
        if x.dim() != 2:
            raise ValueError(f"{name}[{i}] {describe(x)} has to be [tokens, dim]")
    if mask is not None:
        mask = mask.unsqueeze(0) if isinstance(mask, Tensor) and mask.dim() == 1 else mask
        if len(mask) != len(matrices):
            raise ValueError(f"there are {len(matrices)} {name}, and {len(mask)} masks")
        matrices = [x[m[: len(x)] != 0] for x, m in zip(matrices, mask)]
    return matrices


def _pack_matrices(matrices: list[Tensor], device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Returns the rows of all matrices in one tensor, their offsets, and the number of rows of the longest matrix."""
    offsets = torch.zeros(len(matrices) + 1, dtype=torch.int32, device="cpu")
    lengths = [len(x) for x in matrices]
    torch.cumsum(torch.tensor(lengths, device="cpu"), 0, dtype=torch.int32, out=offsets[1:])
    return torch.cat([x.to(device) for x in matrices]), offsets, max(lengths)


def maxsim_inbatch(query: Tensor, doc: Tensor) -> Tensor:
    """Computes scores [Bq, Bd] of query [Bq, tokens, dim] and doc [Bd, tokens, dim].

    The result is the same as in colpali_engine.utils.maxsim: padding with zeros counts as tokens.
    """
    return maxsim(query, doc)


def maxsim_kd(query: Tensor, doc: Tensor) -> Tensor:
    """Computes scores [B, N] of query [B, tokens, dim] and doc [B, N, tokens, dim], as colpali_engine.utils.maxsim."""
    return maxsim(query, doc)
