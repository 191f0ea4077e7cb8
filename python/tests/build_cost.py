"""The cost of adding 5,000 documents of 200 vectors, by each method: python tests/build_cost.py

It prints the time, the size of the index file, and the peak memory of a program of plaid.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from plaid_ir import Index

DOCUMENTS, TOKENS, DIM = 5000, 200, 128


def cost(way: str) -> str:
    import resource

    rng = np.random.default_rng(0)
    documents = [rng.standard_normal((TOKENS, DIM), dtype=np.float32) for _ in range(DOCUMENTS)]
    ids = [str(i) for i in range(DOCUMENTS)]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        with Index(folder, "x") as index:
            if way == "add_documents":
                index.add_documents(ids, documents)
            else:
                index.add_batches(((ids[i : i + 100], documents[i : i + 100]) for i in range(0, DOCUMENTS, 100)), wait=way == "add_batches")
            took = time.perf_counter() - begin
            nbits = index.stats()["nbits"]
        size = os.path.getsize(os.path.join(folder, "x", "index.plaid"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # kilobytes on Linux
    return f"{way}: {took:.1f} s, {size / 1e6:.0f} MB, {nbits} bits, {peak / 1e3:.0f} MB of memory"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(cost(sys.argv[1]))
    else:
        for one in ("add_documents", "add_batches", "add_batches(wait=False)"):
            subprocess.run([sys.executable, __file__, one], check=True)
