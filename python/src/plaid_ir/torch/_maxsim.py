"""The functions that score float vectors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from ._functions import score
from ._library import ALL, LISTED, OWN
from ._operands import (
    LENGTHS,
    MASK,
    OFFSETS,
    WHOLE,
    Terms,
    as_integers,
    check_offsets,
    check_range,
    describe,
    operand_error,
    to_tensor,
)

Integers: TypeAlias = Tensor | Sequence[int]

_is_compiling: Final = torch.compiler.is_compiling

_ALL: Final = tuple(Terms(q, d, ALL, n) for n in (False, True) for q in (WHOLE, MASK) for d in (WHOLE, MASK))
_OWN: Final = tuple(Terms(q, d, OWN, n) for n in (False, True) for q in (WHOLE, MASK) for d in (WHOLE, MASK))


def maxsim(
    Q: Tensor, D: Tensor, q_mask: Tensor | None = None, d_mask: Tensor | None = None, *, normalize: bool = False
) -> Tensor:
    """Scores of queries and documents, as float32.

    Q is [Nq, Lq, dim] and D [Nd, Ld, dim]: the result is [Nq, Nd], each query with each document. With D
    [Nq, K, Ld, dim] query i meets its own K documents: [Nq, K]. Without its first axis, a side is one query or one
    document, and the result lacks that axis, too.

    Masks are [Nq, Lq] and [Nd, Ld] or [Nq, K, Ld]; tokens whose value is 0 or False do not count: those of D never
    win, those of Q add nothing. A document without tokens scores 0. normalize divides each vector by its length.

    Vectors are float32, float16 or bfloat16, on each side its own; float64 is computed by torch. Gradients go to both
    sides. TypeError and ValueError name the argument that does not fit, with its shape, type and device.
    """
    try:
        own = D.dim() == 4
    except AttributeError:
        raise operand_error("D", D) from None
    terms = (_OWN if own else _ALL)[4 * bool(normalize) + 2 * (q_mask is not None) + (d_mask is not None)]
    return score(Q, D, q_mask, d_mask, None, None, terms)


def maxsim_pairs(
    Q: Tensor, D: Tensor, q_mask: Tensor | None = None, d_mask: Tensor | None = None, *, normalize: bool = False
) -> Tensor:
    """Scores [B] of query i with document i: Q is [B, Lq, dim] and D [B, Ld, dim], masks are [B, Lq] and [B, Ld].

    Types, masks, gradients, normalize and errors are those of maxsim.
    """
    if not isinstance(Q, Tensor) or not isinstance(D, Tensor):
        raise operand_error("D", D) if isinstance(Q, Tensor) else operand_error("Q", Q)
    if D.dim() != 3 or Q.dim() != 3 or Q.shape[0] != D.shape[0]:
        raise ValueError(f"Q and D have to be [B, tokens, dim] of the same B; got Q {describe(Q)}, D {describe(D)}")
    terms = _OWN[4 * bool(normalize) + 2 * (q_mask is not None) + (d_mask is not None)]
    return score(Q, D, q_mask, d_mask, None, None, terms)


def maxsim_varlen(
    Q_packed: Tensor, D_packed: Tensor, cu_seqlens_q: Integers, cu_seqlens_d: Integers,
    max_seqlen_q: int | None = None, max_seqlen_d: int | None = None, *,
    normalize: bool = False, validate: bool = False,
) -> Tensor:  # fmt: skip
    """Scores [Nq, Nd] of packed sides: item i has the rows cu_seqlens[i] to cu_seqlens[i+1] of a side [rows, dim].

    cu_seqlens_q is [Nq + 1] and cu_seqlens_d [Nd + 1], tensors of integers or lists, which begin with 0. Without
    max_seqlen_q and max_seqlen_d, the tokens of the longest items, they are computed, for which a GPU waits. validate
    checks the offsets, for which it waits, too; the processor always checks them. Offsets that fall, or go beyond the
    rows, are a ValueError. Types, gradients, normalize and other errors are those of maxsim.
    """
    q_cut, d_cut, longest_q, longest_d = _prepare_packed(
        Q_packed, D_packed, cu_seqlens_q, cu_seqlens_d, max_seqlen_q, max_seqlen_d, validate
    )
    terms = Terms(OFFSETS, OFFSETS, ALL, bool(normalize), longest_q, longest_d, names=_PACKED)
    return score(Q_packed, D_packed, q_cut, d_cut, None, None, terms)


_PACKED: Final = ("Q_packed", "D_packed", "cu_seqlens_q", "cu_seqlens_d")


def score_pairs_packed(
    Q_packed: Tensor, D_packed: Tensor, cu_seqlens_q: Integers, cu_seqlens_d: Integers, pair_q_idx: Integers,
    pair_d_idx: Integers, *, max_seqlen_q: int | None = None, max_seqlen_d: int | None = None,
    normalize: bool = False, validate: bool = False,
) -> Tensor:  # fmt: skip
    """Scores [pairs] of query pair_q_idx[i] with document pair_d_idx[i] of packed sides, as those of maxsim_varlen.

    pair_q_idx and pair_d_idx are [pairs], tensors of integers or lists; a number of no item is a ValueError, on a GPU
    with validate alone. A pair may be there more than once.
    """
    q_cut, d_cut, longest_q, longest_d = _prepare_packed(
        Q_packed, D_packed, cu_seqlens_q, cu_seqlens_d, max_seqlen_q, max_seqlen_d, validate
    )
    q_index = as_integers("pair_q_idx", pair_q_idx, Q_packed)
    d_index = as_integers("pair_d_idx", pair_d_idx, Q_packed)
    if q_index.dim() != 1 or q_index.shape != d_index.shape:
        raise ValueError(
            "pair_q_idx and pair_d_idx have to be vectors as long as each other; got "
            f"{list(q_index.shape)} and {list(d_index.shape)}"
        )
    if validate:
        check_range("pair_q_idx", q_index, q_cut.shape[0] - 1)
        check_range("pair_d_idx", d_index, d_cut.shape[0] - 1)
    terms = Terms(
        OFFSETS, OFFSETS, LISTED, bool(normalize), longest_q, longest_d, names=_PACKED,
        pairs=("pair_q_idx", "pair_d_idx"),
    )  # fmt: skip
    return score(Q_packed, D_packed, q_cut, d_cut, q_index, d_index, terms)


def maxsim_padded(
    queries: Tensor, documents: Tensor, query_lengths: Integers, doc_lengths: Integers, *, validate: bool = False,
    normalize: bool = False,
) -> Tensor:  # fmt: skip
    """Scores of padded sides: item i of queries [Nq, Lq, dim] has its first query_lengths[i] tokens, and so have those
    of documents. With documents [Nq, K, Ld, dim] and doc_lengths [Nq, K] query i meets its own: [Nq, K]; with documents
    [Nd, Ld, dim] and doc_lengths [Nd] the result is [Nq, Nd].

    Lengths are tensors of integers or lists, from 0 to Lq or Ld. validate checks them, for which a GPU waits; the
    processor always does, and others are a ValueError. Types, gradients, normalize and other errors are those of
    maxsim.
    """
    if not isinstance(queries, Tensor) or not isinstance(documents, Tensor):
        raise (
            operand_error("documents", documents) if isinstance(queries, Tensor) else operand_error("queries", queries)
        )
    axes = documents.dim()
    if queries.dim() != 3 or axes != 3 and axes != 4:
        raise ValueError(
            f"queries {describe(queries)} has to be [items, tokens, dim], "
            f"and documents {describe(documents)} that or [Nq, K, Ld, dim]"
        )
    q_cut = as_integers("query_lengths", query_lengths, queries, queries.shape[:1])
    d_cut = as_integers("doc_lengths", doc_lengths, documents, documents.shape[:-2])
    if axes == 4:
        d_cut = d_cut.reshape(-1)
    if validate:
        check_range("query_lengths", q_cut, queries.shape[-2] + 1)
        check_range("doc_lengths", d_cut, documents.shape[-2] + 1)
    return score(queries, documents, q_cut, d_cut, None, None, _LENGTHS[2 * bool(normalize) + axes - 3])


_LENGTHS: Final = tuple(
    Terms(LENGTHS, LENGTHS, kind, n, names=("queries", "documents", "query_lengths", "doc_lengths"))
    for n in (False, True)
    for kind in (ALL, OWN)
)


def maxsim_candidates(
    Q: Tensor, D: Tensor, candidates: Integers, q_mask: Tensor | None = None, d_mask: Tensor | None = None, *,
    normalize: bool = False, validate: bool = False,
) -> Tensor:  # fmt: skip
    """Scores [Nq, K] of each query with K documents: candidates [Nq, K] are numbers of documents of D [Nd, Ld, dim],
    which are read where they are. With Q [Lq, dim] candidates and result are [K].

    Candidates are a tensor of integers or a list. validate checks them, for which a GPU waits; the processor always
    does, and a number of no document is a ValueError. Masks are [Nq, Lq] and [Nd, Ld]. Types, gradients, normalize and
    other errors are those of maxsim.
    """
    if not isinstance(Q, Tensor):
        raise operand_error("Q", Q)
    index = as_integers("candidates", candidates, Q)
    if isinstance(D, Tensor) and D.dim() != 3:
        raise ValueError(f"D {describe(D)} has to be [items, tokens, dim]")
    if index.dim() != Q.dim() - 1 or Q.dim() == 3 and index.shape[0] != Q.shape[0]:
        raise ValueError(f"candidates {describe(index)} have to be [Nq, K], or [K] of one query; Q is {list(Q.shape)}")
    if validate:
        check_range("candidates", index, D.shape[0])
    if Q.dim() == 2:
        queries = torch.zeros_like(index)
    else:
        queries = torch.arange(index.shape[0], dtype=torch.int32, device=index.device)
        queries = queries.unsqueeze(1).expand(index.shape).contiguous()
    terms = Terms(MASK if q_mask is not None else WHOLE, MASK if d_mask is not None else WHOLE, LISTED, bool(normalize))
    return score(Q, D, q_mask, d_mask, queries, index, terms)


def _prepare_packed(
    q: Tensor, d: Tensor, q_offsets: Integers, d_offsets: Integers, longest_q: int | None, longest_d: int | None,
    validate: bool,
) -> tuple[Tensor, Tensor, int, int]:  # fmt: skip
    if not isinstance(q, Tensor) or not isinstance(d, Tensor):
        raise operand_error("D", d) if isinstance(q, Tensor) else operand_error("Q", q)
    q_cut, longest_q = _prepare_offsets("cu_seqlens_q", q_offsets, q, longest_q, validate)
    d_cut, longest_d = _prepare_offsets("cu_seqlens_d", d_offsets, d, longest_d, validate)
    return q_cut, d_cut, longest_q, longest_d


def _prepare_offsets(
    name: str, offsets: Integers, x: Tensor, longest: int | None, validate: bool
) -> tuple[Tensor, int]:
    if longest is not None and not _is_compiling() and type(longest) is not int:
        try:
            longest = operator.index(longest)
        except TypeError:
            found = type(longest).__qualname__
            raise TypeError(f"max_seqlen of {name} is a {found}; it has to be an integer") from None
    if longest is not None and not validate and type(offsets) is Tensor:
        return as_integers(name, offsets, x), longest
    if isinstance(offsets, (list, tuple)):
        offsets = to_tensor(name, offsets)
    if isinstance(offsets, Tensor) and (offsets.dim() != 1 or not offsets.shape[0]):
        raise ValueError(f"{name} {describe(offsets)} has to be a vector of the items' number and 1")
    cut = as_integers(name, offsets, x)
    if longest is None or validate:
        where = offsets if isinstance(offsets, Tensor) and offsets.device.type == "cpu" else cut
        if longest is None:
            rows = where.diff()
            # A difference that is no length of an item is refused with the offsets that it is of.
            longest = min(max(int(rows.max()), 0), x.shape[0]) if rows.numel() else 0
        if validate:
            check_offsets(name, where, x.shape[0], longest)
    return cut, longest
