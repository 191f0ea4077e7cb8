"""Times MaxSim over plain vectors of late-interaction-kernels and Flash-MaxSim on a GPU,
and writes what they compute on random inputs, for plaid's own test to compare with.

    dense.py time           a line for each shape, of the medians in milliseconds
    dense.py more           the same of ranks, hidden states and Chamfer distances
    dense.py save FOLDER scores|heads|distances    inputs, scores and gradients

Needs PyTorch with CUDA, Triton, and the two packages of requirements-dense.txt. plaid's
side is in kernels/cuda/internal/dense:

    go test -run NONE -bench GPU -benchtime 1x ./kernels/cuda/internal/dense
    PLAID_PEERS=FOLDER go test -run Peers ./kernels/cuda/internal/dense

Times are of events around a call, after memory that is none of its inputs was read, as
plaid's are: nothing is in the cache, and nothing has to be written back. A call includes
its launch from Python, which small shapes are bound by.
"""
import json
import statistics
import sys
import warnings
from pathlib import Path

import torch
import flash_maxsim
from late_interaction_kernels import maxsim, maxsim_varlen
from late_interaction_kernels.fused_head import maxsim_from_hidden
from late_interaction_kernels.retrieve import retrieve

warnings.filterwarnings("ignore")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Queries, their tokens, documents, their tokens, dimensions.
FORWARD = [(1, 32, 1000, 300, 128), (1, 32, 10000, 300, 128), (1, 32, 1000, 1024, 128), (1, 128, 1000, 1024, 128),
           (1, 512, 1000, 512, 128), (1, 1024, 1000, 1024, 128), (16, 32, 10000, 300, 128), (64, 32, 64, 1024, 128),
           (256, 32, 256, 300, 128), (64, 1024, 64, 1024, 128), (1, 32, 1000, 300, 768), (1, 32, 10000, 300, 96)]
TRAINING = [(64, 32, 64, 300, 128), (256, 32, 256, 300, 128), (64, 32, 64, 1024, 128), (128, 32, 128, 1024, 128)]
# Queries, their tokens, documents, their tokens, hidden and token dimensions.
HEAD = [(1, 32, 1024, 2048, 768, 128), (1, 32, 32, 1024, 768, 128), (1, 32, 1000, 300, 768, 128), (1, 32, 1000, 300, 384, 96),
        (1, 32, 1000, 300, 1024, 128), (16, 32, 1000, 300, 768, 128)]
# Sets, points of each, dimensions.
CHAMFER = [(1, 4096, 3), (1, 16384, 3), (1, 100000, 3), (1, 4096, 128), (1, 16384, 128), (32, 1024, 128)]
SAVED = [(1, 32, 50, 300, 128), (5, 32, 40, 77, 128), (3, 130, 20, 1024, 96)]


def unit(*shape, seed=0):
    g = torch.Generator(device=DEVICE).manual_seed(seed)
    x = torch.randn(*shape, generator=g, device=DEVICE)
    return (x / x.norm(dim=-1, keepdim=True)).half()


def median(f, runs=25):
    other = torch.ones(64 << 20, device="cuda")
    for _ in range(3):
        f()
    times = []
    for _ in range(runs):
        other.sum()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def tried(f):
    try:
        return f"{median(f):.4f}"
    except Exception as e:  # a shape that a package cannot do
        return type(e).__name__


def forward(q, d):
    """Flash-MaxSim has a kernel of its own for one query."""
    if q.shape[0] == 1:
        return flash_maxsim.flash_maxsim(q[0], d)
    return flash_maxsim.flash_maxsim_batched(q, d)


def step(score, q, d):
    q.grad = d.grad = None
    score(q, d).sum().backward()


def peak(f):
    """MiB above the operands and the gradients of the last call, which this one replaces."""
    f()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    f()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def time():
    for nq, lq, nd, ld, dim in FORWARD:
        q, d = unit(nq, lq, dim), unit(nd, ld, dim, seed=1)
        name = f"{nq} × {lq}, {nd} × {ld}, d {dim}"
        with torch.no_grad():
            print(f"forward {name:34s} LIK {tried(lambda: maxsim(q, d))} Flash-MaxSim {tried(lambda: forward(q, d))}", flush=True)
    q, d, offsets = packed()
    with torch.no_grad():
        lik = tried(lambda: maxsim_varlen(q, d, torch.tensor([0, 32], dtype=torch.int32, device="cuda"), offsets, 32, 300))
        flash = tried(lambda: flash_maxsim.flash_maxsim_packed(q, d, offsets, 300))
    print(f"forward 1 × 32, 10000 × 40–300 packed    LIK {lik} Flash-MaxSim {flash}", flush=True)
    for nq, lq, nd, ld, dim in TRAINING:
        q, d = unit(nq, lq, dim).requires_grad_(), unit(nd, ld, dim, seed=1).requires_grad_()
        line = f"training {nq} × {lq}, {nd} × {ld}"
        for how, score in (("LIK push", lambda q, d: maxsim(q, d, backward="unified")), ("LIK pull", lambda q, d: maxsim(q, d, backward="lowmem")),
                           ("Flash-MaxSim", flash_maxsim.flash_maxsim_batched_train)):
            run = lambda: step(score, q, d)
            line += f", {how} {tried(run)}"
            try:
                line += f" ({peak(run):.0f} MiB)"
            except Exception:
                pass
        print(line, flush=True)


def packed(docs=10000):
    """A query, documents of 40 to 300 tokens one after another, and their offsets."""
    lengths = torch.randint(40, 301, (docs,), generator=torch.Generator().manual_seed(2))
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int().to(DEVICE)
    return unit(32, 128), unit(int(lengths.sum()), 128, seed=1), offsets


def more():
    """Ranks, scores of hidden states and Chamfer distances."""
    for nq in 1, 16:
        q, d = unit(nq, 32, 128), unit(10000, 300, 128, seed=1)
        with torch.no_grad():
            print(f"rank {nq} × 32, 10000 × 300, k 100    LIK {tried(lambda: retrieve(q, d, 100, normalize=False, chunk=4096))}", flush=True)
    for nq, lq, nd, ld, h, dim in HEAD:
        q, hidden, w = unit(nq, lq, dim), unit(nd, ld, h, seed=1), unit(dim, h, seed=2)
        with torch.no_grad():
            print(f"head {nq} × {lq}, {nd} × {ld}, h {h}, d {dim}    LIK {tried(lambda: maxsim_from_hidden(q, hidden, w))}", flush=True)
        del q, hidden, w
    for sets, n, dim in CHAMFER:
        x, y = points(sets, n, dim), points(sets, n, dim, seed=1)
        line = f"chamfer {sets} × {n}, d {dim}"
        for metric in "l2_sq", "l1":
            line += f", Flash-MaxSim {metric} {tried(lambda: [flash_maxsim.flash_chamfer(a, b, metric) for a, b in zip(x, y)])}"
        x.requires_grad_(), y.requires_grad_()
        line += f", forward and backward {tried(lambda: sum(flash_maxsim.flash_chamfer_train(a, b) for a, b in zip(x, y)).backward())}"
        print(line, flush=True)


def points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator(device=DEVICE).manual_seed(seed), device=DEVICE)


def heads(put, shapes):
    """Each has a number of its own."""
    for nq, lq, nd, ld, h, dim in [(3, 32, 50, 77, 384, 96), (1, 32, 20, 300, 768, 128)]:
        i = len(shapes)
        q, hidden, w = unit(nq, lq, dim, seed=i), unit(nd, ld, h, seed=100 + i), unit(dim, h, seed=200 + i)
        bias = points(dim, seed=i) / 10
        put(i, "q", q), put(i, "d", hidden), put(i, "w", w), put(i, "bias", bias)
        with torch.no_grad():
            put(i, "lik", maxsim_from_hidden(q, hidden, w, bias.half()).reshape(nq, nd))
        shapes.append({"kind": "head", "nq": nq, "lq": lq, "nd": nd, "ld": ld, "hidden": h, "dim": dim})


def distances(put, shapes):
    for n, m, dim in [(500, 700, 3), (300, 200, 64)]:
        i = len(shapes)
        x, y = points(n, dim, seed=i).requires_grad_(), points(m, dim, seed=100 + i).requires_grad_()
        put(i, "q", x), put(i, "d", y)
        put(i, "l1", flash_maxsim.flash_chamfer(x.detach(), y.detach(), "l1"))
        distance = flash_maxsim.flash_chamfer_train(x, y)
        distance.backward()
        put(i, "l2", distance), put(i, "dx", x.grad), put(i, "dy", y.grad)
        shapes.append({"kind": "chamfer", "nq": 1, "lq": n, "nd": 1, "ld": m, "dim": dim})


def scores(put, shapes):
    for nq, lq, nd, ld, dim in SAVED:
        i = len(shapes)
        q, d = unit(nq, lq, dim, seed=i), unit(nd, ld, dim, seed=100 + i)
        upstream = torch.randn(nq, nd, device="cuda", generator=torch.Generator(device="cuda").manual_seed(i))
        put(i, "q", q), put(i, "d", d), put(i, "upstream", upstream)
        put(i, "flash", forward(q, d).reshape(nq, nd).float())
        for name, method in ("push", "unified"), ("pull", "lowmem"):
            x, y = q.clone().requires_grad_(), d.clone().requires_grad_()
            scores = maxsim(x, y, backward=method)
            scores.backward(upstream)
            put(i, "lik", scores), put(i, f"{name}.dq", x.grad.float()), put(i, f"{name}.dd", y.grad.float())
        shapes.append({"nq": nq, "lq": lq, "nd": nd, "ld": ld, "dim": dim})


def save(folder, kind):
    """The kinds are apart: each compiles kernels of its own for a minute or so."""
    folder = Path(folder) / kind
    folder.mkdir(parents=True, exist_ok=True)
    shapes = []
    {"scores": scores, "heads": heads, "distances": distances}[kind](
        lambda i, name, x: x.detach().cpu().contiguous().numpy().tofile(folder / f"{i}.{name}"), shapes)
    (folder / "shapes.json").write_text(json.dumps(shapes))


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    {"time": time, "more": more, "save": lambda: save(*sys.argv[2:])}[sys.argv[1]]()
