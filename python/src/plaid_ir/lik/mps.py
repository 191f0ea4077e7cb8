"""The names of Apple's GPUs. plaid has no kernels for these: PyTorch's own operations do the work there."""

from __future__ import annotations

import torch

from . import autograd, reference

__all__ = ["maxsim_inference_mps", "maxsim_mps"]


def maxsim_mps(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """As maxsim, on any device."""
    if Q.device.type == "mps":
        return reference.maxsim_reference(Q, D, q_mask, d_mask, normalize=normalize)
    return autograd.maxsim(Q, D, q_mask, d_mask, normalize=normalize)


@torch.no_grad()
def maxsim_inference_mps(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """The same without gradients."""
    return maxsim_mps(Q, D, q_mask, d_mask, normalize=normalize)
