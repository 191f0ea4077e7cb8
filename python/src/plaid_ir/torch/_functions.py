"""Scores and their gradients: direct calls of the library, and the function that autograd sees."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _plain
from ._library import GRADIENTS, SCORE, Call, error, fail
from ._operands import FLOATS, LENGTHS, MASK, Plan, Terms, as_bytes, explain, plan

_PLANS: Final = 4096

Cut: TypeAlias = Tensor | None
Pair: TypeAlias = Tensor | None

_plans: dict[Any, Plan] = {}
_plain_types: Final = frozenset({Tensor, torch.nn.Parameter})

_C: Any = torch._C
_raw_stream: Any = getattr(_C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(_C, "_cuda_getDevice", None)
_is_compiling: Final = torch.compiler.is_compiling
_transforms: Any = _C._are_functorch_transforms_active
_modes: Any = _C._len_torch_dispatch_stack
_tracing: Any = _C._get_tracing_state
_autocast: Any = _C._is_any_autocast_enabled
_threads: Any = _C.get_num_threads if hasattr(_C, "get_num_threads") else torch.get_num_threads
_dual: Any = forward_ad
_empty: Final = torch.empty
_int32: Final = torch.int32
_float32: Final = torch.float32


def find_plan(
    q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms
) -> Plan:
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
                raise explain(name, x) from e
        raise
    if found is None:
        found = plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        keep(_plans, key, found)
    return found


def keep(plans: dict[Any, Plan], key: Any, value: Plan) -> None:
    """Remembers a plan, and forgets the oldest ones where there are many."""
    while len(plans) >= _PLANS:
        try:
            del plans[next(iter(plans))]
        except (KeyError, StopIteration, RuntimeError):  # another thread was faster
            break
    plans[key] = value


def launch(call: Call, p: Plan, work: object, *body: Any) -> None:
    """Calls a function of the library on the plan's device; work tells calls of a plan apart that differ in the
    workspace that they need."""
    if p.index < 0:
        code = call.function(call.pack(call.heads[0], 0, 0, 0, _threads(), *body), error.address)
        if code:
            fail(code, call.sides)
        return
    index = p.index
    head = call.heads[index + 1]
    count = p.scratch.get(work)
    if count is None:
        count = p.scratch[work] = call.workspace(call.pack(head, 0, 0, 0, 0, *body))
    if _current_device() != index:
        with torch.cuda.device(index):
            return launch(call, p, work, *body)
    if count:
        workspace = _empty(count, dtype=torch.uint8, device=p.device)
        record = call.pack(head, _raw_stream(index), workspace.data_ptr(), count, 0, *body)
    else:
        record = call.pack(head, _raw_stream(index), 0, 0, 0, *body)
    code = call.function(record, error.address)
    if code:
        fail(code, call.sides)


def cut_pointers(p: Plan, q_cut: Cut, d_cut: Cut) -> tuple[int, int, int, int, int, int]:
    """The pointers to offsets, lengths and mask of both sides."""
    qo = ql = qm = do = dl = dm = 0
    if q_cut is not None:
        if p.how_q == MASK:
            qm = q_cut.data_ptr()
        elif p.how_q == LENGTHS:
            ql = q_cut.data_ptr()
        else:
            qo = q_cut.data_ptr()
    if d_cut is not None:
        if p.how_d == MASK:
            dm = d_cut.data_ptr()
        elif p.how_d == LENGTHS:
            dl = d_cut.data_ptr()
        else:
            do = d_cut.data_ptr()
    return qo, ql, qm, do, dl, dm


def run_score(
    p: Plan, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, winners: bool,
    scales: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Scores, and the argmaxima if they are wanted."""
    if p.trivial:
        argmax = torch.full(p.argmax, -1, dtype=_int32, device=p.device) if winners else None
        return torch.zeros(p.shape, dtype=_float32, device=p.device), argmax
    if p.q_copy:
        q = q.contiguous()
    if p.d_copy:
        d = d.contiguous()
    if q_cut is None and d_cut is None:
        qo = ql = qm = do = dl = dm = 0
    else:
        if p.q_fix and q_cut is not None:
            q_cut = as_bytes(q_cut)
        if p.d_fix and d_cut is not None:
            d_cut = as_bytes(d_cut)
        qo, ql, qm, do, dl, dm = cut_pointers(p, q_cut, d_cut)
    scores = _empty(p.shape, dtype=_float32, device=p.device)
    argmax = _empty(p.argmax, dtype=_int32, device=p.device) if winners else None
    launch(
        SCORE, p, winners,
        q.data_ptr(), scales[0], scales[1], qo, ql, qm, p.q,
        d.data_ptr(), scales[2], scales[3], do, dl, dm, p.d,
        p.pairs, 0 if pair_q is None else pair_q.data_ptr(), 0 if pair_d is None else pair_d.data_ptr(),
        0, p.normalize, scores.data_ptr(), 0 if argmax is None else argmax.data_ptr(),
    )  # fmt: skip
    return scores, argmax


def run_gradients(
    g: Tensor, argmax: Tensor, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair,
    terms: Terms, need_q: bool, need_d: bool,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients by q and by d, where they are needed: they lie one after another."""
    q, d = q.contiguous(), d.contiguous()
    p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if p.trivial:
        return torch.zeros_like(q) if need_q else None, torch.zeros_like(d) if need_d else None
    dq = torch.empty_like(q) if need_q else None
    dd = torch.empty_like(d) if need_d else None
    if p.q_fix and q_cut is not None:
        q_cut = as_bytes(q_cut)
    if p.d_fix and d_cut is not None:
        d_cut = as_bytes(d_cut)
    qo, ql, qm, do, dl, dm = cut_pointers(p, q_cut, d_cut)
    g = g.to(_float32).contiguous()
    launch(
        GRADIENTS, p, (need_q, need_d),
        q.data_ptr(), 0, 0, qo, ql, qm, p.q, d.data_ptr(), 0, 0, do, dl, dm, p.d,
        p.pairs, 0 if pair_q is None else pair_q.data_ptr(), 0 if pair_d is None else pair_d.data_ptr(),
        0, p.normalize, argmax.data_ptr(), g.data_ptr(),
        0 if dq is None else dq.data_ptr(), 0 if dd is None else dd.data_ptr(),
        p.q_type, p.d_type,
    )  # fmt: skip
    return dq, dd


def each(function: Any, info: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Applies a function once for each item of a vmap."""
    results = []
    for i in range(info.batch_size):
        results.append(function(*[
            a.select(dim, i) if isinstance(a, Tensor) and dim is not None else a for a, dim in zip(args, in_dims)
        ]))  # fmt: skip
    return tuple(torch.stack(r) for r in zip(*results)), (0,) * len(results[0])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, d, q_cut, d_cut, pair_q, pair_d, terms = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.terms = terms
    ctx.save_for_backward(q, d, q_cut, d_cut, pair_q, pair_d, output[1])


def _backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
    g: Tensor | None = grad_outputs[0]
    dq = dd = None
    need_q, need_d = ctx.needs_input_grad[:2]
    if g is not None:
        q, d, q_cut, d_cut, pair_q, pair_d, argmax = ctx.saved_tensors
        args: Any = (g, argmax, q, d, q_cut, d_cut, pair_q, pair_d, ctx.terms, need_q, need_d)
        if torch.is_grad_enabled() or _transforms():
            dq, dd = _gradients.apply(*args)
        else:
            dq, dd = run_gradients(*args)
    return dq if need_q else None, dd if need_d else None, None, None, None, None, None


class Score(torch.autograd.Function):
    """Scores and argmaxima, which have no gradient. Autograd takes a tenth of the time of TransformedScore's for it."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms
    ) -> tuple[Tensor, ...]:
        output = TransformedScore.forward(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        _remember(ctx, (q, d, q_cut, d_cut, pair_q, pair_d, terms), output)
        return output

    backward = staticmethod(_backward)


class TransformedScore(torch.autograd.Function):
    """Score for torch.func."""

    @staticmethod
    def forward(
        q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms
    ) -> tuple[Tensor, ...]:
        p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        scores, argmax = run_score(p, q, d, q_cut, d_cut, pair_q, pair_d, True)
        assert argmax is not None
        return scores, argmax

    setup_context = staticmethod(_remember)
    backward = staticmethod(_backward)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return each(_transformable.apply, info, in_dims, args)


class ScoreGradients(torch.autograd.Function):
    """Gradients, which have no gradients themselves."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        dq, dd = run_gradients(*args)
        g = args[0]
        return g.new_empty(0) if dq is None else dq, g.new_empty(0) if dd is None else dd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        raise twice()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return each(_gradients.apply, info, in_dims, args)


_differentiable: Any = Score
_transformable: Any = TransformedScore
_gradients: Any = ScoreGradients


def twice() -> RuntimeError:
    return RuntimeError(
        "gradients of plaid_ir.torch cannot be differentiated again; float64 vectors can: they are scored by torch"
    )


def compiled(*tensors: Tensor) -> bool:
    """Whether an operator has to stand for the call: it is traced, or a tensor has no memory of its own."""
    if _is_compiling() or _modes() or _tracing():
        return True
    return any(type(x) not in _plain_types or x.is_meta for x in tensors)


def transformed() -> bool:
    """Whether torch.func or forward differentiation looks at the call."""
    return bool(_transforms()) or bool(_dual._current_level >= 0)


def cast(x: Any) -> Any:
    """The tensor as autocast wants it for products."""
    if (_is_compiling() or _autocast()) and isinstance(x, Tensor) and x.dtype in FLOATS:
        kind = x.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            return x.to(torch.get_autocast_dtype(kind))
    return x


def score(q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms) -> Tensor:
    """Scores, by whatever way the moment asks for."""
    if _is_compiling():
        return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if _autocast():
        q, d = cast(q), cast(d)
    if _transforms():
        if q.dtype == torch.float64 or d.dtype == torch.float64:
            return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        return _transformable.apply(q, d, q_cut, d_cut, pair_q, pair_d, terms)[0]
    if _modes() or _tracing() or type(q) not in _plain_types or type(d) not in _plain_types:
        for name, x in zip(terms.names, (q, d)):
            if not isinstance(x, Tensor):
                raise explain(name, x)
        return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    p = find_plan(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if p.plain:
        if p.device.type == "meta":
            return _score_by_operator(q, d, q_cut, d_cut, pair_q, pair_d, terms)
        return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    if _dual._current_level >= 0:
        return _transformable.apply(q, d, q_cut, d_cut, pair_q, pair_d, terms)[0]
    if (q.requires_grad or d.requires_grad) and torch.is_grad_enabled():
        return _differentiable.apply(q, d, q_cut, d_cut, pair_q, pair_d, terms)[0]
    return run_score(p, q, d, q_cut, d_cut, pair_q, pair_d, False)[0]


def _score_by_operator(
    q: Tensor, d: Tensor, q_cut: Cut, d_cut: Cut, pair_q: Pair, pair_d: Pair, terms: Terms
) -> Tensor:
    q, d = cast(q), cast(d)
    if q.dtype == torch.float64 or d.dtype == torch.float64:
        return _plain.score(q, d, q_cut, d_cut, pair_q, pair_d, terms)
    from . import _ops

    winners = torch.is_grad_enabled() and (q.requires_grad or d.requires_grad)
    return _ops.score(
        q, d, q_cut, d_cut, pair_q, pair_d, terms.how_q, terms.how_d, terms.kind, terms.normalize,
        terms.longest_q, terms.longest_d, winners,
    )[0]  # fmt: skip
