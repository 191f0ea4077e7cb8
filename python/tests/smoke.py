"""The first minutes with a package that is installed: python smoke.py MODEL. It prints the version."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import plaid_ir
from plaid_ir._binary import find_binary


def vectors(folder: str) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.standard_normal((int(rng.integers(20, 60)), 128)) for _ in range(200)]
    ids = [f"doc-{i}" for i in range(200)]
    with plaid_ir.Index(index_folder=folder, index_name="vectors") as index:
        index.add_documents(ids, documents, metadata=[{"year": 1900 + i} for i in range(200)])
        assert index([documents[7][:10]], k=3)[0][0]["id"] == "doc-7"
        found = index([documents[7][:10]], k=3, where="year >= 2000", metadata=True)[0]
        assert all(hit["metadata"]["year"] >= 2000 for hit in found), found
        index.delete(["doc-7"])
    with plaid_ir.Index(index_folder=folder, index_name="vectors") as index:
        assert len(index) == 199 and "doc-7" not in index


def texts(folder: str, model: str) -> None:
    written = ["Cats sleep for most of the day.", "Dogs bark at night when strangers pass.", "Cells make energy."]
    ids = ["cats", "dogs", "cells"]
    with plaid_ir.Index.from_texts(written, ids=ids, model=model, index_folder=folder, index_name="texts") as index:
        assert index.search("which animal sleeps all day?", k=1)[0]["id"] == "cats"
        assert [hit["id"] for hit in index.search(keywords="bark")] == ["dogs"]


def main() -> None:
    model = str(Path(sys.argv[1]).resolve())
    said = subprocess.run([find_binary(None), "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"plaid v{plaid_ir.__version__}\n", said
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        vectors(folder)
        texts(folder, model)
        os.chdir("/")
    print(plaid_ir.__version__)


if __name__ == "__main__":
    main()
