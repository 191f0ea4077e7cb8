"""MaxSim of torch tensors, with gradients: late-interaction scores for training, reranking and exact search.

    from plaid_ir.torch import maxsim

    scores = maxsim(Q, D, q_mask, d_mask)      # [Nq, Lq, dim], [Nd, Ld, dim] -> [Nq, Nd]
    scores.sum().backward()

Tensors stay where they are: the processor's by its own loops, those of an NVIDIA GPU by its kernels, in torch's
current stream, without waiting. docs/torch.md of the repository says what masks mean, which types there are, and how
losses of PyLate, sentence-transformers and colpali-engine use this.
"""

from __future__ import annotations

from ._library import DeviceError, backend
from ._maxsim import maxsim, maxsim_candidates, maxsim_padded, maxsim_pairs, maxsim_varlen, score_pairs_packed

__all__ = [
    "DeviceError", "backend", "maxsim", "maxsim_candidates", "maxsim_padded", "maxsim_pairs", "maxsim_varlen",
    "score_pairs_packed",
]  # fmt: skip
