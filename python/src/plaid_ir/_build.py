"""Documents in files, from which `plaid index` builds an index.

The program sees all documents of a build at once: it trains on them as they are, whereas an index that grows is trained
on what is stored.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import IO, Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from ._arrays import Matrix, split_batches, to_float32, to_json
from ._errors import PlaidError, RequestError, ServiceError
from ._metadata import parent_document

#: Tokens at which a spool is full: 4 GiB of float32 of dimension 128.
MAX_TOKENS = 1 << 23
#: The flag of `plaid index` for a file of metadata.
_METADATA_FLAG = "--metadata"
#: Bytes of the header of a file of vectors.
_HEADER_SIZE = 128


class _File:
    """Documents whose vectors have one type of numbers."""

    def __init__(self, folder: str, n: int, kind: str) -> None:
        self.kind = kind
        self.lengths: list[int] = []
        self.ids: list[str] = []
        names = ("vectors", "npy"), ("lengths", "npy"), ("ids", "txt"), ("metadata", "jsonl")
        self.paths = {what: os.path.join(folder, f"{what}-{n}.{suffix}") for what, suffix in names}
        self.vectors: IO[bytes] = open(self.paths["vectors"], "w+b")
        self.vectors.write(bytes(_HEADER_SIZE))
        self.metadata: IO[bytes] = open(self.paths["metadata"], "wb")

    def flush(self, dim: int) -> None:
        header = f"{{'descr': '{self.kind}', 'fortran_order': False, 'shape': ({sum(self.lengths)}, {dim})}}"
        self.vectors.seek(0)
        self.vectors.write(b"\x93NUMPY\x01\x00" + (_HEADER_SIZE - 10).to_bytes(2, "little"))
        self.vectors.write(header.ljust(_HEADER_SIZE - 11).encode() + b"\n")
        self.vectors.seek(0, os.SEEK_END)
        self.vectors.flush()
        self.metadata.flush()

    def close(self) -> None:
        self.vectors.close()
        self.metadata.close()


class Spool:
    """Documents that are held in files of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.ids: dict[str, None] = {}
        self.tokens = 0
        self._files: list[_File] = []
        self._dim = 0

    def add(self, matrices: Sequence[Matrix], fields: Sequence[Mapping[str, Any]]) -> None:
        """Takes documents whose ids are not there yet; ``fields`` have their ids and metadata."""
        ids = [row["_id"] for row in fields]
        if matrices[0].dtype.kind == "V":  # bfloat16, which has no name in files of numpy
            matrices = [to_float32(m) for m in matrices]
        kind, dim, start = matrices[0].dtype.str, matrices[0].shape[1], len(self.ids)
        if not any(len(m) for m in matrices):  # of any dimension
            dim = self._dim
        if self._dim not in (0, dim):
            said = f"document {start} has dimension {dim}, those before it {self._dim}"
            raise RequestError(said, "DIMENSION_MISMATCH", 400, {"document": start})
        for i, (name, m) in enumerate(zip(ids, matrices), start):
            if "\n" in name or "\r" in name:
                said = f"document {i}: id {name!r} has a line break in it"
                raise RequestError(said, "BAD_REQUEST", 400, {"document": i, "id": name})
            if not np.isfinite(m).all():
                token, component = (int(n) for n in np.argwhere(~np.isfinite(m))[0])
                document = f"document {i} (id {json.dumps(name, ensure_ascii=False)})"
                said = f"{document}, token {token}, component {component}: value is not finite: {m[token, component]}"
                raise RequestError(said, "BAD_REQUEST", 400, {"document": i, "id": name, "token": token})
        self._dim = dim
        if not self._files or self._files[-1].kind != kind:
            self._files.append(_File(self._folder, len(self._files), kind))
        file = self._files[-1]
        for m in filter(len, matrices):
            file.vectors.write(m.data.cast("B"))
        file.lengths.extend(len(m) for m in matrices)
        file.ids.extend(ids)
        file.metadata.writelines(to_json(row) + b"\n" for row in fields if len(row) > 1)
        self.ids.update(dict.fromkeys(ids))
        self.tokens += sum(len(m) for m in matrices)

    def batches(self, max_bytes: int, max_items: int) -> Iterator[tuple[Sequence[Matrix], Sequence[Mapping[str, Any]]]]:
        """The documents, as `add` took them, in batches of one request."""
        for f in self._files:
            f.flush(self._dim)
            with open(f.paths["metadata"], encoding="utf-8", newline="\n") as lines:
                metadata: dict[str, Mapping[str, Any]] = {row["_id"]: row for row in map(json.loads, lines)}
            sizes = [k * self._dim * np.dtype(f.kind).itemsize for k in f.lengths]
            with open(f.paths["vectors"], "rb") as vectors:
                vectors.seek(_HEADER_SIZE)
                together = [parent_document(metadata.get(i, {})) for i in f.ids]
                for part in split_batches(sizes, max_bytes, max_items, together):
                    counts = f.lengths[part]
                    matrices = [np.fromfile(vectors, f.kind, k * self._dim).reshape(k, self._dim) for k in counts]
                    yield matrices, [metadata.get(i, {"_id": i}) for i in f.ids[part]]

    def close(self) -> None:
        for f in self._files:
            f.close()

    def _input_flags(self) -> list[str]:
        """Flags of `plaid index` that name the files."""
        for f in self._files:
            f.flush(self._dim)
        flags: list[str] = []
        has_metadata = any(f.metadata.tell() for f in self._files)
        for f in self._files:
            np.save(f.paths["lengths"], np.array(f.lengths, dtype=np.int64))
            # The program refuses half of a character, and says where.
            with open(f.paths["ids"], "w", encoding="utf-8", errors="surrogatepass", newline="\n") as lines:
                lines.writelines(i + "\n" for i in f.ids)
            for what in ("vectors", "lengths", "ids"):
                flags += ["--" + what, f.paths[what]]
            if has_metadata:
                flags += [_METADATA_FLAG, f.paths["metadata"] if f.metadata.tell() else ""]
        return flags

    def build(
        self,
        binary: str,
        config: Mapping[str, Any],
        model: Mapping[str, Any] | None,
        progress: Callable[[str, float], None],
    ) -> str:
        """Builds an index file of the documents and returns its path. ``progress`` gets the name of the stage and the
        part of it that is done."""
        path = os.path.join(self._folder, "index.plaid")
        command = [binary, "index", path, "--json", "--nbits", str(config.get("nbits", 4)), *self._input_flags()]
        command += ["--until-eof", "--temporary", self._folder]  # it ends with this process, however that ends
        if "seed" in config:
            command += ["--seed", str(config["seed"])]
        if model is not None:
            model_file = os.path.join(self._folder, "model.json")
            with open(model_file, "w", encoding="utf-8") as f:
                json.dump(model, f)
            command += ["--vectors-model", model_file]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        last = ""
        assert process.stdin is not None and process.stderr is not None
        try:
            with process.stdin, process.stderr:
                for line in process.stderr:
                    if at := re.match(r"(\w+) (\d+)%, ", line):
                        progress(at[1], int(at[2]) / 100)
                    elif line.strip():
                        last = line
            process.wait()
        except BaseException:  # an interrupt, or an error of progress
            process.kill()
            process.wait()
            raise
        if process.returncode != 0:
            raise self._error(process.returncode, last)
        return path

    def _error(self, exit_code: int, last_line: str) -> PlaidError:
        """The error of the program as the service would report it, without files that the user does not know."""
        try:
            said = str(json.loads(last_line)["error"])
        except (ValueError, KeyError, TypeError):
            said = last_line.strip() or f"plaid index ended with exit status {exit_code}"
        if at := re.match(r".*?ids-(\d+)\.txt: line (\d+): ", said):
            position = sum(len(f.ids) for f in self._files[: int(at[1])]) + int(at[2]) - 1
            said = f"document {position}: {said[at.end() :]}"
        said = re.sub(r"(\S*[/\\])?((vectors|lengths)-\d+\.npy|metadata-\d+\.jsonl|index\.plaid)(: )?", "", said)
        said = re.sub(r"^line \d+, (?=document \d)", "", said)  # of the metadata
        if at := re.match(r'document (\d+)(?: \(id (".*?(?<!\\)")\))?(?:, token (\d+))?', said):
            ids, position = list(self.ids), int(at[1])
            details: dict[str, Any] = {"document": position, "id": ids[position] if position < len(ids) else None}
            if at[3]:
                details["token"] = int(at[3])
            return RequestError(said, "BAD_REQUEST", 400, details)
        if "no space left" in said:
            return PlaidError(f"the index was not built: {said}", "DISK_FULL", 507)
        return ServiceError(f"the index was not built: {said}")
