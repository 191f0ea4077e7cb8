"""Custom operators: what torch.compile, fake tensors and subclasses see instead of direct calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _chamfer, _functions, _head
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
    torch._check(
        q.shape[-1] == d.shape[-1], lambda: f"Q and D must share the embedding dim; got {q.shape} and {d.shape}"
    )
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


@torch.library.custom_op("plaid::chamfer", mutates_args=())
def chamfer(
    x: Tensor, y: Tensor, x_cut: Tensor | None, y_cut: Tensor | None, how_x: int, how_y: int, kind: int, metric: int,
    mean: bool, nearest: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    p = _functions.find_plan(x, y, x_cut, y_cut, None, None, Terms(how_x, how_y, kind, False))
    distances, near_x, near_y = _chamfer.run_chamfer(p, x, y, x_cut, y_cut, metric, mean, nearest)
    none = torch.empty(0, dtype=torch.int32, device=x.device)
    return distances, none if near_x is None else near_x, none.clone() if near_y is None else near_y


@chamfer.register_fake
def _(
    x: Tensor, y: Tensor, x_cut: Tensor | None, y_cut: Tensor | None, how_x: int, how_y: int, kind: int, metric: int,
    mean: bool, nearest: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape = list(x.shape[:-2])
    distances = x.new_empty(shape, dtype=torch.float32)
    near_x = x.new_empty([*shape, x.shape[-2]] if nearest else [0], dtype=torch.int32)
    return distances, near_x, x.new_empty([*shape, y.shape[-2]] if nearest else [0], dtype=torch.int32)


@torch.library.custom_op("plaid::chamfer_gradients", mutates_args=())
def chamfer_gradients(
    g: Tensor, near_x: Tensor, near_y: Tensor, x: Tensor, y: Tensor, x_cut: Tensor | None, y_cut: Tensor | None,
    how_x: int, how_y: int, kind: int, metric: int, mean: bool, need_x: bool, need_y: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    terms = Terms(how_x, how_y, kind, False)
    dx, dy = _chamfer.run_chamfer_gradients(
        g, near_x, near_y, x, y, x_cut, y_cut, terms, metric, mean, need_x, need_y
    )
    return x.new_empty(0) if dx is None else dx, y.new_empty(0) if dy is None else dy


@chamfer_gradients.register_fake
def _(
    g: Tensor, near_x: Tensor, near_y: Tensor, x: Tensor, y: Tensor, x_cut: Tensor | None, y_cut: Tensor | None,
    how_x: int, how_y: int, kind: int, metric: int, mean: bool, need_x: bool, need_y: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape if need_x else [0]), y.new_empty(y.shape if need_y else [0])


def _save_chamfer(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, y, x_cut, y_cut, *terms = inputs
    ctx.terms = terms[:-1]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, y, x_cut, y_cut, *output[1:])


def _chamfer_backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    need_x, need_y = ctx.needs_input_grad[:2]
    dx = dy = None
    if g is not None:
        x, y, x_cut, y_cut, near_x, near_y = ctx.saved_tensors
        dx, dy = chamfer_gradients(g, near_x, near_y, x, y, x_cut, y_cut, *ctx.terms, need_x, need_y)
    return dx if need_x else None, dy if need_y else None, *(None,) * 8


chamfer.register_autograd(_chamfer_backward, setup_context=_save_chamfer)
chamfer_gradients.register_autograd(_backward_twice)


@torch.library.custom_op("plaid::maxsim_from_hidden", mutates_args=())
def head(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    return _head.run_head(q, h, w, b, d_mask, normalize)


@head.register_fake
def _(q: Tensor, h: Tensor, w: Tensor, b: Tensor | None, d_mask: Tensor | None, normalize: bool) -> Tensor:
    return q.new_empty([*q.shape[:-2], *h.shape[:-2]], dtype=torch.float32)
