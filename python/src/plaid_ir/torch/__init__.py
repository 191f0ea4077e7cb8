"""MaxSim of torch tensors, with gradients: late-interaction scores for training, reranking and exact search.

    from plaid_ir.torch import maxsim

    scores = maxsim(Q, D, q_mask, d_mask)      # [Nq, Lq, dim], [Nd, Ld, dim] -> [Nq, Nd]
    scores.sum().backward()

Tensors are not moved. Tensors on the processor are scored by plaid's loops; tensors on an NVIDIA GPU, by its kernels,
in torch's current stream, without waiting. docs/torch.md of the repository describes masks and types, and how to use
this with the losses of PyLate, sentence-transformers and colpali-engine.

Vectors are float32, float16 or bfloat16 (torch itself computes float64). Queries and documents are on the same device.
Masks are of bool, integers or floats, with 0 for padding. Offsets, lengths and document numbers are lists, or tensors
of integers on the device of the vectors or on the processor. Scores are float32, and have gradients unless the function
says otherwise.

TypeError and ValueError name an invalid argument, with its shape, type and device. NotImplementedError means that the
device does not support something; DeviceError, that it failed; MemoryError, that its memory is full.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    hint = 'pip install torch, or "./python[torch]" in a clone'
    raise ImportError(f"plaid_ir.torch needs PyTorch, 2.5 or newer: {hint}") from e

from ._chamfer import chamfer
from ._head import maxsim_from_hidden
from ._library import DeviceError, backend
from ._maxsim import maxsim, maxsim_candidates, maxsim_padded, maxsim_pairs, maxsim_varlen, score_pairs_packed
from ._module import MaxSim, maxsim_inbatch, maxsim_kd
from ._quantised import (
    dequantize_fp8_per_tensor,
    dequantize_fp8_per_token,
    dequantize_int8,
    maxsim_fp8,
    maxsim_int8,
    quantize_fp8_per_tensor,
    quantize_fp8_per_token,
    quantize_int8,
    quantize_int8_affine,
)
from ._ranking import rank, top_k

__all__ = [
    "DeviceError", "MaxSim", "backend", "chamfer", "dequantize_fp8_per_tensor", "dequantize_fp8_per_token",
    "dequantize_int8", "maxsim", "maxsim_candidates", "maxsim_fp8", "maxsim_from_hidden", "maxsim_inbatch",
    "maxsim_int8", "maxsim_kd", "maxsim_padded", "maxsim_pairs", "maxsim_varlen", "quantize_fp8_per_tensor",
    "quantize_fp8_per_token", "quantize_int8", "quantize_int8_affine", "rank", "score_pairs_packed", "top_k",
]  # fmt: skip
