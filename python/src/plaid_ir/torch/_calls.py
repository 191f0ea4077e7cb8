"""Calls the library for scores, distances and their gradients."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from ._library import MEMORY, Call, error, raise_error
from ._operands import LENGTHS, MASK, Plan, Terms, operand_error, to_contiguous, build_plan

Cut: TypeAlias = Tensor | None  # mask, lengths or offsets
Pair: TypeAlias = Tensor | None

_PLANS: Final = 4096
_plans: dict[Any, Plan] = {}

_C: Any = torch._C
_raw_stream: Any = getattr(_C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(_C, "_cuda_getDevice", None)
_threads: Any = _C.get_num_threads if hasattr(_C, "get_num_threads") else torch.get_num_threads
_empty: Final = torch.empty
_empty_like: Final = torch.empty_like
_int32: Final = torch.int32
_float32: Final = torch.float32


def find_plan(q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms) -> Plan:
    """Returns the plan for operands of these shapes, strides, types and devices. The first call checks them."""
    try:
        key = (
            terms, q.shape, q.stride(), q.dtype, q.device, d.shape, d.stride(), d.dtype, d.device,
            None if q_cut is None else (q_cut.shape, q_cut.stride(), q_cut.dtype, q_cut.device),
            None if d_cut is None else (d_cut.shape, d_cut.stride(), d_cut.dtype, d_cut.device),
            None if pair_q is None else pair_q.shape,
        )  # fmt: skip
        found = _plans.get(key)
    except (AttributeError, TypeError, RuntimeError) as e:
        for name, x in zip(terms.names, (q, d, q_cut, d_cut)):
            if x is not None and (not isinstance(x, Tensor) or x.is_nested or x.layout != torch.strided):
                raise operand_error(name, x) from e
        raise
    if found is None:
        found = build_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        remember(_plans, key, found)
    return found


def remember(found: dict[Any, Any], key: Any, value: Any) -> None:
    """Caches a value, and evicts the oldest if the cache is full."""
    while len(found) >= _PLANS:
        try:
            del found[next(iter(found))]
        except (KeyError, StopIteration, RuntimeError):  # another thread has evicted it
            break
    found[key] = value


def launch(
    call: Call, p: Plan, work: object, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair,
    tail: tuple[Any, ...], scales: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> None:  # fmt: skip
    """Calls a function of the library on the plan's device.

    work distinguishes the calls of a plan that need different workspaces. tail has the additional fields of the
    function. The workspace also depends on the alignment of data, which a plan does not know: if it is too small, the
    call is repeated with more.
    """
    # 1. Switch to the device, and make the operands contiguous if necessary.
    index = p.index
    if index >= 0 and _current_device() != index:
        with torch.cuda.device(index):
            return launch(call, p, work, q, d, q_cut, d_cut, pair_q, pair_d, tail, scales)
    if p.q_copy:
        q = q.contiguous()
    if p.d_copy:
        d = d.contiguous()
    # 2. Get the pointers to offsets, lengths or mask of both sides.
    qo = ql = qm = do = dl = dm = 0
    if q_cut is not None:
        q_cut = to_contiguous(q_cut, p.how_q) if p.q_fix else q_cut
        if p.how_q == MASK:
            qm = q_cut.data_ptr()
        elif p.how_q == LENGTHS:
            ql = q_cut.data_ptr()
        else:
            qo = q_cut.data_ptr()
    if d_cut is not None:
        d_cut = to_contiguous(d_cut, p.how_d) if p.d_fix else d_cut
        if p.how_d == MASK:
            dm = d_cut.data_ptr()
        elif p.how_d == LENGTHS:
            dl = d_cut.data_ptr()
        else:
            do = d_cut.data_ptr()
    # 3. Fill the record, and allocate the workspace.
    q_scale, q_zero, d_scale, d_zero = scales
    fields = [
        call.heads[index + 1], 0, 0, 0, 0,  # stream, workspace, its bytes, threads
        q.data_ptr(), q_scale, q_zero, qo, ql, qm, p.q, d.data_ptr(), d_scale, d_zero, do, dl, dm, p.d,
        p.pairs, 0 if pair_q is None else pair_q.data_ptr(), 0 if pair_d is None else pair_d.data_ptr(), *tail,
    ]  # fmt: skip
    count = None
    if index < 0:
        fields[4] = _threads()
    else:
        count = p.scratch.get(work)
        if count is None:
            count = p.scratch[work] = call.workspace(call.pack(*fields))
        fields[1] = _raw_stream(index)
        if count:
            workspace = _empty(count, dtype=torch.uint8, device=p.device)
            fields[2:4] = workspace.data_ptr(), count
    # 4. Call, and repeat the call with more workspace if it was too small.
    code = call.function(call.pack(*fields), error.address)
    if code == MEMORY and count is not None:
        more = call.workspace(call.pack(fields[0], 0, 0, 0, *fields[4:]))
        if more > count:
            p.scratch[work] = more
            return launch(call, p, work, q, d, q_cut, d_cut, pair_q, pair_d, tail, scales)
        code = call.function(call.pack(*fields), error.address)  # restores its error message
    if code:
        raise_error(code, p.words)


def run(
    p: Plan, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, winners: bool,
    scales: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes scores or distances. With winners, also returns the winning rows, which gradients need.

    MaxSim has a winning row for each query token; distances have one for each point of both sides.
    """
    if p.trivial:
        rows = [torch.full(shape, -1, dtype=_int32, device=p.device) for shape in p.winners] if winners else []
        return torch.zeros(p.shape, dtype=_float32, device=p.device), *rows
    scores = _empty(p.shape, dtype=_float32, device=p.device)
    if not winners:
        tail = (p.rule, scores.data_ptr(), *p.no_winners)
        launch(p.call, p, False, q, d, q_cut, d_cut, pair_q, pair_d, tail, scales)
        return (scores,)
    rows = [_empty(shape, dtype=_int32, device=p.device) for shape in p.winners]
    tail = (p.rule, scores.data_ptr(), *[x.data_ptr() for x in rows])
    launch(p.call, p, True, q, d, q_cut, d_cut, pair_q, pair_d, tail, scales)
    return scores, *rows


def run_gradients(
    terms: Terms, need_q: bool, need_d: bool, g: Tensor, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair,
    pair_d: Pair, *winners: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns the gradients with respect to q and d, contiguous. A gradient that is not needed is empty."""
    # Hooks may have unpacked saved tensors with other strides.
    q, d = q.contiguous(), d.contiguous()
    if pair_q is not None and pair_d is not None:
        pair_q, pair_d = pair_q.contiguous(), pair_d.contiguous()
    p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    allocate = torch.zeros_like if p.trivial else _empty_like
    dq = allocate(q) if need_q else q.new_empty(0)
    dd = allocate(d) if need_d else d.new_empty(0)
    if p.trivial:
        return dq, dd
    if g.dtype != _float32 or not g.is_contiguous():
        g = g.to(_float32).contiguous()
    winners = tuple(x.contiguous() for x in winners)
    # An empty tensor has the address 0, for which the library computes nothing.
    addresses = [x.data_ptr() for x in (*winners, g, dq, dd)]
    tail = (p.rule, *addresses, p.q_type, p.d_type)
    launch(p.gradients, p, (need_q, need_d), q, d, q_cut, d_cut, pair_q, pair_d, tail)
    return dq, dd
