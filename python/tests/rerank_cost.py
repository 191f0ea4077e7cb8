"""The time of `Index.rerank` compared with torch's own formulation, on as many threads:

    python tests/rerank_cost.py                  # the usual shapes, on one thread
    python tests/rerank_cost.py 800x180 --type bfloat16 --threads 2

In turns, with a query of 32 tokens and dimension 128; it prints the median and the least time of each in milliseconds,
and their ratio. Without torch numpy takes its place. Let nothing else run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any, Callable

import numpy as np

from plaid_ir import Index

SHAPES = ["50x180", "800x180", "1000x180", "50x1030"]
TOKENS, DIM = 32, 128


def peer(query: Any, documents: Any) -> Any:
    """Places and scores, best first, by the library of the arrays."""
    if isinstance(query, np.ndarray):
        scores = np.einsum("qd,ntd->nqt", query, documents, optimize=True).max(-1).sum(-1)
        return np.argsort(-scores), scores
    scores = torch.einsum("qd,ntd->nqt", query, documents).max(-1).values.sum(-1)
    return scores.argsort(descending=True), scores


def timed(call: Callable[[], Any], times: list[float]) -> None:
    begin = time.perf_counter()
    call()
    times.append((time.perf_counter() - begin) * 1e3)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("shapes", nargs="*", metavar="DOCUMENTSxTOKENS", default=SHAPES, help=f"default: {' '.join(SHAPES)}")
    p.add_argument("--type", default="float32", choices=["float32", "float16", "bfloat16"])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=15, help="turns of the two (default: %(default)s)")
    args = p.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(args.threads))
    try:
        import torch
    except ImportError:
        torch = None
    rng = np.random.default_rng(0)
    with Index(None, threads=args.threads) as index:
        for shape in args.shapes:
            count, tokens = map(int, shape.split("x"))
            query: Any = rng.standard_normal((TOKENS, DIM), dtype=np.float32)
            documents: Any = rng.standard_normal((count, tokens, DIM), dtype=np.float32)
            documents /= np.linalg.norm(documents, axis=2, keepdims=True)
            if torch is not None:
                torch.set_num_threads(args.threads)
                query, documents = (torch.from_numpy(x).to(getattr(torch, args.type)) for x in (query, documents))
            elif args.type != "float32":
                p.error("other types than float32 need torch")
            ours: list[float] = []
            theirs: list[float] = []
            index.rerank(query, documents)
            for _ in range(args.rounds):
                timed(lambda: peer(query, documents), theirs)
                timed(lambda: index.rerank(query, documents), ours)
            here, there = statistics.median(ours), statistics.median(theirs)
            print(
                f"{shape}: rerank {here:.2f} (least {min(ours):.2f}), {'numpy' if torch is None else 'torch'} {there:.2f} "
                f"(least {min(theirs):.2f}), ratio {here / there:.2f} (least {min(ours) / min(theirs):.2f})"
            )
