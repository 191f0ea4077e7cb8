"""Writes the small indexes of this folder with the programs themselves.

    make.py input DIR                 documents and queries, cut from the bundled sample
    make.py colbert DIR INDEX         ColBERT's own indexer, with vectors in place of a model
    make.py fast-plaid DIR INDEX
    make.py fast-plaid-metadata DIR INDEX
    make.py colbert-hits DIR INDEX    rankings by the program, all documents: query, document, score
    make.py fast-plaid-hits DIR INDEX

make.sh calls it for each; see README.md.
"""
import json
import os
import sys
from pathlib import Path

import numpy as np

TOKENS = 16  # of each document: the files shall be small
SAMPLE = Path(__file__).resolve().parents[4] / "docs/examples/quickstart/scifact-sample/vectors"


def make_input(folder):
    folder.mkdir(parents=True, exist_ok=True)
    docs, lengths = np.load(SAMPLE / "docs.npy"), np.load(SAMPLE / "doclens.npy")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    kept = np.minimum(lengths, TOKENS)
    np.save(folder / "docs.npy", np.concatenate([docs[s : s + n] for s, n in zip(starts, kept)]))
    np.save(folder / "doclens.npy", kept.astype(np.int32))
    np.save(folder / "queries.npy", np.load(SAMPLE / "queries.npy"))
    (folder / "metadata.json").write_text(json.dumps(metadata(len(kept)), ensure_ascii=False))


def metadata(n):
    """One object a document, with what databases of metadata have to keep: all kinds of values,
    nothing, texts that are longer than a page, and a field that only the last six have."""
    titles = [json.loads(line)["title"] for line in open(SAMPLE.parent / "corpus.jsonl")]
    objects = []
    for i in range(n):
        o = {"name": titles[i], "year": 1990 + i, "weight": i / 4, "open": i % 3 == 0, "tags": ["a", i, {"deep": None}]}
        if i % 20 == 0:
            o["note"] = "long · " * 1500
        if i % 2:
            o["year"] = None
        if i >= n - 6:
            o["added"] = -(2**40) - i
        objects.append(o)
    return objects


def documents(folder):
    import torch

    x = torch.from_numpy(np.load(folder / "docs.npy").astype(np.float32))
    return list(torch.split(x, np.load(folder / "doclens.npy").astype(int).tolist()))


def queries(folder):
    import torch

    q = torch.from_numpy(np.load(folder / "queries.npy").astype(np.float32))
    return torch.nn.functional.normalize(q, dim=-1)


def colbert_config(index):
    from colbert.infra import ColBERTConfig

    return ColBERTConfig(
        checkpoint="none", nbits=2, dim=128, kmeans_niters=4, root=".", index_path=index.name, index_name=index.name,
        gpus=0, rank=0, nranks=1,
    )


def colbert(folder, index):
    """Stanford's CollectionIndexer as it is, but for the model: passages are numbers of documents."""
    import random

    import torch
    from colbert.indexing import collection_indexer

    docs = documents(folder)
    random.seed(1)
    torch.manual_seed(1)
    collection_indexer.Checkpoint = lambda *args, **kw: None

    class Vectors:
        def __init__(self, config, checkpoint):
            pass

        def encode_passages(self, passages):
            chosen = [docs[int(p)] for p in passages]
            return torch.cat(chosen), [len(d) for d in chosen]

    collection_indexer.CollectionEncoder = Vectors
    index.mkdir(parents=True, exist_ok=True)
    os.chdir(index.parent)  # ColBERT writes its paths into the index
    numbers = [str(i) for i in range(len(docs))]
    collection_indexer.CollectionIndexer(colbert_config(index), numbers, verbose=0).run([])


def colbert_hits(folder, index):
    """Scores of all documents, by the codec of ColBERT."""
    import torch
    from colbert.indexing.codecs.residual import ResidualCodec

    codec = ResidualCodec.load(str(index))
    tokens = codec.decompress(ResidualCodec.Embeddings.load(str(index), 0)).float()
    return scores(folder, torch.split(tokens, [len(d) for d in documents(folder)]))


def scores(folder, docs):
    for i, q in enumerate(queries(folder)):
        for j, d in enumerate(docs):
            yield i, j, (q @ d.T).max(dim=1).values.sum().item()


def fast_plaid(folder, index):
    from fast_plaid import search

    search.FastPlaid(index=str(index), device="cpu").create(
        documents_embeddings=documents(folder), nbits=2, kmeans_niters=4, seed=42, start_from_scratch=0)


def fast_plaid_metadata(folder, index):
    """As `metadata` of ../../../../eval/peers/rust/src/main.rs; it takes no lists."""
    from fast_plaid import filtering

    objects = [{k: v for k, v in o.items() if k != "tags"} for o in json.loads((folder / "metadata.json").read_text())]
    filtering.create(str(index), [{"name": "deleted"}, *objects[:-6]])
    filtering.delete(str(index), [0])
    filtering.update(str(index), objects[-6:])


def fast_plaid_hits(folder, index):
    from fast_plaid import search

    engine, docs = search.FastPlaid(index=str(index), device="cpu"), documents(folder)
    for i, q in enumerate(queries(folder)):
        for j, score in engine.search(q[None], top_k=len(docs), n_full_scores=4096, n_ivf_probe=256, show_progress=False)[0]:
            yield i, j, score


def main():
    what, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    if what == "input":
        return make_input(folder)
    index = Path(sys.argv[3]).resolve()
    hits = {"colbert-hits": colbert_hits, "fast-plaid-hits": fast_plaid_hits}.get(what)
    if hits is None:
        return {"colbert": colbert, "fast-plaid": fast_plaid, "fast-plaid-metadata": fast_plaid_metadata}[what](folder, index)
    for i, j, score in sorted(hits(folder, index)):
        print(f"{i}\t{j}\t{score:.4f}")


if __name__ == "__main__":
    main()
