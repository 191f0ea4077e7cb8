"""Scores vectors of floats."""

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
    """Computes scores of queries and documents, as float32.

    With Q [Nq, Lq, dim] and D [Nd, Ld, dim], each query is scored with each document: [Nq, Nd]. With D
    [Nq, K, Ld, dim], query i is scored with its own K documents: [Nq, K]. A side without its first axis is one query or
    one document, and the result lacks that axis, too.

    Masks are [Nq, Lq] and [Nd, Ld] or [Nq, K, Ld]. Tokens with the value 0 or False are ignored: they are never the
    best match, and add nothing to a score. A document without tokens scores 0. normalize scales vectors to length 1.

    Vectors are float32, float16 or bfloat16; the sides may differ in type (torch itself computes float64). Both sides
    get gradients. TypeError and ValueError name an invalid argument, with its shape, type and device.
    """
    try:
        has_own_documents = D.dim() == 4
    except AttributeError:
        raise operand_error("D", D) from None
    terms = (_OWN if has_own_documents else _ALL)[4 * bool(normalize) + 2 * (q_mask is not None) + (d_mask is not None)]
    return score(Q, D, q_mask, d_mask, None, None, terms)


def maxsim_pairs(
    Q: Tensor, D: Tensor, q_mask: Tensor | None = None, d_mask: Tensor | None = None, *, normalize: bool = False
) -> Tensor:
    """Computes scores [B] of query i with document i.

    Q is [B, Lq, dim], and D is [B, Ld, dim]. Masks are [B, Lq] and [B, Ld]. Types, masks, gradients, normalize and
    errors are as for maxsim.
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
    """Computes scores [Nq, Nd] of packed queries and documents.

    A packed side is [rows, dim]; item i has the rows cu_seqlens[i] to cu_seqlens[i+1]. cu_seqlens_q is [Nq + 1], and
    cu_seqlens_d is [Nd + 1]: tensors of integers, or lists, that begin with 0. max_seqlen_q and max_seqlen_d are the
    numbers of tokens of the longest items. Without them they are computed, which synchronizes a GPU. validate checks
    the offsets, which also synchronizes a GPU; on the processor they are always checked. ValueError: offsets decrease
    or exceed the rows. Types, gradients, normalize and other errors are as for maxsim.
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
    """Computes scores [pairs] of query pair_q_idx[i] with document pair_d_idx[i].

    Both sides are packed as for maxsim_varlen. pair_q_idx and pair_d_idx are [pairs]: tensors of integers, or lists. A
    pair may occur several times. ValueError: an index is out of range; on a GPU this is checked only with validate.
    """
    q_cut, d_cut, longest_q, longest_d = _prepare_packed(
        Q_packed, D_packed, cu_seqlens_q, cu_seqlens_d, max_seqlen_q, max_seqlen_d, validate
    )
    q_index = as_integers("pair_q_idx", pair_q_idx, Q_packed)
    d_index = as_integers("pair_d_idx", pair_d_idx, Q_packed)
    if q_index.dim() != 1 or q_index.shape != d_index.shape:
        raise ValueError(
            "pair_q_idx and pair_d_idx have to be vectors of the same length; got "
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
    """Computes scores of padded queries and documents whose lengths are known.

    Query i of queries [Nq, Lq, dim] has query_lengths[i] tokens; the rest is padding. With documents [Nd, Ld, dim] and
    doc_lengths [Nd], the result is [Nq, Nd]. With documents [Nq, K, Ld, dim] and doc_lengths [Nq, K], query i is scored
    with its own documents: [Nq, K].

    Lengths are tensors of integers, or lists, from 0 to Lq or Ld. ValueError: a length is out of range; on a GPU this
    is checked only with validate, which synchronizes it. Types, gradients, normalize and other errors are as for
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
    """Computes scores [Nq, K] of each query with K candidates.

    candidates [Nq, K] are numbers of documents of D [Nd, Ld, dim], which are not copied. With Q [Lq, dim], candidates
    and result are [K]. Masks are [Nq, Lq] and [Nd, Ld].

    Candidates are a tensor of integers, or a list. ValueError: a number is out of range; on a GPU this is checked only
    with validate, which synchronizes it. Types, gradients, normalize and other errors are as for maxsim.
    """
    if not isinstance(Q, Tensor):
        raise operand_error("Q", Q)
    index = as_integers("candidates", candidates, Q)
    if isinstance(D, Tensor) and D.dim() != 3:
        raise ValueError(f"D {describe(D)} has to be [items, tokens, dim]")
    if index.dim() != Q.dim() - 1 or Q.dim() == 3 and index.shape[0] != Q.shape[0]:
        raise ValueError(f"candidates {describe(index)} have to be [Nq, K], or [K] for one query; Q is {list(Q.shape)}")
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
        raise ValueError(f"{name} {describe(offsets)} has to be a vector with an offset for each item and one more")
    cut = as_integers(name, offsets, x)
    if longest is None or validate:
        values = offsets if isinstance(offsets, Tensor) and offsets.device.type == "cpu" else cut
        if longest is None:
            rows = values.diff()
            # Invalid offsets, which have other differences than lengths, are refused later.
            longest = min(max(int(rows.max()), 0), x.shape[0]) if rows.numel() else 0
        if validate:
            check_offsets(name, values, x.shape[0], longest)
    return cut, longest
