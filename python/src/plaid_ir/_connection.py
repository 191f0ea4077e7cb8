"""What an index is made of: a name, a service that has it, and the way there."""

from __future__ import annotations

import operator
import os
import re
import shutil
import ssl
import tempfile
import warnings
import weakref
from types import TracebackType
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, TypeVar, cast
from urllib.parse import quote

import numpy as np

from ._errors import PlaidError, ServiceError, Unreachable
from ._http import Client
from ._service import Service

#: How a search chooses what it scores.
Mode = Literal["pruned", "exhaustive", "candidates"]
Self = TypeVar("Self", bound="Connection")

#: Parameters of PyLate's PLAID that have no counterpart: what they tune, the engine derives.
_PYLATE = frozenset(
    "kmeans_niters max_points_per_centroid n_samples_kmeans n_ivf_probe n_full_scores batch_size use_fast use_triton low_memory show_progress "
    "num_threads ndocs ncells centroid_score_threshold search_batch_size kmeans_seed rank_device embedding_size nranks index_bsize".split()
)
_NAME = re.compile(r"[A-Za-z0-9_-]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
_NULL = "return=representation, unknown-fields=null"
_told: set[str] = set()


def ignore(given: Mapping[str, Any], what: str) -> None:
    """Takes keywords of PyLate's index, says once that they do nothing, and refuses others."""
    for name in given:
        if name not in _PYLATE:
            raise TypeError(f"{what} got an unexpected keyword argument {name!r}")
        if name not in _told:
            _told.add(name)
            warnings.warn(f"{name} is a parameter of PyLate's index that plaid does not need; it is ignored", UserWarning, stacklevel=3)


class Connection:
    """Opens an index, and sends requests to the service that has it."""

    def __init__(
        self,
        index_folder: str | os.PathLike[str] | None,
        index_name: str,
        override: bool,
        *,
        nbits: int | None,
        seed: int | None,
        id_type: type[str] | type[int],
        mode: Literal["pruned", "exhaustive"],
        model: str | os.PathLike[str] | None,
        read_only: bool,
        url: str | None,
        token: str | None,
        device: str | Sequence[str] | None,
        threads: int | None,
        timeout: float,
        start_timeout: float,
        binary: str | os.PathLike[str] | None,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        if id_type not in (str, int):
            raise TypeError(f"id_type is {id_type!r}; want str or int")
        if mode not in ("pruned", "exhaustive"):
            raise ValueError(f"mode is {mode!r}; want 'pruned' or 'exhaustive'")
        if not _NAME.fullmatch(index_name):
            raise ValueError(f"index_name is {index_name!r}; want 1 to 128 of A-Z a-z 0-9 . _ -, not beginning or ending with a dot")
        if url is not None and index_folder not in ("indexes", None):
            raise ValueError("index_folder is for an index that is served here; the service at a url has its own folder")
        if url is not None and any(x is not None for x in (device, threads, binary, model)):
            raise ValueError("device, threads, model and binary are for a service that is started here; the one at a url has its own")
        if model is not None and not os.path.isdir(model):
            raise FileNotFoundError(f"there is no folder of a model at {os.fspath(model)}")
        if read_only and override:
            raise ValueError("override removes an index, and read_only changes nothing")
        self.index_name = index_name
        self.id_type = id_type
        self.mode = mode
        self.read_only = read_only
        self._config = {k: v for k, v in (("nbits", nbits), ("seed", seed)) if v is not None}
        self._path = "/indices/" + quote(index_name, safe="")
        self._service: Service | None = None
        self._closed = self._declared = False
        self._token, self._timeout, self._ssl_context = token, timeout, ssl_context
        temporary: str | None = None
        if url is None:
            if index_folder is None:
                index_folder = temporary = tempfile.mkdtemp(prefix="plaid-index-")
            given = (("device", None if device is None else _device(device)), ("threads", threads), ("model", None if model is None else os.path.realpath(model)))
            options = {name: str(value) for name, value in given if value is not None}
            try:
                self._service = Service.acquire(index_folder, binary, options, start_timeout, temporary is not None, read_only)
            except BaseException:
                _release(None, temporary, os.getpid())
                raise
            url, self._token = self._service.url, self._service.token
        self.index_folder = None if temporary or self._service is None else os.fspath(cast("str", index_folder))
        self._release = weakref.finalize(self, _release, self._service, temporary, os.getpid())
        assert url is not None
        self._client = Client(url, self._token, timeout, ssl_context)
        try:
            self._open(override)
        except BaseException:
            self.close()
            raise

    def _open(self, override: bool) -> None:
        if override:
            self._change("DELETE", self._path)
        if self.index_name not in self._request("GET", "/indices"):
            return
        self._declared = True
        there = self.stats()["config"]
        for key, value in self._config.items():
            if there.get(key) is not None and there[key] != value:
                raise ValueError(f"index {self.index_name!r} has {key} {there[key]}, not {value}; override=True makes it anew")

    def stats(self) -> dict[str, Any]:
        """What is known of the index at little cost.

        Returns
        -------
        dict
            ``documents``, ``tokens``, ``dim``, ``nbits``, sizes, growth and configuration, as the
            service has them (docs/service.md).
        """
        return cast("dict[str, Any]", self._request("GET", self._path + "/stats"))

    # Lifetime

    def close(self) -> None:
        """Ends the service, if it was started here and no other index uses it. A closed
        index cannot be used any more; closing it again does nothing."""
        if not self._closed:
            self._closed = True
            self._client.close()
            self._release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an Index cannot be pickled: open one in each process, with the same folder or url")

    # For the other parts of an index

    def _names(self, ids: Any) -> list[str]:
        """Ids as the service has them."""
        if isinstance(ids, (str, int, np.integer)):
            ids = [ids]
        names: list[str] = []
        for i in ids:
            if self.id_type is str and isinstance(i, str):
                names.append(str(i))
            elif self.id_type is int and isinstance(i, (int, np.integer)) and not isinstance(i, bool):
                names.append(str(operator.index(cast("Any", i))))
            else:
                hint = "; Index(id_type=int) is for whole numbers" if isinstance(i, (int, np.integer)) else ""
                raise TypeError(f"id {i!r} is a {type(cast('object', i)).__name__}, and the ids of this index are {self.id_type.__name__}{hint}")
        return names

    def _given(self, name: str) -> Any:
        """An id of the service as it was given."""
        if self.id_type is str:
            return name
        try:
            return int(name)
        except ValueError:
            raise TypeError(f"the index has the id {name!r}, which is no whole number: open it without id_type=int") from None

    def _declare(self) -> None:
        if self._declared:
            return
        try:
            self._change("POST", "/indices", {"name": self.index_name, "config": self._config})
        except PlaidError as e:
            if e.code != "INDEX_ALREADY_EXISTS":
                raise
        self._declared = True

    def _check(self) -> None:
        if self._closed:
            raise ValueError("the index is closed")

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None = None, tensors: tuple[Iterable[bytes | memoryview], int] | None = None, media: str = "application/octet-stream") -> Any:
        """A request that changes something."""
        if self.read_only:
            self._check()
            raise PermissionError(f"index {self.index_name!r} is open with read_only=True, and cannot be changed")
        return self._request(method, path, body, tensors, media, prefer="return=representation")

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        tensors: tuple[Iterable[bytes | memoryview], int] | None = None,
        media: str = "application/octet-stream",
        prefer: str = _NULL,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A request, which takes fields that no document has for NULL unless told otherwise."""
        try:
            return self._again(lambda: self._client.request(method, path, body, tensors, media, prefer, headers))
        except PlaidError as e:
            if e.code == "MODEL_NOT_LOADED":
                e.args = ("texts need a model: Index(..., model=FOLDER), or a service that was started with --model",)
            raise

    _T = TypeVar("_T")

    def _again(self, do: Callable[[], _T]) -> _T:
        """Does something that can be repeated. A service that was killed is started again, and
        asked again."""
        self._check()
        attempts = 3
        while True:
            try:
                return do()
            except Unreachable as e:
                attempts -= 1
                if self._service is None:
                    raise
                if attempts == 0:
                    raise ServiceError(f"{self._service.why()} ({e})") from e
                self._service.revive()
                self._client = Client(self._service.url, self._service.token, self._timeout, self._ssl_context)


def _device(device: Any) -> str:
    """Devices as the program names them: PyLate's names, lists of them, and devices of torch."""
    several = [str(d) for d in (cast("Sequence[Any]", device) if isinstance(device, (list, tuple)) else [device])]
    if not several:
        raise ValueError("device is an empty list; want device=None for the processor")
    return ",".join("cuda:0" if d == "cuda" else d for d in several)


def _release(service: Service | None, temporary: str | None, pid: int) -> None:
    if pid != os.getpid():  # a child that was forked: the index is its parent's
        return
    if service is not None:
        service.release()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
