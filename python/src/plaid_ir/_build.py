"""The first documents of an index, if they are many: the way of `plaid index`.

A collection that grows keeps 8 bits a component as long as it may still change a lot. Where the
documents are there at once, the program sees all of them and takes the bits of the end. Those of a
source that has no end in sight wait in files until it ends, or there are enough.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import IO, Any, Callable, Iterator, Mapping, Sequence, TypeAlias

import numpy as np

from ._arrays import Matrix, batches, to_json
from ._errors import PlaidError, RequestError, ServiceError

#: From so many tokens on. Below, an index is some ten megabytes, however it is built.
LEAST = 1 << 19
#: So many tokens wait at most: 4 GiB of float32 of dimension 128.
MOST = 1 << 23
#: How long the header of a file of vectors is.
_HEADER = 128

#: Documents of one request: ids, vectors, and metadata with the ids.
Part: TypeAlias = tuple[Sequence[str], Sequence[Matrix], Sequence[Mapping[str, Any]]]


class _File:
    """Documents whose vectors have one type of numbers."""

    def __init__(self, folder: str, n: int, kind: str) -> None:
        self.kind = kind
        self.lengths: list[int] = []
        self.ids: list[str] = []
        self.paths = {what: os.path.join(folder, f"{what}-{n}.{end}") for what, end in (("vectors", "npy"), ("lengths", "npy"), ("ids", "txt"), ("payload", "jsonl"))}
        self.vectors: IO[bytes] = open(self.paths["vectors"], "w+b")
        self.vectors.write(bytes(_HEADER))
        self.payload: IO[bytes] = open(self.paths["payload"], "wb")

    def close(self) -> None:
        self.vectors.close()
        self.payload.close()


class Spool:
    """Documents that wait in files of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.ids: dict[str, None] = {}
        self.tokens = 0
        self._files: list[_File] = []
        self._dim = 0

    def add(self, ids: Sequence[str], matrices: Sequence[Matrix], metadata: Sequence[Mapping[str, Any]]) -> None:
        """Takes documents whose ids are not there yet."""
        kind, dim, start = matrices[0].dtype.str, matrices[0].shape[1], len(self.ids)
        if self._dim not in (0, dim):
            raise RequestError(f"document {start} has dimension {dim}, those before it {self._dim}", "DIMENSION_MISMATCH", 400, {"document": start})
        for i, (name, m) in enumerate(zip(ids, matrices), start):
            if "\n" in name or "\r" in name:
                raise RequestError(f"document {i}: id {name!r} has a line break in it", "BAD_REQUEST", 400, {"document": i, "id": name})
            if not np.isfinite(m).all():
                at, component = (int(n) for n in np.argwhere(~np.isfinite(m))[0])
                said = f"document {i} (id {json.dumps(name, ensure_ascii=False)}), token {at}, component {component}: value is not finite: {m[at, component]}"
                raise RequestError(said, "BAD_REQUEST", 400, {"document": i, "id": name, "token": at})
        self._dim = dim
        if not self._files or self._files[-1].kind != kind:
            self._files.append(_File(self._folder, len(self._files), kind))
        file = self._files[-1]
        for m in matrices:
            file.vectors.write(m.data.cast("B"))
        file.lengths.extend(len(m) for m in matrices)
        file.ids.extend(ids)
        file.payload.writelines(to_json(row) + b"\n" for row in metadata if len(row) > 1)
        self.ids.update(dict.fromkeys(ids))
        self.tokens += sum(len(m) for m in matrices)

    def _flush(self) -> None:
        for f in self._files:
            f.vectors.seek(0)
            header = f"{{'descr': '{f.kind}', 'fortran_order': False, 'shape': ({sum(f.lengths)}, {self._dim})}}"
            f.vectors.write(b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + header.ljust(_HEADER - 11).encode() + b"\n")
            f.vectors.seek(0, os.SEEK_END)
            f.vectors.flush()
            f.payload.flush()

    def _inputs(self) -> list[str]:
        """The arguments of `plaid index` for what waits."""
        self._flush()
        args: list[str] = []
        payload = any(f.payload.tell() for f in self._files)
        for f in self._files:
            np.save(f.paths["lengths"], np.array(f.lengths, dtype=np.int64))
            with open(f.paths["ids"], "w", encoding="utf-8", newline="\n") as lines:
                lines.writelines(i + "\n" for i in f.ids)
            for what in ("vectors", "lengths", "ids"):
                args += ["--" + what, f.paths[what]]
            if payload:
                args += ["--metadata", f.paths["payload"] if f.payload.tell() else ""]
        return args

    def parts(self, most_bytes: int, most: int) -> Iterator[Part]:
        """What waits, in batches."""
        self._flush()
        for f in self._files:
            with open(f.paths["payload"], encoding="utf-8", newline="\n") as lines:
                metadata: dict[str, Mapping[str, Any]] = {row["_id"]: row for row in map(json.loads, lines)}
            with open(f.paths["vectors"], "rb") as vectors:
                vectors.seek(_HEADER)
                for part in batches([k * self._dim * np.dtype(f.kind).itemsize for k in f.lengths], most_bytes, most):
                    matrices = [np.fromfile(vectors, f.kind, k * self._dim).reshape(k, self._dim) for k in f.lengths[part]]
                    yield f.ids[part], matrices, [metadata.get(i, {"_id": i}) for i in f.ids[part]]

    def close(self) -> None:
        for f in self._files:
            f.close()

    def build(self, binary: str, config: Mapping[str, Any], model: Mapping[str, Any] | None, tell: Callable[[str, float], None]) -> str:
        """The path of an index file of what waits. ``tell`` hears of stages, and which part of each
        is done."""
        path = os.path.join(self._folder, "index.plaid")
        command = [binary, "index", path, "--json", "--nbits", str(config.get("nbits", 4)), *self._inputs()]
        if "seed" in config:
            command += ["--seed", str(config["seed"])]
        if model is not None:
            given = os.path.join(self._folder, "model.json")
            with open(given, "w", encoding="utf-8") as f:
                json.dump(model, f)
            command += ["--vectors-model", given]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", start_new_session=True
        )  # fmt: skip
        last = ""
        assert process.stderr is not None
        try:
            with process.stderr:
                for line in process.stderr:
                    if at := re.match(r"(\w+) (\d+)%, ", line):
                        tell(at[1], int(at[2]) / 100)
                    elif line.strip():
                        last = line
            process.wait()
        except BaseException:  # an interrupt, or one of who is told
            process.kill()
            process.wait()
            raise
        if process.returncode != 0:
            raise self._error(process.returncode, last)
        return path

    def _error(self, code: int, line: str) -> PlaidError:
        """What the program said, as the service says it: without files that the user does not know."""
        try:
            said = str(json.loads(line)["error"])
        except (ValueError, KeyError, TypeError):
            said = line.strip() or f"plaid index ended with exit status {code}"
        first = 0
        if at := re.match(r".*?ids-(\d+)\.txt: line (\d+): ", said):
            first = sum(len(f.ids) for f in self._files[: int(at[1])]) + int(at[2]) - 1
            said = f"document {first}: {said[at.end() :]}"
        said = re.sub(r"(\S*[/\\])?((vectors|lengths)-\d+\.npy|payload-\d+\.jsonl|index\.plaid)(: )?", "", said)
        details: dict[str, Any] = {}
        if at := re.match(r'document (\d+)(?: \(id (".*?(?<!\\)")\))?(?:, token (\d+))?', said):
            ids = list(self.ids)
            details = {"document": int(at[1]), "id": ids[int(at[1])] if int(at[1]) < len(ids) else None}
            if at[3]:
                details["token"] = int(at[3])
            return RequestError(said, "BAD_REQUEST", 400, details)
        if "no space left" in said:
            return PlaidError(f"the index was not built: {said}", "DISK_FULL", 507)
        return ServiceError(f"the index was not built: {said}")
