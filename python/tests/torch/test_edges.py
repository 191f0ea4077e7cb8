"""Operands that lie in memory in odd ways, and values at the ends of what an argument may be."""

from __future__ import annotations

import reference
import torch
from test_scores import near, random

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
