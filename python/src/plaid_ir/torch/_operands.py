"""Checks types, devices, shapes and masks of operands, and builds the plan of a call from them."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from . import _library
from ._library import ALL, CHAMFER, CHAMFER_GRADIENTS, GRADIENTS, LISTED, OWN, SCORE, Call

# How the rows of a side are split into items.
WHOLE: Final = 0  # [..., longest, dim], all rows
MASK: Final = 1  # [..., longest, dim], with a mask [..., longest]
LENGTHS: Final = 2  # [..., longest, dim], with lengths [items]
OFFSETS: Final = 3  # [rows, dim], with offsets [items+1]

MAX_DIM: Final = 4096
FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


class Terms(NamedTuple):
    """The arguments of a call that are not tensors."""

    how_q: int
    how_d: int
    kind: int
    normalize: bool
    longest_q: int = 0  # of packed sides
    longest_d: int = 0
    metric: int = -1  # of distances; -1 is MaxSim
    mean: bool = False  # the mean of distances instead of their sum
    names: tuple[str, str, str, str] = ("Q", "D", "q_mask", "d_mask")
    types: str = "floats"  # allowed types: floats, quantised, or head, whose dimensions may differ
    pairs: tuple[str, str] = ("candidates", "candidates")

    def numbers(self) -> tuple[int, ...]:
        """Returns all fields except names and types: the arguments of an operator, which builds Terms from them."""
        return self[:8]


class Plan:
    """The part of a call that depends only on shapes, types and devices, and is computed once for each of them."""

    __slots__ = (
        "call", "d", "d_copy", "d_fix", "d_type", "device", "gradients", "how_d", "how_q", "index", "no_winners",
        "pairs", "plain", "q", "q_copy", "q_fix", "q_type", "rule", "scratch", "shape", "trivial", "winners", "words",
    )  # fmt: skip

    plain: bool  # computed by torch's own operations
    trivial: bool  # nothing to score: all results are 0
    device: torch.device
    index: int
    q: bytes
    d: bytes
    pairs: bytes
    q_copy: bool  # the vectors must be copied, since their rows are not contiguous
    d_copy: bool
    q_fix: bool  # the mask, lengths or offsets must be made contiguous, or the mask converted to bytes
    d_fix: bool
    q_type: int
    d_type: int
    how_q: int
    how_d: int
    call: Call
    gradients: Call
    rule: bytes
    shape: tuple[int, ...]
    winners: tuple[tuple[int, ...], ...]  # their shapes
    no_winners: tuple[int, ...]  # null pointers, for a call without winners
    scratch: dict[object, int]  # bytes of workspace, by the kind of call
    words: tuple[tuple[str, str], ...]  # names in the library's errors, and the caller's names for them


def operand_error(name: str, x: Any) -> TypeError:
    """Returns an error that says why x cannot be an operand."""
    if not isinstance(x, Tensor):
        hint = ": convert it with torch.from_numpy" if type(x).__module__ == "numpy" else ""
        if isinstance(x, (list, tuple)):
            hint = ": convert it with torch.stack, or with torch.nn.utils.rnn.pad_sequence and a mask"
        return TypeError(f"{name} is a {type(x).__module__}.{type(x).__qualname__}; it has to be a tensor{hint}")
    if x.is_nested:
        return TypeError(f"{name} is a nested tensor; pass values() and offsets() to maxsim_varlen")
    if x.layout != torch.strided:
        return TypeError(f"{name} has the layout {x.layout}; call to_dense() first")
    return TypeError(f"{name} {describe(x)} cannot be read as vectors")


def describe(x: Tensor) -> str:
    return f"of shape {list(x.shape)}, {str(x.dtype).removeprefix('torch.')} on {x.device}"


def check_tensor(name: str, x: Any, types: tuple[torch.dtype, ...]) -> None:
    if not isinstance(x, Tensor) or x.is_nested or x.layout != torch.strided:
        raise operand_error(name, x)
    named: Any = getattr(x, "has_names", None)  # newer versions of torch have no named tensors
    if named is not None and not torch.compiler.is_compiling() and named():
        raise TypeError(f"{name} has named dimensions; call rename(None) first")
    if x.dtype not in types:
        hint = ""
        if x.dtype in (torch.int8, torch.uint8):
            hint = ": use maxsim_int8 for quantised vectors"
        elif "float8" in str(x.dtype):
            hint = ": use maxsim_fp8 for quantised vectors"
        elif x.is_quantized:
            hint = ": call dequantize() first"
        elif not x.is_complex():
            hint = f": call {name}.float() first"
        raise TypeError(f"{name} {describe(x)} does not have a type of vectors{hint}")


def check_devices(first: str, a: Tensor, second: str, b: Tensor) -> None:
    if a.device != b.device:
        raise ValueError(
            f"{first} and {second} have to be on the same device; got {a.device} and {b.device}: "
            f"move one, for example by {second}.to({first}.device)"
        )


def _check_extent(name: str, owner: str, x: Tensor, cut: Tensor | None, how: int) -> None:
    if how == WHOLE:
        return
    if not isinstance(cut, Tensor):
        raise operand_error(name, cut)
    if cut.layout != torch.strided:
        raise operand_error(name, cut)
    check_devices(owner, x, name, cut)
    if how == MASK:
        same = cut.shape == x.shape[:-1]
        if not same and (cut.shape[-1:] != x.shape[-2:-1] or cut.numel() * x.shape[-1] != x.numel()):
            raise ValueError(
                f"{name} has the shape {list(cut.shape)}; it has to be {list(x.shape[:-1])}, for the shape of {owner}: "
                "one value for each token, 0 for padding"
            )
        if cut.dtype.is_complex:
            raise TypeError(f"{name} {describe(cut)} is not a mask: it has to be of bool, integers or floats")
    elif cut.dtype != torch.int32 or cut.dim() != 1 or how == OFFSETS and not cut.shape[0]:
        raise TypeError(f"{name} {describe(cut)} has to be a vector of int32")


def _layout(x: Tensor, packed: bool) -> tuple[bool, int, int, int]:
    """Returns whether x must be copied, the numbers of items and of rows of an item, and the rows between items."""
    shape, strides = x.shape, x.stride()
    dim = shape[-1]
    longest = shape[-2]
    items = 1 if packed else math.prod(shape[:-2])
    if dim and longest and items:
        rows_ok = (strides[-1] == 1 or dim == 1) and (strides[-2] == dim or longest == 1)
        step, expected = 0, -1
        for size, stride in zip(reversed(shape[:-2]), reversed(strides[:-2])):
            if size == 1:
                continue
            if expected < 0:
                step = stride
            elif stride != expected:
                rows_ok = False
            expected = stride * size
        if items == 1:
            step = longest * dim
        if rows_ok and step >= longest * dim and step % dim == 0:
            return False, items, longest, step // dim
        return True, items, longest, longest
    return False, items, longest, longest


def _describe_side(
    name: str, x: Tensor, cut: Tensor | None, how: int, longest: int
) -> tuple[bool, bytes, bool, int, int]:
    """Returns whether a side must be copied, its record, whether its mask must be converted, its items, their rows."""
    copied, items, rows, stride = _layout(x, how == OFFSETS)
    fix, mask_stride = cut is not None and not cut.is_contiguous(), 0
    if how == OFFSETS:
        assert cut is not None
        items = max(cut.shape[0] - 1, 0)
        total, stride = x.shape[0], 0
        if not 0 <= longest < 1 << 31:
            raise ValueError(f"the longest item of {name} cannot have {longest} rows")
    else:
        longest = rows
        total = (items - 1) * stride + rows if items else 0
    if how == MASK:
        assert cut is not None
        mask_stride = rows
        fix = cut.dtype not in (torch.bool, torch.uint8, torch.int8) or not cut.is_contiguous()
        if fix and cut.dim() == 2 and cut.dtype in (torch.bool, torch.uint8, torch.int8) and cut.stride(1) == 1:
            if cut.stride(0) >= rows:
                fix, mask_stride = False, cut.stride(0)
    kind = _library.TYPES.get(x.dtype, 0)
    record = _library.pack_batch(mask_stride, kind, x.shape[-1], items, total, stride, longest)
    return copied, record, fix, items, longest


def _check_axes(name: str, x: Tensor, axes: tuple[int, ...]) -> None:
    if x.dim() not in axes:
        allowed = {2: "[tokens, dim]", 3: "[items, tokens, dim]", 4: "[queries, documents, tokens, dim]"}
        raise ValueError(f"{name} {describe(x)} has to be {' or '.join(allowed[i] for i in axes)}")


def build_plan(
    q: Tensor, d: Tensor, q_cut: Tensor | None, d_cut: Tensor | None, pair_q: Tensor | None, pair_d: Tensor | None,
    terms: Terms,
) -> Plan:  # fmt: skip
    """Checks the operands, and returns the plan of the call."""
    # 1. Check types, axes, devices and masks.
    q_name, d_name, q_cut_name, d_cut_name = terms.names
    types = (*FLOATS, torch.int8, torch.float8_e4m3fn) if terms.types == "quantised" else (*FLOATS, torch.float64)
    check_tensor(q_name, q, types)
    check_tensor(d_name, d, types)
    is_own = terms.kind == OWN
    _check_axes(q_name, q, (2,) if terms.how_q == OFFSETS else (3,) if is_own else (2, 3))
    _check_axes(d_name, d, (2,) if terms.how_d == OFFSETS else (3, 4) if is_own else (2, 3))
    if terms.types != "head" and q.shape[-1] != d.shape[-1]:
        raise ValueError(
            f"{q_name} and {d_name} must share the embedding dim; got {q.shape[-1]} and {d.shape[-1]} "
            f"({q_name} {describe(q)}, {d_name} {describe(d)})"
        )
    check_devices(q_name, q, d_name, d)
    _check_extent(q_cut_name, q_name, q, q_cut, terms.how_q)
    _check_extent(d_cut_name, d_name, d, d_cut, terms.how_d)
    if terms.kind == OWN and q.shape[0] != d.shape[0]:
        raise ValueError(
            f"{d_name} has documents for {d.shape[0]} queries, and {q_name} has {q.shape[0]}: "
            f"{q_name} {describe(q)}, {d_name} {describe(d)}"
        )
    # 2. Describe both sides.
    p = Plan()
    p.device = q.device
    p.how_q, p.how_d = terms.how_q, terms.how_d
    p.q_copy, p.q, p.q_fix, q_items, longest_q = _describe_side(q_name, q, q_cut, terms.how_q, terms.longest_q)
    p.d_copy, p.d, p.d_fix, d_items, longest_d = _describe_side(d_name, d, d_cut, terms.how_d, terms.longest_d)
    p.q_type, p.d_type = _library.TYPES.get(q.dtype, 0), _library.TYPES.get(d.dtype, 0)
    q_shape = (q_items,) if terms.how_q == OFFSETS else tuple(q.shape[:-2])
    d_shape = (d_items,) if terms.how_d == OFFSETS else tuple(d.shape[:-2])
    # 3. Compute the shapes of the results.
    count = 0
    if terms.kind == ALL:
        p.shape = q_shape + d_shape
    elif terms.kind == OWN:
        p.shape = d_shape
        count = d_items // q_items if q_items else 0
    else:
        assert pair_q is not None and pair_d is not None
        p.shape = tuple(pair_q.shape)
        count = pair_q.numel()
    p.pairs = _library.pack_pairs(terms.kind, count)
    p.call, p.gradients, p.rule = SCORE, GRADIENTS, _library.pack_rule(0, terms.normalize)
    p.winners = ((*p.shape, longest_q),)
    if terms.metric >= 0:
        p.call, p.gradients, p.rule = CHAMFER, CHAMFER_GRADIENTS, _library.pack_rule(terms.metric, terms.mean)
        p.winners = (*p.winners, (*p.shape, longest_d))
    p.no_winners = (0,) * len(p.winners)
    # 4. Choose who computes them.
    dim = q.shape[-1]
    p.trivial = not (math.prod(p.shape) and longest_q and longest_d and dim and d.shape[-1])
    kind = q.device.type
    is_supported = kind == "cpu" or kind == "cuda" and torch.version.hip is None
    p.plain = q.dtype == torch.float64 or d.dtype == torch.float64 or not is_supported
    p.plain = p.plain or dim > MAX_DIM or d.shape[-1] > MAX_DIM
    p.index = -1
    if kind == "cuda":
        p.index = q.device.index if q.device.index is not None else torch.cuda.current_device()
    p.scratch = {}
    p.words = _error_words(terms)
    return p


def _error_words(terms: Terms) -> tuple[tuple[str, str], ...]:
    words = [("kernels: shapes do not match: ", "")]
    if terms.kind == LISTED:
        words += [("query ", f"{terms.pairs[0]}: query "), ("document ", f"{terms.pairs[1]}: document ")]
    for side, name, cut, how in (
        ("q", terms.names[0], terms.names[2], terms.how_q),
        ("d", terms.names[1], terms.names[3], terms.how_d),
    ):
        words += [
            (f"{side}.lengths", cut),
            (f"{side}.offsets", cut),
            (f"{side}.longest", f"max_seqlen_{side}" if how == OFFSETS else f"the rows of an item of {name}"),
            (f"{side}.rows", f"the rows of {name}"),
            (f"{side}.data", name),
        ]
    return tuple(words)


def to_contiguous(cut: Tensor, how: int) -> Tensor:
    """Returns lengths, offsets or a mask as a contiguous tensor. A mask becomes bytes."""
    if how == MASK and cut.dtype not in (torch.bool, torch.uint8, torch.int8):
        cut = cut != 0
    return cut.contiguous()


def to_tensor(name: str, x: Any) -> Tensor:
    """Converts a list of integers to a tensor."""
    try:
        return torch.tensor(x, device="cpu") if len(x) else torch.zeros(0, dtype=torch.int32, device="cpu")
    except (RuntimeError, ValueError, TypeError, OverflowError) as e:
        raise TypeError(f"{name} has to be a list of integers, or a tensor of them: {e}") from e


def check_range(name: str, x: Tensor, end: int) -> None:
    """Raises ValueError unless all values are in 0..end-1. Synchronizes a GPU."""
    if x.numel() and (int(x.min()) < 0 or int(x.max()) >= end):
        raise ValueError(f"{name} has values from {int(x.min())} to {int(x.max())}; they have to be in 0..{end - 1}")


def check_offsets(name: str, x: Tensor, rows: int, longest: int) -> None:
    """Raises ValueError for invalid offsets. Synchronizes a GPU."""
    lengths = x.diff()
    if int(x[0]) < 0 or int(x[-1]) > rows or bool((lengths < 0).any()):
        raise ValueError(f"{name} has to increase from 0 to at most {rows}, the number of rows")
    found = int(lengths.max()) if lengths.numel() else 0
    if longest < found:
        raise ValueError(f"max_seqlen of {name} is {longest}, but the longest item has {found} rows")


def as_integers(name: str, x: Any, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Converts lengths, offsets or numbers of items to int32, on the device of ``like``."""
    if type(x) is Tensor and x.dtype == torch.int32 and x.device == like.device and x.is_contiguous():
        if shape is None or x.shape == shape:
            return x
    if isinstance(x, (list, tuple)):
        x = to_tensor(name, x)
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        raise operand_error(name, x)
    if x.dtype not in (torch.int32, torch.int64, torch.int16, torch.uint8, torch.int8):
        raise TypeError(f"{name} {describe(x)} has to be of integers: call {name}.int() first")
    if shape is not None and tuple(x.shape) != shape:
        raise ValueError(f"{name} has the shape {list(x.shape)}; the operands need {list(shape)}")
    if x.device != like.device and x.device.type != "cpu":
        raise ValueError(f"{name} is on {x.device}, but the vectors are on {like.device}: move it there")
    if x.dtype == torch.int64:  # clamp: a number beyond int32 must stay invalid
        x = x.clamp(-(1 << 31), (1 << 31) - 1)
    if x.dtype != torch.int32 or x.device != like.device:
        x = x.to(device=like.device, dtype=torch.int32)
    return x if x.is_contiguous() else x.contiguous()
