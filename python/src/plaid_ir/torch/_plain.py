"""Computes MaxSim and Chamfer distances by torch's operations, for float64 and devices that the library lacks.

The results can be differentiated any number of times. All products of queries and documents are in memory at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._library import ALL, METRICS, OWN
from ._operands import LENGTHS, MASK, MAX_DIM, OFFSETS, Terms, check_offsets, check_range

_SMALLEST = 1e-12
_C: Any = torch._C
_transforms: Any = _C._are_functorch_transforms_active


def to_padded(x: Tensor, cut: Tensor | None, how: int, longest: int) -> tuple[Tensor, Tensor | None]:
    """Returns the items as [items, longest, dim], and a mask of the rows that are tokens; None means all."""
    if how == OFFSETS:
        assert cut is not None
        rows = torch.arange(longest, device=x.device)
        starts = cut[:-1].long().unsqueeze(1)
        valid = rows < (cut[1:] - cut[:-1]).unsqueeze(1)
        index = torch.where(valid, starts + rows, 0)
        if not x.shape[0]:
            return x.new_zeros((*index.shape, x.shape[1])), valid
        return x[index], valid
    dim, length = x.shape[-1], x.shape[-2]
    items = x.shape[:-2].numel()
    x = x.reshape(items, length, dim)
    if how == MASK:
        assert cut is not None
        return x, (cut if cut.dtype == torch.bool else cut != 0).reshape(items, length)
    if how == LENGTHS:
        assert cut is not None
        return x, torch.arange(length, device=x.device) < cut.unsqueeze(1)
    return x, None


def is_plain_only(*vectors: Tensor) -> bool:
    """Reports whether only this module can score the vectors. For calls without a plan: operators and transforms."""
    return any(
        x.dtype == torch.float64
        or x.shape[-1] > MAX_DIM
        or x.device.type not in ("cpu", "cuda", "meta")
        or x.device.type == "cuda"
        and torch.version.hip is not None
        for x in vectors
    )


def check_extents(q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, terms: Terms) -> None:
    """Checks lengths and offsets on the processor, as the library does, if their values are available."""
    for name, x, cut, how, longest in (
        (terms.names[2], q, q_cut, terms.how_q, terms.longest_q),
        (terms.names[3], d, d_cut, terms.how_d, terms.longest_d),
    ):
        if cut is None or not _has_values(cut):
            continue
        if how == LENGTHS:
            check_range(name, cut, x.shape[-2] + 1)
        elif how == OFFSETS:
            check_offsets(name, cut, x.shape[0], longest)


def _has_values(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or _transforms():
        return False
    return x.device.type == "cpu" and type(x) is Tensor


def to_unit_length(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1, eps=_SMALLEST)


def _working_type(q: Tensor, d: Tensor) -> torch.dtype:
    kind = torch.promote_types(q.dtype, d.dtype)
    return torch.float32 if kind in (torch.float16, torch.bfloat16) else kind


def score(
    q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, pair_q: Tensor | None, pair_d: Tensor | None,
    terms: Terms,
) -> Tensor:  # fmt: skip
    check_extents(q, d, q_cut, d_cut, terms)
    if terms.metric >= 0:
        return _chamfer(q, d, q_cut, d_cut, terms)
    kind = _working_type(q, d)
    q_shape = (q_cut.shape[0] - 1,) if terms.how_q == OFFSETS and q_cut is not None else tuple(q.shape[:-2])
    d_shape = (d_cut.shape[0] - 1,) if terms.how_d == OFFSETS and d_cut is not None else tuple(d.shape[:-2])
    q, q_valid = to_padded(q.to(kind), q_cut, terms.how_q, terms.longest_q)
    d, d_valid = to_padded(d.to(kind), d_cut, terms.how_d, terms.longest_d)
    # Padding may have any values, such as NaN, which must not reach a gradient.
    if q_valid is not None:
        q = torch.where(q_valid.unsqueeze(-1), q, 0)
    if d_valid is not None:
        d = torch.where(d_valid.unsqueeze(-1), d, 0)
    if terms.normalize:
        q, d = to_unit_length(q), to_unit_length(d)
    if terms.kind == ALL:
        products = torch.einsum("ash,bth->abst", q, d)
        d_valid = None if d_valid is None else d_valid[None, :, None, :]
        q_valid = None if q_valid is None else q_valid[:, None, :]
        shape = q_shape + d_shape
    elif terms.kind == OWN:
        count = d.shape[0] // q.shape[0] if q.shape[0] else 0
        products = torch.einsum("ash,akth->akst", q, d.reshape(q.shape[0], count, *d.shape[1:]))
        d_valid = None if d_valid is None else d_valid.reshape(q.shape[0], count, 1, -1)
        q_valid = None if q_valid is None else q_valid[:, None, :]
        shape = d_shape
    else:
        assert pair_q is not None and pair_d is not None
        if _has_values(pair_q):
            check_range(terms.pairs[0], pair_q, q.shape[0])
            check_range(terms.pairs[1], pair_d, d.shape[0])
        i, j = pair_q.reshape(-1).long(), pair_d.reshape(-1).long()
        products = torch.einsum("psh,pth->pst", q[i], d[j])
        d_valid = None if d_valid is None else d_valid[j].unsqueeze(1)
        q_valid = None if q_valid is None else q_valid[i]
        shape = tuple(pair_q.shape)
    if not products.shape[-1]:
        return products.sum((-1, -2)).reshape(shape)
    if d_valid is not None:
        products = products.masked_fill(~d_valid, float("-inf"))
    best = products.max(dim=-1).values
    if d_valid is not None:
        best = torch.where(d_valid.any(-1), best, 0)
    if q_valid is not None:
        best = torch.where(q_valid, best, 0)
    return best.sum(-1).reshape(shape)


def _chamfer(x: Tensor, y: Tensor, x_cut: Tensor | None, y_cut: Tensor | None, terms: Terms) -> Tensor:
    """Computes distances between sets [N, dim] and [M, dim], or between B pairs of sets."""
    kind = _working_type(x, y)
    shape = x.shape[:-2]
    x, x_valid = to_padded(x.to(kind), x_cut, terms.how_q, 0)
    y, y_valid = to_padded(y.to(kind), y_cut, terms.how_d, 0)
    if x_valid is not None:
        x = torch.where(x_valid.unsqueeze(-1), x, 0)
    if y_valid is not None:
        y = torch.where(y_valid.unsqueeze(-1), y, 0)
    if not x.shape[1] or not y.shape[1]:
        return (x.sum((1, 2)) + y.sum((1, 2))).mul(0).reshape(shape)
    difference = x.unsqueeze(2) - y.unsqueeze(1)
    distances = difference.abs().sum(-1) if terms.metric == METRICS["l1"] else difference.square().sum(-1)
    if x_valid is None:
        x_valid = x.new_ones(x.shape[:2], dtype=torch.bool)
    if y_valid is None:
        y_valid = y.new_ones(y.shape[:2], dtype=torch.bool)
    has_points = x_valid.any(-1) & y_valid.any(-1)
    distances = distances.masked_fill(~(x_valid.unsqueeze(2) & y_valid.unsqueeze(1)), float("inf"))
    total = distances.new_zeros(distances.shape[0])
    for axis, valid in ((2, x_valid), (1, y_valid)):
        nearest = torch.where(valid & has_points.unsqueeze(1), distances.min(dim=axis).values, 0)
        direction = nearest.sum(-1)
        total = total + (direction / valid.sum(-1).clamp_min(1) if terms.mean else direction)
    return total.reshape(shape)
