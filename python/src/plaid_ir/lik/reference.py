"""What the functions compute, in plain PyTorch operations: slow, on any device, in float32 or float64."""

from __future__ import annotations

import torch

__all__ = [
    "NEG_INF",
    "maxsim_from_hidden_reference",
    "maxsim_padded_reference",
    "maxsim_reference",
    "maxsim_reference_scatter",
    "maxsim_reference_varlen",
    "maxsim_residual_reference",
    "plaid_approx_score_reference",
    "unpack_residuals_reference",
]

NEG_INF = float("-inf")


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _unit(x: torch.Tensor, normalize: bool) -> torch.Tensor:
    return torch.nn.functional.normalize(_wide(x), dim=-1, eps=1e-12) if normalize else _wide(x)


def _best(similarities: torch.Tensor, keep: torch.Tensor | None, dim: int = -1) -> torch.Tensor:
    """The maxima of those that are kept, and 0 where there are none."""
    if keep is not None:
        similarities = similarities.masked_fill(~keep.bool(), NEG_INF)
    if similarities.shape[dim] == 0:
        return similarities.sum(dim)
    best = similarities.amax(dim) if not similarities.requires_grad else similarities.max(dim).values
    return best.masked_fill(~best.isfinite(), 0.0)


def _prefix(lengths: torch.Tensor, longest: int, device: torch.device) -> torch.Tensor:
    return torch.arange(longest, device=device) < lengths.to(device).unsqueeze(-1)


def maxsim_reference(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = False,
) -> torch.Tensor:
    """Scores [Nq, Nd], or [Nq, K] of documents [Nq, K, Ld, d]."""
    if Q.shape[-1] != D.shape[-1]:
        raise ValueError(f"embedding dims don't match: queries have {Q.shape[-1]}, documents {D.shape[-1]}")
    q, d = (_unit(x.unsqueeze(0) if x.dim() == 2 else x, normalize) for x in (Q, D))
    own = D.dim() == 4
    similarities = torch.einsum("isd,ijtd->ijst" if own else "isd,jtd->ijst", q, d)
    keep = None
    if d_mask is not None:
        keep = d_mask.reshape(d.shape[:-1]).unsqueeze(-2)
        keep = keep if own else keep.unsqueeze(0)
    best = _best(similarities, keep)
    if q_mask is not None:
        best = best * q_mask.reshape(q.shape[0], 1, -1).to(best.dtype)
    scores = best.sum(-1)
    if Q.dim() == 2:
        scores = scores.squeeze(0)
    return scores.squeeze(-1) if D.dim() == 2 else scores


def maxsim_reference_varlen(
    Q: torch.Tensor, D: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_d: torch.Tensor
) -> torch.Tensor:
    """Scores [Nq, Nd] of packed tokens."""
    queries, docs = cu_seqlens_q.numel() - 1, cu_seqlens_d.numel() - 1
    pairs = torch.cartesian_prod(torch.arange(queries), torch.arange(docs)).reshape(-1, 2)
    flat = maxsim_reference_scatter(Q, D, cu_seqlens_q, cu_seqlens_d, pairs[:, 0], pairs[:, 1])
    return flat.reshape(queries, docs)


def maxsim_reference_scatter(
    Q_packed: torch.Tensor,
    D_packed: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_d: torch.Tensor,
    pair_q_idx: torch.Tensor,
    pair_d_idx: torch.Tensor,
) -> torch.Tensor:
    """Scores [pairs] of packed tokens."""
    q_ends, d_ends = cu_seqlens_q.tolist(), cu_seqlens_d.tolist()
    scores = [
        _best(Q_packed[q_ends[i] : q_ends[i + 1]].float() @ D_packed[d_ends[j] : d_ends[j + 1]].float().T, None).sum()
        for i, j in zip(pair_q_idx.tolist(), pair_d_idx.tolist())
    ]
    return torch.stack(scores) if scores else Q_packed.new_empty(0, dtype=torch.float32)


def maxsim_padded_reference(
    queries: torch.Tensor, documents: torch.Tensor, query_lengths: torch.Tensor, doc_lengths: torch.Tensor
) -> torch.Tensor:
    """Scores [B, C] of padded queries and candidates, in float32."""
    q_mask = _prefix(query_lengths, queries.shape[1], queries.device)
    d_mask = _prefix(doc_lengths, documents.shape[2], queries.device)
    return maxsim_reference(queries.float(), documents.float(), q_mask, d_mask)


def maxsim_from_hidden_reference(
    Q: torch.Tensor,
    H_d: torch.Tensor,
    W: torch.Tensor,
    b: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """Scores of documents that are hidden states."""
    D = torch.nn.functional.linear(H_d.float(), W.float(), None if b is None else b.float())
    return maxsim_reference(Q, _unit(D, normalize), d_mask=d_mask)


def unpack_residuals_reference(residuals: torch.Tensor, nbits: int, d: int) -> torch.Tensor:
    """The numbers of buckets [..., d] of bytes [..., ceil(d * nbits / 8)], the lowest bits of a byte first."""
    shifts = torch.arange(0, 8, nbits, device=residuals.device, dtype=torch.int32)
    buckets = (residuals.to(torch.int32).unsqueeze(-1) >> shifts) & (1 << nbits) - 1
    return buckets.flatten(-2)[..., :d]


def maxsim_residual_reference(
    Q: torch.Tensor,
    codes: torch.Tensor,
    residuals: torch.Tensor,
    doc_lengths: torch.Tensor,
    centroids: torch.Tensor,
    bucket_weights: torch.Tensor,
    nbits: int,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """Scores [Nq, Nd] of documents that are numbers of centroids and residuals."""
    buckets = unpack_residuals_reference(residuals, nbits, Q.shape[-1]).clamp(0, bucket_weights.numel() - 1)
    D = centroids.float()[codes.long()] + bucket_weights.float()[buckets.long()]
    mask = _prefix(doc_lengths, codes.shape[1], codes.device)
    scores = maxsim_reference(_unit(Q, normalize), _unit(D, normalize), d_mask=mask)
    return scores.unsqueeze(0) if Q.dim() == 2 else scores


def plaid_approx_score_reference(
    query_centroid_scores: torch.Tensor, codes: torch.Tensor, doc_lengths: torch.Tensor
) -> torch.Tensor:
    """Scores [B] of documents whose tokens are the centroids codes [B, Ld], of scores [centroids, Lq]."""
    similarities = query_centroid_scores.float()[codes.long()]
    mask = _prefix(doc_lengths, codes.shape[1], codes.device)
    return _best(similarities, mask.unsqueeze(-1), dim=1).sum(-1)
