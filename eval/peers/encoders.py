"""Times PyTorch's BERT and ModernBERT on a GPU, in half precision with SDPA.

    encoders.py [--tokens 16384,65536] [--dtypes float16,bfloat16]

Weights are random: times do not depend on them. Texts have lengths like those of
SciFact's, cut at 300, sorted, in batches of so many tokens with padding; padding does
not count. Questions have 32 tokens and go as a CUDA graph and without. What they are
compared with is kernels/cuda/src/harness/encoder.cu, run beside it. Prints JSON lines.
"""
import argparse
import json
import time

import numpy as np
import torch
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

MODELS = {
    "6 x 384": lambda: BertModel(BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                            intermediate_size=1536, attn_implementation="sdpa"), add_pooling_layer=False),
    "BERT base": lambda: BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False),
    "ModernBERT base": lambda: ModernBertModel(ModernBertConfig(attn_implementation="sdpa")),
}


def lengths(tokens, rng):
    """As the harness draws them: 268 tokens on average."""
    out = []
    while sum(out) < tokens:
        out.append(int(min(300, max(40, rng.normal(300, 70)), tokens - sum(out))))
    return sorted(out, reverse=True)


def batches(tokens, rng, total=1_390_000):
    """Batches of texts of about so many tokens, of a collection sorted by length."""
    all_lengths = lengths(total, rng)
    batch, out = [], []
    for n in all_lengths:
        if batch and batch[0] * (len(batch) + 1) > tokens:
            out.append(batch)
            batch = []
        batch.append(n)
    return out + [batch]


def timed(f):
    torch.cuda.synchronize()
    start = time.perf_counter()
    f()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--tokens", default="16384,65536")
    args.add_argument("--dtypes", default="float16,bfloat16")
    args = args.parse_args()
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
    for name, make in MODELS.items():
        for dtype in args.dtypes.split(","):
            torch.manual_seed(1)
            model = make().eval().to("cuda", getattr(torch, dtype))
            head = torch.nn.Linear(model.config.hidden_size, 128, bias=False).to("cuda", getattr(torch, dtype))

            def encode(ids, mask):
                hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
                return torch.nn.functional.normalize(head(hidden), dim=-1)

            with torch.inference_mode():
                for tokens in map(int, args.tokens.split(",")):
                    work = []
                    for b in batches(tokens, np.random.default_rng(1)):
                        ids = torch.randint(5, 20000, (len(b), b[0]), device="cuda")
                        mask = (torch.arange(b[0], device="cuda")[None] < torch.tensor(b, device="cuda")[:, None]).long()
                        work.append((ids, None if min(b) == b[0] else mask))
                    some = work[:: max(1, len(work) // 12)]
                    count = sum(int(m.sum()) if m is not None else i.numel() for i, m in some)
                    for i, m in some[:2] + some[-1:]:
                        encode(i, m)
                    times = sorted(timed(lambda: [encode(i, m) for i, m in some]) for _ in range(5))
                    print(json.dumps({"model": name, "dtype": dtype, "batch_tokens": tokens,
                                      "m_tokens_a_second": round(count / times[2] / 1e6, 3)}), flush=True)
                ids = torch.randint(5, 20000, (1, 32), device="cuda")
                for _ in range(3):
                    encode(ids, None)
                eager = sorted(timed(lambda: encode(ids, None)) for _ in range(15))[7]
                row = {"model": name, "dtype": dtype, "question_ms_eager": round(eager * 1e3, 3)}
                try:
                    graph = torch.cuda.CUDAGraph()
                    side = torch.cuda.Stream()
                    with torch.cuda.stream(side):
                        encode(ids, None)
                    torch.cuda.synchronize()
                    with torch.cuda.graph(graph):
                        result = encode(ids, None)
                    fresh = torch.randint(5, 20000, (1, 32)).pin_memory()
                    host = torch.empty(result.shape, dtype=result.dtype).pin_memory()

                    def question():
                        ids.copy_(fresh, non_blocking=True)
                        graph.replay()
                        host.copy_(result, non_blocking=True)

                    for _ in range(3):
                        question()
                    row["question_ms_graph"] = round(sorted(timed(question) for _ in range(31))[15] * 1e3, 4)
                except Exception as e:  # a model that cannot be captured
                    row["graph_error"] = str(e).splitlines()[0]
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
