"""Saves an index to a file, and loads index files and index folders of other engines."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import tarfile
import tempfile
from typing import IO, Callable, Sequence

from ._arrays import Body
from ._checks import check_ordered, check_path, describe_value
from ._connection import Connection
from ._http import FilePieces


def save(connection: Connection, path: str | os.PathLike[str]) -> None:
    path = check_path(path, "path")
    unfinished = os.path.join(os.path.dirname(path), f".plaid-save-{secrets.token_hex(8)}")
    with open(unfinished, "x+b") as file:

        def download() -> None:
            file.seek(0)
            file.truncate()
            connection.client.download(connection.path + "/backup", file)

        try:
            connection.retry(download)
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.replace(unfinished, path)
        except BaseException:
            file.close()
            os.unlink(unfinished)
            raise


def load(
    connection: Connection,
    path: str | os.PathLike[str],
    documents_ids: Sequence[str] | Sequence[int] | None,
) -> None:
    path = check_path(path, "path")
    if not os.path.isdir(path):
        if documents_ids is not None:
            raise ValueError("documents_ids is for the folder of another engine: an index file has its own ids")
        with open(path, "rb") as given:
            _upload(connection, "backup", given, "application/octet-stream", lambda: _has_same_tokens(connection, path))
        return
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            if documents_ids is None:
                _add_folder(archive, os.fspath(path), _add_pylate_ids(archive, os.path.abspath(path)), None)
            else:
                _add_folder(archive, os.fspath(path), "index", "index/ids.txt")
                names = connection.to_names(check_ordered(documents_ids, "documents_ids", "ids"), "documents_ids")
                for n in names:
                    if "\n" in n or "\r" in n or n.startswith("\ufeff"):  # a file with a line for each id would lose it
                        raise ValueError(
                            f"id {describe_value(n)} has a line break or begins with a byte order mark: remove that"
                        )
                text = "".join(n + "\n" for n in names).encode()
                member = tarfile.TarInfo("index/ids.txt")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        _upload(connection, "import", file, "application/x-tar", lambda: False)


def _upload(
    connection: Connection, route: str, file: IO[bytes], media_type: str, is_stored: Callable[[], bool]
) -> None:
    size = file.seek(0, os.SEEK_END)
    connection.upload_index(route, Body(FilePieces(file), size, media_type), is_stored)


def _has_same_tokens(connection: Connection, path: str | os.PathLike[str]) -> bool:
    """Reports whether the index has as many tokens as an index file, which the program counts."""
    assert connection.service is not None
    command = [connection.service.binary, "info", os.fspath(path), "--json"]
    info = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if info.returncode != 0:
        return False
    return bool(json.loads(info.stdout)["tokens"] == connection.stats()["tokens"])


def _add_pylate_ids(archive: tarfile.TarFile, path: str) -> str:
    """Adds the ids that PyLate stores in the folder above, and returns the name of the index folder in the archive."""
    parent, name = os.path.split(path)
    if name == "fast_plaid_index" and not os.path.exists(os.path.join(path, "ids.txt")):
        for entry in sorted(os.listdir(parent)):
            entry_path = os.path.join(parent, entry)
            if entry.startswith("plaid_ids_to_documents_ids.") and os.path.isfile(entry_path):
                archive.add(os.path.realpath(entry_path), f"index/{entry}")
        return f"index/{name}"
    return "index"


def _add_folder(archive: tarfile.TarFile, path: str, name: str, excluded: str | None) -> None:
    """Adds a folder to an archive. Follows links; raises ValueError for a link to a folder that contains it."""
    parents: list[str] = []

    def visit(folder: str, archive_name: str) -> None:
        real = os.path.realpath(folder)
        if real in parents:
            raise ValueError(f"{folder} is a link to a folder that contains it")
        parents.append(real)
        for entry in sorted(os.listdir(folder)):
            entry_path, entry_name = os.path.join(folder, entry), f"{archive_name}/{entry}"
            if os.path.isdir(entry_path):
                visit(entry_path, entry_name)
            elif os.path.isfile(entry_path) and entry_name != excluded:
                member = tarfile.TarInfo(entry_name)
                with open(entry_path, "rb") as f:
                    member.size = os.fstat(f.fileno()).st_size
                    archive.addfile(member, f)
            elif not os.path.exists(entry_path):
                raise FileNotFoundError(f"{entry_path} is a link to a file or folder that does not exist")
        parents.pop()

    visit(path, name)
