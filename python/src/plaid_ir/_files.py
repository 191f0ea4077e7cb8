"""An index as a file."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from typing import IO, Sequence, TypeVar

from ._connection import Connection
from ._http import Pieces

F = TypeVar("F", bound="Files")


class Files(Connection):
    """The part of an index that is written to files, and read from them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as it is now to a file, which `load` and the command line
        (``plaid search FILE``) take.

        Parameters
        ----------
        path
            The file. What is there is replaced when the new one is complete.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index, Index(None) as copy:
        ...     index.add_documents(["a"], [np.eye(4)]).save("docs.plaid")
        ...     print(copy.load("docs.plaid").ids())
        ['a']
        """
        path = os.fspath(path)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=".plaid-save-", delete=False) as file:
            try:

                def whole() -> None:
                    file.seek(0)
                    file.truncate()
                    self._client.download(self._path + "/backup", file)

                self._again(whole)
                file.flush()
                os.fsync(file.fileno())
                file.close()
                os.replace(file.name, path)
            except BaseException:
                file.close()
                os.unlink(file.name)
                raise

    def load(self: F, path: str | os.PathLike[str], documents_ids: Sequence[str] | Sequence[int] | None = None) -> F:
        """Fills an index that has no documents: with an index file (of `save`, ``plaid index``,
        ``plaid backup``), or with the index folder of ColBERT, fast-plaid or next-plaid. Symbolic
        links in the folder are followed: those of the Hugging Face cache are some.

        Parameters
        ----------
        path
            The file or the folder.
        documents_ids
            The ids of the documents of a folder, in their order. Without them a file ``ids.txt`` in it
            names them, or they are numbered from 0.

        Returns
        -------
        Index
            The index itself.
        """
        if not os.path.isdir(path):
            if documents_ids is not None:
                raise ValueError("an index file has ids: documents_ids is for the folder of another engine")
            with open(path, "rb") as given:
                self._upload("backup", given, "application/octet-stream")
            return self
        with tempfile.TemporaryFile() as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                _add(archive, os.fspath(path), "index", None if documents_ids is None else "index/ids.txt")
                if documents_ids is not None:
                    text = "".join(n + "\n" for n in self._names(documents_ids)).encode()
                    member = tarfile.TarInfo("index/ids.txt")
                    member.size = len(text)
                    archive.addfile(member, io.BytesIO(text))
            self._upload("import", file, "application/x-tar")
        return self

    def _upload(self, what: str, file: IO[bytes], media: str) -> None:
        size = file.seek(0, os.SEEK_END)
        self._change("PUT", f"{self._path}/{what}", tensors=(Pieces(file), size), media=media)
        self._declared = True


def _add(archive: tarfile.TarFile, path: str, name: str, without: str | None) -> None:
    """Adds a folder with the files that links in it lead to, each as a file of its own. A link
    that leads back to a folder above it would never end, and is an error."""
    above: list[str] = []

    def visit(folder: str, inside: str) -> None:
        real = os.path.realpath(folder)
        if real in above:
            raise ValueError(f"{folder} is a link to a folder that it is in")
        above.append(real)
        for entry in sorted(os.listdir(folder)):
            at, called = os.path.join(folder, entry), f"{inside}/{entry}"
            if os.path.isdir(at):
                visit(at, called)
            elif os.path.isfile(at) and called != without:
                member = tarfile.TarInfo(called)
                with open(at, "rb") as f:
                    member.size = os.fstat(f.fileno()).st_size
                    archive.addfile(member, f)
            elif not os.path.exists(at):
                raise FileNotFoundError(f"{at} is a link to something that is not there")
        above.pop()

    visit(path, name)
