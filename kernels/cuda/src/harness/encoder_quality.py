"""Cosines of the encoder's kernels, and of PyTorch in half precision and bfloat16, to
PyTorch's float32, of a BERT with a linear head on texts of a BEIR collection.

    encoder_quality.py CUBIN MODEL CORPUS.jsonl [texts]

MODEL is a folder with model.safetensors (bert.*, linear.weight), config.json and
tokenizer.json. Needs PyTorch, CuPy, transformers, tokenizers, safetensors.
"""
import json
import sys

import cupy as cp
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

cubin, folder, corpus = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
config = json.load(open(folder + "/config.json"))
weights = {k: v.float() for k, v in load_file(folder + "/model.safetensors").items()}
H, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
inter, D = config["intermediate_size"], H // heads

tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
tokenizer.no_truncation()
tokenizer.no_padding()
markers = config["colbert"]
texts = []
for line in open(corpus):
    d = json.loads(line)
    ids = tokenizer.encode((d.get("title", "") + " " + d["text"]).strip(), add_special_tokens=False).ids
    texts.append([markers["cls_id"], markers["doc_marker_id"]] + ids[: 297] + [markers["sep_id"]])
texts = texts[:count]


def reference(dtype):
    """Unit vectors of all tokens, text by text."""
    torch.backends.cuda.matmul.allow_tf32 = False
    bert = BertModel(BertConfig(vocab_size=config["vocab_size"], hidden_size=H, num_hidden_layers=layers, num_attention_heads=heads,
                                intermediate_size=inter, layer_norm_eps=config["layer_norm_eps"], attn_implementation="sdpa"), add_pooling_layer=False)
    missing = bert.load_state_dict({k[5:]: v for k, v in weights.items() if k.startswith("bert.")}, strict=False)
    assert not [k for k in missing.missing_keys if "position_ids" not in k], missing
    bert = bert.eval().to("cuda", dtype)
    head = weights["linear.weight"].to("cuda", dtype)
    with torch.inference_mode():
        out = [bert(input_ids=torch.tensor([t], device="cuda")).last_hidden_state[0] @ head.T for t in texts]
        return torch.nn.functional.normalize(torch.cat(out).float(), dim=-1)


def tiled(x):
    """f16 in blocks of 64 × 64; see encoder.cuh."""
    x = np.asarray(x, np.float32)
    r, c = -(-x.shape[0] // 64) * 64, -(-x.shape[1] // 64) * 64
    p = np.zeros((r, c), np.float16)
    p[: x.shape[0], : x.shape[1]] = x
    b = p.reshape(r // 64, 64, c // 64, 8, 8).transpose(0, 2, 1, 3, 4)  # block row, block column, row, piece, value
    out = np.empty_like(b)
    for row in range(64):
        out[:, :, row, [k ^ (row % 8) for k in range(8)]] = b[:, :, row]
    return cp.asarray(np.ascontiguousarray(out))


module = cp.RawModule(path=cubin)


def launch(name, grid, block, shared, fields):
    """fields: arrays, None, floats and ints, laid out as the struct of the kernel."""
    data = bytearray()
    for f in fields:
        size = 8 if f is None or isinstance(f, cp.ndarray) else 4
        data += bytes(-len(data) % size)
        v = 0 if f is None else f.data.ptr if isinstance(f, cp.ndarray) else f
        data += np.float32(v).tobytes() if isinstance(v, float) else int(v).to_bytes(size, "little")
    data += bytes(-len(data) % 8)
    kernel = module.get_function(name)
    kernel.max_dynamic_shared_size_bytes = shared
    packed = np.frombuffer(bytes(data), dtype=np.dtype([("x", "u1", len(data))]))[0]
    kernel((*grid, 1, 1)[:3], (block,), (packed,), shared_mem=shared)


def encode(pick, part):
    """The vectors of some texts by our kernels."""
    rows = sum(map(len, part))
    padded = -(-rows // 128) * 128
    ids = cp.asarray(np.concatenate(part).astype(np.uint32))
    at = cp.asarray(np.concatenate([np.arange(len(t)) for t in part]).astype(np.uint32))
    spans, first = [], 0
    for t in part:
        spans += [(first, len(t), len(t), i) for i in range(-(-len(t) // 64))]
        first += len(t)
    spans = cp.asarray(np.array(spans, np.uint32))
    w = lambda k: weights["bert." + k].numpy()
    f32 = lambda x: cp.asarray(np.ascontiguousarray(x, np.float32))
    f16 = lambda x: cp.asarray(np.ascontiguousarray(x, np.float16))
    x, qkv, ctx, wide, delta = (cp.zeros(padded * n, cp.float16) for n in (H, 3 * H, H, inter, H))
    eps = float(config["layer_norm_eps"])
    blocks = (min(-(-rows // 8), 264),)

    def gemm(epilogue, a, weight, bias, out, n, k):
        N = next((m for m in (192, 256, 128, 64) if n % m == 0))
        if pick == "gemm":
            shared = {64: 213120, 128: 114736, 192: 221264, 256: 229440}[N]
            grid, block, name, stages = (min(132 * (2 if N == 128 else 1), n // N * (padded // 128)),), 288 if N == 128 else 384, f"gemm_{epilogue}_n{N}", 0
        else:
            m = int(pick[1:])
            stages = 3 if m == 128 else min(k // 64, 48 if m == 16 else 24)
            shared = 73728 if m == 128 else 256 * m * stages
            grid, block, name = (n // min(m, 64), -(-rows // m)), 128, f"tile_{epilogue}_{pick}"
        launch("encoder_" + name, grid, block, shared, [a, weight, bias, out, None, None, rows, n, k, 0, 0, stages])

    launch("encoder_embed", blocks, 256, 0,
           [ids, at, f16(w("embeddings.word_embeddings.weight")),
            f16(w("embeddings.position_embeddings.weight") + w("embeddings.token_type_embeddings.weight")[:1]),
            f32(w("embeddings.LayerNorm.weight")), f32(w("embeddings.LayerNorm.bias")), x, None, eps, rows, H, H])
    for i in range(layers):
        l = f"encoder.layer.{i}."
        names = [l + "attention.self." + n for n in ("query", "key", "value")]
        gemm("bias", x, tiled(np.concatenate([w(n + ".weight") for n in names])), f32(np.concatenate([w(n + ".bias") for n in names])), qkv, 3 * H, H)
        launch(f"encoder_attention_d{D}", (len(spans), heads), 128, 0, [qkv, ctx, spans, float(D**-0.5), H, 0, 0])
        gemm("bias", ctx, tiled(w(l + "attention.output.dense.weight")), f32(w(l + "attention.output.dense.bias")), delta, H, H)
        norm = lambda n: launch("encoder_norm", blocks, 256, 0, [delta, x, None, f32(w(n + ".weight")), f32(w(n + ".bias")), eps, rows, H, H])
        norm(l + "attention.output.LayerNorm")
        gemm("gelu", x, tiled(w(l + "intermediate.dense.weight")), f32(w(l + "intermediate.dense.bias")), wide, inter, H)
        gemm("bias", wide, tiled(w(l + "output.dense.weight")), f32(w(l + "output.dense.bias")), delta, H, inter)
        norm(l + "output.LayerNorm")
    dim = weights["linear.weight"].shape[0]
    out, vectors, bad = cp.zeros((rows, dim), cp.float32), cp.zeros((rows, dim), cp.float32), cp.full(1, 2**32 - 1, cp.uint32)
    launch("encoder_head_m128", (dim // 64, padded // 128), 128, 73728,
           [x, tiled(weights["linear.weight"].numpy()), None, None, None, out, None, rows, dim, H, 0, 3, 0])
    launch("encoder_unit", (-(-rows // 8),), 256, 0, [out, None, None, vectors, None, bad, rows, dim, dim, 0])
    cp.cuda.runtime.deviceSynchronize()
    assert int(bad[0]) == 2**32 - 1
    return torch.from_numpy(cp.asnumpy(vectors)).cuda()


def tell(name, x, exact):
    cos = (x.double() * exact.double()).sum(-1) / x.double().norm(dim=-1) / exact.double().norm(dim=-1)
    lost = (1 - cos).sort(descending=True).values
    print(f"{name:28s} mean 1 - cos {lost.mean():.2e}, .1 % quantile of cos {1 - lost[len(lost) // 1000]:.7f}, least {1 - lost[0]:.7f}", flush=True)


exact = reference(torch.float32)
print(f"{len(texts)} texts, {len(exact)} tokens")
tell("PyTorch float16", reference(torch.float16), exact)
tell("PyTorch bfloat16", reference(torch.bfloat16), exact)
ours = encode("gemm", texts)
tell("kernels", ours, exact)
# The same bits whatever the company and the tiles.
for pick, part in (("m128", texts[:200]), ("m32", texts[150:170]), ("m16", texts[333:335]), ("gemm", texts[500:777]), ("gemm", texts[7:8])):
    first = next(i for i in range(len(texts)) if texts[i] is part[0])
    at = sum(map(len, texts[:first]))
    rows = sum(map(len, part))
    print(pick, len(part), "texts: same bits" if torch.equal(encode(pick, part), ours[at : at + rows]) else "texts: DIFFERENT BITS")
