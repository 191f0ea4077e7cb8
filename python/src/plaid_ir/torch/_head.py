"""Scores of hidden states, whose token vectors a linear layer makes."""

from __future__ import annotations

from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _functions, _plain
from ._functions import find_plan, launch
from ._library import ALL, HEAD, TYPES
from ._maxsim import maxsim
from ._operands import FLOATS, MASK, WHOLE, Plan, Terms, check_devices, check_tensor, describe, in_order

_is_compiling: Final = torch.compiler.is_compiling
_TERMS: Final = tuple(
    Terms(WHOLE, how, ALL, normalize, 0, 0, ("Q", "H_d", "q_mask", "d_mask"), "head")
    for normalize in (False, True)
    for how in (WHOLE, MASK)
)


def maxsim_from_hidden(
    Q: Tensor, H_d: Tensor, W: Tensor, b: Tensor | None = None, d_mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    """Scores [Nq, Nd] of queries Q [Nq, Lq, dim] and documents whose token vectors are W h + b: H_d is
    [Nd, Ld, hidden], W [dim, hidden], as torch.nn.Linear(hidden, dim).weight, and b [dim].

    One kernel multiplies and scores, and the token vectors are not in memory; for gradients torch computes them again.
    normalize divides the documents' vectors by their lengths, and leaves the queries as they are. d_mask is [Nd, Ld].

    All are float32, float16 or bfloat16, each its own (float64 is computed by torch). TypeError and ValueError name the
    argument that does not fit, with its shape, type and device.
    """
    if _is_compiling() or _functions.compiled(Q, H_d, W) or _functions.transformed():
        return _by_operator(Q, H_d, W, b, d_mask, normalize)
    try:
        key = (
            Q.shape, Q.dtype, Q.device, H_d.shape, H_d.dtype, H_d.device, W.shape, W.dtype, W.device,
            None if b is None else (b.shape, b.dtype, b.device),
        )  # fmt: skip
        route = _routes.get(key)
    except (AttributeError, TypeError, RuntimeError):
        _check(Q, H_d, W, b)
        raise
    if route is None:
        _check(Q, H_d, W, b)
        if len(_routes) > 4096:
            _routes.clear()
        route = _routes[key] = torch.float64 in (Q.dtype, H_d.dtype, W.dtype, None if b is None else b.dtype)
    q, h, w = _functions.cast(Q), _functions.cast(H_d), _functions.cast(W)
    if route:
        return _by_torch(q, h, w, b, d_mask, normalize)
    if torch.is_grad_enabled() and (
        Q.requires_grad or H_d.requires_grad or W.requires_grad or b is not None and b.requires_grad
    ):
        return _differentiable.apply(q, h, w, b, d_mask, normalize)
    return run_head(q, h, w, b, d_mask, normalize)


# Whether operands of these shapes, types and devices, which fit, are computed in float64.
_routes: dict[object, bool] = {}


def _check(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None) -> None:
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


def _by_operator(
    q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool
) -> Tensor:
    """What compilers, modes and transforms see."""
    _check(q, h, w, b)
    tensors = [x for x in (q, h, w, b) if x is not None]
    grad = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    q, h, w = _functions.cast(q), _functions.cast(h), _functions.cast(w)
    if grad or not _is_compiling() and _functions.transformed() or any(x.dtype == torch.float64 for x in tensors):
        return _by_torch(q, h, w, b, d_mask, normalize)
    from . import _ops

    return _ops.head(q, h, w, b, d_mask, normalize)


def _by_torch(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    """Scores of token vectors that are in memory."""
    kind = torch.promote_types(h.dtype, w.dtype)
    d = torch.nn.functional.linear(h.to(kind), w.to(kind), None if b is None else b.to(kind))
    if normalize:
        d = _plain.unit(d if d.dtype == torch.float64 else d.float())
    return maxsim(q, d, None, d_mask)


def run_head(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    q = q.contiguous()
    p: Plan = find_plan(q, h, None, d_mask, None, None, _TERMS[2 * bool(normalize) + (d_mask is not None)])
    if p.plain:
        return _by_torch(q, h, w, b, d_mask, normalize)
    scores = torch.empty(p.shape, dtype=torch.float32, device=p.device)
    if p.trivial:
        return scores.zero_()
    if p.d_copy:
        h = h.contiguous()
    if d_mask is not None and p.d_fix:
        d_mask = in_order(d_mask, MASK)
    w = w.contiguous()
    if b is not None:
        b = b.to(torch.float32).contiguous()
    launch(
        HEAD, p, ("head", w.dtype, b is not None),
        q.data_ptr(), 0, 0, 0, 0, 0, p.q,
        h.data_ptr(), 0, 0, 0, 0, 0 if d_mask is None else d_mask.data_ptr(), p.d,
        p.pairs, 0, 0, 0, p.normalize,
        w.data_ptr(), TYPES[w.dtype], 0 if b is None else b.data_ptr(), scores.data_ptr(),
    )  # fmt: skip
    return scores


class Head(torch.autograd.Function):
    """Scores of the fused kernel; for gradients the token vectors are computed again."""

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
            inputs = [
                None if x is None else x.detach().requires_grad_(needed)
                for x, needed in zip(saved[:4], ctx.needs_input_grad)
            ]
            q, h, w, b = inputs
            scores = _by_torch(cast(Tensor, q), cast(Tensor, h), cast(Tensor, w), b, saved[4], ctx.normalize)
            wanted = [x for x in inputs if x is not None and x.requires_grad]
            found = iter(torch.autograd.grad(scores, wanted, grad_outputs[0].to(scores.dtype)))
        return *(next(found) if x is not None and x.requires_grad else None for x in inputs), None, None


_differentiable: Any = Head
