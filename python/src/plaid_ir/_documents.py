"""Documents come and go."""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeAlias, TypeVar, Union, cast, overload
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from . import _build
from ._arrays import Embeddings, Matrix, Vectors, batches, tensors_body, to_matrices, matrix_of, vectors_of
from ._connection import ignore
from ._errors import EmptyIndexError, PlaidError, RequestError, counted_from
from ._files import Files
from ._filling import TEXT_BYTES, Filling, many, text_batches
from ._locks import build_folder
from ._progress import Meter, Progress
from ._values import cells_of, rows

#: How many bytes of vectors go into one request: a request is one transaction.
_BATCH = 32 << 20
#: How many queries, or ids, go into one request.
MANY = 1000
#: How long the addresses of requests get: proxies often refuse more than 8 KiB.
_ADDRESS = 6000
#: Texts of one request.
_TEXTS = 128

Ids = Union[str, int, Iterable[str], Iterable[int]]
IdList: TypeAlias = Union[Sequence[str], Sequence[int], npt.NDArray[np.integer[Any]]]
IdLists: TypeAlias = Sequence[Union[list[str], list[int], tuple[str, ...], tuple[int, ...], set[str], set[int]]]
Metadata = Sequence[Mapping[str, Any]]
D = TypeVar("D", bound="Documents")


class Documents(Files):
    """The part of an index that stores documents."""

    def add_documents(
        self: D,
        documents_ids: Ids,
        documents_embeddings: Embeddings,
        metadata: Metadata | None = None,
        *,
        keep_metadata: bool | None = None,
        batch_size: int | None = None,
        progress: Progress = None,
        **ignored: Any,
    ) -> D:
        """Adds documents; one whose id is there is replaced.

        Documents go in batches, each of which is on the disk as a whole or not at all; those before
        one that is refused are stored. The first documents of an index, if they are many, are built
        as ``plaid index`` does it: all of them or none.

        Parameters
        ----------
        documents_ids
            An id for each document.
        documents_embeddings
            A list of matrices [tokens, dim], numpy arrays or torch tensors, or a padded array
            [documents, tokens, dim], of which zeros at the end of a document are left out.
        metadata
            A dictionary for each document, or a data frame with a row for each. Values are texts,
            numbers, booleans, None, dates (stored as ISO 8601), lists and dictionaries.
        keep_metadata
            Where ``metadata`` is left out: True lets documents that are there already keep theirs
            (but a ``grid`` that has more cells than the document now has vectors), False empties it.
            None keeps all but ``text`` and ``grid``, which described the old vectors, and a warning
            says of which documents.
        batch_size
            Documents of a batch; default: 32 MiB of vectors.
        progress
            True shows a bar if tqdm is installed; or a function of the number of documents that are
            stored and of all.
        **ignored
            Keywords of PyLate's index that have no counterpart.

        Returns
        -------
        Index
            The index itself.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     print(len(index.add_documents(["a", "b"], np.ones((2, 3, 4)), [{"n": 1}, {}])))
        2
        """
        if ignored.pop("show_progress", False) and progress is None:
            progress = True
        ignore(ignored, "add_documents()")
        ids = self._names(documents_ids)
        matrices = to_matrices(documents_embeddings, "document")
        if len(ids) != len(matrices):
            raise ValueError(f"there are {len(ids)} ids and {len(matrices)} documents: want one for each")
        _check_ids(ids, batch_size)
        fields = [{"_id": i} for i in ids] if metadata is None else rows(metadata, ids)
        if not ids:
            return self
        size = sum(len(m) for m in matrices)
        with Meter(progress, len(ids)) as meter:
            if batch_size is None and size >= _build.LEAST and self._service is not None and self._fillable():
                with build_folder(self._service.place) as folder, contextlib.closing(_build.Spool(folder)) as spool:
                    spool.add(ids, matrices, fields)
                    if self._built(spool, None, lambda stage, part: meter.reach(int(part * len(ids)) if stage == "encode" else 0)):
                        meter.reach(len(ids))
                        return self
            self._declare()
            if metadata is None:
                fields = self._kept(ids, fields, keep_metadata, matrices)
            sizes = [m.nbytes for m in matrices]
            if any(len(f) > 1 for f in fields):
                sizes = [n + len(json.dumps(row)) for n, row in zip(sizes, fields)]
            for part in batches(sizes, _BATCH, batch_size or 10 * MANY):
                self._update("/update", part.start, tensors=tensors_body(matrices[part], {"metadata": fields[part]}))
                meter.add(part.stop - part.start)
        return self

    def update_documents(
        self: D,
        documents_ids: Ids,
        documents_embeddings: Embeddings,
        metadata: Metadata | None = None,
        **options: Any,
    ) -> D:
        """Replaces documents, and adds those whose id is not there. It is another name for
        `add_documents`, as PyLate has both.

        Parameters
        ----------
        documents_ids, documents_embeddings, metadata, **options
            Those of `add_documents`.

        Returns
        -------
        Index
            The index itself.
        """
        return self.add_documents(documents_ids, documents_embeddings, metadata, **options)

    def add_batches(self: D, batches: Iterable[Sequence[Any]], *, total: int | None = None, progress: Progress = None, wait: bool = True) -> D:
        """Adds documents of a source that does not fit in memory.

        The first documents of an index wait in a file, until the source ends or there are some
        gigabytes of them: if they are many they are built as ``plaid index`` does it. A source that
        breaks off has them stored, too; a process that is killed loses them.

        Parameters
        ----------
        batches
            Yields ``(ids, embeddings)`` or ``(ids, embeddings, metadata)``, as `add_documents` takes
            them.
        total
            How many documents there are, for ``progress``.
        progress
            As for `add_documents`.
        wait
            False stores each batch before the next one is asked for, as do indexes that have
            documents already: take it for a source that goes on for long.

        Returns
        -------
        Index
            The index itself.
        """
        count = 0
        with Meter(progress, total) as meter, Filling(self, meter, wait) as filling:
            for i, batch in enumerate(batches):
                if len(batch) not in (2, 3):
                    raise ValueError(f"batch {i} has {len(batch)} parts; want (ids, embeddings) or (ids, embeddings, metadata)")
                names = self._names(batch[0])
                matrices = to_matrices(batch[1], "document")
                if len(names) != len(matrices):
                    raise ValueError(f"batch {i} has {len(names)} ids and {len(matrices)} documents: want one for each")
                _check_ids(names, None)
                fields = [{"_id": n} for n in names] if len(batch) == 2 or batch[2] is None else rows(batch[2], names)
                if names and not filling.vectors(names, matrices, fields):
                    try:
                        self.add_documents(names if self.id_type is str else [int(n) for n in names], matrices, *batch[2:])
                    except PlaidError as e:
                        counted_from(e, "document", count)
                        raise
                    meter.add(len(names))
                count += len(names)
        return self

    def add_texts(
        self: D,
        texts: Iterable[str],
        ids: Iterable[str] | Iterable[int] | None = None,
        metadata: Iterable[Mapping[str, Any]] | None = None,
        *,
        text_field: str = "text",
        pool_factor: int | None = None,
        keep_metadata: bool | None = None,
        batch_size: int = _TEXTS,
        progress: Progress = None,
        wait: bool = True,
    ) -> D:
        """Adds texts, which the model of the service encodes. Texts, ids and metadata may be
        generators: they are taken batch by batch. The first documents of an index wait, as in
        `add_batches`, unless it is known that there are few.

        Parameters
        ----------
        texts
            The documents. One that the model cannot take whole is cut off.
        ids
            An id for each; without them texts are numbered from 0, if the index is empty.
        metadata
            A dictionary for each.
        text_field
            The key of the metadata that keeps the text; "" keeps it nowhere, and then neither
            highlights nor explanations can show it.
        pool_factor
            One vector for each so many similar ones.
        keep_metadata, progress
            As for `add_documents`.
        batch_size
            Texts of a batch.
        wait
            False stores each batch before the next one is asked for.

        Returns
        -------
        Index
            The index itself.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts is one text; want a list of texts")
        numbered = ids is None
        if ids is None:
            if self._there():
                raise ValueError("the index has documents already: name the new ones by ids")
            ids = cast("Iterable[int]", itertools.count())
        elif isinstance(ids, (str, bytes)):
            raise TypeError("ids is one text; want a list of ids")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; want 1 or more")
        total = len(texts) if isinstance(texts, Sequence) else None
        for what, other in (("ids", ids), ("metadata", metadata)):
            if total is not None and isinstance(other, Sequence) and len(other) != total:
                raise ValueError(f"there are {total} texts and {len(other)} {what}: want one for each")
        names, more = iter(ids), None if metadata is None else iter(metadata)
        start = 0
        waits = wait and (not isinstance(texts, Sequence) or many(texts, pool_factor))
        with Meter(progress, total) as meter, Filling(self, meter, waits) as filling:
            for part in text_batches(texts, batch_size):
                some: list[Any] = list(itertools.islice(names, len(part)))
                if len(some) < len(part):
                    raise ValueError(f"there are {start + len(some)} ids, and more texts: want one for each")
                own = [str(i) for i in some] if numbered else self._names(some)
                _check_ids(own, None)
                fields: list[dict[str, Any]] = [{"_id": i} for i in own]
                if more is not None:
                    fields = rows(list(itertools.islice(more, len(part))), own)
                if text_field:
                    fields = [{text_field: t, **f} for f, t in zip(fields, part)]
                if not filling.texts(own, part, fields, pool_factor):
                    if more is None:
                        fields = self._kept(own, fields, keep_metadata, None, text_field)
                    self._update_texts(part, fields, pool_factor, start)
                    meter.add(len(part))
                start += len(part)
        endless = isinstance(names, itertools.count)
        for what, rest in (("ids", iter(()) if endless else names), ("metadata", more or iter(()))):
            for _ in rest:
                raise ValueError(f"there are {start} texts, which are stored, and more {what}: want one for each")
        return self

    def remove_documents(self: D, documents_ids: Ids) -> D:
        """Removes documents.

        Parameters
        ----------
        documents_ids
            Their ids. One that is not there is passed over; one of a document that is stored as
            passages means these.

        Returns
        -------
        Index
            The index itself.
        """
        ids = self._names(documents_ids)
        for part in batches([len(i) for i in ids], 1 << 20, 10 * MANY):
            try:
                self._change("DELETE", self._path + "/documents", {"ids": ids[part]})
            except EmptyIndexError:
                break
        return self

    def encode(self, texts: Sequence[str], *, is_query: bool = False) -> list[Vectors]:
        """The vectors of texts by the model of the service.

        Parameters
        ----------
        texts
            The texts.
        is_query
            True for queries, which models encode in another way than documents.

        Returns
        -------
        list of numpy.ndarray
            A matrix [tokens, dim] of float32 for each.
        """
        if isinstance(texts, str):
            raise TypeError("texts is one text; want a list of texts")
        return self._encoded(texts, is_query, None, 0)

    def _encoded(self, texts: Sequence[str], is_query: bool, pool_factor: int | None, start: int) -> list[Vectors]:
        made: list[Vectors] = []
        for part in batches([len(t) for t in texts], TEXT_BYTES, _TEXTS):
            body: dict[str, Any] = {"texts": list(texts[part]), "input_type": "query" if is_query else "document"}
            if pool_factor is not None:
                body["pool_factor"] = pool_factor
            try:
                answer = self._request("POST", "/encode", body, headers={"X-Embeddings-Format": "base64"})
            except PlaidError as e:
                counted_from(e, "query" if is_query else "document", start + part.start)
                raise
            made += [vectors_of(*one) for one in zip(answer["embeddings_b64"], answer["shapes"])]
        return made

    @overload
    def get_documents_embeddings(self, documents_ids: IdList) -> list[Vectors]: ...

    @overload
    def get_documents_embeddings(self, documents_ids: IdLists) -> list[list[Vectors]]: ...

    def get_documents_embeddings(self, documents_ids: IdList | IdLists) -> list[Vectors] | list[list[Vectors]]:
        """The vectors of documents as they are stored: decoded, of unit length, float32.

        Parameters
        ----------
        documents_ids
            Ids, or lists of them. One that is not there is a KeyError; one of a document that is
            stored as passages means the vectors of all of them, one after another.

        Returns
        -------
        list of numpy.ndarray, or list of list of numpy.ndarray
            A matrix [tokens, dim] for each id; for lists of ids lists of them.
        """
        if isinstance(documents_ids, (str, int)):
            raise TypeError("want a list of ids, or a list of lists of them")
        nested = len(documents_ids) > 0 and isinstance(documents_ids[0], (list, tuple, set, frozenset, np.ndarray))
        lists = [self._names(ids) for ids in documents_ids] if nested else [self._names(documents_ids)]
        found: dict[str, Vectors] = {}
        for name, parts in self._looked_up(list(dict.fromkeys(i for ids in lists for i in ids)), "base64").items():
            found[name] = matrix_of(parts)
        matrices = [[found[i] for i in ids] for ids in lists]
        return matrices if nested else matrices[0]

    def _looked_up(self, ids: Sequence[str], vectors: str) -> dict[str, list[dict[str, Any]]]:
        """What is stored under ids: a document for each, or the passages that it is stored as, in
        their order. One that is not there is a KeyError."""
        found: dict[str, dict[str, Any]] = {}
        passages: dict[str, list[str]] = {}
        for part in batches([len(quote(i, safe="")) + 4 for i in ids], _ADDRESS, MANY):
            query = urlencode([("vectors", vectors), *(("id", i) for i in ids[part])])
            try:
                answer = self._request("GET", f"{self._path}/documents?{query}")
            except RequestError as e:
                if e.code in ("DOCUMENT_NOT_FOUND", "INDEX_NOT_FOUND"):
                    raise KeyError(self._given(str(e.details.get("id", ids[part][0])))) from e
                raise
            for d in answer["documents"]:
                of = d["metadata"].get("_passage", {}).get("of")
                if of is not None and d["id"] not in passages.setdefault(of, []):
                    passages[of].append(d["id"])
                found[d["id"]] = d
        return {i: [found[i]] if i in found else [found[p] for p in passages[i]] for i in ids}

    def _fillable(self) -> bool:
        """Whether an index may be built here, and put into its place."""
        return self._service is not None and not self.read_only and not self._there()

    def _built(self, spool: _build.Spool, model: Mapping[str, Any] | None, tell: Callable[[str, float], None]) -> bool:
        """Builds an index, and puts it into its place; not if somebody has put documents there."""
        assert self._service is not None
        self._declare()
        path = spool.build(self._service.binary, self._config, model, tell)
        try:
            self.load(path)
            return True
        except RequestError as e:
            if e.code != "INDEX_ALREADY_EXISTS":
                raise
            return False

    def _store(self, spool: _build.Spool, model: Mapping[str, Any] | None, meter: Meter) -> None:
        """Stores what has waited."""
        if not spool.ids:
            return

        def tell(stage: str, part: float) -> None:
            meter.say(f"{stage} {part:.0%}")
            meter.add(0)

        if (spool.tokens >= _build.LEAST or model is not None) and self._built(spool, model, tell):
            return
        self._declare()
        start = 0
        for ids, matrices, fields in spool.parts(_BATCH, 10 * MANY):
            self._update("/update", start, tensors=tensors_body(matrices, {"metadata": fields}))
            start += len(ids)

    def _update_texts(self, texts: Sequence[str], fields: Sequence[Mapping[str, Any]], pool_factor: int | None, start: int) -> None:
        self._declare()
        body: dict[str, Any] = {"documents": texts, "metadata": fields}
        if pool_factor is not None:
            body["pool_factor"] = pool_factor
        self._update("/update_with_encoding", start, body)

    def _there(self) -> int:
        """How many documents there are."""
        try:
            return int(self.stats()["documents"])
        except EmptyIndexError:
            return 0

    def __len__(self) -> int:
        """The number of documents."""
        return self._there()

    def _kept(self, ids: Sequence[str], fields: list[dict[str, Any]], keep: bool | None, matrices: Sequence[Matrix] | None, text_field: str = "") -> list[dict[str, Any]]:
        """The metadata that documents have already, for those that are given without. What describes
        the vectors of before is no metadata of the new ones; ``text_field`` is given anew."""
        if keep is False or not self._there():
            return fields
        there: dict[str, dict[str, Any]] = {}
        dropped: set[str] = set()
        lengths = {i: 0 for i in ids} if matrices is None else {i: len(m) for i, m in zip(ids, matrices)}
        for part in batches([len(i) for i in ids], 1 << 20, 10 * MANY):
            marks = ", ".join("?" * len(ids[part]))
            answer = self._request("POST", self._path + "/metadata/get", {"condition": f"_id IN ({marks})", "parameters": list(ids[part])})
            for row in answer["metadata"]:
                stale = {"text", "grid"} if keep is None else {"grid"} if cells_of(row.get("grid")) > lengths[row["_id"]] else set[str]()
                dropped |= stale & row.keys() - {text_field}
                there[row["_id"]] = {k: v for k, v in row.items() if k not in ("_id", "_subset_", text_field) and k not in stale}
        kept = [self._given(i) for i in ids if there.get(i)]
        if (kept or dropped) and keep is None:
            shown = ", ".join(repr(i) for i in kept[:5]) + (", …" if len(kept) > 5 else "")
            without = " without " + " and ".join(sorted(dropped)) if dropped else ""
            text = f"documents that were there keep their metadata{without} ({len(kept)}): {shown}. keep_metadata=True says that they shall keep all, False empties it"
            warnings.warn(text, UserWarning, stacklevel=3)
        return [{**f, **there.get(i, {})} for i, f in zip(ids, fields)]

    def _update(self, path: str, start: int, body: Mapping[str, Any] | None = None, tensors: tuple[Iterable[bytes | memoryview], int] | None = None) -> None:
        """Sends a batch. Errors count documents within all that were given."""
        try:
            self._change("POST", self._path + path, body, tensors)
        except PlaidError as e:
            counted_from(e, "document", start, f" (those before number {start} are stored)")
            raise


def _check_ids(ids: Sequence[str], batch_size: int | None) -> None:
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise ValueError(f"id {twice!r} is there twice")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; want 1 or more")


__all__ = ["Documents", "Matrix"]
