"""Finds the best documents in memory, and has MaxSim as a module."""

from __future__ import annotations

import torch

from .. import torch as scoring
from .autograd import check_backward, maxsim

__all__ = ["MaxSimScorer", "maxsim_topk", "retrieve"]


class MaxSimScorer(torch.nn.Module):
    """MaxSim as a module without parameters; `normalize` is on by default."""

    def __init__(self, *, normalize: bool = True, backward: str = "auto", mask_pad_token: int | None = None) -> None:
        super().__init__()
        if backward is None:
            raise ValueError("backward must not be None")
        check_backward(backward)
        self.normalize = normalize
        self.backward = backward
        self.mask_pad_token = mask_pad_token

    def extra_repr(self) -> str:
        return f"normalize={self.normalize}, backward={self.backward!r}, mask_pad_token={self.mask_pad_token!r}"

    def forward(
        self,
        Q: torch.Tensor,
        D: torch.Tensor,
        q_mask: torch.Tensor | None = None,
        d_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes scores [Nq, Nd], or [Nq, K] with documents with four axes. They have gradients."""
        return maxsim(Q, D, q_mask, d_mask, normalize=self.normalize)

    @torch.no_grad()
    def score(
        self,
        Q: torch.Tensor,
        D: torch.Tensor,
        q_mask: torch.Tensor | None = None,
        d_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the scores of forward without gradients."""
        return maxsim(Q, D, q_mask, d_mask, normalize=self.normalize)

    def retrieve(
        self,
        Q: torch.Tensor,
        D: torch.Tensor,
        top_k: int,
        q_mask: torch.Tensor | None = None,
        d_mask: torch.Tensor | None = None,
        *,
        chunk: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the scores and numbers of the best top_k documents of each query."""
        return retrieve(Q, D, top_k, q_mask, d_mask, normalize=self.normalize, chunk=chunk)

    def forward_with_ids(
        self, Q: torch.Tensor, D: torch.Tensor, q_ids: torch.Tensor, d_ids: torch.Tensor
    ) -> torch.Tensor:
        """Computes scores without the tokens whose id is `mask_pad_token`."""
        if self.mask_pad_token is None:
            raise ValueError("forward_with_ids needs the mask_pad_token of the scorer")
        return self.forward(Q, D, q_ids != self.mask_pad_token, d_ids != self.mask_pad_token)


def retrieve(
    Q: torch.Tensor,
    D: torch.Tensor,
    top_k: int,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
    chunk: int | None = None,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the scores and numbers of the best top_k documents of D for each query, without gradients."""
    if top_k <= 0:
        raise ValueError(f"top_k must be positive, not {top_k}")
    return maxsim_topk(
        Q, D, top_k, q_mask, d_mask, normalize=normalize, chunk_size=chunk, largest=largest, sorted=sorted
    )


def maxsim_topk(
    Q: torch.Tensor,
    D: torch.Tensor,
    k: int,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = False,
    chunk_size: int | None = None,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Does the same as retrieve. Only the scores of chunk_size documents and of the best k are in memory."""
    if Q.device != D.device:
        raise ValueError(f"Q is on {Q.device} and D on {D.device}: they have to be on the same device")
    return scoring.top_k(
        Q, D, k, q_mask, d_mask, normalize=normalize, chunk_size=chunk_size, largest=largest, sorted=sorted
    )
