"""Operands that lie in memory in odd ways, and values at the ends of what an argument may be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import reference
import torch
from test_scores import masks, near, random, same
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import plaid_ir.torch as plaid


def test_documents_that_are_repeated(device: str) -> None:
    """An inner axis without a step is not one that is missing: the items do not lie one after another."""
    q = random(3, 6, 5, device=device)
    d = random(3, 1, 4, 5, device=device).requires_grad_()
    repeated = d.expand(3, 2, 4, 5)
    near(plaid.maxsim(q, repeated).detach(), reference.every(q, repeated.detach()), 6)
    near(plaid.maxsim(q, d[:1].expand(3, 2, 4, 5)).detach(), reference.every(q, d[:1].detach().expand(3, 2, 4, 5)), 6)
    plaid.maxsim(q, repeated).sum().backward()
    exact = d.detach().double().requires_grad_()
    plaid.maxsim(q.double(), exact.expand(3, 2, 4, 5)).sum().backward()
    assert d.grad is not None and exact.grad is not None
    near(d.grad, exact.grad, 6)


TOO_MUCH = (1 << 32) + 1  # which int32 takes for 1


def refused(message: str, call: Callable[[], object], kind: type[Exception] = ValueError) -> None:
    with pytest.raises(kind, match=message) as caught:
        call()
    for internal in ("kernels:", "q.", "d.lengths", "d.offsets", "longest,"):
        assert internal not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lengths_and_numbers_that_are_refused(dtype: torch.dtype) -> None:
    """By their names, in float64 as well, and before int32 makes others of them."""
    q, d = random(2, 3, 4, device="cpu", dtype=dtype), random(5, 6, 4, device="cpu", dtype=dtype)
    for wrong in (-1, 5, TOO_MUCH):
        refused("candidates", lambda: plaid.maxsim_candidates(q, d, torch.tensor([[0], [wrong]])))
    for wrong in (-1, 4, TOO_MUCH):
        refused("query_lengths", lambda: plaid.maxsim_padded(q, d, torch.tensor([wrong, 2]), [6] * 5))
        refused("query_lengths", lambda: plaid.maxsim_padded(q, d, [wrong, 2], [6] * 5))
    refused("doc_lengths", lambda: plaid.maxsim_padded(q, d, [1, 2], [1, 2, 3, 4, 7]))
    refused("query_lengths", lambda: plaid.maxsim_padded(q, d, [1.5, 2], [6] * 5), TypeError)  # type: ignore[list-item]
    refused("query_lengths", lambda: plaid.maxsim_padded(q, d, [1 << 70, 2], [6] * 5), TypeError)
    refused("x_lengths", lambda: plaid.chamfer(q, q, x_lengths=torch.tensor([4, 2]), y_lengths=torch.tensor([1, 2])))
    rows_q, rows_d = q.reshape(-1, 4), d.reshape(-1, 4)
    for offsets in ([0, 3, 7], [0, 3, 2], [-1, 3, 6], [0, TOO_MUCH, 6]):
        refused("cu_seqlens_q", lambda: plaid.maxsim_varlen(rows_q, rows_d, offsets, [0, 30]))
        refused("cu_seqlens_q", lambda: plaid.maxsim_varlen(rows_q, rows_d, torch.tensor(offsets), [0, 30], 7, 30))
    refused("max_seqlen", lambda: plaid.maxsim_varlen(rows_q, rows_d, [0, 3, 6], [0, 30], 2, 30))
    half: Any = 6.5
    refused("max_seqlen", lambda: plaid.maxsim_varlen(rows_q, rows_d, [0, 6], [0, 30], half, 30), TypeError)
    for wrong in (-1, 2):
        refused("pair_q", lambda: plaid.score_pairs_packed(rows_q, rows_d, [0, 3, 6], [0, 30], [0, wrong], [0, 0]))
        refused("pair_d", lambda: plaid.score_pairs_packed(rows_q, rows_d, [0, 3, 6], [0, 9, 30], [0, 0], [0, wrong]))


def test_blocks_of_one_document(device: str) -> None:
    q, documents = random(2, 3, 4, device=device), random(4, 5, 4, device=device)
    mask = masks("holes", 4, 5, device=device)
    assert mask is not None
    want = plaid.rank(q, documents, 3, d_mask=mask)
    got = plaid.rank(q, [(x, m) for x, m in zip(documents, mask)], 3)
    assert torch.equal(got[1], want[1]) and same(got[0], want[0])
    refused("chunk_size", lambda: plaid.rank(q, documents, 3, chunk_size=0))
    refused("a block of D", lambda: plaid.rank(q, [[documents]], 3), TypeError)  # type: ignore[list-item]


def test_lists_with_masks_of_another_number(device: str) -> None:
    q, d = list(random(3, 4, 8, device=device)), list(random(2, 5, 8, device=device))
    refused("3 queries_embeddings, and 2 masks", lambda: plaid.MaxSim()(q, d, torch.ones(2, 4, device=device)))
    refused("documents_embeddings.1.", lambda: plaid.MaxSim()(q, [d[0], d[1][None]]))


def test_padding_that_is_no_number_of_distances_in_float64() -> None:
    x, y = random(2, 4, 3, device="cpu", dtype=torch.float64), random(2, 5, 3, device="cpu", dtype=torch.float64)
    x[0, 2], y[1, 4] = float("nan"), float("inf")
    x_mask, y_mask = x.isfinite().all(-1), y.isfinite().all(-1)
    x.requires_grad_(), y.requires_grad_()
    plaid.chamfer(x, y, x_mask, y_mask).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert x.grad.isfinite().all() and y.grad.isfinite().all()


def test_more_dimensions_than_the_library_has() -> None:
    """Torch takes them under transforms, modes and compilers, too."""
    q, d = random(2, 3, 4100, device="cpu"), random(2, 4, 4100, device="cpu")
    want, distances = plaid.maxsim(q, d), plaid.chamfer(q, d)
    torch.testing.assert_close(torch.vmap(lambda x: plaid.maxsim(x, d))(q), want)
    with FlopCounterMode(display=False):
        torch.testing.assert_close(plaid.maxsim(q, d), want)
        torch.testing.assert_close(plaid.chamfer(q, d), distances)
    compiled = torch.compile(plaid.maxsim, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, d), want)
    assert torch.func.grad(lambda x: plaid.maxsim(x, d).sum())(q).shape == q.shape


def test_vmap_of_no_items(device: str) -> None:
    d = random(5, 4, 8, device=device)
    assert torch.vmap(lambda x: plaid.maxsim(x, d))(random(0, 2, 3, 8, device=device)).shape == (0, 2, 5)


@pytest.mark.parametrize("axes", [2, 3])
def test_points_far_from_zero(axes: int, device: str) -> None:
    """Distances of float32 are those of float64 wherever the points are, item by item."""
    x, y = torch.randn(3, 40, 5, device=device), torch.randn(3, 50, 5, device=device)
    where = torch.tensor([0.0, 1e3, -1e5], device=device).reshape(3, 1, 1)
    x, y = x + where, y + where
    mask = masks("holes", 3, 50, device=device)
    assert mask is not None
    y[~mask] = float("nan")
    if axes == 2:
        x, y, mask = x[1], y[1], mask[1]
    got = plaid.chamfer(x, y, y_mask=mask)
    torch.testing.assert_close(got.double(), plaid.chamfer(x.double(), y.double(), y_mask=mask), rtol=1e-5, atol=0)


def test_hooks_that_unpack_views(device: str) -> None:
    """What hooks give back for a saved tensor may lie in memory otherwise than it did."""
    q, d = random(3, 6, 16, device=device).requires_grad_(), random(4, 7, 16, device=device).requires_grad_()
    mask = masks("holes", 4, 7, device=device)
    calls: list[Callable[[], Tensor]] = [
        lambda: plaid.maxsim(q, d, d_mask=mask, normalize=True),
        lambda: plaid.maxsim_candidates(q, d, [[0, 1], [2, 3], [3, 3]]),
        lambda: plaid.maxsim_padded(q, d, [6, 2, 3], [7, 1, 0, 4]),
        lambda: plaid.maxsim_varlen(q.flatten(0, 1), d.flatten(0, 1), [0, 6, 18], [0, 7, 9, 28]),
        lambda: plaid.chamfer(q, d[:3]),
    ]
    for call in calls:
        want = torch.autograd.grad(call().sum(), (q, d))
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.repeat_interleave(2, -1), lambda x: x[..., ::2]):
            scores = call()
        for got, gradient in zip(torch.autograd.grad(scores.sum(), (q, d)), want):
            assert torch.equal(got, gradient)


def test_nested_tensors_are_explained() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)
        refused("nested tensor; pass values", lambda: plaid.maxsim(torch.ones(2, 3, 4), nested), TypeError)


def test_heads_of_queries_with_lengths_far_from_one() -> None:
    """Squares that float32 does not hold are no zeros and no infinities of scores."""
    q, h, w = torch.randn(2, 3, 8), torch.randn(4, 5, 8), torch.randn(8, 8)
    want = plaid.maxsim_from_hidden(q, h, w)
    for factor in (1e-25, 1e25):
        torch.testing.assert_close(plaid.maxsim_from_hidden(q * factor, h, w) / factor, want)


def test_longest_items_that_no_memory_has() -> None:
    rows = torch.ones(3, 4)
    for wrong in (-1, 1 << 31, 1 << 70):
        refused("longest item of D", lambda: plaid.maxsim_varlen(rows, rows, [0, 3], [0, 3], 3, wrong))


def test_vectors_that_have_left_a_transform(device: str) -> None:
    """What torch.func wrapped is the tensor itself afterwards."""
    q, d = random(2, 4, 8, device=device).requires_grad_(), random(3, 5, 8, device=device)
    seen = []

    def loss(x: Tensor) -> Tensor:
        seen.append(x)
        return plaid.maxsim(x, d).sum()

    want = torch.func.grad(loss)(q)
    plaid.maxsim(seen[0], d).sum().backward()
    assert q.grad is not None
    same(q.grad, want)


INTERRUPTED = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background do not have
import torch
import plaid_ir.torch as plaid

torch.set_num_threads(2)
q, d = torch.randn(8, 32, 128), torch.randn(500, 180, 128)
plaid.maxsim(q, d)
print("begin", flush=True)
while True:
    plaid.maxsim(q, d)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are Unix's")
def test_interrupt_ends_a_loop_of_calls() -> None:
    """Ctrl-C is Python's: the library, which has a runtime of its own, leaves its handler alone."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begin\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
