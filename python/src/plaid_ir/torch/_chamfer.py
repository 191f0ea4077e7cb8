"""Chamfer distances of sets of points."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from . import _functions, _plain
from ._functions import Cut, find_plan, launch
from ._library import ALL, CHAMFER, CHAMFER_GRADIENTS, METRICS, OWN
from ._operands import LENGTHS, MASK, WHOLE, Plan, Terms, as_integers, describe, explain, in_order

_NAMES: Final = ("X", "Y", "x_mask", "y_mask")
_NAMES_OF_LENGTHS: Final = ("X", "Y", "x_lengths", "y_lengths")


def chamfer(
    X: Tensor, Y: Tensor, x_mask: Tensor | None = None, y_mask: Tensor | None = None, *, metric: str = "l2",
    reduction: str = "mean", x_lengths: Tensor | None = None, y_lengths: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Distances of sets of points: from each point of X to the nearest of Y, and from each of Y to the nearest of X.

    X [N, dim] and Y [M, dim] have one distance, X [B, N, dim] and Y [B, M, dim] have B of them. metric is "l2", the
    square of the Euclidean distance (which "l2_sq" means too), or "l1". reduction says whether the distances of each
    direction are added ("sum") or their mean is taken ("mean"); the result is the sum of both directions. Points
    whose mask is 0, or beyond the lengths [B], are not there; where a set is empty, its distance is 0.

    Points are float32, float16 or bfloat16 (float64 is computed by torch), distances float32. Gradients go to both
    sides, through the nearest points. TypeError and ValueError name the argument that does not fit, with its shape,
    type and device.
    """
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; it has to be 'l2' (squared) or 'l1'")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; it has to be 'mean' or 'sum'")
    if not isinstance(X, Tensor) or not isinstance(Y, Tensor):
        raise explain("Y", Y) if isinstance(X, Tensor) else explain("X", X)
    if X.dim() != Y.dim() or X.dim() not in (2, 3) or X.dim() == 3 and X.shape[0] != Y.shape[0]:
        raise ValueError(f"X and Y have to be [points, dim] or [B, points, dim] of the same B; got X {describe(X)}, "
                         f"Y {describe(Y)}")  # fmt: skip
    if (x_mask is not None or y_mask is not None) and (x_lengths is not None or y_lengths is not None):
        raise ValueError("either masks or lengths say which points there are, not both")
    names, how_x, how_y, x_cut, y_cut = _NAMES, WHOLE, WHOLE, x_mask, y_mask
    if x_lengths is not None or y_lengths is not None:
        names = _NAMES_OF_LENGTHS
        x_cut = None if x_lengths is None else as_integers("x_lengths", x_lengths, X, tuple(X.shape[:-2])).reshape(-1)
        y_cut = None if y_lengths is None else as_integers("y_lengths", y_lengths, Y, tuple(Y.shape[:-2])).reshape(-1)
    if x_cut is not None:
        how_x = LENGTHS if x_lengths is not None else MASK
    if y_cut is not None:
        how_y = LENGTHS if y_lengths is not None else MASK
    kind = OWN if X.dim() == 3 else ALL
    terms = Terms(how_x, how_y, kind, False, 0, 0, names)
    number, mean = METRICS[metric], reduction == "mean"
    return _chamfer(X, Y, x_cut, y_cut, terms, number, mean)


def _chamfer(x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut, terms: Terms, metric: int, mean: bool) -> Tensor:
    x, y = _functions.cast(x), _functions.cast(y)
    if (torch.float64 in (x.dtype, y.dtype) or _functions.compiled(x, y) or _functions.transformed()) and (
        _plain.needed(x, y)
    ):
        return _plain.chamfer(x, y, x_cut, y_cut, terms, metric, mean)
    grad = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)
    if _functions.compiled(x, y):
        from . import _ops

        return _ops.chamfer(x, y, x_cut, y_cut, terms.how_q, terms.how_d, terms.kind, metric, mean, grad)[0]
    if _functions.transformed():
        return _transformable.apply(x, y, x_cut, y_cut, terms, metric, mean)[0]
    p = find_plan(x, y, x_cut, y_cut, None, None, terms)
    if p.plain:
        return _plain.chamfer(x, y, x_cut, y_cut, terms, metric, mean)
    if grad:
        return _differentiable.apply(x, y, x_cut, y_cut, terms, metric, mean)[0]
    return run_chamfer(p, x, y, x_cut, y_cut, metric, mean, False)[0]


def _pointers(p: Plan, x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The fields of the sides and of the pairs, and the tensors that they point to."""
    if p.q_copy:
        x = x.contiguous()
    if p.d_copy:
        y = y.contiguous()
    if p.q_fix and x_cut is not None:
        x_cut = in_order(x_cut, p.how_q)
    if p.d_fix and y_cut is not None:
        y_cut = in_order(y_cut, p.how_d)
    qo, ql, qm, do, dl, dm = _functions.cut_pointers(p, x_cut, y_cut)
    fields = (x.data_ptr(), 0, 0, qo, ql, qm, p.q, y.data_ptr(), 0, 0, do, dl, dm, p.d, p.pairs, 0, 0)
    return fields, (x, y, x_cut, y_cut)


def run_chamfer(
    p: Plan, x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut, metric: int, mean: bool, nearest: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Distances, and the nearest points of both directions if they are wanted."""
    near_x = torch.empty(p.argmax, dtype=torch.int32, device=p.device) if nearest else None
    near_y = torch.empty(p.argmax_d, dtype=torch.int32, device=p.device) if nearest else None
    if p.trivial:
        return torch.zeros(p.shape, dtype=torch.float32, device=p.device), near_x, near_y
    distances = torch.empty(p.shape, dtype=torch.float32, device=p.device)
    fields, alive = _pointers(p, x, y, x_cut, y_cut)
    launch(
        CHAMFER, p, ("chamfer", metric, nearest), *fields, metric, mean, distances.data_ptr(),
        0 if near_x is None else near_x.data_ptr(), 0 if near_y is None else near_y.data_ptr(),
    )  # fmt: skip
    del alive
    return distances, near_x, near_y


def run_chamfer_gradients(
    g: Tensor, near_x: Tensor, near_y: Tensor, x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut, terms: Terms,
    metric: int, mean: bool, need_x: bool, need_y: bool,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    x, y, near_x, near_y = x.contiguous(), y.contiguous(), near_x.contiguous(), near_y.contiguous()
    p = find_plan(x, y, x_cut, y_cut, None, None, terms)
    if p.trivial:
        return torch.zeros_like(x) if need_x else None, torch.zeros_like(y) if need_y else None
    dx = torch.empty_like(x) if need_x else None
    dy = torch.empty_like(y) if need_y else None
    g = g.to(torch.float32).contiguous()
    fields, alive = _pointers(p, x, y, x_cut, y_cut)
    launch(
        CHAMFER_GRADIENTS, p, ("chamfer gradients", metric, need_x, need_y), *fields, metric, mean,
        near_x.data_ptr(), near_y.data_ptr(), g.data_ptr(), 0 if dx is None else dx.data_ptr(),
        0 if dy is None else dy.data_ptr(), p.q_type, p.d_type,
    )  # fmt: skip
    del alive
    return dx, dy


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, y, x_cut, y_cut, *ctx.terms = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, y, x_cut, y_cut, *output[1:])


def _backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
    g: Tensor | None = grad_outputs[0]
    need_x, need_y = ctx.needs_input_grad[:2]
    dx = dy = None
    if g is not None:
        x, y, x_cut, y_cut, near_x, near_y = ctx.saved_tensors
        args: Any = (g, near_x, near_y, x, y, x_cut, y_cut, *ctx.terms, need_x, need_y)
        if torch.is_grad_enabled() or _functions.transformed():
            dx, dy = _gradients.apply(*args)
        else:
            dx, dy = run_chamfer_gradients(*args)
    return dx if need_x else None, dy if need_y else None, None, None, None, None, None


class Distances(torch.autograd.Function):
    """Distances and the nearest points, which have no gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut, terms: Terms, metric: int, mean: bool
    ) -> tuple[Tensor, ...]:
        output = TransformedDistances.forward(x, y, x_cut, y_cut, terms, metric, mean)
        _remember(ctx, (x, y, x_cut, y_cut, terms, metric, mean), output)
        return output

    backward = staticmethod(_backward)


class TransformedDistances(torch.autograd.Function):
    """Distances for torch.func."""

    @staticmethod
    def forward(
        x: Tensor, y: Tensor, x_cut: Cut, y_cut: Cut, terms: Terms, metric: int, mean: bool
    ) -> tuple[Tensor, ...]:
        p = find_plan(x, y, x_cut, y_cut, None, None, terms)
        distances, near_x, near_y = run_chamfer(p, x, y, x_cut, y_cut, metric, mean, True)
        assert near_x is not None and near_y is not None
        return distances, near_x, near_y

    setup_context = staticmethod(_remember)
    backward = staticmethod(_backward)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _functions.each(_transformable.apply, info, in_dims, args)


class DistanceGradients(torch.autograd.Function):
    """Gradients, which have no gradients themselves."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        dx, dy = run_chamfer_gradients(*args)
        g = args[0]
        return g.new_empty(0) if dx is None else dx, g.new_empty(0) if dy is None else dy

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        raise _functions.twice()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _functions.each(_gradients.apply, info, in_dims, args)


_differentiable: Any = Distances
_transformable: Any = TransformedDistances
_gradients: Any = DistanceGradients
