"""torch's MaxSim on one core of the processor, forward and with gradients of both sides.

Three formulations are timed, in turns, and the best of each is kept:

    einsum   torch.einsum, then max and sum
    matmul   batches of products, then amax
    mm       one product of flattened tokens, then amax

--plaid times plaid_ir.torch.maxsim in the same turns. Without torch around it that is BenchmarkTorch of
kernels/maxsim/cpu, of the same shapes; run both in turns on one core:

    OMP_NUM_THREADS=1 taskset -c 1 python eval/peers/dense_cpu.py --seconds 5
    GOMAXPROCS=1 taskset -c 1 go test ./kernels/maxsim/cpu -run '^$' -bench Torch
"""

import argparse
import time

import torch

SHAPES = [(1, 32, 1000, 180), (16, 32, 16, 180), (32, 32, 32, 180), (16, 32, 16, 1030)]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def einsum(q, d):
    return torch.einsum("qsd,ktd->qkst", q, d).max(-1).values.sum(-1)


def matmul(q, d):
    return torch.matmul(q.unsqueeze(1), d.transpose(1, 2)).amax(-1).sum(-1)


def mm(q, d):
    (nq, lq, dim), (nd, ld, _) = q.shape, d.shape
    products = q.reshape(nq * lq, dim) @ d.reshape(nd * ld, dim).T
    return products.view(nq, lq, nd, ld).amax(-1).sum(1)


def forward(f, q, d):
    with torch.no_grad():
        f(q, d)


def both(f, q, d):
    q.grad = d.grad = None
    f(q, d).sum().backward()


def best(seconds, steps):
    """Milliseconds of the fastest run of each step, taken in turns."""
    least = dict.fromkeys(steps, float("inf"))
    end = time.perf_counter() + seconds
    first = True
    while first or time.perf_counter() < end:
        first = False
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            least[name] = min(least[name], 1e3 * (time.perf_counter() - start))
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="for each line of figures")
    parser.add_argument("--types", nargs="*", default=list(TYPES), choices=list(TYPES))
    parser.add_argument("--shapes", nargs="*", type=int, default=range(len(SHAPES)), help="numbers of shapes")
    parser.add_argument("--forward", action="store_true", help="without gradients")
    parser.add_argument("--plaid", action="store_true", help="plaid_ir.torch.maxsim, too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    others = []
    if args.plaid:
        from plaid_ir.torch import maxsim

        others = [maxsim]
    for kind in args.types:
        for nq, lq, nd, ld in (SHAPES[i] for i in args.shapes):
            normal = lambda *shape: torch.nn.functional.normalize(torch.randn(*shape), dim=-1).to(TYPES[kind])
            q, d = normal(nq, lq, 128).requires_grad_(), normal(nd, ld, 128).requires_grad_()
            for name, run in (("forward", forward), ("both", both))[: 1 if args.forward else 2]:
                steps = {f.__name__: lambda f=f: run(f, q, d) for f in (einsum, matmul, mm, *others)}
                times = best(args.seconds, steps)
                line = "  ".join(f"{f} {ms:8.2f}" for f, ms in times.items())
                ours = times.pop("maxsim", None)
                least = min(times.values())
                ratio = f", {least / ours:.2f} × maxsim" if ours else ""
                print(f"{kind:4} {nq}x{lq}/{nd}x{ld} {name:8} {line}  best {least:8.2f} ms{ratio}", flush=True)


if __name__ == "__main__":
    main()
