"""The first documents of an index, if they are many: the way of `plaid index`.

A collection that grows keeps 8 bits a component as long as it may still change a lot. Where all
documents are there at once, the program sees all of them and takes the bits of the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any, Mapping, Sequence

import numpy as np

from ._arrays import Matrix
from ._errors import RequestError, ServiceError
from ._service import Service

#: From so many tokens on. Below, an index is some ten megabytes, however it is built.
LEAST = 1 << 19


def build(index: Any, service: Service, ids: Sequence[str], matrices: Sequence[Matrix], metadata: Sequence[Mapping[str, Any]] | None, config: Mapping[str, Any]) -> None:
    """Builds an index file beside the index, and puts it into its place."""
    for i in ids:
        if "\n" in i or "\r" in i:
            raise RequestError(f"id {i!r} has a line break in it", "BAD_REQUEST", 400)
    with tempfile.TemporaryDirectory(dir=os.path.join(service.folder, ".service"), prefix="build-") as folder:
        at = {name: os.path.join(folder, name) for name in ("vectors.npy", "lengths.npy", "ids.txt", "payload.jsonl", "index.plaid")}
        _write_vectors(at["vectors.npy"], matrices)
        np.save(at["lengths.npy"], np.array([len(m) for m in matrices], dtype=np.int64))
        with open(at["ids.txt"], "w", encoding="utf-8", newline="\n") as f:
            f.writelines(i + "\n" for i in ids)
        command = [service.binary, "index", at["index.plaid"], "--quiet", "--vectors", at["vectors.npy"], "--lengths", at["lengths.npy"], "--ids", at["ids.txt"]]
        if metadata is not None:
            with open(at["payload.jsonl"], "w", encoding="utf-8", newline="\n") as f:
                f.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in metadata)
            command += ["--payload", at["payload.jsonl"]]
        command += ["--nbits", str(config.get("nbits", 4))]
        if "seed" in config:
            command += ["--seed", str(config["seed"])]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if process.returncode != 0:
            said = process.stderr.decode(errors="replace").strip()
            kind = RequestError if process.returncode in (1, 2) else ServiceError
            raise kind(f"the index was not built: {said}")
        index.load(at["index.plaid"])


def _write_vectors(path: str, matrices: Sequence[Matrix]) -> None:
    """One array [tokens, dim] of all, without another copy of them in memory."""
    first = matrices[0]
    shape = (sum(len(m) for m in matrices), first.shape[1])
    with open(path, "wb") as f:
        header = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(f, header)
        for m in matrices:
            f.write(m.data.cast("B"))
