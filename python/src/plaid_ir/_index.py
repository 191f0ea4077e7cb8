"""The index."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import ssl
import tarfile
import tempfile
import weakref
from types import TracebackType
from typing import IO, Any, Callable, Iterable, Literal, Mapping, Sequence, TypedDict, cast
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from ._arrays import Embeddings, batches, tensors_body, to_matrices
from ._errors import EmptyIndexError, PlaidError, RequestError, ServiceError
from ._http import Client, Pieces
from ._service import Service

#: How many bytes of vectors go into one request: a request is one transaction.
_BATCH = 32 << 20
#: How many queries, or ids, go into one request.
_MANY = 1000
#: How long the addresses of requests get: proxies often refuse more than 8 KiB.
_ADDRESS = 6000



class _Scored(TypedDict):
    id: Any
    score: float


class Hit(_Scored, total=False):
    """A document that was found: `id`, `score`, and `metadata` where it is asked for."""

    metadata: dict[str, Any]


class Index:
    """An index of documents that are matrices of token vectors.

    It has the interface of PyLate's indexes. What `add_documents` and `remove_documents`
    return from is on the disk. Vectors are scaled to unit length. One index may be used
    from any number of threads.

    Parameters
    ----------
    index_folder
        The folder of the indexes; it is made if it is not there. None: a temporary one,
        which goes when the index is closed. One process at a time has it open.
    index_name
        The name: 1 to 128 of ``A-Z a-z 0-9 . _ -``, not beginning or ending with a dot.
    override
        Remove an index of this name that is there.
    nbits
        Bits a component of large indexes: 1, 2, 4 (the default) or 8. Small ones have 8.
    seed
        Seed of the trainings; default 42.
    id_type
        ``str``, or ``int`` for an index whose ids are whole numbers.
    mode
        ``"pruned"``, or ``"exhaustive"`` to score every document.
    url, token
        The address of a service (``http://``, ``https://`` or ``unix:``) that has the index,
        and the bearer token for it. Without a url the service runs as long as this object.
    device, threads
        Of the service that is started: where it searches (``"cuda:0"``, ``"auto"``; default
        the processor), and how many threads one search takes.
    timeout, start_timeout
        How long a request, and the start of the service, may take, in seconds.
    binary
        The program plaid; default: that of ``$PLAID_BINARY``, or the one in this package.
    ssl_context
        For an ``https://`` address.
    """

    #: The index ranks documents by itself; PyLate's retriever only passes queries on.
    is_end_to_end_index = True

    def __init__(
        self,
        index_folder: str | os.PathLike[str] | None = "indexes",
        index_name: str = "plaid",
        override: bool = False,
        *,
        nbits: int | None = None,
        seed: int | None = None,
        id_type: type[str] | type[int] = str,
        mode: Literal["pruned", "exhaustive"] = "pruned",
        url: str | None = None,
        token: str | None = None,
        device: str | None = None,
        threads: int | None = None,
        timeout: float = 300.0,
        start_timeout: float = 300.0,
        binary: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if id_type not in (str, int):
            raise TypeError(f"id_type is {id_type!r}; want str or int")
        if mode not in ("pruned", "exhaustive"):
            raise ValueError(f"mode is {mode!r}; want 'pruned' or 'exhaustive'")
        if url is not None and index_folder not in ("indexes", None):
            raise ValueError("index_folder is for an index that is served here; the service at a url has its own folder")
        if url is not None and (device is not None or threads is not None or binary is not None):
            raise ValueError("device, threads and binary are for a service that is started here; the one at a url has its own")
        self.index_name = index_name
        self.id_type = id_type
        self.mode = mode
        self._config = {k: v for k, v in (("nbits", nbits), ("seed", seed)) if v is not None}
        self._path = "/indices/" + quote(index_name, safe="")
        self._service: Service | None = None
        self._closed = False
        temporary: str | None = None
        if url is None:
            if index_folder is None:
                index_folder = temporary = tempfile.mkdtemp(prefix="plaid-index-")
            options = []
            if device is not None:
                options += ["--device", device]
            if threads is not None:
                options += ["--threads", str(threads)]
            try:
                self._service = Service.acquire(index_folder, binary, options, start_timeout)
            except BaseException:
                _release(None, temporary, os.getpid())
                raise
            url = self._service.url
        self.index_folder = None if temporary or self._service is None else os.fspath(cast("str", index_folder))
        self._release = weakref.finalize(self, _release, self._service, temporary, os.getpid())
        self._client = Client(url, token, timeout, ssl_context)
        try:
            self._open(override)
        except BaseException:
            self.close()
            raise

    def _open(self, override: bool) -> None:
        if override:
            self._request("DELETE", self._path)
        self._declared = False
        if self.index_name not in self._request("GET", "/indices"):
            return
        self._declared = True
        there = self.stats()["config"]
        for key, value in self._config.items():
            if there.get(key) is not None and there[key] != value:
                raise ValueError(f"index {self.index_name!r} has {key} {there[key]}, not {value}; override=True makes it anew")

    @classmethod
    def from_embeddings(
        cls,
        documents_embeddings: Embeddings,
        documents_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Index:
        """An index of what an encoder returns, such as the lists of ``encode_document`` of
        sentence-transformers.

        Without ids the documents are numbered, from 0: hits have the place in the list. The
        index is in a temporary folder unless ``index_folder`` or ``url`` is given. It must not be
        there yet; ``override=True`` replaces it.
        """
        if documents_ids is None:
            documents_embeddings = to_matrices(documents_embeddings, "document")
            documents_ids = range(len(documents_embeddings))
            options.setdefault("id_type", int)
        elif len(documents_ids) and not isinstance(documents_ids[0], str):
            options.setdefault("id_type", int)
        if options.get("url") is None:
            options.setdefault("index_folder", None)
        index = cls(**options)
        try:
            if len(index) > 0:
                raise ValueError(f"index {index.index_name!r} has documents already; override=True replaces it")
            return index.add_documents(documents_ids, documents_embeddings, metadata)
        except BaseException:
            index.close()
            raise

    # Changes

    def add_documents(
        self,
        documents_ids: str | int | Iterable[str] | Iterable[int],
        documents_embeddings: Embeddings,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        *,
        batch_size: int | None = None,
    ) -> Index:
        """Adds documents; one whose id is there is replaced, with its metadata.

        ``documents_embeddings`` is a list of matrices [tokens, dim], numpy arrays or torch
        tensors, or a padded array [documents, tokens, dim], of which zeros at the end of a
        document are left out. ``metadata`` has an object for each document, to filter by.

        Documents go in batches of 32 MiB, or of ``batch_size`` documents. A batch is stored as a
        whole or not at all; those before one that is refused are stored.
        """
        ids = self._names(documents_ids)
        matrices = to_matrices(documents_embeddings, "document")
        if len(ids) != len(matrices):
            raise ValueError(f"there are {len(ids)} ids and {len(matrices)} documents: want one for each")
        if metadata is not None and len(metadata) != len(ids):
            raise ValueError(f"there are {len(ids)} documents and {len(metadata)} metadata: want one for each")
        if len(set(ids)) != len(ids):
            seen: set[str] = set()
            twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise ValueError(f"id {twice!r} is there twice")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; want 1 or more")
        if not ids:
            return self
        self._declare()
        rows: list[dict[str, Any]] = [{"_id": i} for i in ids]
        if metadata is not None:
            for row, more in zip(rows, metadata):
                if "_id" in more:
                    raise ValueError("metadata has the key _id: ids are given by documents_ids")
                row.update(more)
        sizes = [m.nbytes for m in matrices]
        if metadata is not None:
            sizes = [n + len(json.dumps(row)) for n, row in zip(sizes, rows)]
        for part in batches(sizes, _BATCH, batch_size or 10 * _MANY):
            try:
                self._request("POST", self._path + "/update", tensors=tensors_body(matrices[part], {"metadata": rows[part]}))
            except PlaidError as e:
                if isinstance(e.details.get("document"), int):
                    e.details["document"] += part.start
                    e.args = (f"{e.args[0]} (of those from number {part.start} on)",) if part.start else e.args
                raise
        return self

    def update_documents(
        self,
        documents_ids: str | int | Iterable[str] | Iterable[int],
        documents_embeddings: Embeddings,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> Index:
        """Replaces documents, and adds those whose id is not there. It is another name for
        `add_documents`, as PyLate has both."""
        return self.add_documents(documents_ids, documents_embeddings, metadata)

    def remove_documents(self, documents_ids: str | int | Iterable[str] | Iterable[int]) -> Index:
        """Removes documents; an id that is not there is passed over."""
        ids = self._names(documents_ids)
        for part in batches([len(i) for i in ids], 1 << 20, 10 * _MANY):
            try:
                self._request("DELETE", self._path + "/documents", {"ids": ids[part]})
            except EmptyIndexError:
                break
        return self

    # Searches

    def __call__(
        self,
        queries_embeddings: Embeddings,
        k: int = 10,
        subset: Sequence[Any] | None = None,
        *,
        where: str | None = None,
        parameters: Sequence[Any] = (),
        metadata: bool = False,
        mode: Literal["pruned", "exhaustive"] | None = None,
    ) -> list[list[Hit]]:
        """The k best documents for each query, best first.

        ``queries_embeddings`` is a list of matrices [tokens, dim], one matrix, or an array
        [queries, tokens, dim]. ``subset`` is a list of ids that may be returned, or such a list
        for each query. ``where`` is a condition over the metadata with ``?`` for each of
        ``parameters`` (``"year >= ? AND lang = ?"``). ``metadata`` returns that of the hits.
        """
        matrices = to_matrices(queries_embeddings, "query")
        if k < 1:
            raise ValueError(f"k is {k}; want 1 or more")
        own: list[list[str]] | None = None
        common: dict[str, Any] = {"params": {"top_k": k, "mode": mode or self.mode}, "metadata": metadata}
        if subset is not None:
            subset = [subset] if isinstance(subset, (str, int)) else list(subset)
            if len(subset) and isinstance(subset[0], (list, tuple, set, frozenset, np.ndarray)):
                own = [self._names(s) for s in subset]
                if len(own) != len(matrices):
                    raise ValueError(f"there are {len(matrices)} queries and {len(own)} subsets: want one for each, or one list of ids for all")
            else:
                common["ids"] = self._names(subset)
        path = self._path + "/search"
        if where is not None:
            path += "/filtered"
            common["filter_condition"], common["filter_parameters"] = where, list(parameters)
        elif len(parameters):
            raise ValueError("there are parameters without a condition (where)")
        results: list[list[Hit]] = []
        for part in batches([m.nbytes for m in matrices], _BATCH, _MANY):
            request = dict(common)
            if own is not None:
                request["queries"] = [{"ids": ids} for ids in own[part]]
            try:
                answer = self._request("POST", path, tensors=tensors_body(matrices[part], request))
            except EmptyIndexError as e:
                raise EmptyIndexError(f"index {self.index_name!r} is empty: add documents before asking for them", e.code, e.status) from e
            for r in answer["results"]:
                results.append(self._hits(r, metadata))
        return results

    def _hits(self, result: dict[str, Any], metadata: bool) -> list[Hit]:
        given: Callable[[str], Any] = self.id_type
        if not metadata:
            return [{"id": given(i), "score": s} for i, s in zip(result["ids"], result["scores"])]
        hits: list[Hit] = []
        for row, score in zip(result["metadata"], result["scores"]):
            fields = {k: v for k, v in row.items() if k not in ("_id", "_subset_")}
            hits.append({"id": given(row["_id"]), "score": score, "metadata": fields})
        return hits

    def get_documents_embeddings(self, documents_ids: Sequence[Any]) -> list[Any]:
        """The vectors of documents as they are stored: decoded, of unit length, float32.

        For a list of ids the matrices [tokens, dim] of the documents; for a list of such
        lists a list of lists of them. An id that is not there is a KeyError.
        """
        if isinstance(documents_ids, (str, int)):
            raise TypeError("want a list of ids, or a list of lists of them")
        nested = len(documents_ids) > 0 and isinstance(documents_ids[0], (list, tuple, set, frozenset, np.ndarray))
        lists = [self._names(ids) for ids in documents_ids] if nested else [self._names(documents_ids)]
        wanted = list(dict.fromkeys(i for ids in lists for i in ids))
        found: dict[str, npt.NDArray[np.float32]] = {}
        for part in batches([len(quote(i, safe="")) + 4 for i in wanted], _ADDRESS, _MANY):
            query = urlencode([("vectors", "base64"), *(("id", i) for i in wanted[part])])
            try:
                answer = self._request("GET", f"{self._path}/documents?{query}")
            except RequestError as e:
                if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
                    raise KeyError(e.details.get("id", wanted[part][0])) from e
                raise
            for d in answer["documents"]:
                values = np.frombuffer(base64.b64decode(d["embeddings_b64"]), dtype="<f4").copy()  # to be written to
                found[d["id"]] = values.reshape(d["shape"])
        matrices = [[found[i] for i in ids] for ids in lists]
        return matrices if nested else matrices[0]

    def stats(self) -> dict[str, Any]:
        """What is known of the index at little cost: documents, sizes, growth, configuration."""
        return cast("dict[str, Any]", self._request("GET", self._path + "/stats"))

    def __len__(self) -> int:
        """The number of documents."""
        try:
            return int(self.stats()["documents"])
        except EmptyIndexError:
            return 0

    def __repr__(self) -> str:
        return f"Index({self.index_name!r} at {self._client.url}{', closed' if self._closed else ''})"

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as it is now to a file, which `load` and the command line
        (``plaid search FILE``) take. What is at the path is replaced when the file is complete."""
        self._check()
        path = os.fspath(path)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=".plaid-save-", delete=False) as file:
            try:
                self._client.download(self._path + "/backup", file)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise

    def load(self, path: str | os.PathLike[str], documents_ids: Sequence[str] | Sequence[int] | None = None) -> Index:
        """Fills an index that has no documents: with an index file (of `save`, ``plaid index``,
        ``plaid backup``), or with the index folder of ColBERT, fast-plaid or next-plaid.

        Such a folder does not name its documents: ``documents_ids`` does, in their order, or a file
        ``ids.txt`` in it, or they are numbered from 0.
        """
        if not os.path.isdir(path):
            if documents_ids is not None:
                raise ValueError("an index file has ids: documents_ids is for the folder of another engine")
            with open(path, "rb") as given:
                self._upload("backup", given, "application/octet-stream")
            return self
        with tempfile.TemporaryFile() as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                names_file = "index/ids.txt"

                def wanted(m: tarfile.TarInfo) -> tarfile.TarInfo | None:
                    there = m.isdir() or m.isreg() and not (m.name == names_file and documents_ids is not None)
                    return m if there else None

                archive.add(path, arcname="index", filter=wanted)
                if documents_ids is not None:
                    names = self._names(documents_ids)
                    text = "".join(n + "\n" for n in names).encode()
                    member = tarfile.TarInfo(names_file)
                    member.size = len(text)
                    archive.addfile(member, io.BytesIO(text))
            self._upload("import", file, "application/x-tar")
        return self

    def _upload(self, what: str, file: IO[bytes], media: str) -> None:
        size = file.seek(0, os.SEEK_END)
        self._request("PUT", f"{self._path}/{what}", tensors=(Pieces(file), size), media=media)
        self._declared = True

    # Lifetime

    def close(self) -> None:
        """Ends the service, if it was started here and no other index uses it. A closed
        index cannot be used any more; closing it again does nothing."""
        if not self._closed:
            self._closed = True
            self._client.close()
            self._release()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an Index cannot be pickled: open one in each process, with the url of a service")

    # Inside

    def _names(self, ids: Any) -> list[str]:
        """Ids as the service has them."""
        if isinstance(ids, (str, int, np.integer)):
            ids = [ids]
        names = []
        for i in ids:
            if self.id_type is str and isinstance(i, str):
                names.append(str(i))
            elif self.id_type is int and isinstance(i, (int, np.integer)) and not isinstance(i, bool):
                names.append(str(int(i)))
            else:
                hint = "; Index(id_type=int) is for whole numbers" if isinstance(i, (int, np.integer)) else ""
                raise TypeError(f"id {i!r} is a {type(i).__name__}, and the ids of this index are {self.id_type.__name__}{hint}")
        return names

    def _declare(self) -> None:
        if self._declared:
            return
        try:
            self._request("POST", "/indices", {"name": self.index_name, "config": self._config})
        except RequestError as e:
            if e.code != "INDEX_ALREADY_EXISTS":
                raise
        self._declared = True

    def _check(self) -> None:
        if self._closed:
            raise ValueError("the index is closed")

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        tensors: tuple[Iterable[bytes | memoryview], int] | None = None,
        media: str = "application/octet-stream",
    ) -> Any:
        self._check()
        try:
            return self._client.request(method, path, body, tensors, media)
        except ServiceError:
            if self._service is not None:
                self._service.check()
            raise


def _release(service: Service | None, temporary: str | None, pid: int) -> None:
    if pid != os.getpid():  # a child that was forked: the index is its parent's
        return
    if service is not None:
        service.release()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
