"""How long a search takes beyond the engine, one at a time by one thread:

    python tests/overhead.py                                  # a collection that it makes
    python tests/overhead.py INDEX QUERIES.npy LENGTHS.npy    # an index file

It asks an index the same queries in several ways, in turns, and prints for each the median and the
tenth percentile of the time of a search, what the engine says that it took (`stats`), the
difference, and the processor time of Python and of the service. The difference has fewer moods of
the machine in it than the times. At the end it compares `Index.search` with `plaid bench`. Let
nothing else run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from plaid_ir import Index, _search
from plaid_ir._binary import find_binary

from common import collection  # type: ignore[import-not-found]

WORDS = "some words that stand for the text of a document, as those of most collections have it, " * 3
#: Arguments of `Index.search` after the query, by how the table calls them.
WAYS: dict[str, dict[str, Any]] = {
    "k 10": {"k": 10},
    "k 100": {"k": 100},
    "k 10, metadata": {"k": 10, "metadata": True},
    "k 100, metadata": {"k": 100, "metadata": True},
    "k 10, where": {"k": 10, "where": {"n": {"$gte": 100}}},
}


def bench(index: str, queries: str, lengths: str, passes: int) -> float:
    """The median of the engine in milliseconds, by `plaid bench`: with derived parameters."""
    command = [find_binary(None), "bench", index, "--queries", queries, "--query-lengths", lengths, "--threads", "1"]
    command += ["--repeat", str(passes), "--json", "--quiet"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    derived = next(p for p in json.loads(said)["points"] if not p.get("exhaustive") and not p.get("effort"))
    return float(derived["latency"]["p50_ns"]) / 1e6


def processor_time(pid: int) -> float:
    """Milliseconds that a process has run; 0 where the system does not tell."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                total += int(f.read().split()[0])
    return total / 1e6


class Way:
    """The times of searches with some arguments, in milliseconds."""

    def __init__(self, index: Index, arguments: dict[str, Any]) -> None:
        self.index, self.arguments = index, arguments
        self.took: list[float] = []
        self.engine: list[float] = []
        self.python = self.service = 0.0

    def ask(self, queries: list[Any]) -> None:
        service = self.index._connection.service
        pid = service.process.pid if service is not None and service.process is not None else 0
        python, program = time.thread_time(), processor_time(pid)
        for q in queries:
            begin = time.perf_counter()
            self.index.search(q, **self.arguments)
            self.took.append((time.perf_counter() - begin) * 1e3)
        self.python += (time.thread_time() - python) * 1e3
        self.service += processor_time(pid) - program
        real = _search._to_hits

        def note(connection: Any, result: Any, metadata: bool) -> Any:
            self.engine.append(result["stats"]["times"]["total_ns"] / 1e6)
            return real(connection, result, metadata)

        base = _search.base_request
        with mock.patch.object(_search, "_to_hits", note), mock.patch.object(
            _search, "base_request", lambda *a: {**base(*a), "stats": True}
        ):
            for q in queries:
                self.index.search(q, **self.arguments)

    def line(self) -> str:
        p50, p10 = statistics.median(self.took), statistics.quantiles(self.took, n=10)[0]
        engine, least = statistics.median(self.engine), statistics.quantiles(self.engine, n=10)[0]
        n = len(self.took)
        figures = (p50, p10, engine, p50 - engine, p10 - least, self.python / n, self.service / n)
        return "".join(f"{x:>10.3f}" for x in figures)


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("files", nargs="*", metavar="FILE", help="an index file, an array of vectors of queries, and their lengths")
    p.add_argument("--rounds", type=int, default=5, help="turns of all ways (default: %(default)s)")
    p.add_argument("--passes", type=int, default=6, help="how often each turn asks all queries (default: %(default)s)")
    p.add_argument("--model", help="ask by texts as well, with this model")
    args = p.parse_args()
    if len(args.files) not in (0, 3):
        p.error("want no file, or an index, queries and lengths")
    ways, bare = WAYS, {name: a for name, a in WAYS.items() if "where" not in a}
    with tempfile.TemporaryDirectory() as folder, Index(None, threads=1, model=args.model) as index:
        if args.files:
            saved, vectors, lengths = args.files
            index.load(saved)
            queries = np.split(np.load(vectors), np.cumsum(np.load(lengths))[:-1])
            ways = bare
        else:
            documents, queries = collection(1000, 50)
            saved, vectors, lengths = (str(Path(folder, name)) for name in ("saved.plaid", "queries.npy", "lengths.npy"))
            metadata = [{"n": i, "text": WORDS} for i in range(len(documents))]
            index.add_documents([str(i) for i in range(len(documents))], documents, metadata)
            index.save(saved)
            np.save(vectors, np.concatenate(queries))
            np.save(lengths, np.array([len(q) for q in queries]))
        asked = {name: (Way(index, arguments), queries) for name, arguments in ways.items()}
        stack = contextlib.ExitStack()
        with stack:
            if args.model:
                other = stack.enter_context(Index(None, threads=1, model=args.model))
                texts = [f"{WORDS[: 40 + i]} number {i}" for i in range(200)]
                other.add_texts(texts)
                asked["text, k 10"] = Way(other, {"k": 10}), [t[-40:] for t in texts[:50]]
            engine: list[float] = []
            for way, some in asked.values():
                way.index.search(some[0])
            for _ in range(args.rounds):
                engine.append(bench(saved, vectors, lengths, args.passes))
                for way, some in asked.values():
                    way.ask(some * args.passes)
        print(f"{'ms':<18}{'p50':>10}{'p10':>10}{'engine':>10}{'beyond':>10}{'of p10':>10}{'Python':>10}{'service':>10}")
        for name, (way, _) in asked.items():
            print(f"{name:<18}{way.line()}")
    here, there = statistics.median(next(iter(asked.values()))[0].took), statistics.median(engine)
    print(f"Index.search: p50 {here:.3f} ms; plaid bench: p50 {there:.3f} ms; difference {here - there:.3f} ms")


if __name__ == "__main__":
    main()
