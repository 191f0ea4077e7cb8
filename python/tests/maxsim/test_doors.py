"""Compilers, transforms, processes and modules that call; errors."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_gradients import leaves
from test_scores import masks, random, same

import plaid_ir.torch as plaid

CALLS = {
    "all": lambda q, d, m: plaid.maxsim(q, d, None, m),
    "normalized": lambda q, d, m: plaid.maxsim(q, d, None, m, normalize=True),
    "own": lambda q, d, m: plaid.maxsim(q, d.unsqueeze(1), None, m.unsqueeze(1)),
    "pairs": lambda q, d, m: plaid.maxsim_pairs(q, d, None, m),
    "lengths": lambda q, d, m: plaid.maxsim_padded(q, d, m.sum(1) * 0 + 2, m.sum(1)),
    "candidates": lambda q, d, m: plaid.maxsim_candidates(q, d, m[:, :2].int()),
    "packed": lambda q, d, m: plaid.maxsim_varlen(
        q.flatten(0, 1), d.flatten(0, 1), torch.arange(0, q.shape[0] + 1, device=q.device) * q.shape[1],
        torch.arange(0, d.shape[0] + 1, device=q.device) * d.shape[1], q.shape[1], d.shape[1],
    ),
    "chamfer": lambda q, d, m: plaid.chamfer(q, d, y_mask=m),
    "module": lambda q, d, m: plaid.MaxSim()(q, d.unsqueeze(1), documents_mask=m.unsqueeze(1)),
    "float64": lambda q, d, m: plaid.maxsim(q.double(), d, None, m),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_compiled(name: str, device: str) -> None:
    """One graph, which is right for other shapes and with gradients."""
    torch._dynamo.reset()
    call = CALLS[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for n, lq, ld in ((3, 4, 6), (5, 2, 9), (4, 7, 3)):
        q, d = random(n, lq, 16, device=device), random(n, ld, 16, device=device)
        mask = masks("prefix", n, ld, device=device)
        got, want = leaves(q, d), leaves(q, d)
        scores, expected = compiled(*got, mask), call(*want, mask)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-6)
        scores.square().sum().backward()
        expected.square().sum().backward()
        for a, b in zip(got, want):
            torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(q, d, mask), expected.detach(), rtol=0, atol=1e-6)


def test_compiled_head(device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(plaid.maxsim_from_hidden, fullgraph=True, backend="aot_eager")
    q, h, w = random(3, 4, 8, device=device), random(5, 6, 24, device=device), random(8, 24, device=device)
    assert same(compiled(q, h, w), plaid.maxsim_from_hidden(q, h, w))


def _quantised(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], dict[str, torch.Tensor | None]]]:
    """Functions of quantised documents, and their arguments."""
    q, d = random(3, 4, 16, device=device), random(5, 6, 16, device=device)
    mask, q_mask = masks("holes", 5, 6, device=device), masks("prefix", 3, 4, device=device)
    values, scales = plaid.quantize_int8(d)
    affine, steps, zeros = plaid.quantize_int8_affine(d)
    q_values, q_scales = plaid.quantize_int8(q)
    floats, each = plaid.quantize_fp8_per_token(d)
    tensor, whole = plaid.quantize_fp8_per_tensor(d)
    own = {"Q": q, "D": values[:3].unsqueeze(1), "scale_D": scales[:3].unsqueeze(1)}
    return {
        "int8": (plaid.maxsim_int8, {"Q": q, "D": values, "scale_D": scales, "q_mask": q_mask, "d_mask": mask}),
        "affine": (plaid.maxsim_int8, {"Q": q, "D": affine, "scale_D": steps, "zero_D": zeros}),
        "both": (plaid.maxsim_int8, {"Q": q_values, "D": values, "scale_Q": q_scales, "scale_D": scales}),
        "own": (plaid.maxsim_int8, own),
        "fp8": (plaid.maxsim_fp8, {"Q": q, "D": floats, "scale_D": each, "d_mask": mask}),
        "fp8 per tensor": (plaid.maxsim_fp8, {"Q": q, "D": tensor, "scale_D": whole}),
    }


@pytest.mark.parametrize("name", ["int8", "affine", "both", "own", "fp8", "fp8 per tensor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_quantised(name: str, dynamic: bool, device: str) -> None:
    torch._dynamo.reset()
    call, arguments = _quantised(device)[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    assert same(compiled(**arguments), call(**arguments))
    on_meta = {key: None if x is None else x.to("meta") for key, x in arguments.items()}
    assert call(**on_meta).shape == call(**arguments).shape


def test_quantised_vmap(device: str) -> None:
    call, arguments = _quantised(device)["int8"]
    del arguments["q_mask"]
    q = arguments.pop("Q")
    scores = torch.vmap(lambda x: call(x, **arguments))(q)
    torch.testing.assert_close(scores, call(q, **arguments), rtol=0, atol=1e-5)


def test_compiled_ranking(device: str) -> None:
    """Documents that are scored a few at a time, blocks of them, and lists of matrices are one graph, too."""
    q, d, mask = random(3, 4, 16, device=device), random(5, 6, 16, device=device), masks("holes", 5, 6, device=device)
    calls: list[Callable[..., Any]] = [
        lambda q, d, m: plaid.top_k(q, d, 2, None, m, chunk_size=2),
        lambda q, d, m: plaid.rank(q, d, 2, None, m, chunk_size=2),
        lambda q, d, m: plaid.rank(q, [d[:2], (d[2:], m[2:])], 2),
        lambda q, d, m: (plaid.MaxSim()(list(q), [d[0], d[1][:3]]),),
        lambda q, d, m: (plaid.MaxSim("pairs")(list(q), [d[0], d[1][:3], d[2]]),),
    ]
    for call in calls:
        torch._dynamo.reset()
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        for got, want in zip(compiled(q, d, mask), call(q, d, mask)):
            assert torch.equal(got, want)


def test_compiled_under_autocast_and_exported(device: str) -> None:
    torch._dynamo.reset()
    q, d = random(3, 4, 16, device=device), random(5, 6, 16, device=device)
    compiled = torch.compile(plaid.maxsim, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        assert same(compiled(q, d), plaid.maxsim(q.bfloat16(), d.bfloat16()))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.score = torch.nn.Linear(16, 8, device=device), plaid.MaxSim(normalize=True)

        def forward(self, q: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
            return self.score(self.layer(q), self.layer(d))

    model = Model()
    items = torch.export.Dim("items", min=2)
    exported = torch.export.export(model, (q, d), dynamic_shapes=({}, {0: items}))
    many = random(9, 6, 16, device=device)
    torch.testing.assert_close(exported.module()(q, many), model(q, many), rtol=0, atol=1e-6)


def test_operators(device: str) -> None:
    """torch's own checks of schemas, fake tensors and registrations of gradients."""
    from plaid_ir.torch import _ops

    q, d = leaves(random(3, 4, 8, device=device), random(5, 6, 8, device=device))
    mask = masks("holes", 5, 6, device=device)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(_ops.score, (q, d, None, mask, None, None, 0, 1, 0, True, 0, 0, -1, False, True), test_utils=checks)
    x, y = leaves(random(3, 4, 8, device=device), random(3, 6, 8, device=device))
    torch.library.opcheck(_ops.score, (x, y, None, None, None, None, 0, 0, 1, False, 0, 0, 0, True, True), test_utils=checks)
    hidden = random(5, 6, 24, device=device), random(8, 24, device=device)
    torch.library.opcheck(_ops.head, (q.detach(), *hidden, None, mask, True), test_utils=checks[:1] + checks[2:3])
    values, scales = plaid.quantize_int8(d.detach())
    quantised = (q.detach(), values, None, mask, None, None, scales, None)
    torch.library.opcheck(_ops.quantised, quantised, test_utils=checks[:1] + checks[2:3])


def test_fake_and_meta_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, d = torch.randn(3, 4, 8, requires_grad=True), torch.randn(5, 6, 8)
        scores = plaid.maxsim(q, d)
        assert scores.shape == (3, 5)
        scores.sum().backward()
        assert q.grad is not None and q.grad.shape == q.shape
    q, d = torch.randn(3, 4, 8, device="meta"), torch.randn(3, 2, 6, 8, device="meta", dtype=torch.float16)
    scores = plaid.maxsim(q, d)
    assert scores.is_meta and scores.shape == (3, 2) and scores.dtype == torch.float32
    assert plaid.chamfer(q, q).shape == (3,)


def test_function_transforms(device: str) -> None:
    q, d = random(2, 3, 8, device=device), random(4, 5, 8, device=device)
    leaf = q.clone().requires_grad_()
    plaid.maxsim(leaf, d).sum().backward()
    assert same(torch.func.grad(lambda q: plaid.maxsim(q, d).sum())(q), leaf.grad)
    jacobian = torch.func.jacrev(lambda q: plaid.maxsim(q, d))(q)
    assert jacobian.shape == (2, 4, 2, 3, 8)
    torch.testing.assert_close(jacobian.sum((0, 1)), leaf.grad, rtol=0, atol=1e-6)
    many = random(6, 2, 3, 8, device=device)
    assert same(torch.vmap(lambda q: plaid.maxsim(q, d))(many), torch.stack([plaid.maxsim(q, d) for q in many]))
    both = torch.vmap(plaid.maxsim, in_dims=(0, None))(many, d)
    assert same(both, torch.vmap(lambda q: plaid.maxsim(q, d))(many))
    per_sample = torch.vmap(torch.func.grad(lambda q, d: plaid.maxsim(q, d).sum()), in_dims=(0, None))(many, d)
    assert per_sample.shape == many.shape
    points = random(6, 2, 3, 8, device=device)
    distances = torch.vmap(lambda x: plaid.chamfer(x, d[:2]))(points)
    assert same(distances, torch.stack([plaid.chamfer(x, d[:2]) for x in points]))
    for wrong in (
        lambda: torch.func.jvp(lambda q: plaid.maxsim(q, d), (q,), (q,)),
        lambda: torch.func.hessian(lambda q: plaid.maxsim(q, d).sum())(q),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        with pytest.raises(RuntimeError, match="jvp"):
            plaid.maxsim(dual, d)


def test_subclasses_and_modes(device: str) -> None:
    class Named(torch.Tensor):
        pass

    q, d = random(2, 3, 8, device=device), random(4, 5, 8, device=device)
    assert same(plaid.maxsim(q.as_subclass(Named), d).as_subclass(torch.Tensor), plaid.maxsim(q, d))
    assert plaid.maxsim(torch.nn.Parameter(q), d).requires_grad
    negative = torch.complex(torch.zeros_like(q), q).conj().imag
    assert negative.is_neg()
    torch.testing.assert_close(plaid.maxsim(negative, d), plaid.maxsim(-q, d), rtol=0, atol=0)


def test_top_k_and_rank(device: str) -> None:
    q, d = random(3, 4, 8, device=device), random(23, 6, 8, device=device)
    mask = masks("holes", 23, 6, device=device)
    scores = plaid.maxsim(q, d, None, mask)
    want = scores.topk(5)
    for chunk in (None, 1, 4, 23, 100):
        got = plaid.top_k(q, d, 5, None, mask, chunk_size=chunk)
        assert same(got[0], want.values) and same(got[1], want.indices)
        got = plaid.rank(q, d.cpu(), 5, None, mask.cpu(), chunk_size=chunk)
        assert same(got[0], want.values) and same(got[1], want.indices)
    got = plaid.rank(q, ((d[i : i + 4], mask[i : i + 4]) for i in range(0, 23, 4)), 5)
    assert same(got[1], want.indices)
    assert same(plaid.top_k(q[0], d, 99, None, mask)[1], scores[0].argsort(descending=True))
    worst = plaid.top_k(q, d, 2, None, mask, largest=False, chunk_size=5)
    assert same(worst[0], scores.topk(2, largest=False).values)
    assert plaid.top_k(q, d[:0], 2)[0].shape == (3, 0)
    for k in (0, -1):
        with pytest.raises(ValueError, match="k is"):
            plaid.top_k(q, d, k)
    with pytest.raises(ValueError, match="no documents"):
        plaid.rank(q, [], 2)


@pytest.mark.parametrize("zeros", [False, True])
def test_int8(zeros: bool, device: str) -> None:
    q, d = random(3, 4, 32, device=device), random(5, 6, 32, device=device) + 0.1 * zeros
    mask = masks("holes", 5, 6, device=device)
    values, scales, *zero = plaid.quantize_int8_affine(d) if zeros else plaid.quantize_int8(d)
    how = {"zero_D": zero[0]} if zeros else {}
    restored = plaid.dequantize_int8(values, scales, *zero)
    torch.testing.assert_close(restored, d, rtol=0, atol=float(scales.max()) * 0.51)
    want = plaid.maxsim(q, restored, None, mask)
    torch.testing.assert_close(plaid.maxsim_int8(q, values, scale_D=scales, d_mask=mask, **how), want, rtol=0, atol=2e-6)
    by_column = plaid.maxsim_int8(q, values, scale_D=scales[..., None], d_mask=mask, **how)
    torch.testing.assert_close(by_column, want, rtol=0, atol=2e-6)
    queries, of_queries = plaid.quantize_int8(q)
    want = plaid.maxsim(plaid.dequantize_int8(queries, of_queries), restored, None, mask)
    got = plaid.maxsim_int8(queries, values, scale_Q=of_queries, scale_D=scales, d_mask=mask, **how)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    assert same(plaid.quantize_int8(torch.zeros(2, 3))[0], torch.zeros(2, 3, dtype=torch.int8))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8(dtype: torch.dtype, device: str) -> None:
    q, d = random(3, 4, 32, device=device), random(3, 2, 6, 32, device=device)
    for a, a_back in ((plaid.quantize_fp8_per_tensor, plaid.dequantize_fp8_per_tensor),
                      (plaid.quantize_fp8_per_token, plaid.dequantize_fp8_per_token)):  # fmt: skip
        values, scale = a(d, dtype)
        restored = a_back(values, scale)
        torch.testing.assert_close(restored, d, rtol=0.13, atol=0.02)
        got = plaid.maxsim_fp8(q, values, scale_D=scale)
        torch.testing.assert_close(got, plaid.maxsim(q, restored), rtol=0, atol=5e-6)
        queries, of_queries = a(q, dtype)
        got = plaid.maxsim_fp8(queries, values, scale_Q=of_queries, scale_D=scale)
        torch.testing.assert_close(got, plaid.maxsim(a_back(queries, of_queries), restored), rtol=0, atol=5e-6)


def test_module(device: str) -> None:
    q, d = random(3, 4, 8, device=device), random(3, 2, 6, 8, device=device)
    q_mask, d_mask = masks("holes", 3, 4, device=device), masks("holes", 3, 2, 6, device=device)
    masked = {"queries_mask": q_mask, "documents_mask": d_mask}
    every = plaid.MaxSim()(q, d, **masked)
    assert same(every, plaid.maxsim(q, d.view(6, 6, 8), q_mask, d_mask.view(6, 6)))
    own = plaid.MaxSim("own")(q, d, **masked)
    assert same(own, plaid.maxsim(q, d, q_mask, d_mask))
    torch.testing.assert_close(own, every.view(3, 3, 2).diagonal().T, rtol=0, atol=1e-6)
    each = plaid.MaxSim("pairs")(q, d[:, 1], queries_mask=q_mask, documents_mask=d_mask[:, 1])
    torch.testing.assert_close(each, own[:, 1], rtol=0, atol=1e-6)
    mean = plaid.MaxSim(mean=True)(q, d, **masked)
    torch.testing.assert_close(mean, every / q_mask.sum(1, keepdim=True), rtol=0, atol=1e-6)
    lists = [x[:n].cpu().numpy() for x, n in zip(q, (2, 4, 1))], [x[:n] for x, n in zip(d[:, 0], (6, 0, 3))]
    got = plaid.MaxSim(mean=True)(*lists)
    assert got.shape == (3, 3) and not got[:, 1].any()
    torch.testing.assert_close(got[0, 2], plaid.maxsim(q[0, :2], d[2, 0, :3]) / 2, rtol=0, atol=1e-6)
    torch.testing.assert_close(plaid.MaxSim("pairs", mean=True)(*lists), got.diagonal(), rtol=0, atol=1e-6)
    assert same(plaid.maxsim_inbatch(q, d[:, 0]), plaid.maxsim(q, d[:, 0]))
    assert same(plaid.maxsim_kd(q, d), plaid.maxsim(q, d))
    with pytest.raises(ValueError, match="'every'.*'all'"):
        plaid.MaxSim("every")
    with pytest.raises(ValueError, match="tokens, dim"):
        plaid.MaxSim("own")(q, d[:, 0])


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((4, 8), float(i))


def _scored_in_child(queue: multiprocessing.SimpleQueue) -> None:
    try:
        queue.put(plaid.maxsim(torch.ones(1, 2, 3), torch.ones(1, 2, 3)).item())
    except Exception as e:  # noqa: BLE001
        queue.put(f"{type(e).__name__}: {e}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork() -> None:
    d = random(5, 4, 8, device="cpu")
    plaid.maxsim(d, d)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for batch in loader:
        assert plaid.maxsim(batch, d).shape == (8, 5)
    for method, want in (("fork", "RuntimeError: plaid_ir.torch cannot be used in this process, which was forked.*spawn"), ("spawn", 6.0)):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=_scored_in_child, args=(queue,))
        child.start()
        child.join(120)
        assert child.exitcode == 0
        got = queue.get()
        if isinstance(want, float):
            assert got == want
        else:
            import re

            assert re.match(want, got), got
    assert plaid.maxsim(d, d).shape == (5, 5)


def test_fork_before_the_first_call_can_call() -> None:
    code = """if True:
        import os, torch, plaid_ir.torch as plaid
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            x = torch.ones(1, 2, 3)
            os._exit(0 if plaid.maxsim(x, x).item() == 6 else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_library_that_is_missing() -> None:
    environment = dict(os.environ, PLAID_MAXSIM_LIBRARY="/nowhere/lib.so")
    done = subprocess.run(
        [sys.executable, "-c", "import plaid_ir.torch"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode and "/nowhere/lib.so (from PLAID_MAXSIM_LIBRARY)" in done.stderr


def test_data_parallel_threads() -> None:
    from torch.nn.parallel import parallel_apply

    module = plaid.MaxSim()
    sides = [(random(2, 3, 8, device="cpu"), random(4, 5, 8, device="cpu")) for _ in range(3)]
    if torch.cuda.is_available():
        sides = [tuple(x.cuda() for x in s) for s in sides]
        got = parallel_apply([module] * 3, sides, devices=[0, 0, 0])
        for scores, (q, d) in zip(got, sides):
            assert same(scores, plaid.maxsim(q, d))
    else:
        assert all(same(module(*s), plaid.maxsim(*s)) for s in sides)


Q, D = torch.ones(2, 3, 8), torch.ones(4, 5, 8)
ERRORS = {
    "list": (lambda: plaid.maxsim([[1.0]], D), TypeError, "Q is a builtins.list.*pad_sequence"),
    "numpy": (lambda: plaid.maxsim(Q, D.numpy()), TypeError, "D is a numpy.ndarray.*from_numpy"),
    "none": (lambda: plaid.maxsim(None, D), TypeError, "Q is a builtins.NoneType"),
    "integers": (lambda: plaid.maxsim(Q.int(), D), TypeError, r"Q of shape \[2, 3, 8\], int32 on cpu.*Q.float"),
    "int8": (lambda: plaid.maxsim(Q, D.to(torch.int8)), TypeError, "D .*int8.*maxsim_int8"),
    "fp8": (lambda: plaid.maxsim(Q, D.to(torch.float8_e4m3fn)), TypeError, "D .*float8_e4m3fn.*maxsim_fp8"),
    "complex": (lambda: plaid.maxsim(Q, torch.complex(D, D)), TypeError, "D .*complex64"),
    "sparse": (lambda: plaid.maxsim(Q, D.to_sparse()), TypeError, "D has the layout torch.sparse_coo.*to_dense"),
    "nested": (lambda: plaid.maxsim(Q, torch.nested.nested_tensor([D[0], D[1]])), TypeError, "D is a nested tensor"),
    "quantised": (
        lambda: plaid.maxsim(Q, torch.quantize_per_tensor(D, 0.1, 0, torch.qint8)), TypeError, "D .*qint8.*dequantize",
    ),
    "dim": (lambda: plaid.maxsim(Q, D[..., :7]), ValueError, "share the embedding dim; got 8 and 7"),
    "axes": (lambda: plaid.maxsim(Q[0, 0], D), ValueError, r"Q of shape \[8\].*\[tokens, dim\] or \[items, tokens, dim\]"),
    "own axes": (lambda: plaid.maxsim(Q[0], D[None]), ValueError, r"Q of shape \[3, 8\].*has to be \[items, tokens, dim\]"),
    "own count": (lambda: plaid.maxsim(Q, D.view(1, 4, 5, 8)), ValueError, "documents for 1 queries, and Q has 2"),
    "pairs": (lambda: plaid.maxsim_pairs(Q, D), ValueError, "of the same B"),
    "device": (lambda: plaid.maxsim(Q, D.to("meta")), ValueError, r"same device; got cpu and meta.*D.to\(Q.device\)"),
    "mask shape": (lambda: plaid.maxsim(Q, D, None, D[..., 0].T), ValueError, r"d_mask has the shape \[5, 4\].*\[4, 5\]"),
    "mask device": (lambda: plaid.maxsim(Q, D, Q[..., 0].to("meta")), ValueError, "Q and q_mask.*cpu and meta"),
    "mask type": (lambda: plaid.maxsim(Q, D, None, [[1] * 5] * 4), TypeError, "d_mask is a builtins.list"),
    "offsets": (
        lambda: plaid.maxsim_varlen(Q[0], D[0], [0, 3], [0, 4, 2]), ValueError, r"cu_seqlens_d\[2\] is 2",
    ),
    "offsets beyond": (
        lambda: plaid.maxsim_varlen(Q[0], D[0], [0, 3], [0, 9], 3, 9), ValueError, "cu_seqlens_d.1. is 9, more than the",
    ),
    "offsets validated": (
        lambda: plaid.maxsim_varlen(Q[0], D[0], [0, 3], [0, 9], validate=True), ValueError, "cu_seqlens_d has to increase",
    ),
    "longest": (
        lambda: plaid.maxsim_varlen(Q[0], D[0], [0, 3], [0, 5], 3, 4, validate=True), ValueError, "longest item has 5",
    ),
    "longest found": (lambda: plaid.maxsim_varlen(Q[0], D[0], [0, 3], [0, 5], 3, 4), ValueError, "max_seqlen_d, 4"),
    "offsets type": (lambda: plaid.maxsim_varlen(Q[0], D[0], torch.tensor([0.0, 3]), [0, 5]), TypeError, "cu_seqlens_q"),
    "lengths": (lambda: plaid.maxsim_padded(Q, D, [3, 4], [5] * 4), ValueError, r"query_lengths\[1\] is 4"),
    "lengths validated": (lambda: plaid.maxsim_padded(Q, D, [3, 4], [5] * 4, validate=True), ValueError, "query_lengths .* 0..3"),
    "lengths shape": (lambda: plaid.maxsim_padded(Q, D, [3], [5] * 4), ValueError, r"query_lengths has the shape \[1\]"),
    "candidates": (lambda: plaid.maxsim_candidates(Q, D, [[0], [4]]), ValueError, "^candidates: document 4 of pair 1 is not in 0..3"),
    "candidates validated": (
        lambda: plaid.maxsim_candidates(Q, D, torch.tensor([[0], [4]]), validate=True), ValueError, r"candidates .* 0..3",
    ),
    "candidates shape": (lambda: plaid.maxsim_candidates(Q, D, torch.tensor([1])), ValueError, r"\[Nq, K\]"),
    "metric": (lambda: plaid.chamfer(Q, Q, metric="cosine"), ValueError, "'cosine'.*'l2'"),
    "reduction": (lambda: plaid.chamfer(Q, Q, reduction="max"), ValueError, "'max'.*'mean'"),
    "points there are": (lambda: plaid.chamfer(Q, Q, y_lengths=[3, 4]), ValueError, r"y_lengths\[1\] is 4"),
    "points": (lambda: plaid.chamfer(Q, D), ValueError, "of the same B"),
    "W": (lambda: plaid.maxsim_from_hidden(Q, D, torch.ones(8, 7)), ValueError, r"W .*has to be \[8, 8\]"),
    "b": (lambda: plaid.maxsim_from_hidden(Q, D, torch.ones(8, 8), torch.ones(7)), ValueError, r"b .*has to be \[8\]"),
    "scale": (lambda: plaid.maxsim_int8(Q, D.to(torch.int8), scale_D=torch.ones(5)), ValueError, r"scale_D .*\[4, 5\]"),
    "no scale": (lambda: plaid.maxsim_int8(Q.to(torch.int8), D.to(torch.int8), scale_D=torch.ones(4, 5)), TypeError, "scale_Q"),
    "unsigned": (lambda: plaid.maxsim_int8(Q, D.to(torch.uint8), scale_D=torch.ones(4, 5)), TypeError, "D .*int8"),
}  # fmt: skip
if hasattr(torch.Tensor, "rename"):  # newer versions have no named tensors
    ERRORS["named"] = (lambda: plaid.maxsim(Q[:, :2].rename("n", None, None), D), TypeError, "Q has named dimensions.*rename")


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.filterwarnings("ignore")
def test_errors(name: str) -> None:
    call, kind, message = ERRORS[name]
    for _ in range(2):  # what was refused once is not remembered as right
        with pytest.raises(kind, match=message):
            call()


def test_tensor_that_left_a_transform(device: str) -> None:
    q, d = random(2, 3, 16, device=device), random(4, 5, 16, device=device)
    left: list[torch.Tensor] = []
    torch.func.grad(lambda x: (left.append(x), x.sum())[1])(q)
    d.requires_grad_()
    scores = plaid.maxsim(left[0], d)
    assert same(scores, plaid.maxsim(q, d))
    (got,) = torch.autograd.grad(scores.sum(), d)
    assert same(got, torch.autograd.grad(plaid.maxsim(q, d).sum(), d)[0])
