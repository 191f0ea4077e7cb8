"""Writes documents to files, from which `plaid index` builds an index.

A build reads all documents at once and trains on the original vectors. An index that grows is trained on its stored
vectors, which are compressed.
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

#: The number of tokens at which a spool is full: 4 GiB of float32 vectors of dimension 128.
MAX_TOKENS = 1 << 23
#: The flag of `plaid index` for a file of metadata.
_METADATA_FLAG = "--metadata"
#: The size of the header of a file of vectors, in bytes.
_HEADER_SIZE = 128


class _File:
    """Files of documents whose vectors have the same type."""

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
    """Stores documents in files of a folder until they are built into an index."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.ids: dict[str, None] = {}
        self.tokens = 0
        self._files: list[_File] = []
        self._dim = 0

    def add(self, matrices: Sequence[Matrix], rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds documents with new ids. ``rows`` have their ids and metadata.

        Raises RequestError, as the service would, if a dimension, id or value is invalid.
        """
        # 1. Check the documents.
        ids = [row["_id"] for row in rows]
        if matrices[0].dtype.kind == "V":  # bfloat16, which numpy's files cannot have
            matrices = [to_float32(m) for m in matrices]
        kind, dim, start = matrices[0].dtype.str, matrices[0].shape[1], len(self.ids)
        if not any(len(m) for m in matrices):  # documents without vectors fit any dimension
            dim = self._dim
        if self._dim not in (0, dim):
            message = f"document {start} has dimension {dim}, those before it {self._dim}"
            raise RequestError(message, "DIMENSION_MISMATCH", 400, {"document": start})
        for i, (name, m) in enumerate(zip(ids, matrices), start):
            if "\n" in name or "\r" in name:
                message = f"document {i}: id {name!r} has a line break in it"
                raise RequestError(message, "BAD_REQUEST", 400, {"document": i, "id": name})
            if not np.isfinite(m).all():
                token, component = (int(n) for n in np.argwhere(~np.isfinite(m))[0])
                document = f"document {i} (id {json.dumps(name, ensure_ascii=False)})"
                message = (
                    f"{document}, token {token}, component {component}: value is not finite: {m[token, component]}"
                )
                raise RequestError(message, "BAD_REQUEST", 400, {"document": i, "id": name, "token": token})
        # 2. Write them.
        self._dim = dim
        if not self._files or self._files[-1].kind != kind:
            self._files.append(_File(self._folder, len(self._files), kind))
        file = self._files[-1]
        for m in filter(len, matrices):
            file.vectors.write(m.data.cast("B"))
        file.lengths.extend(len(m) for m in matrices)
        file.ids.extend(ids)
        file.metadata.writelines(to_json(row) + b"\n" for row in rows if len(row) > 1)
        self.ids.update(dict.fromkeys(ids))
        self.tokens += sum(len(m) for m in matrices)

    def batches(self, max_bytes: int, max_items: int) -> Iterator[tuple[Sequence[Matrix], Sequence[Mapping[str, Any]]]]:
        """Yields the documents as they were added, in batches, each for one request."""
        for f in self._files:
            f.flush(self._dim)
            with open(f.paths["metadata"], encoding="utf-8", newline="\n") as lines:
                metadata: dict[str, Mapping[str, Any]] = {row["_id"]: row for row in map(json.loads, lines)}
            sizes = [k * self._dim * np.dtype(f.kind).itemsize for k in f.lengths]
            with open(f.paths["vectors"], "rb") as vectors:
                vectors.seek(_HEADER_SIZE)
                parents = [parent_document(metadata.get(i, {})) for i in f.ids]
                for batch in split_batches(sizes, max_bytes, max_items, parents):
                    counts = f.lengths[batch]
                    matrices = [np.fromfile(vectors, f.kind, k * self._dim).reshape(k, self._dim) for k in counts]
                    yield matrices, [metadata.get(i, {"_id": i}) for i in f.ids[batch]]

    def close(self) -> None:
        for f in self._files:
            f.close()

    def _input_flags(self) -> list[str]:
        """Returns the flags of `plaid index` that name the files."""
        for f in self._files:
            f.flush(self._dim)
        flags: list[str] = []
        has_metadata = any(f.metadata.tell() for f in self._files)
        for f in self._files:
            np.save(f.paths["lengths"], np.array(f.lengths, dtype=np.int64))
            # The program refuses an id with half of a character, and reports its line.
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
        """Builds an index file from the documents and returns its path.

        ``progress`` gets the name of the stage and the share of it that is done, 0 to 1.
        """
        # 1. Build the command.
        path = os.path.join(self._folder, "index.plaid")
        command = [binary, "index", path, "--json", "--nbits", str(config.get("nbits", 4)), *self._input_flags()]
        command += ["--until-eof", "--temporary", self._folder]  # it ends with this process, even if that is killed
        if "seed" in config:
            command += ["--seed", str(config["seed"])]
        if model is not None:
            model_file = os.path.join(self._folder, "model.json")
            with open(model_file, "w", encoding="utf-8") as f:
                json.dump(model, f)
            command += ["--vectors-model", model_file]
        # 2. Run it, and read its progress from stderr.
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
        last_line = ""
        assert process.stdin is not None and process.stderr is not None
        try:
            with process.stdin, process.stderr:
                for line in process.stderr:
                    if match := re.match(r"(\w+) (\d+)%, ", line):
                        progress(match[1], int(match[2]) / 100)
                    elif line.strip():
                        last_line = line
            process.wait()
        except BaseException:  # an interrupt, or an error in progress()
            process.kill()
            process.wait()
            raise
        if process.returncode != 0:
            raise self._error(process.returncode, last_line)
        return path

    def _error(self, exit_code: int, last_line: str) -> PlaidError:
        """Converts the error of the program to one of the service, without the names of the spool's files."""
        try:
            message = str(json.loads(last_line)["error"])
        except (ValueError, KeyError, TypeError):
            message = last_line.strip() or f"plaid index ended with exit status {exit_code}"
        if match := re.match(r".*?ids-(\d+)\.txt: line (\d+): ", message):
            position = sum(len(f.ids) for f in self._files[: int(match[1])]) + int(match[2]) - 1
            message = f"document {position}: {message[match.end() :]}"
        message = re.sub(r"(\S*[/\\])?((vectors|lengths)-\d+\.npy|metadata-\d+\.jsonl|index\.plaid)(: )?", "", message)
        message = re.sub(r"^line \d+, (?=document \d)", "", message)  # of the metadata
        if match := re.match(r'document (\d+)(?: \(id (".*?(?<!\\)")\))?(?:, token (\d+))?', message):
            ids, position = list(self.ids), int(match[1])
            details: dict[str, Any] = {"document": position, "id": ids[position] if position < len(ids) else None}
            if match[3]:
                details["token"] = int(match[3])
            return RequestError(message, "BAD_REQUEST", 400, details)
        if "no space left" in message:
            return PlaidError(f"the index was not built: {message}", "DISK_FULL", 507)
        return ServiceError(f"the index was not built: {message}")
