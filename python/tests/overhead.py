"""How long a search takes beyond the engine, one at a time by one thread:

    python tests/overhead.py                                  # a collection that it makes
    python tests/overhead.py INDEX QUERIES.npy LENGTHS.npy    # an index file

It asks a saved index the same queries by `Index.search` and by `plaid bench`, in turns, and prints
the median of each and their difference. Each search says how long the engine took (`stats`): the
time beyond that has fewer moods of the machine in it. Let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from plaid_ir import Index
from plaid_ir._arrays import tensors_body, to_matrices
from plaid_ir._binary import find_binary

from common import collection  # type: ignore[import-not-found]

REQUEST = {"params": {"top_k": 10}, "metadata": False, "stats": True}


def bench(index: str, queries: str, lengths: str, passes: int) -> float:
    """The median of the engine in milliseconds, by `plaid bench`: with derived parameters."""
    command = [find_binary(None), "bench", index, "--queries", queries, "--query-lengths", lengths, "--threads", "1"]
    command += ["--repeat", str(passes), "--json", "--quiet"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    derived = next(p for p in json.loads(said)["points"] if not p.get("exhaustive") and not p.get("effort"))
    return float(derived["latency"]["p50_ns"]) / 1e6


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("files", nargs="*", metavar="FILE", help="an index file, an array of vectors of queries, and their lengths")
    p.add_argument("--rounds", type=int, default=5, help="turns of the two (default: %(default)s)")
    p.add_argument("--passes", type=int, default=6, help="how often each turn asks all queries (default: %(default)s)")
    args = p.parse_args()
    if len(args.files) not in (0, 3):
        p.error("want no file, or an index, queries and lengths")
    with tempfile.TemporaryDirectory() as folder, Index(None, threads=1) as index:
        if args.files:
            saved, at, of = args.files
            index.load(saved)
            vectors, lengths = np.load(at), np.load(of)
            queries = np.split(vectors, np.cumsum(lengths)[:-1])
        else:
            documents, queries = collection(1000, 50)
            saved, at, of = (str(Path(folder, name)) for name in ("saved.plaid", "queries.npy", "lengths.npy"))
            index.add_documents([str(i) for i in range(len(documents))], documents)
            index.save(saved)
            np.save(at, np.concatenate(queries))
            np.save(of, np.array([len(q) for q in queries]))
        found: list[float] = []
        beyond: list[float] = []
        engine: list[float] = []
        index.search(queries[0])
        for _ in range(args.rounds):
            engine.append(bench(saved, at, of, args.passes))
            for q in queries * args.passes:
                begin = time.perf_counter()
                index.search(q, 10)
                found.append((time.perf_counter() - begin) * 1e3)
                begin = time.perf_counter()
                body = tensors_body(to_matrices(q, "query"), REQUEST)
                answer = index._connection.request("POST", index._connection.path + "/search", body)
                took = (time.perf_counter() - begin) * 1e3
                beyond.append(took - answer["results"][0]["stats"]["times"]["total_ns"] / 1e6)
    here, there = statistics.median(found), statistics.median(engine)
    print(f"Index.search: p50 {here:.3f} ms; plaid bench: p50 {there:.3f} ms; difference {here - there:.3f} ms")
    print(f"beyond what the engine reports: p50 {statistics.median(beyond):.3f} ms, tenth percentile {statistics.quantiles(beyond, n=10)[0]:.3f} ms")
