"""Times plaid_ir.torch, late-interaction-kernels and Flash-MaxSim, all through torch, in one process.

    dense_torch.py PART FILE [SECONDS]   times the rows of forward, training, launch, head, rank or chamfer, and
                                         appends a line of JSON a row to FILE; after SECONDS no row begins
    dense_torch.py warm PART             calls the others once for each row, so that Triton has their kernels on disk
    dense_torch.py report FILE           Markdown tables of them

Needs PyTorch with CUDA, Triton, the two packages of requirements-dense.txt, and plaid_ir with its library.
Shapes and operands are those of dense.py. The three are timed in turns, by events around a call, launches from
Python included, after memory that is none of its inputs was read; figures are medians. Memory is what a call has
above its operands and results at most. Without a GPU small shapes run, to try the program out.
"""
import json
import statistics
import sys
import time
from pathlib import Path

import dense
import flash_maxsim
import torch
from dense import DEVICE, forward, peak, points, step, unit
from late_interaction_kernels import maxsim, maxsim_varlen
from late_interaction_kernels.fused_head import maxsim_from_hidden
from late_interaction_kernels.retrieve import retrieve

import plaid_ir.torch as plaid

GPU = DEVICE == "cuda"
RUNS = 25 if GPU else 3
WARMING = sys.argv[1] == "warm"


def clocked(call):
    """Milliseconds."""
    if not GPU:
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def launched(call, calls=1000 if GPU else 20):
    """Microseconds of the caller: the device is not waited for."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    spent = time.perf_counter() - begin
    if GPU:
        torch.cuda.synchronize()
    return 1e6 * spent / calls


def measured(name, calls, memory=False, of=clocked):
    """A row: medians of calls that take turns, by the name of the library."""
    row = {"name": name, "times": {}, "memory": {}, "failed": {}}
    if WARMING:
        for who, call in calls.items():
            if who != "plaid":
                try:
                    call()
                except Exception as e:
                    row["failed"][who] = type(e).__name__
        return row
    for who, call in list(calls.items()):
        try:
            for _ in range(3):  # compiles, and tunes
                call()
            if memory and GPU:
                row["memory"][who] = peak(call)
        except Exception as e:  # a shape, or a device, that a library does not do
            row["failed"][who] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
            del calls[who]
    other = torch.ones((64 << 20) if GPU else 1, device=DEVICE)
    times = {who: [] for who in calls}
    for _ in range(RUNS if of is clocked else 5):
        for who, call in calls.items():
            other.sum()
            times[who].append(of(call))
    row["times"] = {who: statistics.median(t) for who, t in times.items()}
    return row


def fitting(rows, limit):
    """Without a GPU the rows that take no minutes."""
    for row in rows:
        if GPU or limit(*row):
            yield row


def forward_rows():
    for nq, lq, nd, ld, dim in fitting([(1, 32, 100, 300, 128), *dense.FORWARD], lambda a, b, c, d, e: a * b * c * d < 1e6):
        q, d = unit(nq, lq, dim), unit(nd, ld, dim, seed=1)
        with torch.no_grad():
            yield measured(f"{nq} × {lq}, {nd:,} × {ld:,}" + (f", d {dim}" if dim != 128 else ""), {
                "plaid": lambda: plaid.maxsim(q, d), "LIK": lambda: maxsim(q, d), "Flash-MaxSim": lambda: forward(q, d),
            }, memory=True)
        del q, d
    q, d, offsets = dense.packed(10000 if GPU else 30)
    ends = torch.tensor([0, 32], dtype=torch.int32, device=DEVICE)
    with torch.no_grad():
        yield measured("1 × 32, 10,000 × 40–300, packed", {
            "plaid": lambda: plaid.maxsim_varlen(q, d, ends, offsets, 32, 300),
            "LIK": lambda: maxsim_varlen(q, d, ends, offsets, 32, 300),
            "Flash-MaxSim": lambda: flash_maxsim.flash_maxsim_packed(q, d, offsets, 300),
        }, memory=True)


def training_rows():
    shapes = [(64, 32, 64, 300, 128), (8, 32, 8, 300, 128)] if not GPU else dense.TRAINING
    for nq, lq, nd, ld, dim in fitting(shapes, lambda a, b, c, d, e: a < 10):
        q, d = unit(nq, lq, dim).requires_grad_(), unit(nd, ld, dim, seed=1).requires_grad_()
        yield measured(f"{nq} × {lq}, {nd} × {ld:,}", {
            "plaid": lambda: step(plaid.maxsim, q, d),
            "LIK": lambda: step(maxsim, q, d),
            "LIK pull": lambda: step(lambda q, d: maxsim(q, d, backward="lowmem"), q, d),
            "Flash-MaxSim": lambda: step(flash_maxsim.flash_maxsim_batched_train, q, d),
        }, memory=True)


def launch_rows():
    q, d, some = unit(1, 32, 128), unit(100 if GPU else 1, 300, 128, seed=1), torch.zeros(16, device=DEVICE)
    lengths = torch.full((d.shape[0],), 200, dtype=torch.int32, device=DEVICE)
    mask = torch.arange(300, device=DEVICE) < lengths[:, None]
    with torch.no_grad():
        yield measured("1 × 32, 100 × 300", {
            "plaid": lambda: plaid.maxsim(q, d), "LIK": lambda: maxsim(q, d), "Flash-MaxSim": lambda: forward(q, d),
        }, of=launched)
        yield measured("16 numbers added to in place", {"torch": lambda: some.add_(1)}, of=launched)
        yield measured("1 × 32, 100 × 300, of 200 tokens each", {
            "plaid": lambda: plaid.maxsim(q, d, None, mask), "LIK": lambda: maxsim(q, d, None, mask),
            "Flash-MaxSim": lambda: flash_maxsim.flash_maxsim(q[0], d, lengths),
        }, of=launched)
    q, d = unit(8, 32, 128).requires_grad_(), unit(8, 64, 128, seed=1).requires_grad_()
    yield measured("8 × 32, 8 × 64, forward and backward", {
        "plaid": lambda: step(plaid.maxsim, q, d), "LIK": lambda: step(maxsim, q, d),
        "Flash-MaxSim": lambda: step(flash_maxsim.flash_maxsim_batched_train, q, d),
    }, of=launched)


def head_rows():
    for nq, lq, nd, ld, h, dim in fitting([(1, 32, 8, 64, 768, 128), *dense.HEAD] if not GPU else dense.HEAD, lambda *s: s[2] < 10):
        q, hidden, w = unit(nq, lq, dim), unit(nd, ld, h, seed=1), unit(dim, h, seed=2)
        with torch.no_grad():
            yield measured(f"{h:,} → {dim}: {nq} × {lq}, {nd:,} × {ld:,}", {
                "plaid": lambda: plaid.maxsim_from_hidden(q, hidden, w), "LIK": lambda: maxsim_from_hidden(q, hidden, w),
            }, memory=True)
        del q, hidden, w


def rank_rows():
    for nq in 1, 16:
        q, d = unit(nq, 32, 128), unit(10000 if GPU else 200, 300 if GPU else 20, 128, seed=1)
        with torch.no_grad():
            yield measured(f"best 100: {nq} × 32, 10,000 × 300", {
                "plaid": lambda: plaid.top_k(q, d, 100), "LIK": lambda: retrieve(q, d, 100, normalize=False),
                "LIK, in pieces": lambda: retrieve(q, d, 100, normalize=False, chunk=4096),
            }, memory=True)


def chamfer_rows():
    for sets, n, dim in fitting([(1, 512, 3), (2, 64, 128), *dense.CHAMFER] if not GPU else dense.CHAMFER, lambda a, b, c: b < 600):
        x, y = points(sets, n, dim), points(sets, n, dim, seed=1)
        name = f"{n:,} points" + (f", d {dim}" if dim != 3 else "") + (f", {sets} sets" if sets > 1 else "")

        def theirs(metric):
            return [flash_maxsim.flash_chamfer(a, b, metric) for a, b in zip(x, y)]

        for metric in "l2_sq", "l1":
            yield measured(f"{name}, {metric.removesuffix('_sq')}", {
                "plaid": lambda: plaid.chamfer(x, y, metric=metric), "Flash-MaxSim": lambda: theirs(metric),
            }, memory=True)
        x.requires_grad_(), y.requires_grad_()
        yield measured(f"{name}, l2, forward and backward", {
            "plaid": lambda: step(lambda x, y: plaid.chamfer(x, y), x, y),
            "Flash-MaxSim": lambda: step(lambda x, y: sum(flash_maxsim.flash_chamfer_train(a, b) for a, b in zip(x, y)), x, y),
        }, memory=True)


PARTS = {
    "launch": launch_rows, "forward": forward_rows, "training": training_rows, "chamfer": chamfer_rows,
    "head": head_rows, "rank": rank_rows,
}


def run(part, file, seconds="600"):
    end = time.monotonic() + float(seconds)
    with open(file, "a", encoding="utf-8") as out:
        for row in PARTS[part]():
            print(json.dumps({"part": part} | row), file=out, flush=True)
            shown = {who: round(t, 4) for who, t in row["times"].items()}
            print(part, row["name"], shown, *row["failed"].items(), flush=True)
            if time.monotonic() > end:
                print(f"{part}: no time for the other rows", flush=True)
                break


def warm(part):
    """What is compiled stays on disk; what is found to be fastest while others compile does not."""
    from triton.runtime.autotuner import Autotuner

    Autotuner.check_disk_cache = lambda self, key, configs, measure: bool(measure())
    for row in PARTS[part]():
        print("warm", part, row["name"], flush=True)


def report(file):
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    for part in PARTS:
        some = [row for row in rows if row["part"] == part]
        whos = list(dict.fromkeys(who for row in some for who in [*row["times"], *row["failed"]]))
        if not some:
            continue
        unit_of = "microseconds a launch from Python" if part == "launch" else "milliseconds (MiB)"
        print(f"\n| {part}, {unit_of} | {' | '.join(whos)} | better peer / plaid |")
        print("| --- |" + " ---: |" * (len(whos) + 1))
        for row in some:
            print(f"| {row['name']} | {' | '.join(cell(row, who) for who in whos)} | {ratio(row)} |")


def cell(row, who):
    if who not in row["times"]:
        return row["failed"].get(who, "–").split(":")[0]
    time_of = row["times"][who]
    text = f"{time_of:.1f}" if row["part"] == "launch" else f"{time_of:.3g}".replace("0.", ".", 1) if time_of < 1 else f"{time_of:.3g}"
    return text + (f" ({row['memory'][who]:.1f})" if who in row["memory"] else "")


def ratio(row):
    peers = [t for who, t in row["times"].items() if who != "plaid"]
    return f"{min(peers) / row['times']['plaid']:.2f}" if peers and "plaid" in row["times"] else "–"


if __name__ == "__main__":
    {"report": report, "warm": warm}.get(sys.argv[1], lambda *rest: run(sys.argv[1], *rest))(*sys.argv[2:])
