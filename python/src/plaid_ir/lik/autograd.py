"""MaxSim of dense, packed and listed pairs, differentiable, with the arguments of late-interaction-kernels."""

from __future__ import annotations

import os
import warnings

import torch

from .. import torch as scoring

__all__ = [
    "maxsim",
    "maxsim_from_hidden",
    "maxsim_inference_mps",
    "maxsim_mps",
    "maxsim_pairs",
    "maxsim_varlen",
    "score_pairs_packed",
]

_BACKWARD = ("auto", "unified", "lowmem")
_NORM_CHECKED = False


def check_backward(backward: str | None) -> None:
    """Raises ValueError for an unknown way to compute gradients. Here all of them do the same."""
    if backward is not None and backward not in _BACKWARD:
        raise ValueError(f"backward is None or one of {', '.join(_BACKWARD)}, not {backward!r}")


def _maybe_warn_unnormalized(Q: torch.Tensor) -> None:
    """Warns, in the first call of a process, if Q's vectors do not have length 1."""
    global _NORM_CHECKED
    if _NORM_CHECKED or os.environ.get("LIK_SUPPRESS_NORM_WARN", "0") == "1":
        return
    # Lengths are read from the device, which is impossible during compilation and CUDA graph capture.
    if torch.compiler.is_compiling() or (Q.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    _NORM_CHECKED = True
    sample = Q.detach().reshape(-1, Q.shape[-1])[:64]
    if sample.numel() == 0:
        return
    length = float(sample.float().norm(dim=-1).median())
    if not 0.9 <= length <= 1.1:
        warnings.warn(
            f"late-interaction-kernels, by plaid: query vectors have length {length:.3f} (median of the first 64), and "
            "models like ColBERT expect 1. Pass normalize=True, or normalize them first; LIK_SUPPRESS_NORM_WARN=1 "
            "silences this warning.",
            UserWarning,
            stacklevel=3,
        )


def maxsim(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = False,
    backward: str | None = None,
) -> torch.Tensor:
    """Computes scores [Nq, Nd] of queries [Nq, Lq, d] with documents [Nd, Ld, d].

    With documents [Nq, K, Ld, d], each query is scored with its own: [Nq, K]. A side with two axes
    is one item, and the result lacks its axis.
    """
    check_backward(backward)
    if D.dim() == 4:
        _check_candidates(Q, D, q_mask)
    elif not (normalize or _NORM_CHECKED):
        _maybe_warn_unnormalized(Q)
    return scoring.maxsim(Q, D, q_mask, d_mask, normalize=normalize)


def _check_candidates(Q: torch.Tensor, D: torch.Tensor, q_mask: torch.Tensor | None) -> None:
    """Raises ValueError if documents with four axes do not fit the queries."""
    if Q.dim() != 3:
        raise ValueError(f"D with four axes needs Q to be [Nq, Lq, d], not {tuple(Q.shape)}")
    if D.shape[0] != Q.shape[0]:
        raise ValueError(f"D with four axes needs D.shape[0] == Q.shape[0]: there are {D.shape[0]} and {Q.shape[0]}")
    if q_mask is not None and q_mask.shape != Q.shape[:2]:
        raise ValueError(f"q_mask must be [Nq, Lq], {list(Q.shape[:2])}, not {list(q_mask.shape)}")


def maxsim_mps(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = True,
) -> torch.Tensor:
    """Does the same as maxsim. On Apple's GPUs, PyTorch's own operations compute the scores."""
    return maxsim(Q, D, q_mask, d_mask, normalize=normalize)


maxsim_inference_mps = torch.no_grad()(maxsim_mps)


def maxsim_pairs(
    Q: torch.Tensor,
    D: torch.Tensor,
    q_mask: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    *,
    normalize: bool = False,
    backward: str | None = None,
) -> torch.Tensor:
    """Computes scores [B] of query i [B, Lq, d] with document i [B, Ld, d]."""
    check_backward(backward)
    if Q.dim() != 3 or D.dim() != 3:
        raise ValueError(f"pairs are two tensors [B, L, d], not {tuple(Q.shape)} and {tuple(D.shape)}")
    if Q.shape[0] != D.shape[0]:
        raise ValueError(f"pairs need Q.shape[0] == D.shape[0]: there are {Q.shape[0]} and {D.shape[0]}")
    return scoring.maxsim_pairs(Q, D, q_mask, d_mask, normalize=normalize)


def maxsim_varlen(
    Q_packed: torch.Tensor,
    D_packed: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_d: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_d: int | None = None,
) -> torch.Tensor:
    """Computes scores [Nq, Nd] of packed queries and documents, with the offsets of their tokens."""
    _assert_longest(cu_seqlens_q, max_seqlen_q)
    _assert_longest(cu_seqlens_d, max_seqlen_d)
    return scoring.maxsim_varlen(Q_packed, D_packed, cu_seqlens_q, cu_seqlens_d, max_seqlen_q, max_seqlen_d)


def score_pairs_packed(
    Q_packed: torch.Tensor,
    D_packed: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_d: torch.Tensor,
    pair_q_idx: torch.Tensor,
    pair_d_idx: torch.Tensor,
    *,
    max_seqlen_q: int | None = None,
    max_seqlen_d: int | None = None,
) -> torch.Tensor:
    """Computes scores [pairs] of query pair_q_idx[i] with document pair_d_idx[i]; both sides are packed."""
    _assert_longest(cu_seqlens_q, max_seqlen_q)
    _assert_longest(cu_seqlens_d, max_seqlen_d)
    return scoring.score_pairs_packed(
        Q_packed,
        D_packed,
        cu_seqlens_q,
        cu_seqlens_d,
        pair_q_idx,
        pair_d_idx,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_d=max_seqlen_d,
    )


def _assert_longest(offsets: torch.Tensor, longest: int | None) -> None:
    """Makes the device fail, without waiting for it, if an item has more tokens than ``longest``."""
    if longest is not None and offsets.numel() > 1 and not torch.compiler.is_compiling():
        torch._assert_async((offsets.diff() <= longest).all())


def maxsim_from_hidden(
    Q: torch.Tensor,
    H_d: torch.Tensor,
    W: torch.Tensor,
    b: torch.Tensor | None = None,
    d_mask: torch.Tensor | None = None,
    normalize: bool = True,
) -> torch.Tensor:
    """Computes scores [Nq, Nd] of documents given as hidden states [Nd, Ld, h], whose vectors are W h + b."""
    if W.shape != (Q.shape[-1], H_d.shape[-1]):
        raise ValueError(f"W must be [d, h], {[Q.shape[-1], H_d.shape[-1]]}, not {list(W.shape)}")
    return scoring.maxsim_from_hidden(Q, H_d, W, b, d_mask, normalize)
