"""Flash-MaxSim's functions over plaid_ir.torch: what its tests import."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import torch

import plaid_ir.torch as scoring

Tensor = torch.Tensor


def prefix(lengths: Tensor | None, longest: int) -> Tensor | None:
    """A mask of the first tokens."""
    return None if lengths is None else torch.arange(longest, device=lengths.device) < lengths.reshape(-1, 1)


def flash_maxsim(Q: Tensor, D: Tensor, doc_lengths: Tensor | None = None, **tuning: Any) -> Tensor:
    """Q [Lq, d] with documents [B, Ld, d], or packed ones with offsets."""
    if D.dim() == 2:
        assert doc_lengths is not None
        return flash_maxsim_packed(Q, D, doc_lengths)
    return scoring.maxsim(Q, D, d_mask=prefix(doc_lengths, D.shape[1]))


def flash_maxsim_batched(
    Q: Tensor,
    D: Tensor,
    doc_lengths: Tensor | None = None,
    shared_docs: bool = True,
    query_lengths: Tensor | None = None,
    **tuning: Any,
) -> Tensor:
    return flash_maxsim_batched_train(Q, D, shared_docs, doc_lengths, query_lengths)


def flash_maxsim_batched_train(
    Q: Tensor,
    D: Tensor,
    shared_docs: bool = True,
    doc_lengths: Tensor | None = None,
    query_lengths: Tensor | None = None,
) -> Tensor:
    """Q [Nq, Lq, d] with documents [B, Ld, d], or its own [Nq, B, Ld, d]."""
    assert D.dim() == (3 if shared_docs else 4)
    mask = prefix(doc_lengths, D.shape[-2])
    return scoring.maxsim(Q, D, prefix(query_lengths, Q.shape[1]), None if mask is None else mask.reshape(D.shape[:-1]))


def flash_maxsim_train(Q: Tensor, D: Tensor) -> Tensor:
    return scoring.maxsim(Q, D)


def flash_maxsim_packed(Q: Tensor, D_packed: Tensor, cu_seqlens_d: Tensor, max_seqlen_d: int | None = None) -> Tensor:
    ends = torch.tensor([0, Q.shape[0]], dtype=torch.int32, device=Q.device)
    return scoring.maxsim_varlen(Q, D_packed, ends, cu_seqlens_d, Q.shape[0], max_seqlen_d).squeeze(0)


def flash_maxsim_varlen(Q: Tensor, D: Tensor, cu_q: Tensor, cu_d: Tensor, max_q: int, max_d: int) -> Tensor:
    """Pair i is query i and document i."""
    pairs = torch.arange(cu_q.numel() - 1, dtype=torch.int32, device=Q.device)
    return scoring.score_pairs_packed(Q, D, cu_q, cu_d, pairs, pairs, max_seqlen_q=max_q, max_seqlen_d=max_d)


def pack_docs(items: list[Tensor]) -> tuple[Tensor, Tensor, int]:
    lengths = torch.tensor([0, *(len(x) for x in items)], dtype=torch.int32, device=items[0].device)
    return torch.cat(items), lengths.cumsum(0, dtype=torch.int32), max(len(x) for x in items)


def pack_pairs(q_embs: list[Tensor], d_embs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    (q, q_ends, q_most), (d, d_ends, d_most) = pack_docs(q_embs), pack_docs(d_embs)
    return q, d, q_ends, d_ends, q_most, d_most


def flash_maxsim_pairs(q_embs: Any, d_embs: Any) -> Tensor:
    if isinstance(q_embs, torch.Tensor):
        return scoring.maxsim_pairs(q_embs, d_embs)
    return flash_maxsim_varlen(*pack_pairs(q_embs, d_embs))


def flash_maxsim_sparse(Q: Tensor, D: Tensor, indices: Tensor, doc_lengths: Tensor | None = None) -> Tensor:
    """Document i is scored with the tokens indices[i] of the query."""
    return scoring.maxsim_pairs(Q[indices.long()], D, d_mask=prefix(doc_lengths, D.shape[1]))


def maxsim_sparse_naive(Q: Tensor, D: Tensor, indices: Tensor) -> Tensor:
    return torch.stack([(Q[i.long()].float() @ d.float().T).amax(1).sum() for i, d in zip(indices, D)])


def flash_maxsim_int8_batched_train(*args: Any, **kwargs: Any) -> Tensor:
    """Theirs keeps documents as int8 for the gradients; plaid keeps nothing but what the caller has anyway."""
    return flash_maxsim_batched_train(*args, **kwargs)


def quantize_int8(D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Theirs has bytes, scales and minima; plaid's int8, scales and zero points."""
    return scoring.quantize_int8_affine(D)


def flash_maxsim_int8(Q: Tensor, D: Tensor, scales: Tensor, zeros: Tensor, doc_lengths: Tensor | None = None) -> Tensor:
    return scoring.maxsim_int8(Q, D, scale_D=scales, zero_D=zeros, d_mask=prefix(doc_lengths, D.shape[1]))


def flash_chamfer(P: Tensor, Q: Tensor, metric: str = "l2_sq") -> Tensor:
    return scoring.chamfer(P, Q, metric=metric, reduction="mean")


def flash_chamfer_train(P: Tensor, Q: Tensor) -> Tensor:
    return flash_chamfer(P, Q)


def warmup(shapes: Any = None, train_shapes: Any = None, device: Any = None, verbose: bool = False) -> dict[str, Any]:
    """plaid compiles nothing at the first call: each shape is scored once."""
    begin = time.perf_counter()
    for train, some in ((False, shapes or []), (True, train_shapes or [])):
        for docs, longest_q, longest_d, dim in some:
            Q = torch.ones(docs, longest_q, dim, device="cuda", requires_grad=train)
            scores = scoring.maxsim(Q, torch.ones(docs, longest_d, dim, device="cuda"))
            if train:
                scores.sum().backward()
    took = time.perf_counter() - begin
    return {"fwd_shapes": len(shapes or []), "bwd_shapes": len(train_shapes or []), "wall_seconds": took}


def build_sparse_dd_tables(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("a table of its kernels for gradients, which plaid does not have")


def install(naive: Any) -> None:
    """Answers `import flash_maxsim` with these functions and the naive ones of the package."""
    root = ModuleType("flash_maxsim")
    for source in (vars(naive), globals()):
        for name, value in source.items():
            if callable(value) and not name.startswith("_") and name != "install":
                setattr(root, name, value)
    root.__path__ = []
    parts = ("flash_chamfer", "flash_maxsim_varlen", "flash_maxsim_batched_train", "flash_maxsim_sparse_dd")
    sys.modules |= {"flash_maxsim": root} | {f"flash_maxsim.{part}": root for part in parts}
