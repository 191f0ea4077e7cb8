"""Chamfer distances between sets of points."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from ._functions import score
from ._library import ALL, METRICS, OWN
from ._operands import LENGTHS, MASK, WHOLE, Terms, as_integers, describe, operand_error

_NAMES: Final = ("X", "Y", "x_mask", "y_mask")
_NAMES_OF_LENGTHS: Final = ("X", "Y", "x_lengths", "y_lengths")


def chamfer(
    X: Tensor, Y: Tensor, x_mask: Tensor | None = None, y_mask: Tensor | None = None, *, metric: str = "l2",
    reduction: str = "mean", x_lengths: Tensor | None = None, y_lengths: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes Chamfer distances: from each point of X to the nearest point of Y, and from Y to X.

    X [N, dim] and Y [M, dim] give one distance; X [B, N, dim] and Y [B, M, dim] give B distances. metric is "l2" or
    "l2_sq", both the squared Euclidean distance, or "l1". reduction combines the distances of one direction: "sum" or
    "mean". The result is the sum of both directions. Points whose mask is 0, or that lie beyond the lengths [B], are
    ignored. If a set is empty, the distance is 0.

    Points are float32, float16 or bfloat16 (torch itself computes float64); distances are float32. Both sides get
    gradients, through the nearest points. TypeError and ValueError name an invalid argument, with its shape, type and
    device.
    """
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; it has to be 'l2' (squared) or 'l1'")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; it has to be 'mean' or 'sum'")
    if not isinstance(X, Tensor) or not isinstance(Y, Tensor):
        raise operand_error("Y", Y) if isinstance(X, Tensor) else operand_error("X", X)
    if X.dim() != Y.dim() or X.dim() not in (2, 3) or X.dim() == 3 and X.shape[0] != Y.shape[0]:
        raise ValueError(f"X and Y have to be [points, dim] or [B, points, dim] of the same B; got X {describe(X)}, "
                         f"Y {describe(Y)}")  # fmt: skip
    if (x_mask is not None or y_mask is not None) and (x_lengths is not None or y_lengths is not None):
        raise ValueError("pass either masks or lengths, not both")
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
    terms = Terms(how_x, how_y, kind, False, 0, 0, METRICS[metric], reduction == "mean", names)
    return score(X, Y, x_cut, y_cut, None, None, terms)
