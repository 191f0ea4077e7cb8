"""Connects an index to the service that stores it."""

from __future__ import annotations

import functools
import operator
import os
import re
import shutil
import tempfile
import weakref
from typing import Any, Callable, Mapping, Sequence, TypeVar, cast
from urllib.parse import quote

import numpy as np

from ._arrays import Body
from ._checks import (
    check_number,
    check_optional,
    check_path,
    check_iterable,
    describe_value,
    check_str,
    check_int,
    unexpected_value,
)
from ._errors import EmptyIndexError, PlaidError, ServiceError, Unreachable
from ._http import Client
from ._images import PICTURES_FOLDER, Pictures
from ._model import find_model
from ._page_model import PageModel
from ._service import Service
from ._stores import cache_folder, is_store
from ._tables import to_item, to_items

_NAME = re.compile(r"[A-Za-z0-9_-]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
_PREFER = "return=representation"
_ATTEMPTS = 3
T = TypeVar("T")


class Connection:
    """Sends requests about one index to a service: one that this process starts or joins, or one at a url."""

    def __init__(
        self,
        index_folder: str | os.PathLike[str] | None,
        index_name: str,
        *,
        override: bool,
        config: Mapping[str, int],
        id_type: type[str] | type[int],
        model: str | os.PathLike[str] | None,
        read_only: bool,
        url: str | None,
        token: str | None,
        device: str | Sequence[str] | None,
        threads: int | None,
        timeout: float,
        binary: str | os.PathLike[str] | None,
    ) -> None:
        # 1. Check the options, before anything costs time.
        check_optional(check_str, token, "token")
        check_optional(check_path, model, "model")
        check_optional(check_path, binary, "binary")
        check_optional(check_int, threads, "threads", 1)
        _check_names(index_name, id_type, timeout)
        local_options = {"device": device, "threads": threads, "binary": binary, "model": model}
        _check_place(index_folder, url, [name for name, value in local_options.items() if value is not None])
        model_name = None if model is None else find_model(model, binary)
        if read_only and override:
            raise ValueError("override removes an index, and read_only changes nothing: give only one of them")
        # 2. Describe the index and this object's state.
        self.index_name = index_name
        self.id_type = id_type
        self.read_only = read_only
        self.config = config
        #: The path of the index at the service.
        self.path = "/indices/" + quote(index_name, safe="")
        #: The service that this process started or joined; None for a service at a url.
        self.service: Service | None = None
        self.closed = False
        #: True once the service has the index.
        self.created = False
        #: The model of this process that encodes pages, and questions about them.
        self.page_model: PageModel | None = None
        #: The folder of page pictures; None if no pictures are stored.
        self.pictures: Pictures | None = None
        self._token, self._timeout = token, timeout
        # 3. Start or join the service of the folder, unless the caller names a service.
        temporary_folder: str | None = None
        address = url
        if address is None:
            if index_folder is None:
                index_folder = temporary_folder = tempfile.mkdtemp(prefix="plaid-index-")
            options = {
                "device": None if device is None else device_names(device),
                "threads": threads,
                "model": model_name,
                "store": index_folder if is_store(index_folder) else None,
            }
            flags = {name: str(value) for name, value in options.items() if value is not None}
            try:
                self.service = self._acquire_service(index_folder, binary, flags, temporary_folder is not None)
            except BaseException:
                _release_service(None, temporary_folder, os.getpid())
                raise
            address, self._token = self.service.url, self.service.token
        self.index_folder = None if temporary_folder or self.service is None else os.fspath(cast("str", index_folder))
        self._release = weakref.finalize(self, _release_service, self.service, temporary_folder, os.getpid())
        # 4. Connect, and find or remove the index.
        self.client = Client(address, self._token, timeout)
        try:
            self._prepare_index(override)
        except BaseException:
            self.close()
            raise

    def _acquire_service(
        self,
        index_folder: str | os.PathLike[str],
        binary: str | os.PathLike[str] | None,
        flags: Mapping[str, str],
        temporary: bool,
    ) -> Service:
        """Starts or joins the service of a folder, or of the folder that caches an object store."""
        if "store" in flags:
            # The cache of a store must be writable, even for an index that is opened with read_only=True.
            return Service.acquire(cache_folder(flags["store"]), binary, flags, self._timeout, temporary, False)
        return Service.acquire(index_folder, binary, flags, self._timeout, temporary, self.read_only)

    def _prepare_index(self, override: bool) -> None:
        """Removes the index if ``override`` is set. Otherwise checks the configuration of a stored index."""
        if override:
            self.send_change("DELETE", self.path)
        if self.index_name not in self.request("GET", "/indices"):
            return
        self.created = True
        stored = self.stats()["config"]
        for key, value in self.config.items():
            if stored.get(key) is not None and stored[key] != value:
                raise ValueError(
                    f"index {self.index_name!r} has {key} {stored[key]}, not {value}; override=True replaces the index"
                )

    def use_pictures(self, folder: str | os.PathLike[str] | None, override: bool) -> None:
        """Sets the folder of page pictures.

        None means the folder ``.images`` next to the indexes, if this process has their folder. There, ``override``
        removes the pictures of the replaced index. Files in a folder that the user named are kept.
        """
        if folder is not None:
            self.pictures = Pictures(os.fspath(folder), self.index_name)
        elif self.service is not None and "store" not in self.service.options:
            self.pictures = Pictures(os.path.join(self.service.folder, PICTURES_FOLDER), self.index_name)
            if override:
                self.pictures.remove_all()

    def use_page_model(self, model: PageModel) -> None:
        """Sets the model that encodes pages and questions in this process.

        Raises ValueError if the index's vectors come from another model.
        """
        stored = self.stored_model()
        for key in ("fingerprint", "name"):
            given_key, stored_key = model.identity.get(key), stored.get(key)
            if given_key is not None and stored_key is not None:
                if given_key != stored_key:
                    raise ValueError(
                        f"index {self.index_name!r} has vectors of the model {stored.get('name') or stored_key!r}, "
                        f"not of {model.identity['name']!r}: if both are the same model, "
                        "give it that name by PageModel(…, name=…)"
                    )
                break
        self.page_model = model

    def stored_model(self) -> Mapping[str, str]:
        """Returns the name and fingerprint of the model that encoded the index, as far as they are known."""
        try:
            stats = self.stats() if self.created else {}
        except EmptyIndexError:
            return {}
        return cast("Mapping[str, str]", stats.get("model") or {})

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.client.close()
            self._release()

    def create_index(self) -> None:
        """Creates the index at the service if it does not exist."""
        if self.created:
            return
        try:
            self.send_change("POST", "/indices", {"name": self.index_name, "config": self.config})
        except PlaidError as e:
            if e.code != "INDEX_ALREADY_EXISTS":
                raise
        self.created = True

    def stats(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.request("GET", self.path + "/stats"))

    def count(self) -> int:
        """Returns the number of documents."""
        try:
            return int(self.stats()["documents"])
        except EmptyIndexError:
            return 0

    @functools.cached_property
    def train_tokens(self) -> int:
        """The number of tokens from which on the service trains the index, with the bits of its configuration."""
        return int(self.request("GET", "/health")["train_tokens"])

    # Ids

    def to_names(self, ids: Any, what: str = "ids", start: int = 0) -> list[str]:
        """Converts ids to the service's ids, which are strings.

        Errors name them by ``what``, and count from ``start``.
        """
        if isinstance(ids, (str, int, np.integer)) and not isinstance(ids, bool):
            ids = [ids]
        names: list[str] = []
        for n, i in enumerate(check_iterable(to_items(ids, what), what, "ids")):
            if not isinstance(i, (str, int, np.integer)):
                i = to_item(i)
            if self.id_type is str and isinstance(i, str):
                names.append(str(i))
            elif self.id_type is int and isinstance(i, (int, np.integer)) and not isinstance(i, bool):
                names.append(str(operator.index(cast("Any", i))))
            else:
                hint = "; Index(id_type=int) is for whole numbers" if isinstance(i, (int, np.integer)) else ""
                wanted = "a text" if self.id_type is str else "a whole number"
                place = what if what == "id" else f"{what}, item {start + n},"
                raise unexpected_value(place, i, f"{wanted}, like the other ids of this index{hint}")
        for name in names:
            if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
                raise ValueError(
                    f"id {describe_value(name)} has half of a character: write both halves, or \\ufffd ({what})"
                )
        return names

    def to_id(self, name: str) -> Any:
        """Converts an id of the service to the user's id."""
        if self.id_type is str:
            return name
        try:
            return int(name)
        except ValueError:
            raise TypeError(
                f"the index has the id {describe_value(name)}, which is not a whole number: "
                "open the index without id_type=int"
            ) from None

    def to_ids(self, names: list[str]) -> list[Any]:
        return names if self.id_type is str else list(map(self.to_id, names))

    # Requests

    def send_change(self, method: str, path: str, body: Mapping[str, Any] | Body | None = None) -> Any:
        """Sends a request that changes something."""
        self._check_writable()
        return self.request(method, path, body)

    def upload_index(self, route: str, body: Body, is_stored: Callable[[], bool]) -> None:
        """Uploads an index. The service accepts it only while the index has no documents.

        If the answer to the first attempt is lost, the service refuses the second. Then ``is_stored`` reports whether
        the first attempt stored the upload.
        """
        self._check_writable()
        lost = False

        def upload() -> None:
            nonlocal lost
            self.client.close()  # the client would silently repeat a request that fails on an idle connection
            try:
                self.client.request("PUT", f"{self.path}/{route}", body, {"Prefer": _PREFER})
            except Unreachable:
                lost = True
                raise

        try:
            self.retry(upload)
        except PlaidError as e:
            if not lost or e.code != "INDEX_ALREADY_EXISTS":
                raise
            if not is_stored():
                e.args = (f"{e.args[0]}; the answer to the first attempt was lost: it may have stored these documents",)
                raise
        self.created = True

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Body | None = None,
        *,
        prefer: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a request and returns the answer. ``prefer`` adds values to the Prefer header."""
        sent = {"Prefer": ", ".join(filter(None, (_PREFER, prefer))), **(headers or {})}
        try:
            return self.retry(lambda: self.client.request(method, path, body, sent))
        except PlaidError as e:
            if e.code == "MODEL_NOT_LOADED":
                name = self.stored_model().get("name")
                note = "" if name is None else f" ({name!r} encoded this index)"
                e.args = (f"texts need a model{note}: Index(..., model=FOLDER), or a service started with --model",)
            raise

    def retry(self, call: Callable[[], T]) -> T:
        """Calls a function that sends a request. If the service was killed, starts it again and repeats the call."""
        self._check_open()
        attempts = _ATTEMPTS
        while True:
            try:
                return call()
            except Unreachable as e:
                attempts -= 1
                if self.service is None:
                    raise
                if attempts == 0:
                    raise ServiceError(f"{self.service.exit_reason()} ({e})") from e
                self.service.revive()
                self.client = Client(self.service.url, self.service.token, self._timeout)

    def _check_writable(self) -> None:
        if self.read_only:
            self._check_open()
            raise PermissionError(f"index {self.index_name!r} cannot be changed: it was opened with read_only=True")

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the index is closed")


def _check_names(index_name: str, id_type: Any, timeout: float) -> None:
    if id_type is not str and id_type is not int:
        raise unexpected_value("id_type", id_type, "str or int")
    if check_number(timeout, "timeout") <= 0:
        raise ValueError(f"timeout is {timeout}; want seconds, more than 0")
    if not _NAME.fullmatch(check_str(index_name, "index_name")):
        raise ValueError(
            f"index_name is {describe_value(index_name)}; want 1 to 128 of A-Z a-z 0-9 . _ -, "
            "not beginning or ending with a dot"
        )


def _check_place(index_folder: Any, url: str | None, local_options: Sequence[str]) -> None:
    """Refuses options of a local service together with a url. ``local_options`` names those that were given."""
    if index_folder is not None:
        check_path(index_folder, "index_folder")
    check_optional(check_str, url, "url")
    if url is None:
        if index_folder is not None and os.path.isfile(index_folder):
            raise NotADirectoryError(
                f"{os.fspath(index_folder)} is a file, and index_folder is a folder: "
                "if it is an index file, Index(FOLDER).load(FILE) loads it"
            )
        return
    if index_folder not in ("indexes", None):
        raise ValueError(
            "index_folder is for a service that this process starts; the service at the url has its own folder"
        )
    if local_options:
        raise ValueError(
            "device, threads, model and binary are for a service that this process starts; "
            f"the service at the url has its own: leave out {', '.join(local_options)}"
        )


def device_names(device: Any) -> str:
    """Returns devices as the program names them. Takes PyLate's names, torch devices, and lists of them."""
    devices = [str(d) for d in (cast("Sequence[Any]", device) if isinstance(device, (list, tuple)) else [device])]
    if not devices:
        raise ValueError("device is an empty list; want device=None for the processor")
    return ",".join("cuda:0" if d == "cuda" else d for d in devices)


def _release_service(service: Service | None, temporary: str | None, pid: int) -> None:
    if pid != os.getpid():  # a forked child: the index belongs to its parent
        return
    if service is not None:
        service.release()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
