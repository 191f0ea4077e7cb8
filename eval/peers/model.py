"""Checks a published model: the token vectors that its own package gives for texts, and those of plaid.

    model.py fetch NAME                   the folder of ORG/NAME or ORG/NAME@REVISION in the hub's cache
    model.py package FOLDER               pylate or sentence: which package the folder is of
    model.py vectors PACKAGE FOLDER DATA OUT [--texts N]   writes the texts and the package's vectors
    model.py compare OUT [--delta X] [--cosine X] [--ndcg X]

model.sh calls these in turn, and plaid between the last two. vectors and fetch need the package; DATA is in BEIR's
layout. A folder of another kind, whose vectors are not late interaction's, is wrapped: its token vectors as they
come out of the backbone, made unit length. compare ends with 1 if a limit is passed.
"""
import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

FILES = ["*.json", "*.txt", "*.model", "*.metadata", "*.py"]
GRAPHS = ["onnx/*", "openvino/*", "*/onnx/*"]


def fetch(args):
    from huggingface_hub import snapshot_download

    name, _, revision = args.name.partition("@")
    for weights in ("*.safetensors", "*.bin"):
        folder = Path(snapshot_download(
            name, revision=revision or None, allow_patterns=[*FILES, weights], ignore_patterns=GRAPHS))
        if any(folder.glob(weights)):
            break
    print(folder)


def types_of(folder):
    path = folder / "modules.json"
    return [m["type"] for m in json.loads(path.read_text())] if path.exists() else []


def package(args):
    """PyLate's folders name its modules; Stanford's have artifact.metadata, which PyLate reads."""
    pylate = any(t.startswith("pylate.") for t in types_of(args.folder)) or (args.folder / "artifact.metadata").exists()
    print("pylate" if pylate else "sentence")


def lines(path):
    with open(path, encoding="utf8") as f:
        return [json.loads(line) for line in f if line.strip()]


def texts(data, out, limit):
    """Writes the judged queries, and the documents, those that are judged first; titles become a part of the text."""
    qrels = {}
    with open(data / "qrels" / "test.tsv", encoding="utf8") as f:
        for row in list(f)[1:]:
            query, doc, grade = row.split("\t")
            if int(grade) > 0:
                qrels.setdefault(query, {})[doc] = int(grade)
    docs = lines(data / "corpus.jsonl")
    if limit:
        judged = {d for grades in qrels.values() for d in grades}
        docs = sorted(docs, key=lambda d: d["_id"] not in judged)[:limit]
    have = {d["_id"] for d in docs}
    qrels = {q: grades for q, grades in qrels.items() if have & set(grades)}
    sets = {
        "queries": [(q["_id"], q["text"].strip()) for q in lines(data / "queries.jsonl") if q["_id"] in qrels],
        "documents": [(d["_id"], (d.get("title", "") + " " + d["text"]).strip()) for d in docs],
    }
    for name, rows in sets.items():
        with open(out / f"{name}.jsonl", "w", encoding="utf8") as f:
            f.writelines(json.dumps({"_id": i, "text": t}) + "\n" for i, t in rows)
    (out / "qrels.json").write_text(json.dumps(qrels))
    return [t for _, t in sets["queries"]], [t for _, t in sets["documents"]]


def wrapped(folder, out, options):
    """An encoder of the backbone's own vectors, saved where plaid finds it."""
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    if types_of(folder):
        backbone = SentenceTransformer(str(folder), device="cpu", **options)[0]
    else:
        backbone = Transformer(str(folder), model_kwargs=options["model_kwargs"])
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    path = out / "model"
    MultiVectorEncoder(modules=[backbone, MultiVectorMask(), Normalize(**tokens)], device="cpu").save_pretrained(
        str(path), create_model_card=False)
    return path


def vectors(args):
    import torch
    import transformers

    args.out.mkdir(parents=True, exist_ok=True)
    queries, documents = texts(args.data, args.out, args.texts)
    options = {"model_kwargs": {"dtype": torch.float32}, "trust_remote_code": args.trust_remote_code}
    folder, kind = args.folder, "as published"
    if args.package == "pylate":
        import pylate
        from pylate import models

        version = f"PyLate {pylate.__version__}"
        model = models.ColBERT(str(folder), device=args.device, **options)
        encode = {"queries": lambda t: model.encode(t, is_query=True, batch_size=args.batch, show_progress_bar=True),
                  "documents": lambda t: model.encode(t, is_query=False, batch_size=args.batch, show_progress_bar=True)}
    else:
        import sentence_transformers
        from sentence_transformers import MultiVectorEncoder

        version = f"sentence-transformers {sentence_transformers.__version__}"
        if not any("multi_vector" in t for t in types_of(folder)):
            folder, kind = wrapped(folder, args.out, options), "backbone alone"
        model = MultiVectorEncoder(str(folder), device=args.device, **options)
        encode = {"queries": lambda t: model.encode_query(t, batch_size=args.batch, show_progress_bar=True),
                  "documents": lambda t: model.encode_document(t, batch_size=args.batch, show_progress_bar=True)}
    for name, rows in {"queries": queries, "documents": documents}.items():
        found = [np.asarray(v.float().cpu() if torch.is_tensor(v) else v, np.float32) for v in encode[name](rows)]
        np.savez(args.out / f"{name}.npz", vectors=np.concatenate(found), lengths=[len(v) for v in found])
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
    (args.out / "package.json").write_text(json.dumps({
        "folder": os.path.realpath(folder), "kind": kind, "family": config.get("model_type"),
        "package": f"{version}, transformers {transformers.__version__}, torch {torch.__version__}"}))


def of_plaid(folder, name):
    files = {"queries": ("queries.npy", "querylens.npy"), "documents": ("docs.npy", "doclens.npy")}[name]
    v = np.load(folder / files[0])
    n = np.load(folder / files[1]) if (folder / files[1]).exists() else np.full(v.shape[0], v.shape[1])
    return v.reshape(-1, v.shape[-1]).astype(np.float32), n.astype(np.int64)


def ndcg(queries, documents, out):
    """nDCG@10 of exact MaxSim, as trec_eval has it."""
    qrels = json.loads((out / "qrels.json").read_text())
    ids = [d["_id"] for d in lines(out / "documents.jsonl")]
    (d, lengths), total = documents, []
    kept = np.flatnonzero(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths[kept])[:-1]]).astype(np.int64)
    begin = 0
    for query, n in zip(lines(out / "queries.jsonl"), queries[1]):
        q = queries[0][begin:begin + n]
        begin += n
        scores = np.zeros(len(ids))
        scores[kept] = np.maximum.reduceat(d @ q.T, starts, axis=0).sum(axis=1)
        best = [ids[i] for i in np.argsort(-scores, kind="stable")[:10]]
        grades = qrels[query["_id"]]
        gain = sum(grades.get(i, 0) / np.log2(r + 2) for r, i in enumerate(best))
        total.append(gain / sum(g / np.log2(r + 2) for r, g in enumerate(sorted(grades.values(), reverse=True)[:10])))
    return float(np.mean(total))


def compare(args):
    report = json.loads((args.out / "package.json").read_text())
    wrong, ours, theirs = [], {}, {}
    for name in ("queries", "documents"):
        z = np.load(args.out / f"{name}.npz")
        theirs[name] = z["vectors"], z["lengths"]
        ours[name] = of_plaid(args.out / "plaid", name)
        (a, m), (b, n) = theirs[name], ours[name]
        row = report[name] = {"texts": len(n), "vectors": len(b), "dimensions": b.shape[1]}
        if len(m) != len(n) or (m != n).any() or a.shape != b.shape:
            other = [t["_id"] for t, x, y in zip(lines(args.out / f"{name}.jsonl"), m, n) if x != y]
            wrong.append(f"{name}: {len(other)} of {len(n)} texts have another number of vectors than with the package, the "
                         f"first is {''.join(other[:1])}; in all {len(b)} of {b.shape[1]} dimensions, with the package "
                         f"{len(a)} of {a.shape[1]}")
            continue
        cosines = np.einsum("nd,nd->n", a, b, dtype=np.float64)
        cosines /= np.sqrt(np.einsum("nd,nd->n", a, a, dtype=np.float64) * np.einsum("nd,nd->n", b, b, dtype=np.float64))
        row["largest_difference"] = float(np.abs(a - b).max())
        shares = {"least": 0, ".1 %": .001, "1 %": .01, "median": .5}
        row["cosines"] = {k: float(np.quantile(cosines, q)) for k, q in shares.items()}
        if not row["largest_difference"] <= args.delta:
            wrong.append(f"{name}: a component differs by {row['largest_difference']:.3g}, the limit is {args.delta:g}")
        if not row["cosines"]["least"] >= args.cosine:
            wrong.append(f"{name}: the least cosine is {row['cosines']['least']:.9f}, the limit is {args.cosine:g}")
    report["ndcg"] = {"package": ndcg(theirs["queries"], theirs["documents"], args.out),
                      "plaid": ndcg(ours["queries"], ours["documents"], args.out)}
    if not abs(report["ndcg"]["package"] - report["ndcg"]["plaid"]) <= args.ndcg:
        wrong.append(f"nDCG@10 differs by more than {args.ndcg:g}")
    report["wrong"] = wrong
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"model      {report['folder']}\nfamily     {report['family']}, {report['kind']}\npackage    {report['package']}")
    for name in ("queries", "documents"):
        row = report[name]
        print(f"{name:11}{row['texts']} texts, {row['vectors']} vectors of {row['dimensions']} dimensions")
        if "cosines" in row:
            print(f"           largest difference {row['largest_difference']:.2g}; cosine: "
                  + ", ".join(f"{k} {v:.8f}" for k, v in row["cosines"].items()))
    print(f"nDCG@10    plaid {report['ndcg']['plaid']:.4f}, package {report['ndcg']['package']:.4f} (exact MaxSim)")
    for w in wrong:
        print("WRONG      " + w)
    print("the same within the limits" if not wrong else "not the same")
    sys.exit(1 if wrong else 0)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = args.add_subparsers(required=True)
    p = sub.add_parser("fetch")
    p.add_argument("name")
    p.set_defaults(run=fetch)
    p = sub.add_parser("package")
    p.add_argument("folder", type=Path)
    p.set_defaults(run=package)
    p = sub.add_parser("vectors")
    p.add_argument("package", choices=["pylate", "sentence"])
    for name in ("folder", "data", "out"):
        p.add_argument(name, type=Path)
    p.add_argument("--texts", type=int, default=0)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--device", default="cpu")
    p.add_argument("--trust-remote-code", action="store_true")
    p.set_defaults(run=vectors)
    p = sub.add_parser("compare")
    p.add_argument("out", type=Path)
    p.add_argument("--delta", type=float, default=1e-4)
    p.add_argument("--cosine", type=float, default=.99999)
    p.add_argument("--ndcg", type=float, default=.0005)
    p.set_defaults(run=compare)
    args = args.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
