"""Calls on a GPU, as far as they can be told without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import plaid_ir.torch as plaid
from plaid_ir.torch import _calls, _library, _operands


class Device:
    """A library whose calls need a workspace: 256 bytes, and 4096 where the data are not aligned."""

    def __init__(self) -> None:
        self.asked = 0
        self.calls: list[tuple[int, int]] = []  # codes, and the bytes that were there
        self.full = False
        self.heads = _library.SCORE.heads
        self.pack = lambda *fields: fields

    def _need(self, record: tuple[Any, ...]) -> int:
        return 4096 if record[5] % 16 else 256

    def workspace(self, record: tuple[Any, ...]) -> int:
        self.asked += 1
        return self._need(record)

    def function(self, record: tuple[Any, ...], address: int) -> int:
        code = _library.MEMORY if self.full or record[3] < self._need(record) else 0
        self.calls.append((code, record[3]))
        return code


def test_workspace_of_data_that_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "_current_device", lambda: 0)
    monkeypatch.setattr(_calls, "_raw_stream", lambda index: 0)
    device: Any = Device()
    x = torch.zeros(33, dtype=torch.float16)
    aligned, moved = x[:32].view(1, 2, 16), x[1:].view(1, 2, 16)
    p = _operands.build_plan(aligned, aligned, None, None, None, None, _operands.Terms(0, 0, _library.ALL, False))
    p.index = 0
    rest = aligned, None, None, None, None, (p.rule, 0, 0)
    for data in (aligned, aligned, moved, moved, aligned):
        _calls.launch(device, p, False, data, *rest)
    code = _library.MEMORY
    assert device.calls == [(0, 256), (0, 256), (code, 256), (0, 4096), (0, 4096), (0, 4096)]
    assert device.asked == 2  # by the first call, and by the one that did not fit

    device.full = True  # which no workspace helps
    device.calls.clear()
    with pytest.raises(MemoryError):
        _calls.launch(device, p, False, aligned, *rest)
    assert device.calls == [(code, 4096), (code, 4096)]


def test_views_that_are_not_aligned(device: str) -> None:
    """What was found out for a shape is right for vectors of that shape that lie elsewhere."""
    for dtype in (torch.float16, torch.float32):
        memory = torch.randn(5 * 9 * 64 + 1, device=device).to(dtype)
        d = memory[1:].view(5, 9, 64)
        q = torch.randn(2, 7, 64, device=device).to(dtype)
        want = plaid.maxsim(q, d.clone())
        assert torch.allclose(plaid.maxsim(q, d), want, rtol=1e-4, atol=1e-3)
        assert torch.allclose(plaid.maxsim(q, d.clone()), want, rtol=1e-4, atol=1e-3)
