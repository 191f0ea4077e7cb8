"""The methods of an index that read stored documents."""

from __future__ import annotations

import itertools
import os
from typing import Any, Iterable, Mapping, Sequence, TypeAlias, Union, cast, overload

import numpy as np
import numpy.typing as npt

from . import _files
from ._arrays import Vectors
from ._checks import check_iterable, check_int, unexpected_value
from ._conditions import Where, to_condition
from ._connection import Connection
from ._documents import fetch_documents, fetch_ids, fetch_metadata
from ._errors import EmptyIndexError
from ._metadata import without_service_keys
from ._results import Documents, Facets
from ._search import filter_fields
from ._tables import is_several, to_items

IdList: TypeAlias = Union[Sequence[str], Sequence[int], npt.NDArray[np.integer[Any]]]
IdLists: TypeAlias = Sequence[Union[list[str], list[int], tuple[str, ...], tuple[int, ...], set[str], set[int]]]


class StoredDocuments:
    """The methods of an `Index` that read documents by id or by condition."""

    _connection: Connection

    @overload
    def get_documents_embeddings(self, documents_ids: IdList) -> list[Vectors]: ...

    @overload
    def get_documents_embeddings(self, documents_ids: IdLists) -> list[list[Vectors]]: ...

    def get_documents_embeddings(self, documents_ids: IdList | IdLists) -> list[Vectors] | list[list[Vectors]]:
        """Returns the stored vectors of documents: decoded, scaled to length 1, float32.

        Parameters
        ----------
        documents_ids
            Ids, or lists of ids. An unknown id is a KeyError. If a document is stored as passages, its matrix has the
            vectors of all passages, one after another.

        Returns
        -------
        list of numpy.ndarray, or list of list of numpy.ndarray
            A matrix [tokens, dim] for each id; for lists of ids, lists of matrices.
        """
        given: Any = check_iterable(
            to_items(documents_ids, "documents_ids"), "documents_ids", "ids, or of lists of ids"
        )
        given = list(given)
        nested = len(given) > 0 and is_several(given[0])
        to_names = self._connection.to_names
        lists = [to_names(ids, "documents_ids") for ids in given] if nested else [to_names(given, "documents_ids")]
        names = list(dict.fromkeys(i for ids in lists for i in ids))
        documents = fetch_documents(self._connection, names, vectors=True)
        found = {name: np.concatenate([d["vectors"] for d in parts]) for name, parts in documents.items()}
        matrices = [[found[i] for i in ids] for ids in lists]
        return matrices if nested else matrices[0]

    def get(
        self,
        ids: str | int | Iterable[str] | Iterable[int] | None = None,
        *,
        where: Where | None = None,
        parameters: Sequence[Any] = (),
        limit: int | None = None,
    ) -> Documents:
        """Returns the metadata of documents, selected by ids or by a condition.

        Parameters
        ----------
        ids
            One id or several. An unknown id is a KeyError.
        where, parameters
            A condition, as for `search`. An empty dictionary selects all documents.
        limit
            The largest number of documents to return, with ``where``.

        Returns
        -------
        Documents
            A list with the metadata of each document, in the order of ``ids``, or in the order in which they were
            added. Its attribute ``ids`` has their ids. If a document is stored as passages, its metadata are the keys
            and values that all passages share, without ``_passage`` and ``text``.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     _ = index.add_documents(["a", "b"], np.ones((2, 3, 4)), [{"n": 1}, {"n": 2}])
        ...     print(index.get("b"), index.ids("n < 2"), index.update(where={"n": 2}, values={"n": 3}))
        ...     print(index.get(where="n > 1").ids)
        [{'n': 2}] ['a'] 1
        ['b']
        """
        chosen = to_condition(where, parameters)
        if (ids is None) == (where is None):
            raise TypeError("get() needs either ids or a condition (where); where={} selects all documents")
        if limit is not None:
            limit = check_int(limit, "limit", 0)
            if where is None:
                raise TypeError("limit needs a condition (where)")
        if ids is not None:
            names = self._connection.to_names(ids)
        else:
            names = list(itertools.islice(fetch_ids(self._connection, chosen), limit))
        found: dict[str, Mapping[str, Any]] = {}
        for row in fetch_metadata(self._connection, list(dict.fromkeys(names))):
            found[str(row["_id"])] = without_service_keys(row)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        while True:
            try:
                parts = fetch_documents(self._connection, missing)
                break
            except KeyError as e:
                if ids is not None:
                    raise
                missing.remove(str(e.args[0]))  # it was deleted in the meantime
        for name, passages in parts.items():
            rows = [without_service_keys(p["metadata"]) for p in passages]
            found[name] = {
                key: value
                for key, value in rows[0].items()
                if key not in ("_passage", "text") and all(key in row and row[key] == value for row in rows)
            }
        names = [name for name in names if name in found]
        return Documents([dict(found[name]) for name in names], [self._connection.to_id(name) for name in names])

    def ids(self, where: Where | None = None, parameters: Sequence[Any] = ()) -> list[Any]:
        """Returns the ids of documents. They are fetched in pages, without metadata.

        Parameters
        ----------
        where, parameters
            A condition, as for `search`; None selects all documents. A document that is stored as passages is listed
            once, if any of its passages meets the condition.

        Returns
        -------
        list of str or int
            The ids, in the order in which the documents were added. If documents change in the meantime, each document
            that remains is still listed once.
        """
        to_id = self._connection.to_id
        return [to_id(name) for name in fetch_ids(self._connection, to_condition(where, parameters))]

    def facets(
        self,
        fields: str | Sequence[str],
        *,
        where: Where | None = None,
        parameters: Sequence[Any] = (),
        values: int = 10,
        subset: Sequence[Any] | None = None,
    ) -> Facets:
        """Counts the documents that have each value of a metadata field. Each passage counts as a document.

        Parameters
        ----------
        fields
            One key or several, as conditions name them.
        where, parameters, subset
            The documents to count, as for `search`. Default: all.
        values
            The number of values to return for each field: the most frequent ones.

        Returns
        -------
        Facets
            A dictionary for each field, with ``docs``, ``missing``, ``null``, ``values`` and ``others``.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     rows = [{"lang": "en"}, {"lang": "de"}, {"lang": "en"}]
        ...     _ = index.add_documents(["a", "b", "c"], np.ones((3, 2, 4)), rows)
        ...     print(index.facets("lang")[0]["values"])
        [{'value': 'en', 'docs': 2}, {'value': 'de', 'docs': 1}]
        """
        names = [fields] if isinstance(fields, str) else list(check_iterable(fields, "fields", "texts"))
        for i, name in enumerate(names):
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise unexpected_value(f"fields, item {i},", name, "a text")
        body: dict[str, Any] = {"fields": names, "values": check_int(values, "values", 1)}
        body |= filter_fields(where, parameters)
        if subset is not None:
            body["ids"] = self._connection.to_names(subset, "subset")
        if not names:
            return Facets()
        try:
            answer = self._connection.request("POST", self._connection.path + "/facets", body)
        except EmptyIndexError:
            none = {"docs": 0, "missing": 0, "null": 0, "others": 0}
            return Facets({"field": name, **none, "values": []} for name in names)
        return Facets(cast("list[dict[str, Any]]", answer["facets"]))

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the index. The call is cheap.

        Returns
        -------
        dict
            ``documents``, ``passages`` (if some documents are stored as passages), ``tokens``, ``dim``, ``nbits``,
            sizes, growth and configuration, as the service reports them (docs/service.md). ``sampled`` has the recall
            of the questions that the service samples.
        """
        return self._connection.stats()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the current index to a file, which `load` and commands such as ``plaid search FILE`` can read.

        Parameters
        ----------
        path
            The file. An existing file is replaced once the new one is complete.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index, Index(None) as copy:
        ...     index.add_documents(["a"], [np.eye(4)]).save("docs.plaid")
        ...     print(copy.load("docs.plaid").ids())
        ['a']
        """
        _files.save(self._connection, path)

    def __len__(self) -> int:
        """Returns the number of documents. A document that is stored as passages counts once."""
        return self._connection.count()

    def __bool__(self) -> bool:
        """Returns True, even if the index has no documents."""
        return True

    def __contains__(self, id: object) -> bool:
        """Reports whether the index has a document with this id."""
        try:
            names = self._connection.to_names([id])
        except (TypeError, ValueError):  # not a valid id
            return False
        try:
            fetch_documents(self._connection, names)
        except KeyError:
            return False
        return True
