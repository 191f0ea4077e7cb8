"""Custom operators: what torch.compile, fake tensors and subclasses see instead of direct calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _functions
from ._library import ALL, OWN
from ._operands import OFFSETS, Terms


@torch.library.custom_op("plaid::maxsim", mutates_args=())
def score(
    q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, pair_q: Tensor | None, pair_d: Tensor | None,
    how_q: int, how_d: int, kind: int, normalize: bool, longest_q: int, longest_d: int, winners: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    terms = Terms(how_q, how_d, kind, normalize, longest_q, longest_d)
    p = _functions.find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    scores, argmax = _functions.run_score(p, q, d, q_cut, d_cut, pair_q, pair_d, winners)
    return scores, scores.new_empty(0, dtype=torch.int32) if argmax is None else argmax


def _shape(
    q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, pair_q: Tensor | None, how_q: int, how_d: int,
    kind: int,
) -> list[Any]:  # fmt: skip
    q_shape = [q_cut.shape[0] - 1] if how_q == OFFSETS and q_cut is not None else list(q.shape[:-2])
    d_shape = [d_cut.shape[0] - 1] if how_d == OFFSETS and d_cut is not None else list(d.shape[:-2])
    if kind == ALL:
        return q_shape + d_shape
    if kind == OWN:
        return d_shape
    assert pair_q is not None
    return list(pair_q.shape)


@score.register_fake
def _(
    q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, pair_q: Tensor | None, pair_d: Tensor | None,
    how_q: int, how_d: int, kind: int, normalize: bool, longest_q: int, longest_d: int, winners: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    torch._check(q.shape[-1] == d.shape[-1], lambda: f"Q and D must share the embedding dim; got {q.shape} and {d.shape}")
    shape = _shape(q, d, q_cut, d_cut, pair_q, how_q, how_d, kind)
    longest = longest_q if how_q == OFFSETS else q.shape[-2]
    scores = q.new_empty(shape, dtype=torch.float32)
    return scores, q.new_empty([*shape, longest] if winners else [0], dtype=torch.int32)


@torch.library.custom_op("plaid::maxsim_gradients", mutates_args=())
def gradients(
    g: Tensor, argmax: Tensor, q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None,
    pair_q: Tensor | None, pair_d: Tensor | None, how_q: int, how_d: int, kind: int, normalize: bool,
    longest_q: int, longest_d: int, need_q: bool, need_d: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    terms = Terms(how_q, how_d, kind, normalize, longest_q, longest_d)
    argmax = argmax.contiguous()
    dq, dd = _functions.run_gradients(g, argmax, q, d, q_cut, d_cut, pair_q, pair_d, terms, need_q, need_d)
    return q.new_empty(0) if dq is None else dq, d.new_empty(0) if dd is None else dd


@gradients.register_fake
def _(
    g: Tensor, argmax: Tensor, q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None,
    pair_q: Tensor | None, pair_d: Tensor | None, how_q: int, how_d: int, kind: int, normalize: bool,
    longest_q: int, longest_d: int, need_q: bool, need_d: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape if need_q else [0]), d.new_empty(d.shape if need_d else [0])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, d, q_cut, d_cut, pair_q, pair_d, *terms = inputs
    ctx.terms = terms[:-1]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, d, q_cut, d_cut, pair_q, pair_d, output[1])


def _backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    need_q, need_d = ctx.needs_input_grad[:2]
    dq = dd = None
    if g is not None:
        q, d, q_cut, d_cut, pair_q, pair_d, argmax = ctx.saved_tensors
        dq, dd = gradients(g, argmax, q, d, q_cut, d_cut, pair_q, pair_d, *ctx.terms, need_q, need_d)
    return dq if need_q else None, dd if need_d else None, *(None,) * 11


def _backward_twice(ctx: Any, *_: Any) -> None:
    raise _functions.twice()


score.register_autograd(_backward, setup_context=_save)
gradients.register_autograd(_backward_twice)
