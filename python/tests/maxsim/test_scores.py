"""Scores against the float64 reference: shapes, masks, types, layouts."""

from __future__ import annotations

import pytest
import reference
import torch

import plaid_ir.torch as plaid

SHAPES = [(1, 1, 1, 1, 1), (2, 3, 3, 5, 4), (3, 4, 32, 40, 96), (1, 17, 33, 7, 130), (5, 2, 2, 300, 128)]
ROUNDING = {torch.float32: 2e-6, torch.float16: 2e-6, torch.bfloat16: 2e-6}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same bits on the processor; on a GPU other shapes and layouts may have other kernels."""
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5) if a.is_cuda and a.is_floating_point() else torch.equal(a, b)


def random(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1).to(device=device, dtype=dtype)


def masks(kind: str, *shape: int, device: str) -> torch.Tensor | None:
    if kind == "none":
        return None
    if kind == "prefix":
        return (torch.arange(shape[-1]) < torch.randint(1, shape[-1] + 1, (*shape[:-1], 1))).to(device)
    mask = torch.rand(*shape) > 0.4
    if kind == "empty":
        mask.view(-1, shape[-1])[0] = False
    return mask.to(device)


def near(got: torch.Tensor, want: torch.Tensor, tokens: int, tolerance: float = 2e-6) -> None:
    assert got.dtype == torch.float32 and got.shape == want.shape
    torch.testing.assert_close(got.double(), want, rtol=0, atol=tolerance * (tokens + 1))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["none", "prefix", "holes", "empty"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all(shape: tuple[int, ...], kind: str, normalize: bool, dtype: torch.dtype, device: str) -> None:
    nq, nd, lq, ld, dim = shape
    q, d = random(nq, lq, dim, device=device, dtype=dtype), random(nd, ld, dim, device=device, dtype=dtype)
    q_mask, d_mask = masks(kind, nq, lq, device=device), masks(kind, nd, ld, device=device)
    got = plaid.maxsim(q, d, q_mask, d_mask, normalize=normalize)
    near(got, reference.every(q, d, q_mask, d_mask, normalize=normalize), lq)


@pytest.mark.parametrize("kind", ["none", "prefix", "holes", "empty"])
def test_own_and_pairs(kind: str, device: str) -> None:
    q, d = random(3, 5, 24, device=device), random(3, 4, 7, 24, device=device)
    q_mask, d_mask = masks(kind, 3, 5, device=device), masks(kind, 3, 4, 7, device=device)
    want = reference.every(q, d, q_mask, d_mask)
    near(plaid.maxsim(q, d, q_mask, d_mask), want, 5)
    first = None if d_mask is None else d_mask[:, 0]
    near(plaid.maxsim_pairs(q, d[:, 0], q_mask, first), want[:, 0], 5)


def test_axes_of_results(device: str) -> None:
    q, d = random(3, 5, 8, device=device), random(4, 7, 8, device=device)
    whole = plaid.maxsim(q, d)
    assert plaid.maxsim(q[0], d[0]).shape == ()
    assert same(plaid.maxsim(q[0], d), whole[0])
    assert same(plaid.maxsim(q, d[0]), whole[:, 0])
    d_mask = torch.ones(7, dtype=torch.bool, device=device)
    assert same(plaid.maxsim(q[:1], d[:1], None, d_mask), whole[:1, :1])


@pytest.mark.parametrize("shape", [(0, 3, 4, 5, 8), (2, 0, 4, 5, 8), (2, 3, 0, 5, 8), (2, 3, 4, 0, 8), (2, 3, 4, 5, 0)])
def test_nothing(shape: tuple[int, ...], device: str) -> None:
    nq, nd, lq, ld, dim = shape
    q = torch.ones(nq, lq, dim, device=device, requires_grad=True)
    d = torch.ones(nd, ld, dim, device=device, requires_grad=True)
    scores = plaid.maxsim(q, d)
    assert scores.shape == (nq, nd) and not scores.any()
    scores.sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape and not q.grad.any()
    assert d.grad is not None and d.grad.shape == d.shape and not d.grad.any()


def test_negative_maxima_and_documents_without_tokens(device: str) -> None:
    q = torch.ones(1, 2, 2, device=device)
    d = -torch.ones(2, 3, 2, device=device)
    mask = torch.tensor([[1, 0, 0], [0, 0, 0]], device=device)
    assert plaid.maxsim(q, d, None, mask).tolist() == [[-4.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float16])
def test_types_of_masks(dtype: torch.dtype, device: str) -> None:
    q, d = random(2, 3, 8, device=device), random(4, 6, 8, device=device)
    mask = torch.rand(4, 6, device=device) > 0.5
    want = plaid.maxsim(q, d, None, mask)
    assert same(plaid.maxsim(q, d, None, mask.to(dtype)), want)
    if dtype not in (torch.bool,):
        assert same(plaid.maxsim(q, d, None, mask.to(dtype) * 3), want)


def test_layouts_of_masks(device: str) -> None:
    q, d = random(2, 3, 8, device=device), random(4, 6, 8, device=device)
    wide = torch.rand(4, 20, device=device) > 0.5
    for mask in (wide[:, 3:9], wide[:, ::3][:, :6], wide[:1, :6].expand(4, 6), wide.T[:6, :4].T):
        want = plaid.maxsim(q, d, None, mask.contiguous())
        assert same(plaid.maxsim(q, d, None, mask), want)
        tall = plaid.maxsim(d, q, mask, None)
        assert same(tall, plaid.maxsim(d, q, mask.contiguous(), None))


def test_layouts_of_vectors(device: str) -> None:
    q, base = random(2, 3, 8, device=device), random(4, 12, 16, device=device)
    views = [
        base[:, :5, :8].contiguous(), base[:, 2:7, :8], base[:, :5].reshape(4, 10, 8)[:, :6], base[::2, :, :8],
        base[:1, :5, :8].expand(4, 5, 8), base[:, :, 3:11], base.transpose(0, 1)[:5, :, :8].transpose(0, 1), base.flip(1)[..., :8],
        base.reshape(4, 24, 8)[:, 4:11], base.reshape(-1)[5:5 + 4 * 6 * 8].view(4, 6, 8),
    ]  # fmt: skip
    for i, d in enumerate(views):
        want = plaid.maxsim(q, d.contiguous())
        assert same(plaid.maxsim(q, d), want), i
        assert same(plaid.maxsim(d, q), plaid.maxsim(d.contiguous(), q)), i
        leaf = d.detach().requires_grad_()
        dense = d.detach().contiguous().requires_grad_()
        plaid.maxsim(q, leaf).square().sum().backward()
        plaid.maxsim(q, dense).square().sum().backward()
        assert leaf.grad is not None and same(leaf.grad, dense.grad), i
    own = base.reshape(2, 2, 24, 8)[:, :, 3:9]
    assert same(plaid.maxsim(q, own), plaid.maxsim(q, own.contiguous()))
    shared = base[:2, :5, :8].unsqueeze(0).expand(2, 2, 5, 8)
    assert same(plaid.maxsim(q, shared), plaid.maxsim(q, shared[0]))


def test_mixed_types(device: str) -> None:
    q = random(2, 3, 8, device=device)
    for a in ROUNDING:
        for b in ROUNDING:
            near(plaid.maxsim(q.to(a), q.to(b)), reference.every(q.to(a), q.to(b)), 3)


def test_float64_stays(device: str) -> None:
    q, d = random(2, 3, 8, device=device).double(), random(4, 6, 8, device=device)
    mask = torch.rand(4, 6, device=device) > 0.5
    got = plaid.maxsim(q, d, None, mask, normalize=True)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, reference.every(q, d, None, mask, normalize=True), rtol=0, atol=1e-12)


def test_many_dimensions(device: str) -> None:
    q, d = random(2, 3, 5000, device=device), random(2, 4, 5000, device=device)
    near(plaid.maxsim(q, d), reference.every(q, d), 3)


def test_tokens_with_itself(device: str) -> None:
    x = random(3, 6, 16, device=device).requires_grad_()
    scores = plaid.maxsim(x, x)
    near(scores, reference.every(x, x).detach(), 6)
    scores.sum().backward()
    y = x.detach().double().requires_grad_()
    reference.every(y, y).sum().backward()
    torch.testing.assert_close(x.grad.double(), y.grad, rtol=0, atol=1e-5)


def packed(items: list[torch.Tensor], dim: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = torch.tensor([0, *torch.tensor([len(x) for x in items]).cumsum(0).tolist()], dtype=torch.int32)
    return torch.cat([*items, torch.zeros(0, dim, device=device)]), offsets.to(device)


@pytest.mark.parametrize("normalize", [False, True])
def test_packed(normalize: bool, device: str) -> None:
    queries = [random(n, 12, device=device) for n in (3, 1, 5)]
    documents = [random(n, 12, device=device) for n in (7, 0, 2, 9)]
    q, q_offsets = packed(queries, 12, device)
    d, d_offsets = packed(documents, 12, device)
    want = torch.stack([torch.stack([reference.pair(a, b, normalize) for b in documents]) for a in queries])
    near(plaid.maxsim_varlen(q, d, q_offsets, d_offsets, normalize=normalize), want, 5)
    near(plaid.maxsim_varlen(q, d, q_offsets.long(), d_offsets.long(), 5, 20, normalize=normalize), want, 5)
    near(plaid.maxsim_varlen(q, d, q_offsets.tolist(), d_offsets.cpu(), validate=True, normalize=normalize), want, 5)
    i, j = [0, 2, 2, 1], [3, 1, 0, 3]
    got = plaid.score_pairs_packed(q, d, q_offsets, d_offsets, i, torch.tensor(j, device=device), normalize=normalize)
    near(got, want[i, j], 5)
    none = plaid.score_pairs_packed(q, d, q_offsets, d_offsets, [], [])
    assert none.shape == (0,)
    double = plaid.maxsim_varlen(q.double(), d, q_offsets, d_offsets, normalize=normalize)
    torch.testing.assert_close(double, want, rtol=0, atol=1e-12)
    double = plaid.score_pairs_packed(q.double(), d, q_offsets, d_offsets, i, j, normalize=normalize)
    torch.testing.assert_close(double, want[i, j], rtol=0, atol=1e-12)


def test_padded(device: str) -> None:
    q, d = random(3, 5, 12, device=device), random(3, 2, 7, 12, device=device)
    q_lengths = torch.tensor([5, 2, 0], device=device)
    d_lengths = torch.tensor([[7, 1], [0, 3], [4, 4]], device=device)
    q_mask = torch.arange(5, device=device) < q_lengths[:, None]
    d_mask = torch.arange(7, device=device) < d_lengths[..., None]
    near(plaid.maxsim_padded(q, d, q_lengths, d_lengths, validate=True), reference.every(q, d, q_mask, d_mask), 5)
    want = reference.every(q, d[:, 0], q_mask, d_mask[:, 0])
    near(plaid.maxsim_padded(q, d[:, 0], q_lengths.tolist(), d_lengths[:, 0].int()), want, 5)
    double = plaid.maxsim_padded(q.double(), d, q_lengths, d_lengths)
    torch.testing.assert_close(double, reference.every(q, d, q_mask, d_mask), rtol=0, atol=1e-12)


def test_candidates(device: str) -> None:
    q, d = random(3, 5, 12, device=device), random(6, 7, 12, device=device)
    q_mask, d_mask = masks("holes", 3, 5, device=device), masks("empty", 6, 7, device=device)
    index = torch.tensor([[0, 5], [3, 3], [2, 0]], device=device)
    want = reference.every(q, d, q_mask, d_mask).gather(1, index)
    near(plaid.maxsim_candidates(q, d, index, q_mask, d_mask, validate=True), want, 5)
    near(plaid.maxsim_candidates(q[1], d, index[1], q_mask[1], d_mask), want[1], 5)
    near(plaid.maxsim_candidates(q, d, index[:, :0]), want[:, :0], 5)


def test_same_bits_in_any_company(device: str) -> None:
    q, d = random(4, 9, 64, device=device), random(50, 33, 64, device=device)
    scores = plaid.maxsim(q, d)
    assert torch.equal(scores, plaid.maxsim(q, d))
    assert same(plaid.maxsim(q[1:2], d[7:8]), scores[1:2, 7:8])
    near(plaid.maxsim(q[1], d[7]), scores[1, 7].double(), 9)


def test_infinite_and_nan_padding_does_not_leak(device: str) -> None:
    q, d = random(2, 4, 8, device=device), random(3, 5, 8, device=device)
    q_mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]], device=device)
    d_mask = torch.tensor([[1, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], device=device)
    want = plaid.maxsim(q, d, q_mask, d_mask)
    q[q_mask == 0], d[d_mask == 0] = float("nan"), float("inf")
    q.requires_grad_(), d.requires_grad_()
    got = plaid.maxsim(q, d, q_mask, d_mask)
    assert same(got, want)
    got.sum().backward()
    assert not q.grad[q_mask == 0].any() and not d.grad[d_mask == 0].any()
    assert q.grad.isfinite().all() and d.grad.isfinite().all()
