"""The best documents of a collection that is in memory, and MaxSim as a module."""

from __future__ import annotations

import torch

from .autograd import checked_backward, maxsim

__all__ = ["MaxSimScorer", "maxsim_topk", "retrieve"]


class MaxSimScorer(torch.nn.Module):
    """MaxSim as a module without parameters; `normalize` is on by default."""

    def __init__(self, *, normalize: bool = True, backward: str = "auto", mask_pad_token: int | None = None) -> None:
        super().__init__()
        if backward is None:
            raise ValueError("backward is a name, not None")
        checked_backward(backward)
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
        """Scores [Nq, Nd], or [Nq, K] of documents with four axes; differentiable."""
        return maxsim(Q, D, q_mask, d_mask, normalize=self.normalize)

    @torch.no_grad()
    def score(
        self,
        Q: torch.Tensor,
        D: torch.Tensor,
        q_mask: torch.Tensor | None = None,
        d_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The same without gradients."""
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
        """The scores and numbers of the best top_k documents of each query."""
        return retrieve(Q, D, top_k, q_mask, d_mask, normalize=self.normalize, chunk=chunk)

    def forward_with_ids(
        self, Q: torch.Tensor, D: torch.Tensor, q_ids: torch.Tensor, d_ids: torch.Tensor
    ) -> torch.Tensor:
        """Scores in which tokens whose id is `mask_pad_token` do not count."""
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
    """The scores and numbers of the best top_k of documents D for each query, without gradients."""
    if top_k <= 0:
        raise ValueError(f"top_k must be positive, not {top_k}")
    return maxsim_topk(
        Q, D, top_k, q_mask, d_mask, normalize=normalize, chunk_size=chunk, largest=largest, sorted=sorted
    )


@torch.no_grad()
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
    """As retrieve; with chunk_size no more scores are in memory than of so many documents and k."""
    if k <= 0:
        raise ValueError(f"k must be positive, not {k}")
    if Q.device != D.device:
        raise ValueError(f"Q is on {Q.device} and D on {D.device}: they have to be on the same device")
    single = Q.dim() == 2
    Q, D = (x.unsqueeze(0) if x.dim() == 2 else x for x in (Q, D))
    q_mask, d_mask = (m.unsqueeze(0) if m is not None and m.dim() == 1 else m for m in (q_mask, d_mask))
    count = D.shape[0]
    step = count if chunk_size is None or chunk_size >= count else chunk_size
    scores = Q.new_empty(Q.shape[0], 0, dtype=torch.float32)
    rows = Q.new_empty(Q.shape[0], 0, dtype=torch.int64)
    for start in range(0, count, max(step, 1)):
        mask = None if d_mask is None else d_mask[start : start + step]
        part = maxsim(Q, D[start : start + step], q_mask, mask, normalize=normalize)
        if start == 0 and step >= count:
            scores, rows = part.topk(min(k, count), largest=largest, sorted=sorted)
            break
        numbers = torch.arange(start, start + part.shape[1], device=Q.device).expand_as(part)
        scores, rows = torch.cat([scores, part], dim=1), torch.cat([rows, numbers], dim=1)
        scores, best = scores.topk(min(k, scores.shape[1]), largest=largest, sorted=sorted)
        rows = rows.gather(1, best)
    return (scores[0], rows[0]) if single else (scores, rows)
