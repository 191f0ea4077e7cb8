"""What calls of plaid_ir.torch cost in Python: the library does nothing, tensors are the processor's.

    PLAID_MAXSIM_LIBRARY=FILE python tests/maxsim/call_cost.py [ROUNDS]

It prints microseconds, the least of the rounds of 500 calls, which take turns.
"""

from __future__ import annotations

import sys
import time

import torch

from plaid_ir import torch as plaid
from plaid_ir.torch import _library

Q, D, leaf = torch.randn(1, 4, 16), torch.randn(1, 4, 16), torch.randn(1, 4, 16, requires_grad=True)
q, d, H, W = Q[0], D[0], torch.randn(1, 4, 8), torch.randn(16, 8)
mask = torch.ones(1, 4, dtype=torch.bool)
ends, lengths = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([4], dtype=torch.int32)
CALLS = {
    "maxsim": lambda: plaid.maxsim(Q, D),
    "maxsim with both masks": lambda: plaid.maxsim(Q, D, mask, mask),
    "maxsim where gradients are to follow": lambda: plaid.maxsim(leaf, D),
    "maxsim_pairs": lambda: plaid.maxsim_pairs(Q, D),
    "maxsim_varlen": lambda: plaid.maxsim_varlen(q, d, ends, ends, 4, 4),
    "maxsim_padded": lambda: plaid.maxsim_padded(Q, D, lengths, lengths),
    "chamfer": lambda: plaid.chamfer(Q, D),
    "maxsim_from_hidden": lambda: plaid.maxsim_from_hidden(Q, H, W),
}


def main() -> None:
    torch.set_num_threads(1)
    for call in CALLS.values():
        call()
    for call in (_library.SCORE, _library.CHAMFER, _library.HEAD):
        call.function = lambda record, address: 0
    least = dict.fromkeys(CALLS, float("inf"))
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 50):
        for name, call in CALLS.items():
            begin = time.perf_counter()
            for _ in range(500):
                call()
            least[name] = min(least[name], (time.perf_counter() - begin) / 500 * 1e6)
    for name, took in least.items():
        print(f"{name:40} {took:6.1f}")


if __name__ == "__main__":
    main()
