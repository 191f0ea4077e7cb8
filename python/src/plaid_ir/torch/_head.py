"""Scores documents by their hidden states, from which a linear layer computes token vectors."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _plain
from ._calls import find_plan, remember, launch
from ._functions import autocast, needs_operator, is_transformed
from ._library import ALL, HEAD, TYPES
from ._maxsim import maxsim
from ._operands import FLOATS, MASK, WHOLE, Terms, check_devices, check_tensor, describe

_is_compiling: Final = torch.compiler.is_compiling
_TERMS: Final = tuple(
    Terms(WHOLE, how, ALL, normalize, names=("Q", "H_d", "q_mask", "d_mask"), types="head")
    for normalize in (False, True)
    for how in (WHOLE, MASK)
)


def maxsim_from_hidden(
    Q: Tensor, H_d: Tensor, W: Tensor, b: Tensor | None = None, d_mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    """Computes scores [Nq, Nd] of queries with documents given as hidden states.

    Q is [Nq, Lq, dim]. The token vectors of documents are W h + b: H_d is [Nd, Ld, hidden], W is [dim, hidden], as
    torch.nn.Linear(hidden, dim).weight, and b is [dim]. At most 33 MiB of token vectors are in memory at a time. For
    gradients, torch computes the vectors again. normalize scales the documents' vectors to length 1, not the queries'.
    d_mask is [Nd, Ld].

    Each tensor is float32, float16 or bfloat16; the types may differ (torch itself computes float64). TypeError and
    ValueError name an invalid argument, with its shape, type and device.
    """
    compiling = _is_compiling()
    direct = not (compiling or needs_operator(Q, H_d) or needs_operator(W, W) or is_transformed() or Q.is_meta)
    double = _check_once(Q, H_d, W, b) if direct else _check_operands(Q, H_d, W, b)
    grad = torch.is_grad_enabled() and (
        Q.requires_grad or H_d.requires_grad or W.requires_grad or b is not None and b.requires_grad
    )
    q, h, w = autocast(Q), autocast(H_d), autocast(W)
    if double or not direct and (grad or not compiling and is_transformed()):
        return _score_by_torch(q, h, w, b, d_mask, normalize)
    if not direct:
        from . import _ops

        return _ops.head(q, h, w, b, d_mask, normalize)
    if grad:
        return _differentiable.apply(q, h, w, b, d_mask, normalize)
    return run_head(q, h, w, b, d_mask, normalize)


_doubles: dict[object, bool] = {}


def _check_once(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None) -> bool:
    """Calls _check_operands, but only once for the same shapes, types and devices."""
    try:
        key = (
            q.shape, q.dtype, q.device, h.shape, h.dtype, h.device, w.shape, w.dtype, w.device,
            None if b is None else (b.shape, b.dtype, b.device),
        )  # fmt: skip
        found = _doubles.get(key)
    except (AttributeError, TypeError, RuntimeError):
        _check_operands(q, h, w, b)
        raise
    if found is None:
        found = _check_operands(q, h, w, b)
        remember(_doubles, key, found)
    return found


def _check_operands(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None) -> bool:
    """Raises if the operands do not fit each other. Returns True if one of them is float64."""
    for name, x in (("Q", q), ("H_d", h), ("W", w), ("b", b)):
        if x is not None or name != "b":
            check_tensor(name, x, (*FLOATS, torch.float64))
    if w.dim() != 2 or w.shape[0] != q.shape[-1] or w.shape[1] != h.shape[-1]:
        raise ValueError(f"W {describe(w)} has to be [{q.shape[-1]}, {h.shape[-1]}], as the last axes of Q and H_d")
    check_devices("Q", q, "W", w)
    if b is not None:
        if b.shape != w.shape[:1]:
            raise ValueError(f"b {describe(b)} has to be [{w.shape[0]}], as the first axis of W")
        check_devices("Q", q, "b", b)
    return torch.float64 in (q.dtype, h.dtype, w.dtype, None if b is None else b.dtype)


def _score_by_torch(
    q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool
) -> Tensor:
    """Computes all token vectors by torch, and scores them."""
    kind = torch.promote_types(h.dtype, w.dtype)
    d = torch.nn.functional.linear(h.to(kind), w.to(kind), None if b is None else b.to(kind))
    if normalize:
        d = _plain.to_unit_length(d if d.dtype == torch.float64 else d.float())
    return maxsim(q, d, None, d_mask)


def run_head(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    q = q.contiguous()
    p = find_plan(q, h, None, d_mask, None, None, _TERMS[2 * bool(normalize) + (d_mask is not None)])
    if p.plain:
        return _score_by_torch(q, h, w, b, d_mask, normalize)
    scores = torch.empty(p.shape, dtype=torch.float32, device=p.device)
    if p.trivial:
        return scores.zero_()
    w = w.contiguous()
    if b is not None:
        b = b.to(torch.float32).contiguous()
    tail = (
        0, normalize, w.data_ptr(), TYPES[w.dtype], 0 if b is None else b.data_ptr(), scores.data_ptr()
    )  # fmt: skip
    launch(HEAD, p, ("head", w.dtype, b is not None), q, h, None, d_mask, None, None, tail)
    return scores


class Head(torch.autograd.Function):
    """Scores of the fused kernel. The backward pass computes the token vectors again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool
    ) -> Tensor:
        ctx.normalize = normalize
        ctx.save_for_backward(q, h, w, b, d_mask)
        return run_head(q, h, w, b, d_mask, normalize)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        with torch.enable_grad(), torch.autocast(grad_outputs[0].device.type, enabled=False):
            inputs: list[Any] = [
                None if x is None else x.detach().requires_grad_(needed)
                for x, needed in zip(saved[:4], ctx.needs_input_grad)
            ]
            q, h, w, b = inputs
            scores = _score_by_torch(q, h, w, b, saved[4], ctx.normalize)
            wanted = [x for x in inputs if x is not None and x.requires_grad]
            found = iter(torch.autograd.grad(scores, wanted, grad_outputs[0].to(scores.dtype)))
        return *(next(found) if x is not None and x.requires_grad else None for x in inputs), None, None


_differentiable: Any = Head
