"""How long a search takes beyond the engine: python tests/overhead.py

Both times are of the same search: the answer says how long the engine took (`stats`).
"""

from __future__ import annotations

import statistics
import time

from plaid_ir import Index
from plaid_ir._arrays import tensors_body, to_matrices

from common import collection  # type: ignore[import-not-found]

REQUEST = {"params": {"top_k": 10}, "metadata": False, "stats": True}

if __name__ == "__main__":
    documents, queries = collection(1000, 50)
    beyond, engine = [], []
    with Index(None, threads=1) as index:
        index.add_documents([str(i) for i in range(len(documents))], documents)
        for _ in range(6):
            for q in queries:
                begin = time.perf_counter()
                answer = index._request("POST", index._path + "/search", tensors=tensors_body(to_matrices(q, "query"), REQUEST))
                took = (time.perf_counter() - begin) * 1e3
                engine.append(answer["results"][0]["stats"]["times"]["total_ns"] / 1e6)
                beyond.append(took - engine[-1])
    tenth, median = statistics.quantiles(beyond, n=10)[0], statistics.median(beyond)
    print(f"beyond the engine {median:.3f} ms (median), {tenth:.3f} ms (tenth percentile); the engine {statistics.median(engine):.3f} ms")
