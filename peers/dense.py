"""Times MaxSim over plain vectors of late-interaction-kernels and Flash-MaxSim on a GPU,
and writes what they compute on random inputs, for plaid's own test to compare with.

    dense.py time           a line for each shape, of the medians in milliseconds
    dense.py save FOLDER    inputs, scores and gradients

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

warnings.filterwarnings("ignore")
# Queries, their tokens, documents, their tokens, dimensions.
FORWARD = [(1, 32, 1000, 300, 128), (1, 32, 10000, 300, 128), (1, 32, 1000, 1024, 128), (1, 128, 1000, 1024, 128),
           (1, 512, 1000, 512, 128), (1, 1024, 1000, 1024, 128), (16, 32, 10000, 300, 128), (64, 32, 64, 1024, 128),
           (256, 32, 256, 300, 128), (64, 1024, 64, 1024, 128), (1, 32, 1000, 300, 768), (1, 32, 10000, 300, 96)]
TRAINING = [(64, 32, 64, 300, 128), (256, 32, 256, 300, 128), (64, 32, 64, 1024, 128), (128, 32, 128, 1024, 128)]
SAVED = [(1, 32, 50, 300, 128), (5, 32, 40, 77, 128), (3, 130, 20, 1024, 96)]


def unit(*shape, seed=0):
    g = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(*shape, generator=g, device="cuda")
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
    g = torch.Generator().manual_seed(2)
    lengths = torch.randint(40, 301, (10000,), generator=g)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int().cuda()
    q, d = unit(32, 128), unit(int(lengths.sum()), 128, seed=1)
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
                line += f" ({peak(run) - (q.nbytes + d.nbytes) / 2**20:.0f} MiB)"
            except Exception:
                pass
        print(line, flush=True)


def save(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shapes = []
    for i, (nq, lq, nd, ld, dim) in enumerate(SAVED):
        q, d = unit(nq, lq, dim, seed=i), unit(nd, ld, dim, seed=100 + i)
        upstream = torch.randn(nq, nd, device="cuda", generator=torch.Generator(device="cuda").manual_seed(i))
        put = lambda name, x: x.detach().cpu().contiguous().numpy().tofile(folder / f"{i}.{name}")
        put("q", q), put("d", d), put("upstream", upstream)
        put("flash", forward(q, d).reshape(nq, nd).float())
        for name, method in ("push", "unified"), ("pull", "lowmem"):
            x, y = q.clone().requires_grad_(), d.clone().requires_grad_()
            scores = maxsim(x, y, backward=method)
            scores.backward(upstream)
            put("lik", scores), put(f"{name}.dq", x.grad.float()), put(f"{name}.dd", y.grad.float())
        shapes.append({"nq": nq, "lq": lq, "nd": nd, "ld": ld, "dim": dim})
    (folder / "shapes.json").write_text(json.dumps(shapes))


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    time() if sys.argv[1] == "time" else save(sys.argv[2])
