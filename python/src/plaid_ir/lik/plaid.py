"""Scores documents given as centroids and residuals, in the bit order of late-interaction-kernels.

PyTorch's operations decode the vectors, some documents at a time; then they are scored. This is only
for callers of this interface: plaid's own indexes score tokens without decoding them, and use the
opposite bit order, as ColBERT and fast-plaid do.
"""

from __future__ import annotations

import torch

from .. import torch as scoring
from . import reference
from .reference import maxsim_residual_reference, plaid_approx_score_reference, unpack_residuals_reference

__all__ = [
    "maxsim_residual",
    "maxsim_residual_reference",
    "maxsim_residual_varlen",
    "plaid_approx_score",
    "plaid_approx_score_reference",
    "unpack_residuals_reference",
]

_DECODED_BYTES = 64 << 20  # the bytes of vectors that are decoded at a time


def plaid_approx_score(
    query_centroid_scores: torch.Tensor, codes: torch.Tensor, doc_lengths: torch.Tensor
) -> torch.Tensor:
    """Computes approximate scores [B] of documents with codes [B, Ld], from scores [centroids, Lq].

    An invalid code counts as code 0.
    """
    if query_centroid_scores.dim() != 2:
        raise ValueError(f"query_centroid_scores is [centroids, Lq], not {tuple(query_centroid_scores.shape)}")
    if codes.dim() != 2:
        raise ValueError(f"codes is [B, Ld], not {tuple(codes.shape)}")
    if doc_lengths.shape != codes.shape[:1]:
        raise ValueError(f"doc_lengths is [{codes.shape[0]}], not {tuple(doc_lengths.shape)}")
    known = (codes >= 0) & (codes < query_centroid_scores.shape[0])
    codes = codes.where(known, 0)
    step = max(1, _DECODED_BYTES // (4 * query_centroid_scores.shape[1] * max(1, codes.shape[1])))
    parts = [
        reference.plaid_approx_score_reference(query_centroid_scores, part, lengths)
        for part, lengths in zip(codes.split(step), doc_lengths.split(step))
    ]
    return torch.cat(parts)


def maxsim_residual(
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
    """Computes scores [Nq, Nd] with documents of codes [Nd, Ld] and residuals [Nd, Ld, bytes]. Q gets gradients."""
    _check_residuals(Q, residuals, nbits)
    if codes.dim() != 2 or residuals.dim() != 3:
        raise ValueError(
            f"codes is [Nd, Ld] and residuals [Nd, Ld, bytes], not {tuple(codes.shape)} and {tuple(residuals.shape)}"
        )
    if Q.requires_grad and torch.is_grad_enabled() and bool((doc_lengths < 1).any()):
        raise ValueError("gradients with a zero-length document: leave those out, or score without gradients")
    table = _weights_table(bucket_weights, nbits)
    step = max(1, _DECODED_BYTES // (4 * Q.shape[-1] * max(1, codes.shape[1])))
    longest = torch.arange(codes.shape[1], device=codes.device)
    parts = [
        scoring.maxsim(
            Q,
            _decode(Q, codes[i : i + step], residuals[i : i + step], centroids, table, normalize),
            d_mask=longest < doc_lengths[i : i + step].to(codes.device).unsqueeze(1),
            normalize=normalize,
        )
        for i in range(0, codes.shape[0], step)
    ]
    return torch.cat(parts, dim=-1) if parts else Q.new_zeros(*Q.shape[:-2], 0, dtype=torch.float32)


@torch.no_grad()
def maxsim_residual_varlen(
    Q: torch.Tensor,
    codes_flat: torch.Tensor,
    residuals_flat: torch.Tensor,
    cu_seqlens_d: torch.Tensor,
    centroids: torch.Tensor,
    bucket_weights: torch.Tensor,
    nbits: int,
    *,
    max_seqlen_d: int | None = None,
    normalize: bool = True,
) -> torch.Tensor:
    """Computes the scores of maxsim_residual for packed documents with offsets, without gradients."""
    _check_residuals(Q, residuals_flat, nbits)
    if codes_flat.dim() != 1 or residuals_flat.dim() != 2 or cu_seqlens_d.dim() != 1:
        raise ValueError("codes_flat is [tokens], residuals_flat [tokens, bytes], and cu_seqlens_d [Nd + 1]")
    queries = Q.unsqueeze(0) if Q.dim() == 2 else Q
    table = _weights_table(bucket_weights, nbits)
    # Documents are decoded in groups, whose offsets are needed on the processor.
    ends = cu_seqlens_d.tolist()
    longest = max_seqlen_d or max((b - a for a, b in zip(ends, ends[1:])), default=0)
    q_ends = torch.arange(queries.shape[0] + 1, device=Q.device, dtype=torch.int32) * queries.shape[1]
    max_tokens = max(_DECODED_BYTES // (4 * Q.shape[-1]), 1)
    parts: list[torch.Tensor] = []
    first = 0
    while first < len(ends) - 1:
        last = first + 1
        while last < len(ends) - 1 and ends[last + 1] - ends[first] <= max_tokens:
            last += 1
        rows = slice(ends[first], ends[last])
        docs = _decode(Q, codes_flat[rows], residuals_flat[rows], centroids, table, normalize)
        offsets = (cu_seqlens_d[first : last + 1] - ends[first]).to(torch.int32)
        flat = queries.reshape(-1, Q.shape[-1])
        parts.append(scoring.maxsim_varlen(flat, docs, q_ends, offsets, queries.shape[1], longest, normalize=normalize))
        first = last
    scores = torch.cat(parts, dim=-1) if parts else Q.new_zeros(queries.shape[0], 0, dtype=torch.float32)
    return scores.squeeze(0) if Q.dim() == 2 else scores


def _check_residuals(Q: torch.Tensor, residuals: torch.Tensor, nbits: int) -> None:
    if nbits not in (2, 4, 8):
        raise ValueError(f"nbits must be 2, 4 or 8, not {nbits}")
    need = (Q.shape[-1] * nbits + 7) // 8
    if residuals.shape[-1] != need:
        raise ValueError(
            f"residuals have {residuals.shape[-1]} bytes for each token; want {need} "
            f"for {Q.shape[-1]} dimensions and {nbits} bits"
        )


def _weights_table(bucket_weights: torch.Tensor, nbits: int) -> torch.Tensor:
    """Returns the bucket weights for each value of a byte, [256, 8 / nbits]."""
    byte_values = torch.arange(256, device=bucket_weights.device, dtype=torch.uint8)
    buckets = reference.unpack_residuals_reference(byte_values.unsqueeze(1), nbits, 8 // nbits)
    return bucket_weights.float()[buckets.clamp_max(bucket_weights.numel() - 1).long()]


def _decode(
    Q: torch.Tensor,
    codes: torch.Tensor,
    residuals: torch.Tensor,
    centroids: torch.Tensor,
    table: torch.Tensor,
    normalize: bool,
) -> torch.Tensor:
    """Decodes token vectors [..., d]. They are normalized first, and then rounded to the type of Q."""
    weights = torch.nn.functional.embedding(residuals.int(), table).flatten(-2)[..., : Q.shape[-1]]
    vectors = weights.add_(torch.nn.functional.embedding(codes.int(), centroids.float()))
    if normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=-1, eps=1e-12)
    return vectors.to(Q.dtype)
