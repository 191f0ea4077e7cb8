"""The tests run where torch and the library are: PLAID_MAXSIM_LIBRARY names it, or the wheel has it. With
PLAID_TORCH_DEVICE=cuda they run on a GPU."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("plaid_ir.torch", exc_type=ImportError)


@pytest.fixture
def device() -> str:
    return os.environ.get("PLAID_TORCH_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(17)
