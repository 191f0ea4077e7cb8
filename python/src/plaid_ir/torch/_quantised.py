"""Scores vectors of int8 and 8-bit floats, which have a scale for each token or one for all. There are no gradients."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from . import _plain
from ._calls import find_plan, run
from ._functions import needs_operator, is_transformed
from ._library import ALL, OWN
from ._maxsim import maxsim
from ._operands import FLOATS, MASK, WHOLE, Terms, check_devices, check_tensor, describe, operand_error

_is_compiling: Final = torch.compiler.is_compiling
_SMALLEST: Final = 1e-12


def quantize_int8(X: Tensor) -> tuple[Tensor, Tensor]:
    """Quantizes floats X [..., dim]. Returns int8 values [..., dim], and a float32 scale [...] for each token.

    X is values * scales[..., None], within half a scale. TypeError: X is not of floats.
    """
    _check_floats(X)
    scales = X.abs().amax(-1).float().div_(127).clamp_min_(_SMALLEST)
    return (X.float() / scales.unsqueeze(-1)).round_().clamp_(-127, 127).to(torch.int8), scales


def quantize_int8_affine(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantizes floats X [..., dim] with zero points.

    Returns int8 values [..., dim], and float32 scales and int8 zero points [...] for each token. X is about
    (values - zeros[..., None]) * scales[..., None]. TypeError: X is not of floats.
    """
    _check_floats(X)
    low, high = (x.float() for x in (X.amin(-1).clamp(max=0), X.amax(-1).clamp(min=0)))
    scales = ((high - low) / 255).clamp_min_(_SMALLEST)
    zeros = (-128 - low / scales).round_().clamp_(-128, 127)
    values = (X.float() / scales.unsqueeze(-1) + zeros.unsqueeze(-1)).round_().clamp_(-128, 127)
    return values.to(torch.int8), scales, zeros.to(torch.int8)


def dequantize_int8(values: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
    """Returns float32 vectors [..., dim] for the results of quantize_int8 or quantize_int8_affine.

    values are [..., dim]; scales and zeros are [...].
    """
    x = values.float()
    if zeros is not None:
        x = x - zeros.float().unsqueeze(-1)
    return x * scales.float().unsqueeze(-1)


def quantize_fp8_per_tensor(X: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """Quantizes floats X [..., dim] with one scale. Returns 8-bit floats [..., dim], and a float32 scale [].

    X is about values * scale. dtype is float8_e4m3fn or float8_e5m2. TypeError: X is not of floats.
    """
    _check_floats(X, empty=True)
    if not X.numel():
        return X.to(dtype), torch.ones((), dtype=torch.float32, device=X.device)
    largest = torch.finfo(dtype).max
    scale = X.abs().amax().float().clamp_min(1e-6) / largest
    return (X.float() / scale).clamp_(-largest, largest).to(dtype).contiguous(), scale


def quantize_fp8_per_token(X: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """Quantizes floats X [..., dim]. Returns 8-bit floats [..., dim], and a float32 scale [...] for each token.

    X is about values * scales[..., None]. dtype is float8_e4m3fn or float8_e5m2. TypeError: X is not of floats.
    """
    _check_floats(X)
    largest = torch.finfo(dtype).max
    scales = X.abs().amax(-1).float().clamp_min(1e-6) / largest
    return (X.float() / scales.unsqueeze(-1)).clamp_(-largest, largest).to(dtype).contiguous(), scales


def dequantize_fp8_per_tensor(X_fp8: Tensor, scale: Tensor) -> Tensor:
    """Returns float32 vectors for the results of quantize_fp8_per_tensor."""
    return X_fp8.float() * scale


def dequantize_fp8_per_token(X_fp8: Tensor, scale: Tensor) -> Tensor:
    """Returns float32 vectors for the results of quantize_fp8_per_token."""
    return X_fp8.float() * scale.unsqueeze(-1)


def _check_floats(x: Tensor, empty: bool = False) -> None:
    check_tensor("X", x, (*FLOATS, torch.float64))
    if x.dim() < 1 or not x.shape[-1] and not empty:
        raise ValueError(f"X {describe(x)} has to be [..., dim]")


def maxsim_int8(
    Q: Tensor, D: Tensor, *, scale_D: Tensor, scale_Q: Tensor | None = None, zero_D: Tensor | None = None,
    zero_Q: Tensor | None = None, q_mask: Tensor | None = None, d_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes scores of int8 documents, without gradients.

    D has scales (and zero points) for each token, as quantize_int8 and quantize_int8_affine return them. Q has floats,
    or int8 with scales. Scales are positive: [Nd, Ld] and [Nq, Lq], or one for all tokens. Shapes and masks are as for
    maxsim. TypeError: a side has another type, or no scales. ValueError: a shape does not fit.
    """
    return _score_quantised(Q, D, scale_Q, scale_D, zero_Q, zero_D, q_mask, d_mask, torch.int8)


def maxsim_fp8(
    Q: Tensor, D: Tensor, *, scale_D: Tensor, scale_Q: Tensor | None = None, q_mask: Tensor | None = None,
    d_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes scores of documents of 8-bit floats, without gradients.

    D has scales for each token, or one for all, as quantize_fp8_per_token and quantize_fp8_per_tensor return them. Q
    has floats, or 8-bit floats with scales. float8_e4m3fn is multiplied directly; float8_e5m2 is first copied to
    float32. Shapes are as for maxsim. TypeError: a side has another type, or no scales. ValueError: a shape does not
    fit.
    """
    return _score_quantised(Q, D, scale_Q, scale_D, None, None, q_mask, d_mask, torch.float8_e4m3fn)


def _score_quantised(
    q: Tensor, d: Tensor, q_scale: Tensor | None, d_scale: Tensor | None, q_zero: Tensor | None,
    d_zero: Tensor | None, q_mask: Tensor | None, d_mask: Tensor | None, kind: torch.dtype,
) -> Tensor:  # fmt: skip
    for name, x in (("Q", q), ("D", d)):
        if not isinstance(x, Tensor):
            raise operand_error(name, x)
    q, q_scale, q_factor = _to_token_scales("Q", q, q_scale, q_zero, kind)
    d, d_scale, d_factor = _to_token_scales("D", d, d_scale, d_zero, kind)
    q, d = q.detach(), d.detach()
    compiling = _is_compiling()
    if kind not in (q.dtype, d.dtype) or q.is_meta or _plain.is_plain_only(q, d) or not compiling and is_transformed():
        with torch.no_grad():
            q = q if q_scale is None else _dequantize(q, q_scale, q_zero)
            d = d if d_scale is None else _dequantize(d, d_scale, d_zero)
            scores = maxsim(_to_float(q), _to_float(d), q_mask, d_mask)
    elif compiling or needs_operator(q, d):
        from . import _ops

        scores = _ops.quantised(q, d, q_mask, d_mask, q_scale, q_zero, d_scale, d_zero)
    else:
        scores = run_quantised(q, d, q_mask, d_mask, q_scale, q_zero, d_scale, d_zero)
    for factor in (q_factor, d_factor):
        if factor is not None:
            scores = scores * factor
    return scores


def run_quantised(
    q: Tensor, d: Tensor, q_mask: Tensor | None, d_mask: Tensor | None, q_scale: Tensor | None, q_zero: Tensor | None,
    d_scale: Tensor | None, d_zero: Tensor | None,
) -> Tensor:  # fmt: skip
    """Computes scores by the library. Scales and zero points are contiguous, one for each token, or None."""
    terms = Terms(
        MASK if q_mask is not None else WHOLE, MASK if d_mask is not None else WHOLE,
        OWN if d.dim() == 4 else ALL, False, types="quantised",
    )  # fmt: skip
    q, d = q.contiguous(), d.contiguous()
    p = find_plan(q, d, q_mask, d_mask, None, None, terms)
    scales = (_data_pointer(q_scale), _data_pointer(q_zero), _data_pointer(d_scale), _data_pointer(d_zero))
    return run(p, q, d, q_mask, d_mask, None, None, False, scales)[0]


def _data_pointer(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _to_float(x: Tensor) -> Tensor:
    return x if x.dtype in FLOATS else x.float()


def _dequantize(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return dequantize_int8(x, scale.reshape(x.shape[:-1]), None if zero is None else zero.reshape(x.shape[:-1]))


def _to_token_scales(
    name: str, x: Tensor, scale: Tensor | None, zero: Tensor | None, kind: torch.dtype
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the tensor, the scales of its tokens, and a factor for all scores, if one scale is for all tokens."""
    if x.dtype in FLOATS:
        if scale is not None or zero is not None:
            raise TypeError(f"{name} {describe(x)} is not quantised: omit scale_{name} and zero_{name}")
        return x, None, None
    allowed = (torch.int8,) if kind == torch.int8 else (torch.float8_e4m3fn, torch.float8_e5m2)
    if x.dtype not in allowed:
        names = " or ".join(str(t).removeprefix("torch.") for t in allowed)
        raise TypeError(f"{name} {describe(x)} has to be of {names}, or of floats")
    if not isinstance(scale, Tensor):
        found = type(scale).__qualname__
        raise TypeError(f"{name} is quantised, but scale_{name} is a {found}: pass the tensor of its scales")
    check_devices(name, x, f"scale_{name}", scale)
    if zero is not None:
        check_devices(name, x, f"zero_{name}", zero)
        if zero.shape != x.shape[:-1] or zero.dtype != torch.int8:
            raise ValueError(f"zero_{name} {describe(zero)} has to be of int8, {list(x.shape[:-1])}")
        if not zero.is_contiguous():
            raise ValueError(f"zero_{name} has to be contiguous")
    if scale.numel() == 1 and (scale.dim() == 0 or x.shape[:-1].numel() != 1):
        if zero is not None:
            return x, scale.float().expand(x.shape[:-1]).contiguous(), None
        ones = None if x.dtype in (torch.int8, torch.float8_e4m3fn) else torch.ones_like(x[..., 0], dtype=torch.float32)
        return x, ones, scale.float().reshape(())
    if scale.shape != x.shape[:-1] and scale.shape != (*x.shape[:-1], 1):
        raise ValueError(f"scale_{name} {describe(scale)} has to be {list(x.shape[:-1])}, or one number")
    return x, scale.float().reshape(x.shape[:-1]).contiguous(), None
