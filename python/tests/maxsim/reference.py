"""MaxSim and Chamfer distances in float64, as their definitions say, item by item."""

from __future__ import annotations

import torch
from torch import Tensor

DEVICE = "cpu"


def unit(x: Tensor) -> Tensor:
    length = x.square().sum(-1, keepdim=True).sqrt()
    return torch.where(length > 0, x / torch.where(length > 0, length, 1), x)


def pair(q: Tensor, d: Tensor, normalize: bool = False) -> Tensor:
    """The score of one query with one document, whose rows are all tokens."""
    q, d = q.double(), d.double()
    if not len(q) or not len(d):
        return (q.sum() + d.sum()) * 0
    if normalize:
        q, d = unit(q), unit(d)
    return (q @ d.T).max(-1).values.sum()


def kept(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x[mask != 0]


def every(q: Tensor, d: Tensor, q_mask: Tensor | None = None, d_mask: Tensor | None = None, **how: bool) -> Tensor:
    """[Nq, Nd], or [Nq, K] of documents [Nq, K, Ld, dim]."""
    rows = []
    for i in range(len(q)):
        own, masks = (d[i], None if d_mask is None else d_mask[i]) if d.dim() == 4 else (d, d_mask)
        one = kept(q[i], None if q_mask is None else q_mask[i])
        scores = [pair(one, kept(own[j], None if masks is None else masks[j]), **how) for j in range(len(own))]
        rows.append(torch.stack(scores) if scores else q.new_zeros(0, dtype=torch.float64))
    return torch.stack(rows) if rows else q.new_zeros((0, d.shape[-3]), dtype=torch.float64)


def distance(x: Tensor, y: Tensor, metric: str, reduction: str) -> Tensor:
    x, y = x.double(), y.double()
    if not len(x) or not len(y):
        return (x.sum() + y.sum()) * 0
    differences = x.unsqueeze(1) - y.unsqueeze(0)
    all_pairs = differences.abs().sum(-1) if metric == "l1" else differences.square().sum(-1)
    a, b = all_pairs.min(1).values, all_pairs.min(0).values
    return a.mean() + b.mean() if reduction == "mean" else a.sum() + b.sum()
