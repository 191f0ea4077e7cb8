"""Chooses how to compute scores: by the library directly, through autograd or an operator, or by torch alone."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _plain
from ._calls import Cut, Pair, find_plan, run, run_gradients
from ._operands import FLOATS, Plan, Terms, operand_error

_C: Any = torch._C
_is_compiling: Final = torch.compiler.is_compiling
_transforms: Any = _C._are_functorch_transforms_active
_modes: Any = _C._len_torch_dispatch_stack
_tracing: Any = _C._get_tracing_state
_unwrap: Any = _C._functorch.unwrap_if_dead  # for a tensor that has left a transform
_autocast: Any = _C._is_any_autocast_enabled
_forward: Any = forward_ad
_TENSORS: Final = frozenset({Tensor, torch.nn.Parameter})  # other classes may override functions


def score(q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms) -> Tensor:
    """Computes scores, or distances if the terms have a metric."""
    if _is_compiling():
        return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if _autocast():
        q, d = autocast(q), autocast(d)
    if _transforms():
        if _plain.is_plain_only(q, d):
            return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        return _differentiable.apply(q, d, q_cut, d_cut, pair_q, pair_d, terms, None)[0]
    if needs_operator(q, d):
        for name, x in zip(terms.names, (q, d)):
            if not isinstance(x, Tensor) or x.is_nested or x.layout != torch.strided:
                raise operand_error(name, x)
        return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if p.plain:
        if p.device.type == "meta":
            return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if _forward._current_level >= 0:
        return _differentiable.apply(q, d, q_cut, d_cut, pair_q, pair_d, terms, p)[0]
    if (q.requires_grad or d.requires_grad) and torch.is_grad_enabled():
        return _apply(_unwrap(q), _unwrap(d), q_cut, d_cut, pair_q, pair_d, terms, p)[0]
    return run(p, q, d, q_cut, d_cut, pair_q, pair_d, False)[0]


def _score_by_operator(
    q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms
) -> Tensor:
    q, d = autocast(q), autocast(d)
    if _plain.is_plain_only(q, d):
        return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    from . import _ops

    winners = torch.is_grad_enabled() and (q.requires_grad or d.requires_grad)
    return _ops.score(q, d, q_cut, d_cut, pair_q, pair_d, *terms.numbers(), winners)[0]


def needs_operator(x: Tensor, y: Tensor) -> bool:
    """Reports whether a mode, a tracer or the class of a tensor must see an operator."""
    return bool(_modes() or _tracing() or type(x) not in _TENSORS or type(y) not in _TENSORS)


def is_transformed() -> bool:
    """Reports whether the call is inside a transform of torch.func or forward-mode differentiation."""
    return bool(_transforms()) or bool(_forward._current_level >= 0)


def autocast(x: Any) -> Any:
    """Converts a tensor to the type that autocast uses for matrix products."""
    if (_is_compiling() or _autocast()) and isinstance(x, Tensor) and x.dtype in FLOATS:
        kind = x.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            return x.to(torch.get_autocast_dtype(kind))
    return x


class Scores(torch.autograd.Function):
    """Scores or distances with gradients, and the winning rows, which have none."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        q, d, q_cut, d_cut, pair_q, pair_d, terms = args[:7]
        p: Plan = args[7] or find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        return run(p, q, d, q_cut, d_cut, pair_q, pair_d, True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.terms = inputs[6]
        ctx.save_for_backward(*inputs[:6], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        need_q, need_d = ctx.needs_input_grad[:2]
        dq = dd = None
        if grad_outputs[0] is not None:
            args = (ctx.terms, need_q, need_d, grad_outputs[0], *ctx.saved_tensors)
            is_recorded = torch.is_grad_enabled() or _transforms()
            dq, dd = _gradients.apply(*args) if is_recorded else run_gradients(*args)
        return dq if need_q else None, dd if need_d else None, None, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _apply_to_items(_differentiable.apply, info, in_dims, args)


class Gradients(torch.autograd.Function):
    """Gradients, which cannot be differentiated again."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        return run_gradients(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        raise second_order_error()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _apply_to_items(_gradients.apply, info, in_dims, args)


_differentiable: Any = Scores
_gradients: Any = Gradients
# Function.apply checks for transforms first, and takes three times as long. It also unwraps tensors, as _unwrap does.
_apply: Any = getattr(super(torch.autograd.Function, Scores), "apply")


def second_order_error() -> RuntimeError:
    return RuntimeError(
        "gradients of plaid_ir.torch cannot be differentiated again; use float64 vectors, which torch scores"
    )


def _apply_to_items(function: Any, info: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Applies a function to each item of a vmap, and stacks the results."""
    if not info.batch_size:  # an item of zeros gives the shapes of the results
        args = tuple(
            a.new_zeros([*a.shape[:dim], 1, *a.shape[dim + 1 :]]) if isinstance(a, Tensor) and dim is not None else a
            for a, dim in zip(args, in_dims)
        )
        results, dims = _apply_to_items(function, info._replace(batch_size=1), in_dims, args)
        return tuple(r[:0] for r in results), dims
    results = []
    for i in range(info.batch_size):
        results.append(function(*[
            a.select(dim, i) if isinstance(a, Tensor) and dim is not None else a for a, dim in zip(args, in_dims)
        ]))  # fmt: skip
    return tuple(torch.stack(r) for r in zip(*results)), (0,) * len(results[0])
