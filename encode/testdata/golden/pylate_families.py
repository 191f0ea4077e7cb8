#!/usr/bin/env python3
"""PyLate's folders of the models of families.py, and what PyLate gives for them.

  python pylate_families.py    needs pylate (made with 1.6.0, and its transformers 5.3.0)

pylate-NAME has what lies over the folder NAME, whose tokenizer.json and model.safetensors stay as they are.
golden-pylate-NAME.npz has the vectors, as make.py writes them. pylate-lfm25 is another reading of lfm2, of a text at a
time. Nothing is fetched.
"""

import ast
import json
import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from make import HERE, TEXTS, clean, fresh
from pylate import models
from safetensors.torch import load_file, save_file

SHARED = ("tokenizer.json", "model.safetensors")


def make(name, folder, changes=None, batch=3):
    start, path = fresh("start"), fresh("pylate-" + name)
    for f in ("config.json", "tokenizer_config.json", *SHARED):
        shutil.copy(os.path.join(HERE, folder, f), start)
    torch.manual_seed(5)
    m = models.ColBERT(start, device="cpu", embedding_size=8, query_length=16, document_length=40)
    with torch.no_grad():
        for p in m[1].parameters():
            p.copy_((torch.randn_like(p) * 0.2).half().float())
    m.save(path, create_model_card=False)
    for f in SHARED:
        shutil.copy(os.path.join(start, f), path)
    shutil.rmtree(start)
    head = os.path.join(path, "1_Dense", "model.safetensors")
    save_file({k: v.half() for k, v in load_file(head).items()}, head, metadata={"format": "pt"})
    if changes:
        settings = os.path.join(path, "config.json")
        with open(settings) as f:
            values = {**json.load(f), **changes}
        with open(settings, "w") as f:
            json.dump(values, f)
    m = models.ColBERT(path, device="cpu")
    m.double()  # but for what the classes do in float32 whatever is asked for
    out = {f"query{i}": v for i, v in enumerate(m.encode(TEXTS["queries"], is_query=True, batch_size=batch))}
    out.update({f"document{i}": v for i, v in enumerate(m.encode(TEXTS["documents"], is_query=False, batch_size=batch))})
    np.savez_compressed(os.path.join(HERE, f"golden-pylate-{name}.npz"), **{k: np.asarray(v, np.float32) for k, v in out.items()})
    print(name, [len(v) for v in out.values()])
    for f in SHARED:
        os.remove(os.path.join(path, f))
    clean(path)


for family in ("roberta", "camembert", "distilbert", "mpnet", "electra-narrow", "eurobert", "gemma", "mmbert", "lfm2"):
    make(family, family)
# families.py needs another package than this program: of it, one function alone is run.
with open(os.path.join(HERE, "families.py")) as f:
    tree = ast.parse(f.read())
tree.body = [n for n in tree.body if getattr(n, "name", "") == "bidirectional"]
exec(compile(tree, "families.py", "exec"))
bidirectional()  # noqa: F821: for the rest of this program
make("lfm25", "lfm2", {"architectures": ["Lfm2BidirectionalModel"]}, batch=1)
