"""Documents, queries, exact scores in numpy, and the two forms of the tests."""

from __future__ import annotations

import os
import unittest

import numpy as np

#: Leaves a test to the long form.
long_form = unittest.skipUnless(os.environ.get("PLAID_LONG"), "the long form (PLAID_LONG=1)")

DIM = 32


def unit(rng: np.random.Generator, tokens: int, dim: int = DIM) -> np.ndarray:
    m = rng.standard_normal((tokens, dim)).astype(np.float32)
    return m / np.linalg.norm(m, axis=1, keepdims=True)


def collection(documents: int, queries: int, seed: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Documents that share topics, as those of encoders do, and queries near to some."""
    rng = np.random.default_rng(seed)
    topics = unit(rng, 40)

    def near(vectors: np.ndarray) -> np.ndarray:
        m = vectors + 0.35 * unit(rng, len(vectors))
        return (m / np.linalg.norm(m, axis=1, keepdims=True)).astype(np.float32)

    docs = [near(topics[rng.integers(0, len(topics), rng.integers(3, 20))]) for _ in range(documents)]
    asked = []
    for _ in range(queries):
        d = docs[rng.integers(0, documents)]
        asked.append(near(d[rng.integers(0, len(d), rng.integers(2, 8))]))
    return docs, asked


def maxsim(query: np.ndarray, document: np.ndarray) -> float:
    return float((query.astype(np.float64) @ document.astype(np.float64).T).max(axis=1).sum())


def ranking(query: np.ndarray, documents: dict) -> list[tuple[float, object]]:
    """All documents by their exact scores, best first."""
    return sorted(((maxsim(query, d), i) for i, d in documents.items()), key=lambda x: -x[0])
