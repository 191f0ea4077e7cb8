"""Reference implementations in plain PyTorch operations: slow, for any device, in float32 or float64."""

from __future__ import annotations

import torch

from ..torch import _plain
from ..torch._library import ALL, LISTED, OWN
from ..torch._operands import LENGTHS, MASK, OFFSETS, WHOLE, Terms

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
_PACKED = ("Q", "D", "cu_seqlens_q", "cu_seqlens_d")


def _widen(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def maxsim_reference(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = False,
) -> torch.Tensor:
    """Computes scores [Nq, Nd], or [Nq, K] with documents [Nq, K, Ld, d]."""
    if Q.shape[-1] != D.shape[-1]:
        raise ValueError(f"embedding dims don't match: queries have {Q.shape[-1]}, documents {D.shape[-1]}")
    q_cut, d_cut = (WHOLE if mask is None else MASK for mask in (q_mask, d_mask))
    terms = Terms(q_cut, d_cut, OWN if D.dim() == 4 else ALL, normalize)
    return _plain.score(_widen(Q), _widen(D), q_mask, d_mask, None, None, terms)


def maxsim_reference_varlen(
    Q: torch.Tensor, D: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_d: torch.Tensor
) -> torch.Tensor:
    """Computes scores [Nq, Nd] of packed queries and documents."""
    terms = Terms(OFFSETS, OFFSETS, ALL, False, _longest_item(cu_seqlens_q), _longest_item(cu_seqlens_d), names=_PACKED)
    return _plain.score(_widen(Q), _widen(D), cu_seqlens_q, cu_seqlens_d, None, None, terms)


def maxsim_reference_scatter(
    Q_packed: torch.Tensor,
    D_packed: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_d: torch.Tensor,
    pair_q_idx: torch.Tensor,
    pair_d_idx: torch.Tensor,
) -> torch.Tensor:
    """Computes scores [pairs] of pairs of packed queries and documents."""
    longest = _longest_item(cu_seqlens_q), _longest_item(cu_seqlens_d)
    pairs = ("pair_q_idx", "pair_d_idx")
    terms = Terms(OFFSETS, OFFSETS, LISTED, False, *longest, names=_PACKED, pairs=pairs)
    return _plain.score(_widen(Q_packed), _widen(D_packed), cu_seqlens_q, cu_seqlens_d, pair_q_idx, pair_d_idx, terms)


def _longest_item(offsets: torch.Tensor) -> int:
    return max(offsets.diff().tolist(), default=0)


def maxsim_padded_reference(
    queries: torch.Tensor, documents: torch.Tensor, query_lengths: torch.Tensor, doc_lengths: torch.Tensor
) -> torch.Tensor:
    """Computes scores [B, C] of padded queries and candidates, in float32."""
    q_cut, d_cut = (x.to(queries.device).reshape(-1) for x in (query_lengths, doc_lengths))
    terms = Terms(LENGTHS, LENGTHS, OWN, False, names=("queries", "documents", "query_lengths", "doc_lengths"))
    return _plain.score(queries.float(), documents.float(), q_cut, d_cut, None, None, terms)


def maxsim_from_hidden_reference(
    Q: torch.Tensor,
    H_d: torch.Tensor,
    W: torch.Tensor,
    b: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """Computes scores of documents given as hidden states."""
    D = torch.nn.functional.linear(H_d.float(), W.float(), None if b is None else b.float())
    return maxsim_reference(Q, _plain.to_unit_length(D) if normalize else D, d_mask=d_mask)


def unpack_residuals_reference(residuals: torch.Tensor, nbits: int, d: int) -> torch.Tensor:
    """Unpacks bucket numbers [..., d] from bytes [..., ceil(d * nbits / 8)], the lowest bits of a byte first."""
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
    """Computes scores [Nq, Nd] of documents given as codes and residuals."""
    buckets = unpack_residuals_reference(residuals, nbits, Q.shape[-1]).clamp(0, bucket_weights.numel() - 1)
    D = centroids.float()[codes.long()] + bucket_weights.float()[buckets.long()]
    terms = Terms(WHOLE, LENGTHS, ALL, normalize, names=("Q", "D", "q_mask", "doc_lengths"))
    scores = _plain.score(_widen(Q), D, None, doc_lengths.to(D.device), None, None, terms)
    return scores.unsqueeze(0) if Q.dim() == 2 else scores


def plaid_approx_score_reference(
    query_centroid_scores: torch.Tensor, codes: torch.Tensor, doc_lengths: torch.Tensor
) -> torch.Tensor:
    """Computes approximate scores [B] of documents with codes [B, Ld], from scores [centroids, Lq]."""
    similarities = query_centroid_scores.float()[codes.long()]
    mask = torch.arange(codes.shape[1], device=codes.device) < doc_lengths.to(codes.device).unsqueeze(1)
    best = similarities.masked_fill(~mask.unsqueeze(-1), NEG_INF).amax(1)
    return best.masked_fill(best == NEG_INF, 0).sum(-1)
