"""Finds the best documents of each query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ._maxsim import maxsim
from ._operands import describe, operand_error

_SCORES = 1 << 24  # the largest number of scores in memory
_BYTES = 1 << 28  # the size of a block that is moved to the queries' device


def top_k(
    Q: Tensor, D: Tensor, k: int, q_mask: Tensor | None = None, d_mask: Tensor | None = None, *,
    normalize: bool = False, chunk_size: int | None = None, largest: bool = True, sorted: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns scores and numbers [Nq, k] of the best documents of each query, the same as maxsim(Q, D).topk(k).

    With Q [Lq, dim] the results are [k]. If k exceeds the number of documents, all are returned. Documents are scored
    chunk_size at a time, by default as many as have 64 MiB of scores. Scores are float32 without gradients; numbers are
    int64. ValueError: k or chunk_size is below 1. Masks, types and other errors are as for maxsim.
    """
    if not isinstance(Q, Tensor) or not isinstance(D, Tensor):
        raise operand_error("Q" if not isinstance(Q, Tensor) else "D", D if isinstance(Q, Tensor) else Q)
    if k <= 0:
        raise ValueError(f"k is {k}; it has to be at least 1")
    if D.dim() == 2:
        D, d_mask = D.unsqueeze(0), d_mask.unsqueeze(0) if d_mask is not None and d_mask.dim() == 1 else d_mask
    if D.dim() != 3:
        raise ValueError(f"D {describe(D)} has to be [items, tokens, dim]")
    queries = Q.shape[0] if Q.dim() == 3 else 1
    chunk = chunk_size if chunk_size is not None else max(_SCORES // max(queries, 1), 1)
    if chunk <= 0:
        raise ValueError(f"chunk_size is {chunk}; it has to be at least 1")
    best = _Best(k, largest, sorted)
    with torch.no_grad():
        for start in range(0, max(D.shape[0], 1), chunk):
            end = start + chunk
            mask = None if d_mask is None else d_mask[start:end]
            best.add(maxsim(Q, D[start:end], q_mask, mask, normalize=normalize), start)
        return best.result()


def rank(
    Q: Tensor, D: Tensor | Iterable[Tensor | tuple[Tensor, Tensor | None]], k: int,
    q_mask: Tensor | None = None, d_mask: Tensor | None = None, *, normalize: bool = False,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns scores and numbers [Nq, k] of the best documents, best first, even if D exceeds the device's memory.

    D is a tensor [Nd, Ld, dim] on any device, such as a memory-mapped file. Its documents are moved to the queries'
    device chunk_size at a time (256 MiB by default). Or D yields blocks of documents: tensors, or pairs of a tensor and
    a mask. Documents are numbered across blocks. A block [Ld, dim] is one document. There are no gradients.

    ValueError: k is below 1, D has no documents, or d_mask is given with blocks. Masks, types and other errors are as
    for maxsim.
    """
    if k <= 0:
        raise ValueError(f"k is {k}; it has to be at least 1")
    if not isinstance(Q, Tensor):
        raise operand_error("Q", Q)
    best, start = _Best(k, True, True), 0
    with torch.no_grad():
        for block, mask in _split_documents(D, d_mask, chunk_size):
            if not isinstance(block, Tensor):
                raise operand_error("a block of D", block)
            if block.dim() == 2:
                block, mask = block.unsqueeze(0), None if mask is None else mask.reshape(1, -1)
            block = block.to(Q.device, non_blocking=True)
            if mask is not None:
                mask = mask.to(Q.device, non_blocking=True)
            scores, numbers = top_k(Q, block, k, q_mask, mask, normalize=normalize)
            best.merge(scores, numbers + start)
            start += block.shape[0]
        if not start:
            raise ValueError("D has no documents to rank")
        return best.result()


def _split_documents(
    d: Tensor | Iterable[Tensor | tuple[Tensor, Tensor | None]], d_mask: Tensor | None, chunk: int | None
) -> Iterator[tuple[Any, Tensor | None]]:
    if not isinstance(d, Tensor):
        if d_mask is not None:
            raise ValueError("d_mask cannot be used with blocks of documents: yield pairs of a tensor and its mask")
        for block in d:
            yield block if isinstance(block, tuple) and len(block) == 2 else (block, None)
        return
    if d.dim() != 3:
        raise ValueError(f"D {describe(d)} has to be [items, tokens, dim]")
    if chunk is None:
        chunk = max(_BYTES // max(d.shape[1] * d.shape[2] * d.element_size(), 1), 1)
    if chunk <= 0:
        raise ValueError(f"chunk_size is {chunk}; it has to be at least 1")
    for start in range(0, d.shape[0], chunk):
        yield d[start : start + chunk], None if d_mask is None else d_mask[start : start + chunk]


class _Best:
    """The k best of the scores that were added."""

    def __init__(self, k: int, largest: bool, ordered: bool) -> None:
        self._k, self._largest, self._ordered = k, largest, ordered
        self._scores: Tensor | None = None
        self._numbers: Tensor | None = None

    def add(self, scores: Tensor, start: int) -> None:
        scores, numbers = torch.topk(
            scores, min(self._k, scores.shape[-1]), dim=-1, largest=self._largest, sorted=self._ordered
        )
        self.merge(scores, numbers + start if start else numbers)

    def merge(self, scores: Tensor, numbers: Tensor) -> None:
        if self._scores is not None and self._numbers is not None:
            scores = torch.cat([self._scores, scores], -1)
            numbers = torch.cat([self._numbers, numbers], -1)
            scores, positions = torch.topk(
                scores, min(self._k, scores.shape[-1]), dim=-1, largest=self._largest, sorted=self._ordered
            )
            numbers = numbers.gather(-1, positions)
        self._scores, self._numbers = scores, numbers

    def result(self) -> tuple[Tensor, Tensor]:
        assert self._scores is not None and self._numbers is not None
        return self._scores, self._numbers
