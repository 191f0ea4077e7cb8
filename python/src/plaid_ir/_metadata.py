"""What is stored beside documents."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence, cast

from ._documents import MANY, Documents
from ._errors import EmptyIndexError
from ._arrays import batches
from ._values import Where, condition, own_fields, plain


class Metadata(Documents):
    """The part of an index that reads and changes metadata."""

    def get(self, ids: str | int | Iterable[str] | Iterable[int]) -> list[dict[str, Any]]:
        """The metadata of documents.

        Parameters
        ----------
        ids
            One id or several. One that is not there is a KeyError.

        Returns
        -------
        list of dict
            The metadata of each, in the order of the ids. Those of a document that is stored as
            passages are without their texts and places.

        Examples
        --------
        >>> import numpy as np
        >>> from plaid_ir import Index
        >>> with Index(None) as index:
        ...     _ = index.add_documents(["a", "b"], np.ones((2, 3, 4)), [{"n": 1}, {"n": 2}])
        ...     print(index.get("b"), index.ids("n < 2"), index.update(where={"n": 2}, values={"n": 3}))
        [{'n': 2}] ['a'] 1
        """
        names = self._names(ids)
        found: dict[str, dict[str, Any]] = {}
        for row in self._rows("_id IN ({})", list(dict.fromkeys(names))):
            found[str(row["_id"])] = own_fields(row)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        for name, parts in self._looked_up(missing, "none").items():
            found[name] = {k: v for k, v in own_fields(parts[0]["metadata"]).items() if k not in ("_passage", "text")}
        return [dict(found[name]) for name in names]

    def ids(self, where: Where | None = None, parameters: Sequence[Any] = ()) -> list[Any]:
        """The ids of documents.

        Parameters
        ----------
        where, parameters
            A condition, as for `search`; None: all documents.

        Returns
        -------
        list of str or int
            In the order in which the documents came.
        """
        chosen = condition(where, parameters)
        body: dict[str, Any] = {} if chosen is None else {"condition": chosen[0], "parameters": chosen[1]}
        try:
            answer = self._request("POST", self._path + "/metadata/get", body)
        except EmptyIndexError:
            return []
        return [self._given(row["_id"]) for row in answer["metadata"]]

    def update(self, *, where: Where, values: Mapping[str, Any], parameters: Sequence[Any] = ()) -> int:
        """Sets keys of the metadata of documents. Vectors stay as they are.

        Parameters
        ----------
        where, parameters
            Which documents: a condition, as for `search`. A key that no document has is an error.
        values
            Keys and their new values; None removes a key.

        Returns
        -------
        int
            How many documents were changed.
        """
        text, given = cast("tuple[str, list[Any]]", condition(where, parameters))
        updates = {k: plain(v, f"values, key {k!r}") for k, v in values.items()}
        return int(self._change("POST", self._path + "/metadata/update", {"condition": text, "parameters": given, "updates": updates})["updated"])

    def delete(self, *, where: Where, parameters: Sequence[Any] = ()) -> int:
        """Removes the documents that a condition is true of; `remove_documents` takes ids.

        Parameters
        ----------
        where, parameters
            A condition, as for `search`. A key that no document has is an error, since a slip would
            remove too much.

        Returns
        -------
        int
            How many documents were removed.
        """
        text, given = cast("tuple[str, list[Any]]", condition(where, parameters))
        return int(self._change("DELETE", self._path + "/documents", {"condition": text, "parameters": given})["deleted"])

    def __contains__(self, id: object) -> bool:
        """Whether a document is there."""
        try:
            names = self._names([id])
        except TypeError:
            return False
        try:
            self._looked_up(names, "none")
        except KeyError:
            return False
        return True

    def _rows(self, text: str, values: Sequence[str]) -> Iterable[dict[str, Any]]:
        for part in batches([len(v) for v in values], 1 << 20, 10 * MANY):
            some = list(values[part])
            try:
                answer = self._request("POST", self._path + "/metadata/get", {"condition": text.format(", ".join("?" * len(some))), "parameters": some})
            except EmptyIndexError:
                return
            yield from answer["metadata"]
