"""Times kernels of NumPy, faiss and NumKong on the shapes that README.md describes.

    libraries.py NAME=DATA=K...

Prints JSON.
"""
import json
import sys
import time
from pathlib import Path

import faiss
import numkong
import numpy as np

DIM, QUERY_TOKENS = 128, 32
out = []


def measure(work, engine, how, per, f, rate=False):
    """Fifteen samples of at least 30 ms each: nanoseconds a call divided by per, or per divided by nanoseconds."""
    f()
    samples = []
    for _ in range(15):
        start, calls = time.perf_counter_ns(), 0
        while calls == 0 or time.perf_counter_ns() - start < 30_000_000:
            f()
            calls += 1
        ns = (time.perf_counter_ns() - start) / calls
        samples.append(per / ns if rate else ns / per)
    out.append({"work": work, "engine": engine, "how": how, "samples": samples})


def unit(rng, n):
    x = rng.standard_normal((n, DIM), dtype=np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def rerank(rng, name, docs):
    """Documents of 40 to 160 float vectors, packed beforehand, in random order."""
    lengths = rng.integers(40, 161, docs)
    query = unit(rng, QUERY_TOKENS)
    for dtype in "f32", "bf16":
        pack = lambda x: numkong.maxsim_pack(numkong.astype(x, dtype))
        q = pack(query)
        packed = [pack(unit(rng, n)) for n in lengths]
        size = sum(p.nbytes for p in packed) / lengths.sum()
        order = [packed[i] for i in rng.permutation(docs)]
        score = numkong.maxsim_packed

        def run():
            for d in order:
                score(q, d)

        how = f"maxsim_packed {dtype}, decoded vectors, {size:.0f} bytes a token"
        measure(f"rerank 2 bits {name}", f"NumKong {numkong_version}", how, float(lengths.sum()), run)


# A query of so many tokens, documents, and their lengths: as plaidbench/plain.go has them.
PLAIN = [(32, 1000, 40, 160), (32, 64, 256, 256), (32, 16, 1024, 1024), (128, 8, 1024, 1024), (1024, 4, 1024, 1024)]


def plain(rng, query, docs, lo, hi):
    """MaxSim of vectors of length 1, packed beforehand."""
    lengths = rng.integers(lo, hi + 1, docs)
    q, documents = unit(rng, query), [unit(rng, n) for n in lengths]
    tokens = float(lengths.sum())
    for dtype, name in ("f32", "float32"), ("bf16", "bfloat16"):
        pack = lambda x: numkong.maxsim_pack(numkong.astype(x, dtype))
        packed_query, packed, score = pack(q), [pack(d) for d in documents], numkong.maxsim_packed
        work = f"plain {name} {query} {docs}x{lo}-{hi}"
        measure(work, f"NumKong {numkong_version}", "maxsim_packed", tokens, lambda: [score(packed_query, d) for d in packed])
    together, starts = np.concatenate(documents), np.concatenate([[0], np.cumsum(lengths)[:-1]])
    scores = lambda: np.maximum.reduceat(together @ q.T, starts, axis=0).sum(1)
    measure(f"plain float32 {query} {docs}x{lo}-{hi}", numpy_name, "D @ Q.T, maximum.reduceat, sum", tokens, scores)


def nearest(name, data, k):
    docs = np.load(Path(data) / "docs.npy", mmap_mode="r")
    spaced = lambda n: np.ascontiguousarray(docs[:: len(docs) // n][:n], dtype=np.float32)
    centroids, x = spaced(k), spaced(4096)
    operations = 2 * x.size * k
    work = f"nearest {name} K={k}"

    def numpy_blocks():
        for i in range(0, len(x), 256):
            (x[i : i + 256] @ centroids.T).argmax(1)

    measure(work, numpy_name, "matmul and argmax, 256 rows a block", operations, numpy_blocks, rate=True)
    flat = faiss.IndexFlatIP(DIM)
    flat.add(centroids)
    measure(work, f"faiss-cpu {faiss.__version__}", "IndexFlatIP.search(x, 1), as its k-means assigns", operations, lambda: flat.search(x, 1), rate=True)


def version(package):
    from importlib.metadata import version

    return version(package)


numkong_version = version("numkong")
numpy_name = f"NumPy {np.__version__}, OpenBLAS"

if __name__ == "__main__":
    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(5)
    rerank(rng, "hot", 100)
    rerank(rng, "random", 2000)
    for shape in PLAIN:
        plain(rng, *shape)
    centroids, query = unit(rng, 65536), unit(rng, QUERY_TOKENS)
    s, t = np.empty((65536, QUERY_TOKENS), np.float32), np.empty((QUERY_TOKENS, 65536), np.float32)
    work = "centroid scores K=65536"
    measure(work, numpy_name, "C @ Q.T; f32, S only", 1e6, lambda: np.matmul(centroids, query.T, out=s))
    measure(work, numpy_name, "Q @ C.T; f32, S only", 1e6, lambda: np.matmul(query, centroids.T, out=t))
    for c in sys.argv[1:]:
        name, data, k = c.split("=")
        nearest(name, data, int(k))
    json.dump(out, sys.stdout)
