"""Gradients against the float64 reference, and what autograd asks of a function."""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import reference
import torch
from test_scores import masks, packed, random, same

import plaid_ir.torch as plaid

TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def doubles(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.detach().double().requires_grad_() for x in tensors]


def compare(got: list[torch.Tensor], want: list[torch.Tensor], weight: float = 1) -> None:
    for g, w in zip(got, want):
        assert g.grad is not None and w.grad is not None and g.grad.dtype == g.dtype and g.grad.shape == g.shape
        torch.testing.assert_close(g.grad.double(), w.grad, rtol=TOLERANCE[g.dtype], atol=TOLERANCE[g.dtype] * weight)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["none", "prefix", "holes", "empty"])
def test_all(kind: str, normalize: bool, dtype: torch.dtype, device: str) -> None:
    q, d = random(4, 6, 32, device=device, dtype=dtype), random(5, 9, 32, device=device, dtype=dtype)
    q_mask, d_mask = masks(kind, 4, 6, device=device), masks(kind, 5, 9, device=device)
    upstream = torch.randn(4, 5, device=device)
    got, want = leaves(q, d), doubles(q, d)
    (plaid.maxsim(*got, q_mask, d_mask, normalize=normalize) * upstream).sum().backward()
    (reference.every(*want, q_mask, d_mask, normalize=normalize) * upstream).sum().backward()
    compare(got, want, 5)
    if q_mask is not None and d_mask is not None:
        assert not got[0].grad[~q_mask].any() and not got[1].grad[~d_mask].any()


@pytest.mark.parametrize("kind", ["none", "holes", "empty"])
def test_own(kind: str, device: str) -> None:
    q, d = random(3, 6, 16, device=device), random(3, 2, 9, 16, device=device)
    q_mask, d_mask = masks(kind, 3, 6, device=device), masks(kind, 3, 2, 9, device=device)
    got, want = leaves(q, d), doubles(q, d)
    plaid.maxsim(*got, q_mask, d_mask).square().sum().backward()
    reference.every(*want, q_mask, d_mask).square().sum().backward()
    compare(got, want, 10)


def test_packed_padded_and_candidates(device: str) -> None:
    queries = [random(n, 12, device=device) for n in (3, 1, 5)]
    documents = [random(n, 12, device=device) for n in (7, 0, 2, 9)]
    q, q_offsets = packed(queries, 12, device)
    d, d_offsets = packed(documents, 12, device)
    for call in (
        lambda q, d: plaid.maxsim_varlen(q, d, q_offsets, d_offsets),
        lambda q, d: plaid.maxsim_varlen(q, d, q_offsets, d_offsets, 8, 9, normalize=True),
        lambda q, d: plaid.score_pairs_packed(q, d, q_offsets, d_offsets, [0, 2, 2, 1, 2], [3, 1, 0, 3, 3]),
    ):
        got, want = leaves(q, d), doubles(q, d)
        call(*got).square().sum().backward()
        call(*want).square().sum().backward()  # float64 is torch's own
        compare(got, want, 10)
    q, d = random(3, 5, 12, device=device), random(6, 7, 12, device=device)
    index = torch.tensor([[0, 5], [3, 3], [2, 0]], device=device)
    d_mask = masks("empty", 6, 7, device=device)
    lengths = torch.tensor([5, 2, 0]), torch.tensor([7, 1, 0, 3, 4, 4])
    for call in (
        lambda q, d: plaid.maxsim_candidates(q, d, index, None, d_mask),
        lambda q, d: plaid.maxsim_padded(q, d, *lengths),
        lambda q, d: plaid.maxsim_padded(q, d.view(3, 2, 7, 12), lengths[0], lengths[1].view(3, 2)),
    ):
        got, want = leaves(q, d), doubles(q, d)
        call(*got).square().sum().backward()
        call(*want).square().sum().backward()
        compare(got, want, 10)


def test_one_side(device: str) -> None:
    q, d = random(2, 3, 8, device=device), random(4, 5, 8, device=device)
    both = leaves(q, d)
    plaid.maxsim(*both).sum().backward()
    a = q.clone().requires_grad_()
    plaid.maxsim(a, d).sum().backward()
    b = d.clone().requires_grad_()
    plaid.maxsim(q, b).sum().backward()
    assert same(a.grad, both[0].grad) and same(b.grad, both[1].grad)
    assert d.grad is None and not plaid.maxsim(q, d).requires_grad


def test_gradcheck(device: str) -> None:
    q, d = leaves(random(2, 3, 5, device=device), random(3, 4, 5, device=device))
    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]], device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inputs are not float64
        for normalize in (False, True):
            torch.autograd.gradcheck(
                lambda q, d: plaid.maxsim(q, d, None, mask, normalize=normalize), (q, d), eps=1e-3, atol=4e-3, rtol=4e-3
            )
        torch.autograd.gradcheck(lambda q, d: plaid.chamfer(q[:1], d[:1]), (q, d), eps=1e-3, atol=4e-3, rtol=4e-3)
    torch.autograd.gradcheck(lambda q, d: plaid.maxsim(q, d, None, mask, normalize=True), doubles(q, d))
    torch.autograd.gradgradcheck(lambda q, d: plaid.maxsim(q, d, None, mask, normalize=True), doubles(q, d))
    torch.autograd.gradcheck(lambda q, d: plaid.chamfer(q[:1], d[:1], metric="l1"), doubles(q, d))


def test_twice_is_an_error(device: str) -> None:
    q, d = leaves(random(2, 3, 8, device=device), random(4, 5, 8, device=device))
    (first,) = torch.autograd.grad(plaid.maxsim(q, d).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated again.*float64"):
        first.square().sum().backward()


def test_retained_graph_and_accumulation(device: str) -> None:
    q, d = leaves(random(2, 3, 8, device=device), random(4, 5, 8, device=device))
    loss = plaid.maxsim(q, d).sum()
    loss.backward(retain_graph=True)
    once = q.grad.clone()
    loss.backward()
    assert same(q.grad, once + once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_changed_in_place_is_an_error(device: str) -> None:
    q, d = leaves(random(2, 3, 8, device=device), random(4, 5, 8, device=device))
    doubled = q * 2
    loss = plaid.maxsim(doubled, d).sum()
    doubled.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_modes_without_gradients(device: str) -> None:
    q, d = leaves(random(2, 3, 8, device=device), random(4, 5, 8, device=device))
    want = plaid.maxsim(q, d)
    assert want.requires_grad
    with torch.no_grad():
        got = plaid.maxsim(q, d)
        assert not got.requires_grad and same(got, want)
    with torch.inference_mode():
        assert same(plaid.maxsim(q, d), want)
        frozen = random(4, 5, 8, device=device)
    with pytest.raises(RuntimeError, match="[Ii]nference tensors"):
        plaid.maxsim(q, frozen)
    assert torch.isfinite(plaid.maxsim(q.detach(), frozen)).all()


def test_same_gradients_every_time(device: str) -> None:
    q, d = random(8, 16, 32, device=device), random(8, 40, 32, device=device)
    found = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            got = leaves(q, d)
            plaid.maxsim(*got).square().sum().backward()
            found.append(got)
    finally:
        torch.use_deterministic_algorithms(False)
    for other in found[1:]:
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(found[0], other))


def test_expanded_upstream_and_part_of_the_scores(device: str) -> None:
    q, d = random(3, 4, 8, device=device), random(5, 6, 8, device=device)
    got, want = leaves(q, d), doubles(q, d)
    plaid.maxsim(*got)[:, ::2].sum().backward()
    reference.every(*want)[:, ::2].sum().backward()
    compare(got, want, 5)


def test_autocast(device: str) -> None:
    q, d = random(3, 4, 16, device=device), random(5, 6, 16, device=device)
    with torch.autocast(device, torch.bfloat16):
        got = leaves(q, d)
        scores = plaid.maxsim(*got)
        inside = plaid.maxsim(q, d.double())
    assert scores.dtype == torch.float32 and inside.dtype == torch.float64
    assert same(scores, plaid.maxsim(q.bfloat16(), d.bfloat16()))
    scores.sum().backward()
    assert got[0].grad.dtype == torch.float32
    with torch.autocast(device, torch.bfloat16, enabled=False):
        assert same(plaid.maxsim(q, d), plaid.maxsim(q, d))
        assert not torch.equal(plaid.maxsim(q, d), scores)


def test_threads(device: str) -> None:
    q, d = random(4, 8, 32, device=device), random(6, 20, 32, device=device)
    want = leaves(q, d)
    plaid.maxsim(*want).square().sum().backward()
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for i in range(30):
                got = leaves(q, d)
                plaid.maxsim(*got).square().sum().backward()
                assert same(got[0].grad, want[0].grad) and same(got[1].grad, want[1].grad)
                n = 1 + i % 7
                plaid.maxsim(q[:, :n], d)
        except BaseException as e:  # noqa: BLE001
            wrong.append(e)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_checkpointing(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    q, d = random(3, 4, 8, device=device), random(5, 6, 8, device=device)
    got, want = leaves(q, d), leaves(q, d)
    checkpoint(plaid.maxsim, *got, use_reentrant=False).sum().backward()
    plaid.maxsim(*want).sum().backward()
    assert same(got[0].grad, want[0].grad) and same(got[1].grad, want[1].grad)


@pytest.mark.parametrize("metric", ["l2", "l1"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["none", "holes", "empty", "lengths"])
def test_chamfer(metric: str, reduction: str, kind: str, device: str) -> None:
    x, y = torch.randn(3, 9, 6, device=device), torch.randn(3, 5, 6, device=device)
    how = {}
    x_mask, y_mask = masks("none", 1, device=device), masks("none", 1, device=device)
    if kind == "lengths":
        how = {"x_lengths": torch.tensor([9, 4, 0], device=device), "y_lengths": torch.tensor([1, 5, 5], device=device)}
        x_mask = torch.arange(9, device=device) < how["x_lengths"][:, None]
        y_mask = torch.arange(5, device=device) < how["y_lengths"][:, None]
    elif kind != "none":
        x_mask, y_mask = masks(kind, 3, 9, device=device), masks(kind, 3, 5, device=device)
        how = {"x_mask": x_mask, "y_mask": y_mask}
    got, want = leaves(x, y), doubles(x, y)
    distances = plaid.chamfer(*got, metric=metric, reduction=reduction, **how)
    definition = torch.stack([
        reference.distance(
            reference.kept(want[0][i], None if x_mask is None else x_mask[i]),
            reference.kept(want[1][i], None if y_mask is None else y_mask[i]), metric, reduction,
        )
        for i in range(3)
    ])  # fmt: skip
    torch.testing.assert_close(distances.double(), definition, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(plaid.chamfer(*want, metric=metric, reduction=reduction, **how), definition)
    distances.square().sum().backward()
    definition.square().sum().backward()
    compare(got, want, 100)
    if kind == "none":
        assert same(plaid.chamfer(x[0], y[0], metric=metric, reduction=reduction), distances[0])
        assert plaid.chamfer(x[0], y[0, :0]).item() == 0


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_from_hidden(normalize: bool, bias: bool, device: str) -> None:
    """Only vectors of documents are normalized."""
    q, h = 3 * random(3, 5, 16, device=device), torch.randn(4, 7, 40, device=device)
    q[0, 0] = 0
    w, b = torch.randn(16, 40, device=device), torch.randn(16, device=device) if bias else None
    mask = masks("empty", 4, 7, device=device)
    tensors = [x for x in (q, h, w, b) if x is not None]
    wanted = doubles(*tensors)
    tokens = torch.nn.functional.linear(wanted[1], *wanted[2:])
    want = reference.every(wanted[0], reference.unit(tokens) if normalize else tokens, None, mask)
    got = plaid.maxsim_from_hidden(q, h, w, b, mask, normalize)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=1e-4)
    alone = plaid.maxsim_from_hidden(q[0], h, w, b, mask, normalize)  # by another kernel, on a GPU
    torch.testing.assert_close(alone, got[0], rtol=2e-6, atol=0 if device == "cpu" else 1e-4)
    assert device != "cpu" or same(alone, got[0])
    trained = leaves(*tensors)
    scores = plaid.maxsim_from_hidden(*trained[:3], trained[3] if bias else None, mask, normalize)
    assert same(scores, got)
    scores.sum().backward()
    want.sum().backward()
    for g, x in zip(trained, wanted):
        torch.testing.assert_close(g.grad.double(), x.grad, rtol=1e-5, atol=3e-4)
    only = leaves(w)[0]
    plaid.maxsim_from_hidden(q, h, only, b, mask, normalize).sum().backward()
    torch.testing.assert_close(only.grad, trained[2].grad, rtol=1e-5, atol=1e-4)
    narrow = [x.bfloat16() for x in (q, h, w)]
    half = leaves(*narrow)
    scores = plaid.maxsim_from_hidden(*half, None, mask, normalize)
    assert same(scores, plaid.maxsim_from_hidden(*narrow, None, mask, normalize))
    scores.sum().backward()
    assert all(x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all() for x in half)


def test_module_can_be_copied_and_pickled() -> None:
    import pickle

    module = plaid.MaxSim("own", normalize=True, mean=True)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(other) == repr(module) == "MaxSim('own', normalize=True, mean=True)"
        assert other.get_config_dict() == module.get_config_dict()


@pytest.fixture
def _poisoned() -> object:
    """Memory that is not written yet is full of NaN and of the largest integers."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_poisoned")
def test_all_results_are_written(device: str) -> None:
    test_all("empty", False, torch.float32, device)
    test_all("holes", True, torch.bfloat16, device)
    test_own("empty", device)
    test_packed_padded_and_candidates(device)
    for kind in ("empty", "lengths"):
        test_chamfer("l2", "mean", kind, device)
    q, d = leaves(random(9, 8, device=device), random(12, 8, device=device))
    plaid.maxsim_varlen(q, d, [1, 4, 4, 8], [2, 5, 5, 9], 5, 7).sum().backward()  # rows that no item has
    want = doubles(q, d)
    plaid.maxsim_varlen(*want, [1, 4, 4, 8], [2, 5, 5, 9], 5, 7).sum().backward()
    compare([q, d], want, 5)
    for rows in (0, 8):
        assert not q.grad[rows].any()
    assert not d.grad[:2].any() and not d.grad[9:].any()


def test_default_device_and_tracing(device: str) -> None:
    q, d = random(2, 3, 8, device=device), random(4, 5, 8, device=device)
    with torch.device("meta"):
        assert plaid.maxsim_padded(q, d, [3, 2], [5, 4, 3, 2]).isfinite().all()
        assert plaid.MaxSim()(list(q), list(d)).isfinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(plaid.maxsim, (q, d))
    assert same(traced(d, q), plaid.maxsim(d, q))
