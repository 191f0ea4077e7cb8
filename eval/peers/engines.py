"""Builds and searches indexes of fast-plaid and xtr-warp-rs.

    engines.py [--device DEVICE] build ENGINE DATA INDEX NBITS
    engines.py [--device DEVICE] search ENGINE DATA INDEX K SECONDS [NPROBE BOUND]

DEVICE is one of PyTorch's, as cuda:0 (default: cpu). Prints JSON: seconds, processor seconds and
centroids of a build; hits of each query and milliseconds of each query and pass of a search,
processor milliseconds a query, and the device.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch


def documents(data):
    x = torch.from_numpy(np.load(Path(data) / "docs.npy").astype(np.float32))
    lengths = np.load(Path(data) / "doclens.npy").astype(int).tolist()
    return list(torch.split(x, lengths))


def queries(data):
    x = torch.from_numpy(np.load(Path(data) / "queries.npy").astype(np.float32))
    if x.dim() == 2:
        lengths = np.load(Path(data) / "querylens.npy").astype(int).tolist()
        return [q[None] for q in torch.split(x, lengths)]
    return [x[i : i + 1] for i in range(len(x))]


def open_fast_plaid(index, device):
    from fast_plaid import search

    return search.FastPlaid(index=index, device=device)


def open_xtr_warp(index, device):
    from xtr_warp import XTRWarp

    return XTRWarp(index=index, device=device)


def build(device, engine, data, index, nbits):
    docs = documents(data)
    if engine == "fast-plaid":
        e, given = open_fast_plaid(index, device), {"documents_embeddings": docs}
    else:
        e, given = open_xtr_warp(index, device), {"embeddings_source": docs, "device": device, "show_progress": False}
    start, spent = time.perf_counter(), time.process_time()
    e.create(nbits=int(nbits), **given)
    seconds, cpu = time.perf_counter() - start, time.process_time() - spent
    centroids = list(Path(index).glob("centroids.npy"))
    k = len(np.load(centroids[0], mmap_mode="r")) if centroids else None
    return {"seconds": seconds, "cpu_seconds": cpu, "centroids": k, "device": device}


def searcher(device, engine, index, k, wide):
    """A function from one query [1, Lq, dim] to its hits, which are numbers of the processor."""
    if engine == "fast-plaid":
        e = open_fast_plaid(index, device)
        return lambda q: e.search(q, top_k=k, show_progress=False)[0]
    e = open_xtr_warp(index, device)
    e.load(device=device)
    options = {"nprobe": int(wide[0]), "bound": int(wide[1])} if wide else {}
    return lambda q: e.search(q, top_k=k, num_threads=1, show_progress=False, **options)[0]


def search(device, engine, data, index, k, seconds, *wide):
    """A pass to learn the hits, which is timed too where time is short, then up to three timed ones."""
    torch.set_num_threads(1)
    one, qs, passes = searcher(device, engine, index, int(k), wide), queries(data), []
    for q in qs[:3]:
        one(q)
    hits, begin, spent = [], time.perf_counter(), time.process_time()
    for n in range(4):
        times = []
        for q in qs:
            start = time.perf_counter()
            found = one(q)
            times.append((time.perf_counter() - start) * 1e3)
            if n == 0:
                hits.append([int(doc) for doc, _ in found])
        passes.append(times)
        if time.perf_counter() - begin > float(seconds):
            break
    cpu = (time.process_time() - spent) / (len(passes) * len(qs)) * 1e3
    return {"hits": hits, "latency_ms": passes[1:] or passes, "cpu_ms": cpu, "device": device}


if __name__ == "__main__":
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--device", default="cpu")
    p.add_argument("command", choices=["build", "search"])
    p.add_argument("given", nargs="+")
    a = p.parse_args()
    print(json.dumps({"build": build, "search": search}[a.command](a.device, *a.given)))
