#!/usr/bin/env python3
"""Tiny models of both families in float64, written from their published definitions: goldens for TestGolden.

  python golden.py    (numpy only) writes golden.npz beside itself

Weights come from a counter hash that the test computes too, so only ids and vectors are kept. Rotary frequencies and
angles are float32, as in transformers.
"""
import math, os
import numpy as np

M = (1 << 64) - 1

def tensor(name, shape, scale, offset=0.0):
    h = 14695981039346656037  # FNV-1a
    for b in name.encode(): h = (h ^ b) * 1099511628211 & M
    n = math.prod(shape)
    z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1
    return (offset + scale * u).astype(np.float32).astype(np.float64).reshape(shape)

H, HEADS, I, VOCAB, LAYERS, POSITIONS = 64, 2, 48, 50, 4, 64
D = H // HEADS
erf = np.vectorize(math.erf)
gelu = lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))
linear = lambda x, w, b=None: x @ w.T + (0 if b is None else b)
weight = lambda name, o, i: tensor(name, (o, i), 0.25)
bias = lambda name, n: tensor(name, (n,), 0.25)
gamma = lambda name: tensor(name, (H,), 0.25, 1.0)

def norm(x, name, eps, beta=True):
    m = x.mean(-1, keepdims=True); v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / np.sqrt(v + eps) * gamma(name + ".gamma") + (bias(name + ".beta", H) if beta else 0)

def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True)); return e / e.sum(-1, keepdims=True)

def attention(x, i, n, attended, biases, theta=None, window=None):
    name = f"layer{i}."
    b = lambda part: bias(name + part + ".bias", H) if biases else None
    q, k, v = (linear(x, weight(name + p, H, H), b(p)).reshape(n, HEADS, D).transpose(1, 0, 2) for p in ("query", "key", "value"))
    if theta:
        f = (np.float32(1) / (np.float64(theta) ** (np.arange(0, D, 2, dtype=np.float32) / np.float32(D)).astype(np.float64)).astype(np.float32))
        a = (np.arange(n, dtype=np.float32)[:, None] * f).astype(np.float64); a = np.concatenate([a, a], 1)
        half = lambda t: np.concatenate([-t[..., D // 2:], t[..., :D // 2]], -1)
        q, k = (t * np.cos(a) + half(t) * np.sin(a) for t in (q, k))
    s = q @ k.transpose(0, 2, 1) / math.sqrt(D)
    p = np.arange(n); ok = np.broadcast_to(p[None, :] < attended, (n, n))
    if window: ok = ok & (abs(p[:, None] - p[None, :]) <= window // 2)
    y = softmax(np.where(ok, s, -np.inf)) @ v
    return linear(y.transpose(1, 0, 2).reshape(n, H), weight(name + "output", H, H), b("output"))

def bert(ids, attended):
    n = len(ids)
    x = tensor("words", (VOCAB, H), 1)[ids] + tensor("types", (2, H), 1)[0] + tensor("positions", (POSITIONS + 2, H), 1)[np.arange(n) + 2]
    x = norm(x, "norm", 1e-12)
    for i in range(LAYERS):
        name = f"layer{i}."
        x = norm(x + attention(x, i, n, attended, True), name + "attention norm", 1e-12)
        y = gelu(linear(x, weight(name + "up", I, H), bias(name + "up.bias", I)))
        x = norm(x + linear(y, weight(name + "down", H, I), bias(name + "down.bias", H)), name + "feed-forward norm", 1e-12)
    return x

def modernbert(ids, attended):
    n = len(ids)
    x = norm(tensor("words", (VOCAB, H), 1)[ids], "norm", 1e-5, False)
    for i in range(LAYERS):
        name = f"layer{i}."
        y = norm(x, name + "attention norm", 1e-5, False) if i else x
        x = x + (attention(y, i, n, attended, False, 10000.0, 16) if i % 3 else attention(y, i, n, attended, False, 160000.0))
        y = linear(norm(x, name + "feed-forward norm", 1e-5, False), weight(name + "up", 2 * I, H))
        x = x + linear(gelu(y[:, :I]) * y[:, I:], weight(name + "down", H, I))
    return norm(x, "final", 1e-5, False)

def heads(x):
    """Three: GELU with a bias and a residual with a weight, tanh, identity with a residual."""
    x = gelu(linear(x, weight("head0", 90, H), bias("head0.bias", 90))) + linear(x, weight("head0.residual", 90, H))
    x = np.tanh(linear(x, weight("head1", 40, 90)))
    x = linear(x, weight("head2", 40, 40)) + x
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)

out = {}
for t, (n, attended) in enumerate([(1, 1), (7, 7), (50, 50), (21, 15), (33, 33)]):
    ids = (np.arange(n) * (17 + t) + t) % VOCAB
    out[f"text{t}.ids"] = ids.astype(np.int32); out[f"text{t}.attended"] = np.array([attended], np.int32)
    for f in (bert, modernbert): out[f"text{t}.{f.__name__}"] = heads(f(ids, attended))
np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.npz"), **out)
