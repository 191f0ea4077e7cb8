"""Calls on a GPU among other streams, threads, captures, devices and processes. They need PLAID_TORCH_DEVICE=cuda."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import plaid_ir.torch as plaid
from plaid_ir.torch import _library

pytestmark = pytest.mark.skipif(os.environ.get("PLAID_TORCH_DEVICE") != "cuda", reason="PLAID_TORCH_DEVICE is not cuda")
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")


def operands(nq: int, lq: int, nd: int, ld: int, dim: int = 64, device: str | int = "cuda") -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(hash((nq, lq, nd, ld, dim)) % 1_000_003)
    return tuple(  # type: ignore[return-value]
        torch.randn(n, length, dim, generator=g).to(device, torch.float16) for n, length in ((nq, lq), (nd, ld))
    )


def plain(q: Tensor, d: Tensor) -> Tensor:
    return torch.einsum("qsh,dth->qdst", q.double(), d.double()).max(-1).values.sum(-1)


def near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-3)


def shapes(count: int) -> list[tuple[int, int, int, int]]:
    """Different ones; a device keeps plans of 1,024."""
    return [(1 + i % 3, 1 + i // 3 % 40, 1 + i // 120 % 5, 1 + i // 600) for i in range(count)]


def script(text: str, *args: object, code: int = 0, seconds: int = 100) -> str:
    """What a process of its own prints."""
    ran = subprocess.run(
        [sys.executable, "-c", text, *map(str, args)], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


CAPTURE = """
import sys
import torch
import plaid_ir.torch as plaid

torch.manual_seed(1)
Q = torch.randn(2, 32, 128, device="cuda").half().requires_grad_()
D = torch.randn(9, 70, 128, device="cuda").half().requires_grad_()
H, W = torch.randn(9, 70, 64, device="cuda").half(), torch.randn(128, 64, device="cuda").half()
X, Y = torch.randn(500, 3, device="cuda"), torch.randn(600, 3, device="cuda")
mask = torch.rand(9, 70, device="cuda") < 0.7
ends = torch.tensor([0, 20, 64], device="cuda", dtype=torch.int32), torch.arange(0, 631, 70, device="cuda").int()
ones = torch.ones(2, 9, device="cuda")
torch.cuda.synchronize()

def work():
    scores = plaid.maxsim(Q, D, d_mask=mask)
    results = [scores, *torch.autograd.grad(scores, (Q, D), ones)]
    with torch.no_grad():
        results.append(plaid.maxsim_varlen(Q.view(64, 128), D.view(630, 128), *ends, 44, 70))
        results += [plaid.maxsim_from_hidden(Q, H, W), plaid.chamfer(X, Y), *plaid.top_k(Q, D, 3)]
    return results

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode=sys.argv[1]):
    captured = work()
for i in range(2000):  # more shapes than plans are kept of
    q = torch.zeros(1, 1 + i % 40, 16, device="cuda")
    plaid.maxsim(q, torch.zeros(1 + i // 40, 3, 16, device="cuda"))
for i in range(100):
    with torch.no_grad():
        Q.copy_(torch.randn(Q.shape)), D.copy_(torch.randn(D.shape)), X.copy_(torch.randn(X.shape))
        mask.copy_(torch.rand(mask.shape) < 0.5)
    graph.replay()
    for a, b in zip(captured, work(), strict=True):
        assert torch.equal(a, b), i
print("same")
"""


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_captured_as_the_first_use(mode: str) -> None:
    assert script(CAPTURE, mode) == "same\n"


def test_threads_with_streams_of_their_own() -> None:
    """Plans leave the shelf while another thread's kernels may read their tables."""
    problems = [(*s, *operands(*s, dim=16)) for s in shapes(3000)]
    want = [plaid.maxsim(q, d) for *_, q, d in problems]
    assert near(want[77], plain(*problems[77][4:]))
    torch.cuda.synchronize()
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                order = list(range(len(problems)))
                random.Random(seed).shuffle(order)
                for i in order:
                    if not torch.equal(plaid.maxsim(*problems[i][4:]), want[i]):
                        wrong.append(problems[i][:4])
        except Exception as e:  # shown below
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_streams() -> None:
    """Each with shapes that no other has had: tables are there before the kernels that read them."""
    other = torch.cuda.Stream()
    streams: list[torch.cuda.Stream] = [
        torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1),
        torch.cuda.ExternalStream(other.cuda_stream), torch.cuda.ExternalStream(2),  # that of the thread
    ]  # fmt: skip
    for i, stream in enumerate(streams):
        for j in range(30):
            q, d = operands(2, 33 + i, 50 + j, 21)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                scores = plaid.maxsim(q, d)
            stream.synchronize()
            assert near(scores, plain(q, d)), (stream, j)


def test_work_before_is_waited_for() -> None:
    """Operands that are still being computed in the stream."""
    q, d = operands(4, 32, 300, 180, 128)
    want = plaid.maxsim(q, d)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            late = torch.zeros_like(d)
            torch.cuda._sleep(2_000_000)
            late.copy_(d)
            scores = plaid.maxsim(q, late)
            late.zero_()
            assert torch.equal(scores, want)


def test_after_calls_that_failed() -> None:
    q, d = operands(2, 32, 9, 70)
    want = plaid.maxsim(q, d)
    with pytest.raises(ValueError, match="dim"):
        plaid.maxsim(q, d[..., :32])
    with pytest.raises(ValueError, match="cu_seqlens_d"):
        plaid.maxsim_varlen(q.view(64, 64), d.view(630, 64), [0, 64], [0, 900], 64, 900, validate=True)
    call = _library.SCORE
    taken: list[bytes] = []

    def take(record: bytes, address: int) -> int:
        taken.append(record)
        return 0

    real, call.function = call.function, take
    try:
        plaid.maxsim(q, d, d_mask=torch.ones(9, 70, dtype=torch.bool, device="cuda"))
    finally:
        call.function = real
    assert real(taken[0][:24] + bytes(16) + taken[0][40:], _library.error.address) == _library.MEMORY
    torch.cuda.synchronize()
    assert torch.equal(plaid.maxsim(q, d), want)


LOST = """
import torch
import plaid_ir.torch as plaid
from plaid_ir.torch import _library

q, d = torch.ones(1, 32, 128, device="cuda").half(), torch.ones(100, 300, 128, device="cuda").half()
plaid.maxsim(q, d)
call, real = _library.SCORE, _library.SCORE.function
data = d.data_ptr().to_bytes(8, "little")
call.function = lambda record, address: real(record.replace(data, (1 << 44).to_bytes(8, "little")), address)
try:
    plaid.maxsim(q, d)
    torch.cuda.synchronize()
except RuntimeError as e:
    print("illegal" in str(e))
call.function = real
for call in (lambda: plaid.maxsim(q, d), lambda: plaid.chamfer(q[0].float(), d[0].float())):
    try:
        call()
    except RuntimeError as e:
        print(type(e).__name__)
"""


def test_an_address_that_is_none() -> None:
    """All calls of the process fail then, those of torch, too; with an error that says it is the device's."""
    first, *later = script(LOST).split()
    assert first == "True"
    assert set(later) <= {"DeviceError", "AcceleratorError", "RuntimeError"} and len(later) == 2


EXIT = """
import os, sys, threading
import torch
import plaid_ir.torch as plaid
from plaid_ir.torch import _library

q, d = torch.ones(16, 32, 128, device="cuda").half(), torch.ones(10000, 300, 128, device="cuda").half()
plaid.maxsim(q, d)
if "graph" in sys.argv[1]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scores = plaid.maxsim(q, d)
    graph.replay()

call, records = _library.SCORE, []
real, call.function = call.function, lambda record, address: records.append(record) or real(record, address)
kept = plaid.maxsim(q, d)
call.function = real

def work():  # torch's own functions end the process by an abort where a daemon thread is in them
    while True:
        real(records[0], _library.error.address)

if "thread" in sys.argv[1]:
    threading.Thread(target=work, daemon=True).start()
for _ in range(200):
    plaid.maxsim(q, d)
print("done", flush=True)
(os._exit if "hard" in sys.argv[1] else sys.exit)(0)
"""


@pytest.mark.parametrize("how", ["soft", "hard", "graph", "graph, hard", "thread", "thread, graph", "thread, hard"])
def test_exit_with_work_in_the_queue(how: str) -> None:
    assert script(EXIT, how) == "done\n"


def test_more_values_than_31_bits_count() -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("the GPU has no 40 GiB")
    q, _ = operands(2, 32, 1, 1, 128)
    for dtype in (torch.float16, torch.float32):
        d = torch.zeros(200_000, 100, 128, device="cuda", dtype=dtype)
        d[-1, 50:82], d[-2, 0] = q[0], 1
        want = plain(q, d[-2:].to(torch.float16))
        assert near(plaid.maxsim(q, d)[:, -2:], want)
        ends = torch.arange(0, 20_000_001, 100, dtype=torch.int32, device="cuda")
        packed = plaid.maxsim_varlen(q.view(64, 128), d.view(-1, 128), [0, 32, 64], ends, 32, 100)
        assert near(packed[:, -2:], want) and not packed[:, :-2].any()
        del d


def test_many_pairs_of_one_query() -> None:
    """A million pairs with gradients: the lists of an item's pairs are as long as all of them."""
    q, d = operands(1, 4, 1000, 3, 16)
    q, d = q[0].float().requires_grad_(), d.view(-1, 16).float().requires_grad_()
    number = torch.randint(1000, (1_000_000,), device="cuda")
    ends = torch.arange(0, 3001, 3, device="cuda")
    weight = torch.randn(1_000_000, device="cuda")
    scores = plaid.score_pairs_packed(
        q, d, [0, 4], ends, torch.zeros_like(number), number, max_seqlen_q=4, max_seqlen_d=3
    )
    dq, dd = torch.autograd.grad(scores, (q, d), weight)
    each = plaid.maxsim(q.double()[None], d.double().view(1000, 3, 16))[0]
    assert near(scores, each[number])
    total = torch.zeros(1000, dtype=torch.float64, device="cuda").index_add_(0, number, weight.double())
    want_q, want_d = torch.autograd.grad(each, (q, d), total)
    assert torch.allclose(dd, want_d, rtol=1e-4, atol=1e-3) and torch.allclose(dq, want_q, rtol=1e-3, atol=0.1)


def test_more_pairs_than_27_bits_count() -> None:
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("the GPU has no 60 GiB")
    pairs = 150_000_000
    q, d = operands(5, 1, 7, 1, 16)
    first, second = (torch.arange(pairs, dtype=torch.int32, device="cuda").remainder_(n) for n in (5, 7))
    ends = [torch.arange(n + 1, dtype=torch.int32, device="cuda") for n in (5, 7)]
    scores = plaid.score_pairs_packed(q[:, 0], d[:, 0], *ends, first, second, max_seqlen_q=1, max_seqlen_d=1)
    every = plaid.maxsim(q, d)
    for part in (slice(0, 1000), slice(-1000, None), slice(1 << 27, (1 << 27) + 1000)):
        assert near(scores[part], every[first[part].long(), second[part].long()])


@several
def test_two_devices() -> None:
    want = {}
    for index in (1, 0, 1):
        q, d = operands(3, 32, 40, 180, 128, index)
        q.requires_grad_()
        scores = plaid.maxsim(q, d)
        (dq,) = torch.autograd.grad(scores.sum(), q)
        assert torch.cuda.current_device() == 0 and torch.zeros(1, device="cuda").device.index == 0
        assert scores.device.index == dq.device.index == index
        for name, x in ("scores", scores), ("dq", dq):
            assert torch.equal(want.setdefault(name, x.detach().cpu()), x.detach().cpu())
    with pytest.raises(ValueError, match="cuda:1"):
        plaid.maxsim(operands(1, 2, 1, 2)[0], operands(1, 2, 1, 2, device=1)[1])


@several
def test_two_devices_at_once() -> None:
    problems = [[operands(*s, dim=16, device=index) for s in shapes(1500)] for index in (0, 1)]
    want = [plaid.maxsim(q, d).cpu() for q, d in problems[0]]
    got: list[list[Tensor]] = [[], []]

    def work(index: int) -> Callable[[], None]:
        return lambda: got[index].extend(plaid.maxsim(q, d) for q, d in problems[index])

    threads = [threading.Thread(target=work(index)) for index in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for scores in got:
        assert len(scores) == len(want) and all(torch.equal(a.cpu(), b) for a, b in zip(scores, want))
