"""Padded batches, with lengths, of queries and each query's own candidates."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import torch as scoring

__all__ = ["PackedBatch", "maxsim_padded", "pack_padded"]


class PackedBatch(NamedTuple):
    """The packed tokens and the pairs of a padded batch: the arguments of score_pairs_packed."""

    Q_packed: torch.Tensor
    cu_seqlens_q: torch.Tensor
    D_packed: torch.Tensor
    cu_seqlens_d: torch.Tensor
    pair_q_idx: torch.Tensor
    pair_d_idx: torch.Tensor
    max_seqlen_q: int
    max_seqlen_d: int


def pack_padded(
    queries: torch.Tensor,
    documents: torch.Tensor,
    query_lengths: torch.Tensor,
    doc_lengths: torch.Tensor,
    *,
    validate: bool = False,
) -> PackedBatch:
    """Packs queries [B, Lq, d] and documents [B, C, Ld, d]. validate also refuses lengths of 0."""
    if queries.dim() != 3 or documents.dim() != 4:
        raise ValueError(
            f"queries are [B, Lq, d] and documents [B, C, Ld, d], "
            f"not {tuple(queries.shape)} and {tuple(documents.shape)}"
        )
    batch, longest_q, dim = queries.shape
    count, longest_d = documents.shape[1:3]
    if documents.shape[0] != batch:
        raise ValueError(f"batch size: there are {batch} queries, and documents of {documents.shape[0]}")
    if documents.shape[-1] != dim:
        raise ValueError(f"embedding dim: queries have {dim}, documents {documents.shape[-1]}")
    if query_lengths.shape != (batch,):
        raise ValueError(f"query_lengths is [{batch}], not {tuple(query_lengths.shape)}")
    if doc_lengths.shape != (batch, count):
        raise ValueError(f"doc_lengths is [{batch}, {count}], not {tuple(doc_lengths.shape)}")
    q_len = query_lengths.to(queries.device, torch.int32)
    d_len = doc_lengths.to(queries.device, torch.int32).reshape(-1)
    limits = [
        int(x)
        for x in torch.stack(
            [_largest(q_len, 1), _largest(d_len, 1), _largest(q_len, -1), _largest(d_len, -1)]
        ).tolist()
    ]
    if limits[0] > longest_q or limits[1] > longest_d:
        raise ValueError(f"a length exceeds the padded extent, {longest_q} of queries and {longest_d} of documents")
    if validate and batch and limits[2] >= 0:
        raise ValueError("query_lengths must all be > 0")
    if validate and d_len.numel() and limits[3] >= 0:
        raise ValueError("doc_lengths must all be > 0")
    pairs = torch.arange(batch * count, dtype=torch.int32, device=queries.device)
    return PackedBatch(
        _drop_padding(queries, q_len),
        _to_offsets(q_len),
        _drop_padding(documents.reshape(batch * count, longest_d, dim), d_len),
        _to_offsets(d_len),
        pairs // max(count, 1),
        pairs,
        limits[0],
        limits[1],
    )


def _largest(lengths: torch.Tensor, sign: int) -> torch.Tensor:
    """Returns the largest of lengths * sign, or 0 without lengths."""
    return (lengths * sign).max() if lengths.numel() else lengths.new_zeros(())


def _drop_padding(padded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    keep = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
    return padded[keep]


def _to_offsets(lengths: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))


def maxsim_padded(
    queries: torch.Tensor,
    documents: torch.Tensor,
    query_lengths: torch.Tensor,
    doc_lengths: torch.Tensor,
    *,
    validate: bool = False,
) -> torch.Tensor:
    """Computes scores [B, C] of queries [B, Lq, d] with candidates [B, C, Ld, d], without tokens beyond the lengths."""
    return scoring.maxsim_padded(queries, documents, query_lengths, doc_lengths, validate=validate)
