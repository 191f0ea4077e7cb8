"""late-interaction-kernels' names, where its own tests (suites/) do not look."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import plaid_ir.lik
import plaid_ir.torch
from plaid_ir.lik import padded, plaid, reference


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("nbits", "dim"), [(2, 10), (4, 7), (8, 5), (2, 128)])
def test_residuals(nbits: int, dim: int, normalize: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dimensions that fill no byte, padded and packed, decoded at once and one document at a time."""
    centroids, weights = torch.randn(9, dim), torch.randn(2**nbits)
    codes, lengths = torch.randint(0, 9, (5, 6)), torch.tensor([6, 3, 1, 4, 0])
    residuals = torch.randint(0, 256, (5, 6, (dim * nbits + 7) // 8), dtype=torch.uint8)
    q = torch.randn(2, 4, dim)
    kept = torch.arange(6) < lengths[:, None]
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    q, codes, residuals, lengths, centroids, weights, kept, offsets = (
        x.to(device) for x in (q, codes, residuals, lengths, centroids, weights, kept, offsets)
    )
    table = (centroids, weights, nbits)
    want = reference.maxsim_residual_reference(q, codes, residuals, lengths, *table, normalize=normalize)
    for most in (64 << 20, 1):
        monkeypatch.setattr(plaid, "_DECODED_BYTES", most)
        scores = plaid.maxsim_residual(q, codes, residuals, lengths, *table, normalize=normalize)
        torch.testing.assert_close(scores, want, rtol=1e-4, atol=1e-4)
        scores = plaid.maxsim_residual_varlen(q[0], codes[kept], residuals[kept], offsets, *table, normalize=normalize)
        torch.testing.assert_close(scores, want[0], rtol=1e-4, atol=1e-4)


def test_approximate_scores(device: str) -> None:
    """A number that no centroid has is 0."""
    scores = torch.randn(9, 4, device=device)
    codes = torch.tensor([[-1, 3, 9], [8, 2, 2]], device=device)
    lengths = torch.tensor([3, 2], device=device)
    want = reference.plaid_approx_score_reference(scores, codes * (codes > 0) * (codes < 9), lengths)
    torch.testing.assert_close(plaid.plaid_approx_score(scores, codes, lengths), want, rtol=0, atol=0)


def test_packed_is_what_padded_scores(device: str) -> None:
    q, d = torch.randn(2, 3, 8, device=device), torch.randn(2, 2, 5, 8, device=device)
    lengths = torch.tensor([3, 1], device=device), torch.tensor([[5, 1], [2, 0]], device=device)
    q_rows, q_ends, d_rows, d_ends, pair_q, pair_d, longest_q, longest_d = padded.pack_padded(q, d, *lengths)
    assert (longest_q, longest_d, len(q_rows), len(d_rows)) == (3, 5, 4, 8)
    packed = plaid_ir.lik.autograd.score_pairs_packed(
        q_rows, d_rows, q_ends, d_ends, pair_q, pair_d, max_seqlen_q=longest_q, max_seqlen_d=longest_d
    )
    scores = plaid_ir.lik.maxsim_padded(q, d, *lengths)
    torch.testing.assert_close(packed.view(2, 2), scores, rtol=1e-6, atol=1e-6)
    assert scores[1, 1] == 0


def test_packed_longer_than_said() -> None:
    q, d = torch.randn(3, 8), torch.randn(5, 8)
    with pytest.raises(RuntimeError):
        plaid_ir.lik.maxsim_varlen(q, d, torch.tensor([0, 3]), torch.tensor([0, 5]), 3, 4)


def test_install_and_uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported under that name before is there again afterwards."""
    before = type(sys)("late_interaction_kernels")
    part = type(sys)("late_interaction_kernels.forward")
    monkeypatch.setitem(sys.modules, "late_interaction_kernels", before)
    monkeypatch.setitem(sys.modules, "late_interaction_kernels.forward", part)
    plaid_ir.lik.install()
    plaid_ir.lik.install()
    try:
        for name in ("autograd", "fp8", "fused_head", "mps", "padded", "plaid", "reference", "retrieve", "topk", "varlen"):
            module = importlib.import_module(f"late_interaction_kernels.{name}")
            assert module.__name__.startswith("plaid_ir.lik"), name
        root = importlib.import_module("late_interaction_kernels")
        assert all(hasattr(root, name) for name in root.__all__)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("late_interaction_kernels.forward")
    finally:
        plaid_ir.lik.uninstall()
    assert sys.modules["late_interaction_kernels"] is before
    assert sys.modules["late_interaction_kernels.forward"] is part
    plaid_ir.lik.uninstall()


def test_install_that_is_reloaded_and_that_threads_race_for() -> None:
    """What was imported before is there again."""
    before = types.ModuleType("late_interaction_kernels")
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("late_interaction_kernels")}
    sys.modules["late_interaction_kernels"] = before
    try:
        plaid_ir.lik.install()
        importlib.reload(sys.modules["late_interaction_kernels"])
        plaid_ir.lik.uninstall()
        assert sys.modules["late_interaction_kernels"] is before

        def both(_: int) -> None:
            plaid_ir.lik.install()
            plaid_ir.lik.uninstall()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(both, range(800)))
        assert sys.modules["late_interaction_kernels"] is before
    finally:
        plaid_ir.lik.uninstall()
        del sys.modules["late_interaction_kernels"]
        sys.modules.update(others)


def test_patches_say_what_to_do() -> None:
    with pytest.warns(DeprecationWarning, match="score_metric"):
        plaid_ir.lik.patch_pylate()
    with pytest.warns(DeprecationWarning, match="maxsim_inbatch"):
        plaid_ir.lik.patch_colpali_engine()


@pytest.mark.parametrize("name", [
    "maxsim", "maxsim_pairs", "maxsim_varlen", "maxsim_padded", "maxsim_from_hidden", "score_pairs_packed",
    "quantize_fp8_per_tensor", "quantize_fp8_per_token", "dequantize_fp8_per_tensor", "dequantize_fp8_per_token",
])  # fmt: skip
def test_same_names(name: str) -> None:
    """plaid_ir.torch names and orders arguments as the other library does; `backward=` has no meaning here."""
    modules = (plaid_ir.lik.autograd, plaid_ir.lik.padded, plaid_ir.lik.fp8, plaid_ir.lik)
    theirs = next(getattr(module, name) for module in modules if hasattr(module, name))
    names = [x for x in inspect.signature(theirs).parameters if x != "backward"]
    assert list(inspect.signature(getattr(plaid_ir.torch, name)).parameters)[: len(names)] == names
