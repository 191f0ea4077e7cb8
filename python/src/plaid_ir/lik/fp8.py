"""Vectors in 8-bit floating point, with a scale a tensor or a token."""

from __future__ import annotations

import torch

from .. import torch as scoring

__all__ = [
    "dequantize_fp8_per_tensor",
    "dequantize_fp8_per_token",
    "maxsim_inference_fp8",
    "quantize_fp8_per_tensor",
    "quantize_fp8_per_token",
]


def quantize_fp8_per_tensor(
    X: torch.Tensor, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """The values and the one scale that they have to be multiplied with."""
    largest = X.abs().amax().float() if X.numel() else X.new_tensor(448.0, dtype=torch.float32)
    return _quantized(X, largest, dtype)


def quantize_fp8_per_token(
    X: torch.Tensor, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """The values and a scale for each row."""
    values, scales = _quantized(X, X.abs().amax(dim=-1, keepdim=True).float(), dtype)
    return values, scales.squeeze(-1)


def _quantized(X: torch.Tensor, largest: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """With the scale at which the largest value becomes 448, the largest one of e4m3."""
    scale = largest.clamp_min(1e-6) / 448.0
    return (X.float() / scale).clamp(-448.0, 448.0).to(dtype).contiguous(), scale


def dequantize_fp8_per_tensor(X_fp8: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return X_fp8.float() * scale


def dequantize_fp8_per_token(X_fp8: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return X_fp8.float() * scale.unsqueeze(-1)


def maxsim_inference_fp8(
    Q: torch.Tensor,
    D: torch.Tensor,
    *,
    scale_Q: torch.Tensor,
    scale_D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Scores [Nq, Nd] without gradients; a scale is one number or has one for each row."""
    return scoring.maxsim_fp8(Q, D, scale_Q=scale_Q, scale_D=scale_D, q_mask=q_mask, d_mask=d_mask)
