"""Reads rows and columns of tables of pandas, polars, Arrow, LanceDB and datasets, without importing them."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Iterable, Iterator, KeysView, Mapping, ValuesView, cast

import numpy as np
import numpy.typing as npt

from ._checks import import_extra, unexpected_type

#: The number of rows that are converted to dictionaries at a time.
_CHUNK = 1024
#: The largest whole number up to which all are exact as floats.
MAX_WHOLE = 1 << 53
#: Types of several values, other than columns of tables.
_SEVERAL = (list, tuple, set, frozenset, range, KeysView, ValuesView, np.ndarray)
#: Types of Arrow arrays that have a list in each row.
_LISTS = ("ListArray", "LargeListArray", "FixedSizeListArray", "ListViewArray", "LargeListViewArray")


def _library_and_type(x: Any) -> tuple[str, str]:
    """Returns the library of an object and the name of its type."""
    return type(x).__module__.partition(".")[0], type(x).__name__


def _to_table(x: Any) -> tuple[str, Any] | None:
    """Returns the library of a table, and the table as a data frame or an Arrow table; None for other objects."""
    if isinstance(x, (list, tuple, str, bytes, np.ndarray)):
        return None
    library, name = _library_and_type(x)
    if library == "polars":
        tables = {"DataFrame": lambda: x, "LazyFrame": lambda: x.collect()}
        return ("polars", tables[name]()) if name in tables else None
    if hasattr(x, "iloc") and hasattr(x, "columns"):
        return "pandas", x
    if library == "pyarrow":
        if name in ("Table", "RecordBatch"):
            return library, x
        for method in ("read_all", "to_table"):  # of streams, of datasets
            if hasattr(x, method):
                return library, getattr(x, method)()
        return None
    if library == "datasets" and isinstance(x, Mapping):
        raise TypeError(f"a {name} has several tables ({', '.join(map(str, cast('Any', x)))}): choose one of them")
    if library == "datasets" and name == "Dataset":
        return "pyarrow", x.with_format("arrow")[:]
    if _is_column(x) or isinstance(x, Mapping):
        return None
    if hasattr(x, "to_arrow"):  # of LanceDB and its queries
        table = x.to_arrow()
        if inspect.isawaitable(table):
            cast("Any", table).close()
            raise TypeError(f"a {name} is asynchronous: await its to_arrow(), and pass the result")
        found = _to_table(table)
        if found is not None:
            return found
    if hasattr(x, "__arrow_c_stream__"):
        return "pyarrow", _import_pyarrow(f"a table of {library}").table(x)
    return None


def _is_column(x: Any) -> bool:
    library, name = _library_and_type(x)
    return (
        library == "polars" and name == "Series"
        or library == "pyarrow" and name.endswith(("Array", "Scalar"))
        or library == "datasets" and name == "Column"
        or library == "pandas"
    )  # fmt: skip


def _import_pyarrow(what: str) -> Any:
    return import_extra("pyarrow", f"{what} needs pyarrow", "pyarrow")


class _Rows:
    """The rows of a table as dictionaries, converted as they are read."""

    def __init__(self, kind: str, table: Any) -> None:
        self._table, self._kind = table, kind
        names: list[Any] = list(table.schema.names if kind == "pyarrow" else table.columns)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ValueError(f"metadata has two columns {name!r}: rename one, or leave it out")
        self._names = names

    def __len__(self) -> int:
        return int(self._table.num_rows) if self._kind == "pyarrow" else len(self._table)

    def __iter__(self) -> Iterator[Mapping[Any, Any]]:
        if self._kind == "polars":
            yield from self._table.iter_rows(named=True)
            return
        has_integers: list[bool] = []
        if self._kind == "pandas":
            has_integers = [_has_missing_integers(self._table.iloc[:, j]) for j in range(len(self._names))]
        for begin in range(0, len(self), _CHUNK):
            if self._kind == "pyarrow":
                # A slice of a table without columns has the requested number of rows, even beyond the end.
                yield from self._table.slice(begin, min(_CHUNK, len(self) - begin)).to_pylist()
                continue
            frame = self._table.iloc[begin : begin + _CHUNK]
            columns: list[list[Any]] = [frame.iloc[:, j].tolist() for j in range(len(self._names))]
            for j, column in enumerate(columns):
                if has_integers[j]:
                    columns[j] = [int(v) if isinstance(v, float) and v == v else None for v in column]  # not NA or NaN
            for i in range(len(frame)):
                yield {name: column[i] for name, column in zip(self._names, columns)}


def _has_missing_integers(column: Any) -> bool:
    """Reports whether a column of floats has only whole numbers and missing values.

    pandas converts whole numbers to floats if one is missing.
    """
    if getattr(column.dtype, "kind", "") != "f":
        return False
    values = column.to_numpy(dtype="float64", na_value=np.nan)
    present = values[~np.isnan(values)]
    is_whole = (np.abs(present) <= MAX_WHOLE).all() and (present == np.rint(present)).all()
    return len(present) < len(values) and bool(is_whole)


def to_rows(metadata: Any) -> Iterable[Any]:
    """Returns metadata as dictionaries. A table becomes one dictionary for each row."""
    found = _to_table(metadata)
    if found is not None:
        return _Rows(*found)
    if isinstance(metadata, Mapping):
        raise TypeError(
            "metadata is one dictionary; want a list with one for each document, "
            "or a data frame (pandas.DataFrame converts a dictionary of columns)"
        )
    if isinstance(metadata, (str, bytes)):
        raise TypeError("metadata is one text; want a list with a dictionary for each document")
    if _is_column(metadata):
        return cast("Iterable[Any]", to_items(metadata, "metadata"))
    if not hasattr(metadata, "__iter__"):
        raise unexpected_type("metadata", metadata, "a list with a dictionary for each document")
    return cast("Iterable[Any]", metadata)


def refuse_table(x: Any, what: str, want: str) -> None:
    """Raises TypeError if ``x`` is a table. The error names it by ``what``, and asks for ``want``."""
    if _to_table(x) is not None:
        raise TypeError(f"{what} is a table; want {want}")


def to_items(column: Any, what: str) -> Any:
    """Returns texts or ids. A column of a table, or a tensor, becomes a list. Errors name them by ``what``."""
    if isinstance(column, (list, tuple)):
        items: list[Any] = cast("Any", column)
        return [to_item(v) for v in items] if items and to_item(items[0]) is not items[0] else items
    if isinstance(column, str):
        return column
    if type(column) is np.ndarray:
        return cast("Any", column if column.ndim else [column.item()])
    if _to_table(column) is not None:
        raise TypeError(f"{what} is a table; want one of its columns")
    if hasattr(column, "as_py") or hasattr(column, "detach"):
        found: Any = column.as_py() if hasattr(column, "as_py") else column.tolist()
        return cast("Any", found if isinstance(found, list) else [found])
    arrow = _to_arrow_array(column)
    column = column if arrow is None else arrow
    for method in ("to_pylist", "to_list"):  # of pyarrow, of pandas and polars
        if hasattr(column, method):
            return getattr(column, method)()
    return column


def is_several(value: Any) -> bool:
    """Reports whether ``value`` has several values: a list or the like, a column of a table, or a tensor."""
    return (
        isinstance(value, _SEVERAL)
        or hasattr(value, "to_pylist")
        or hasattr(value, "to_list")
        or hasattr(value, "detach") and value.ndim > 0
    )  # fmt: skip


def to_item(value: Any) -> Any:
    """Converts an Arrow scalar, or a tensor with one number, to a Python value. Returns other values unchanged."""
    if hasattr(value, "as_py"):
        return value.as_py()
    return value.item() if hasattr(value, "detach") and getattr(value, "ndim", None) == 0 else value


def _to_arrow_array(column: Any) -> Any:
    """Returns the Arrow array of a column; None if the column has another form."""
    library, name = _library_and_type(column)
    if library == "pyarrow":
        return column if name.endswith("Array") else None
    if library == "datasets" and name == "Column":
        source = column.source
        if hasattr(source, "with_format"):
            return source.with_format("arrow")[:][column.column_name]
        # A field of another column.
        outer = _to_arrow_array(source)
        return None if outer is None else _import_pyarrow("a column").compute.struct_field(outer, column.column_name)
    if library == "polars" and name == "Series" and "pyarrow" in sys.modules:
        return column.to_arrow() if str(column.dtype).startswith(("List", "Array")) else None
    array = getattr(column, "array", column) if library == "pandas" else None
    return cast("Any", array).__arrow_array__() if type(array).__name__ == "ArrowExtensionArray" else None


def column_vectors(column: Any, what: str) -> list[Any] | None:
    """Returns the items of a column of a table, one for each document; None if ``column`` is not a column.

    Lists of numbers in Arrow become matrices without copying; one list of numbers is a matrix with one row. A missing
    item is None.
    """
    if isinstance(column, (list, tuple)) or type(column) is np.ndarray and column.dtype.kind != "O":
        return None
    library, name = _library_and_type(column)
    if isinstance(column, np.ndarray):
        array = cast("npt.NDArray[Any]", column)
        return list(array) if array.dtype.kind == "O" and array.ndim == 1 else None
    if library == "awkward":
        return list(column) if column.ndim > 2 else None
    if hasattr(column, "detach"):
        return list(column.unbind()) if getattr(column, "is_nested", False) else None
    if _to_table(column) is not None:
        raise TypeError(f"the {'queries' if what == 'query' else what + 's'} are a table; want one of its columns")
    if not _is_column(column):
        return None
    if name.endswith("Scalar"):
        return [column]
    arrow = _to_arrow_array(column)
    if arrow is not None:
        matrices: list[Any] = []
        for chunk in getattr(arrow, "chunks", [arrow]):
            chunk_matrices = _matrices_from_arrow(chunk, what, len(matrices))
            matrices += chunk.to_pylist() if chunk_matrices is None else chunk_matrices
        return matrices
    return list(to_items(column, what)) if library != "polars" else [column[i] for i in range(len(column))]


def to_numbers(value: Any) -> Any:
    """Converts one document of a table's library to an array, or to a list of arrays. Returns others unchanged."""
    library, name = _library_and_type(value)
    if library == "pyarrow" and name.endswith("Scalar"):
        value = getattr(value, "values", value) if value.is_valid else None
        library, name = _library_and_type(value)
    if library == "pyarrow" and name in _LISTS:
        rows = _matrices_from_arrow(value, "document", 0)
        return value if rows is None else [None if row is None else row[0] if len(row) == 1 else row for row in rows]
    if library == "pyarrow" and name.endswith("Array"):
        return value.to_numpy(zero_copy_only=False)
    return value.to_numpy() if library in ("pandas", "polars") and hasattr(value, "to_numpy") else value


def _list_bounds(array: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Returns the offsets of the lists of an Arrow array, and the values of all lists."""
    if type(array).__name__ == "FixedSizeListArray":
        return (array.offset + np.arange(len(array) + 1, dtype=np.int64)) * array.type.list_size, array.values
    if "ListView" in type(array).__name__:  # its lists may be in any order
        missing, sizes = _null_mask(array), array.sizes.to_numpy(zero_copy_only=False).astype(np.int64)
        if missing is not None:
            sizes[missing] = 0
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), array.flatten()
    return array.offsets.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), array.values


def _without_extension(array: Any) -> Any:
    """Converts an array of an extension or dictionary type to one of a plain type."""
    while hasattr(array, "storage"):
        array = array.storage
    return array.dictionary_decode() if type(array).__name__ == "DictionaryArray" else array


def _null_mask(array: Any) -> npt.NDArray[np.bool_] | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _matrices_from_arrow(array: Any, what: str, start: int) -> list[Any] | None:
    """Returns the matrices of an Arrow array whose rows are lists of numbers, or lists of such lists.

    Returns None if the rows are not lists. Lists of a fixed size become [1, tokens, dim], since they may be padded.
    ``start`` is the number of rows before this array, from which errors count.
    """
    if type(array).__name__ == "FixedShapeTensorArray":
        missing = _null_mask(array)
        cells = array.to_numpy_ndarray() if missing is None else array.fill_null(0).to_numpy_ndarray()
        return [None if missing is not None and missing[i] else m[None] for i, m in enumerate(cells)]
    array = _without_extension(array)
    if type(array).__name__ not in _LISTS:
        return None
    missing = _null_mask(array)
    rows, tokens = _list_bounds(array)
    tokens = _without_extension(tokens)
    flat = type(tokens).__name__ not in _LISTS
    ends, numbers = (None, tokens) if flat else _list_bounds(tokens)
    no_token = None if flat else _null_mask(tokens)
    numbers = _without_extension(numbers)
    if type(numbers).__name__ in _LISTS:
        raise ValueError(f"{what} {start} has 3 axes; want a matrix, [tokens, dim]")
    if str(numbers.type) == "null":
        values: npt.NDArray[Any] = np.zeros(len(numbers), "<f4")
    elif not str(numbers.type).startswith(("int", "uint", "float", "halffloat", "double")):
        raise TypeError(f"{what} {start}: vectors are numbers, not {numbers.type}")
    else:
        values = numbers.to_numpy(zero_copy_only=False)
    no_number = _null_mask(numbers)
    sizes = np.diff(rows if ends is None else ends)
    begins: list[int] = rows.tolist()
    # All lists have the same size: slices of the values are the matrices.
    is_complete = missing is None and no_token is None and no_number is None
    if is_complete and len(sizes) and sizes[0] and (sizes == sizes[0]).all():
        if ends is None:
            return list(values[rows[0] : rows[-1]].reshape(len(array), 1, -1))
        low, dim = int(rows[0]), int(sizes[0])
        vectors = values[ends[low] : ends[rows[-1]]].reshape(-1, dim)
        if type(array).__name__ == "FixedSizeListArray":
            return list(vectors.reshape(len(array), 1, -1, dim))
        return [vectors[begin - low : end - low] for begin, end in zip(begins, begins[1:])]
    # Otherwise each row is checked.
    matrices: list[Any] = []
    for i in range(len(array)):
        if missing is not None and missing[i]:
            matrices.append(None)
            continue
        begin, end = begins[i], begins[i + 1]
        if ends is None:
            if no_number is not None and no_number[begin:end].any():
                raise ValueError(f"{what} {start + i} has a number that is null, {_first_true(no_number[begin:end])}")
            matrices.append(values[begin:end].reshape(1, -1) if end > begin else values[:0].reshape(0, 0))
            continue
        if no_token is not None and no_token[begin:end].any():
            raise ValueError(
                f"{what} {start + i}, token {_first_true(no_token[begin:end])}: the vector is missing (null)"
            )
        low, high = int(ends[begin]), int(ends[end])
        dim = int(sizes[begin]) if end > begin else 0
        if high - low != dim * (end - begin) or (sizes[begin:end] != dim).any():
            t = _first_true(sizes[begin:end] != dim)
            raise ValueError(f"{what} {start + i}, token {t} has dimension {sizes[begin + t]}, those before it {dim}")
        if no_number is not None and no_number[low:high].any():
            t, component = divmod(_first_true(no_number[low:high]), dim)
            raise ValueError(f"{what} {start + i}, token {t}, component {component} is null")
        matrix = values[low:high].reshape(end - begin, dim)
        matrices.append(matrix[None] if type(array).__name__ == "FixedSizeListArray" else matrix)
    return matrices


def _first_true(which: npt.NDArray[np.bool_]) -> int:
    return int(which.argmax())
