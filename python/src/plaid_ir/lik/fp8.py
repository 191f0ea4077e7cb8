"""Vectors of 8-bit floats, with a scale for the tensor or for each token."""

from __future__ import annotations

import torch

from .. import torch as scoring
from ..torch import (
    dequantize_fp8_per_tensor,
    dequantize_fp8_per_token,
    quantize_fp8_per_tensor,
    quantize_fp8_per_token,
)

__all__ = [
    "dequantize_fp8_per_tensor",
    "dequantize_fp8_per_token",
    "maxsim_inference_fp8",
    "quantize_fp8_per_tensor",
    "quantize_fp8_per_token",
]


def maxsim_inference_fp8(
    Q: torch.Tensor,
    D: torch.Tensor,
    *,
    scale_Q: torch.Tensor,
    scale_D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes scores [Nq, Nd] without gradients. Scales are one number, or one for each row."""
    return scoring.maxsim_fp8(Q, D, scale_Q=scale_Q, scale_D=scale_D, q_mask=q_mask, d_mask=d_mask)
