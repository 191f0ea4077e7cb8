"""Lists and deletes the indexes of a folder or a service."""

from __future__ import annotations

import contextlib
import os
from typing import cast

from ._checks import check_path, describe_value, check_str
from ._connection import Connection
from ._stores import is_store


def _connect(
    index_folder: str | os.PathLike[str], url: str | None, token: str | None, name: str, read_only: bool
) -> Connection:
    folder = check_path(index_folder, "index_folder")
    if url is None and not is_store(folder) and not os.path.isdir(folder):
        raise FileNotFoundError(f"folder {describe_value(folder)} does not exist")
    return Connection(
        index_folder, name, override=False, config={}, id_type=str, model=None, read_only=read_only, url=url,
        token=token, device=None, threads=None, timeout=300.0, binary=None,
    )  # fmt: skip


def list_indexes(
    index_folder: str | os.PathLike[str] = "indexes", *, url: str | None = None, token: str | None = None
) -> list[str]:
    """Returns the names of the indexes of a folder or a service, including indexes without documents.

    Parameters
    ----------
    index_folder
        The folder, or the address of an object store, as for `Index`.
    url, token
        The address of a service, in place of a folder, and its bearer token.

    Returns
    -------
    list of str
        The names, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index, delete_index, list_indexes
    >>> for name in ("papers", "notes"):
    ...     with Index("folder", name) as index:
    ...         _ = index.add_documents(["a"], [np.eye(4)])
    >>> list_indexes("folder"), delete_index("notes", "folder"), list_indexes("folder")
    (['notes', 'papers'], True, ['papers'])
    """
    with contextlib.closing(_connect(index_folder, url, token, "plaid", True)) as connection:
        return cast("list[str]", connection.request("GET", "/indices"))


def delete_index(
    index_name: str,
    index_folder: str | os.PathLike[str] = "indexes",
    *,
    url: str | None = None,
    token: str | None = None,
) -> bool:
    """Deletes an index with all of its documents, and its page pictures in the folder of the indexes.

    Parameters
    ----------
    index_name
        The name. It is not an error if the index does not exist.
    index_folder, url, token
        As for `list_indexes`.

    Returns
    -------
    bool
        True if the index existed.
    """
    check_str(index_name, "index_name")
    with contextlib.closing(_connect(index_folder, url, token, index_name, False)) as connection:
        deleted = bool(connection.send_change("DELETE", connection.path)["deleted"])
        connection.use_pictures(None, override=True)
        return deleted
