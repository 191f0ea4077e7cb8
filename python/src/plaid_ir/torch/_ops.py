"""Defines custom operators, which torch.compile, fake tensors and subclasses see instead of direct calls."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from . import _head, _quantised
from ._calls import find_plan, run, run_gradients
from ._functions import second_order_error
from ._library import ALL, OWN
from ._operands import OFFSETS, Terms

# The arguments of both operators. _TERMS are the first fields of Terms.
_OPERANDS: Final = "Tensor q, Tensor d, Tensor? q_cut, Tensor? d_cut, Tensor? pair_q, Tensor? pair_d"
_TERMS: Final = (
    "int how_q, int how_d, int kind, bool normalize, SymInt longest_q, SymInt longest_d, int metric, bool mean"
)


@torch.library.custom_op(
    "plaid::score", mutates_args=(), schema=f"({_OPERANDS}, {_TERMS}, bool winners) -> (Tensor, Tensor, Tensor)"
)
def score(*args: Any) -> tuple[Tensor, ...]:
    """Computes scores or distances, and the winning rows of q and d, which may be empty."""
    q, d, q_cut, d_cut, pair_q, pair_d, *numbers, winners = args
    p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, Terms(*numbers))
    outputs = run(p, q, d, q_cut, d_cut, pair_q, pair_d, winners)
    return *outputs, *(outputs[0].new_empty(0, dtype=torch.int32) for _ in range(3 - len(outputs)))


@score.register_fake
def _(*args: Any) -> tuple[Tensor, ...]:
    q, d, q_cut, d_cut, pair_q, _, *numbers, winners = args
    terms = Terms(*numbers)
    torch._check(
        q.shape[-1] == d.shape[-1], lambda: f"Q and D must share the embedding dim; got {q.shape} and {d.shape}"
    )
    q_shape = [q_cut.shape[0] - 1] if terms.how_q == OFFSETS else list(q.shape[:-2])
    d_shape = [d_cut.shape[0] - 1] if terms.how_d == OFFSETS else list(d.shape[:-2])
    if terms.kind == ALL:
        shape = q_shape + d_shape
    else:
        shape = d_shape if terms.kind == OWN else list(pair_q.shape)
    rows_q = [*shape, terms.longest_q if terms.how_q == OFFSETS else q.shape[-2]] if winners else [0]
    rows_d = [*shape, d.shape[-2]] if winners and terms.metric >= 0 else [0]
    return q.new_empty(shape, dtype=torch.float32), *(q.new_empty(x, dtype=torch.int32) for x in (rows_q, rows_d))


@torch.library.custom_op(
    "plaid::gradients", mutates_args=(),
    schema=f"({_TERMS}, bool need_q, bool need_d, Tensor g, {_OPERANDS}, Tensor winners_q, Tensor winners_d) "
    "-> (Tensor, Tensor)",
)  # fmt: skip
def gradients(*args: Any) -> tuple[Tensor, Tensor]:
    terms = Terms(*args[:8])
    return run_gradients(terms, *(args[8:] if terms.metric >= 0 else args[8:-1]))


@gradients.register_fake
def _(*args: Any) -> tuple[Tensor, Tensor]:
    need_q, need_d, _, q, d = args[8:13]
    return q.new_empty(q.shape if need_q else [0]), d.new_empty(d.shape if need_d else [0])


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.terms = inputs[6:14]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6], *output[1:])


def _backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    need_q, need_d = ctx.needs_input_grad[:2]
    dq = dd = None
    if g is not None:
        dq, dd = gradients(*ctx.terms, need_q, need_d, g, *ctx.saved_tensors)
    return dq if need_q else None, dd if need_d else None, *(None,) * 13


def _backward_twice(ctx: Any, *_: Any) -> None:
    raise second_order_error()


score.register_autograd(_backward, setup_context=_save_context)
gradients.register_autograd(_backward_twice)


@torch.library.custom_op("plaid::maxsim_from_hidden", mutates_args=())
def head(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    return _head.run_head(q, h, w, b, d_mask, normalize)


@head.register_fake
def _(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    return q.new_empty([*q.shape[:-2], *h.shape[:-2]], dtype=torch.float32)


@torch.library.custom_op("plaid::maxsim_quantised", mutates_args=())
def quantised(
    q: Tensor, d: Tensor, q_mask: Tensor | None, d_mask: Tensor | None, q_scale: Tensor | None, q_zero: Tensor | None,
    d_scale: Tensor | None, d_zero: Tensor | None,
) -> Tensor:  # fmt: skip
    return _quantised.run_quantised(q, d, q_mask, d_mask, q_scale, q_zero, d_scale, d_zero)


@quantised.register_fake
def _(q: Tensor, d: Tensor, *_: Tensor | None) -> Tensor:
    torch._check(
        q.shape[-1] == d.shape[-1], lambda: f"Q and D must share the embedding dim; got {q.shape} and {d.shape}"
    )
    shape = d.shape[:-2] if d.dim() == 4 else [*q.shape[:-2], *d.shape[:-2]]
    return q.new_empty(shape, dtype=torch.float32)
