"""Converts the outputs of encoders to arrays, arrays to the body of a request, and answers to arrays."""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Protocol, Sequence, TypeAlias, Union, cast

import numpy as np
import numpy.typing as npt

from ._checks import unexpected_type
from ._metadata import is_missing
from ._tables import to_numbers, column_vectors

#: A float matrix, [tokens, dim].
Matrix: TypeAlias = npt.NDArray[Any]

#: The float32 vectors of a text or a document, [tokens, dim].
Vectors: TypeAlias = npt.NDArray[np.float32]


class Tensor(Protocol):
    """A torch tensor on any device."""

    def detach(self) -> Any: ...


#: A matrix [tokens, dim]: a numpy array, a torch tensor, or lists of numbers.
MatrixLike: TypeAlias = Union[npt.NDArray[Any], Tensor, Sequence[Sequence[float]]]

#: One matrix or several, or an array [documents, tokens, dim].
Embeddings: TypeAlias = Union[
    MatrixLike, Sequence[npt.NDArray[Any]], Sequence[Tensor], Sequence[Sequence[Sequence[float]]]
]

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)
_ASCII = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
#: Stands for bfloat16, which numpy does not have.
_BFLOAT16 = np.dtype("V2")
_OBJECT = np.dtype("O")
#: The types that are sent to the service unchanged, and their names in safetensors.
_TYPES = {"<f2": "F16", "<f4": "F32", "|V2": "BF16"}
_UNCHANGED_TYPES = frozenset(map(np.dtype, ("<f2", "<f4")))
#: The media type of safetensors files.
TENSORS = "application/safetensors"


class Body(NamedTuple):
    """The body of a request, in pieces that need not be joined."""

    pieces: Iterable[bytes | memoryview]
    size: int
    media_type: str


def to_json(value: Any) -> bytes:
    """Encodes a value as JSON without escaping non-ASCII letters.

    The service stores metadata as it is written, and compares lists by their text.
    """
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:  # half of a character, which the service refuses and names
        return _ASCII.encode(value).encode()


def to_array(x: Any, unit: bool = True) -> npt.NDArray[Any]:
    """Converts vectors to a contiguous array. Accepts all that numpy accepts, and torch tensors on any device.

    float16, bfloat16 and float32 are not copied if possible; other types become float32. ``unit`` means that only the
    directions of vectors count: then vectors whose numbers are all too small for float32 are scaled up.
    """
    if cast("Any", type(x)) is np.ndarray and x.dtype.str in _TYPES:
        return np.ascontiguousarray(x)
    is_bfloat16 = False
    if hasattr(x, "detach"):  # a torch tensor, without importing torch
        x = x.detach().cpu()
        if getattr(x, "is_sparse", False):
            x = x.to_dense()
        if str(x.dtype) == "torch.bfloat16":
            torch = sys.modules.get("torch")
            is_bfloat16 = torch is not None and isinstance(x, torch.Tensor)
            x = x.contiguous().view(cast("Any", torch).int16) if is_bfloat16 else x.float()
        elif "float8" in str(x.dtype):  # a type that numpy does not have either
            x = x.float()
        x = x.numpy()
    a = np.asarray(x)
    # The bfloat16 of ml_dtypes is recognized by its name. Reading it is slow, and so comes last.
    if is_bfloat16 or a.dtype.kind == "V" and (a.dtype == _BFLOAT16 or a.dtype.name == "bfloat16"):
        return np.ascontiguousarray(a).view(_BFLOAT16)
    if a.dtype.kind not in "fiu" and not a.dtype.name.startswith("float"):  # the small types of ml_dtypes
        raise TypeError(f"vectors are numbers, not {a.dtype}")
    if a.dtype.str not in _TYPES:
        if a.dtype.kind == "f" and a.dtype.itemsize > 4 and a.size:
            a = _scale_up_tiny(a, unit)
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which the service refuses
            a = a.astype("<f4")
    return np.ascontiguousarray(a)


def _scale_up_tiny(a: npt.NDArray[Any], unit: bool) -> npt.NDArray[Any]:
    """Scales vectors by powers of two if all of their numbers would become zero in float32."""
    largest = np.abs(a).max(axis=-1, keepdims=True, initial=0)
    lost = (largest > 0) & (largest < 2.0**-126)
    if not unit:
        if lost.any():
            token = int(np.flatnonzero(lost.ravel())[0])
            raise ValueError(f"token {token} has only numbers below 1.2e-38, too small for float32: scale them up")
        return a
    return np.ldexp(a, np.where(lost, -np.frexp(np.where(lost, largest, 1))[1], 0)) if lost.any() else a


def to_float32(m: Matrix) -> Vectors:
    """Converts a matrix to float32."""
    if m.dtype == _BFLOAT16:
        return (m.view("<u2").astype("<u4") << 16).view("<f4")
    return m.astype("<f4", copy=False)


def _count_axes(x: Any) -> int:
    if isinstance(x, (list, tuple, np.ndarray)) and getattr(cast("Any", x), "dtype", _OBJECT) == _OBJECT:
        return 1 + _count_axes(next((v for v in cast("Iterable[Any]", x) if not _is_empty(v)), None))
    ndim = getattr(cast("Any", x), "ndim", None)
    return 0 if ndim is None else int(ndim)


def _drop_padding(m: Matrix) -> Matrix:
    """Removes rows of zeros at the end, with which encoders pad batches."""
    m_or_bits = _nonzero_bits(m)
    if len(m) and m_or_bits[-1].any():
        return m
    used = np.flatnonzero(m_or_bits.any(axis=1))
    return m[: used[-1] + 1] if len(used) else m[:0]


def _nonzero_bits(m: Matrix) -> Matrix:
    """Returns an array that is zero exactly where ``m`` is, for types that numpy cannot compare."""
    return m if m.dtype != _BFLOAT16 else m.view("<u2") & 0x7FFF


def to_matrices(embeddings: Embeddings, what: str, unit: bool = True) -> list[Matrix]:
    """Returns the matrices of documents or queries, all of one dimension and type.

    ``embeddings`` is one of:

    - a list of matrices;
    - one matrix [tokens, dim];
    - a padded array [documents, tokens, dim], whose rows of zeros at the end of a document are removed;
    - a column of a table, in which a list of numbers is a matrix with one row.

    ``what`` names them in errors. Only documents may have no rows. For ``unit`` see `to_array`.
    """
    if type(embeddings) is np.ndarray and embeddings.ndim == 2 and embeddings.dtype.str in _TYPES and embeddings.size:
        return [np.ascontiguousarray(embeddings)]
    rows = column_vectors(embeddings, what)
    axes = _count_axes(embeddings) if rows is None else 3
    if rows is not None:
        matrices = [_to_matrix(m, what, i, unit, True) for i, m in enumerate(rows)]
    elif isinstance(embeddings, (list, tuple)):
        if not embeddings:
            return []
        if axes == 2 and not hasattr(embeddings[0], "ndim") and not _is_empty(embeddings[0]):  # numbers: one matrix
            matrices = [_to_matrix(embeddings, what, 0, unit)]
        elif axes == 2:
            raise ValueError(f"{what} 0 has one axis; want matrices, [tokens, dim]")
        else:
            matrices = [_to_matrix(m, what, i, unit) for i, m in enumerate(embeddings)]
    elif axes == 3 and not np.ma.isMaskedArray(embeddings) and getattr(embeddings, "itemsize", 0) <= 4:
        matrices = [_drop_padding(m) for m in to_array(embeddings, unit)]
    elif axes == 2:
        matrices = [_to_matrix(embeddings, what, 0, unit)]
    elif not hasattr(embeddings, "__iter__"):
        raise unexpected_type(f"{what} 0", embeddings, "a matrix, [tokens, dim]" + ", or a text" * (what == "query"))
    else:  # any other sequence
        matrices = [_to_matrix(m, what, i, unit) for i, m in enumerate(cast("Any", embeddings))]
        if axes == 3:
            matrices = [_drop_padding(m) for m in matrices]
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ValueError(f"{what} {i} has {m.ndim} axes; want a matrix, [tokens, dim]")
        if m.shape[0] > 0 and m.shape[1] == 0:
            raise ValueError(f"{what} {i} has vectors of dimension 0")
        if m.shape[0] == 0 and what != "document":
            raise ValueError(f"{what} {i} has no vectors")
    return to_uniform(matrices, what)


def _to_matrix(given: Any, what: str, position: int, unit: bool, one_vector: bool = False) -> Matrix:
    """Returns the matrix of one document or query. With ``one_vector`` a list of numbers is a matrix with one row."""
    if type(given) is np.ndarray and given.ndim == 2 and given.dtype in _UNCHANGED_TYPES:
        return np.ascontiguousarray(given)
    if type(given) is not np.ndarray:
        given = to_numbers(given)
        if _is_empty(given) or is_missing(given):
            return _empty_matrix()
        if isinstance(given, (str, bytes)) or not (hasattr(given, "__len__") or hasattr(given, "ndim")):
            raise unexpected_type(f"{what} {position}", given, "a matrix, [tokens, dim]")
    try:
        if isinstance(given, (list, np.ndarray)) and getattr(cast("Any", given), "dtype", _OBJECT) == _OBJECT:
            rows: list[Any] = list(cast("Any", given))
            given = rows
            given = _stack_tokens([to_numbers(row) for row in rows])
        if isinstance(given, np.ma.MaskedArray):
            given = _drop_masked(given)
        m = to_array(given, unit)
    except (TypeError, ValueError) as e:
        raise type(e)(f"{what} {position}{_describe_fault(given) or f': {e}'}") from None
    if m.ndim == 1 and one_vector:
        return m[None] if len(m) else _empty_matrix()
    # PyLate returns a list of padded arrays [1, tokens, dim].
    return _drop_padding(m[0]) if m.ndim == 3 and len(m) == 1 else m


def _stack_tokens(rows: list[Any]) -> Any:
    """Joins token vectors that are arrays or tensors into one array. Returns other lists unchanged."""
    if not any(hasattr(row, "ndim") for row in rows):
        return rows
    if any(map(np.ma.isMaskedArray, rows)):
        return cast("Any", np.ma).stack(rows)
    tensors = [to_float32(to_array(row)) if hasattr(row, "detach") else np.asarray(row) for row in rows]
    return np.stack([np.asarray(row.tolist()) if row.dtype == _OBJECT else row for row in tensors])


def _describe_fault(given: Any) -> str:
    """Describes the first token of a list that is missing or has another dimension. Returns "" for other lists."""
    if not isinstance(given, (list, tuple)):
        return ""
    rows = cast("list[Any]", given)
    for t, row in enumerate(rows):
        if row is None:
            return f", token {t}: the vector is missing"
        if not hasattr(row, "__len__"):
            return ""
        if len(row) != len(rows[0]):
            return f", token {t} has dimension {len(row)}, those before it {len(rows[0])}"
    return ""


def _drop_masked(given: Any) -> Any:
    """Removes masked tokens from a masked array."""
    if given.ndim == 3 and len(given) == 1:
        return _drop_masked(given[0])
    mask = np.ma.getmaskarray(given)
    masked = mask.all(axis=-1)
    if (mask.any(axis=-1) & ~masked).any():
        token = int(np.flatnonzero((mask.any(axis=-1) & ~masked).ravel())[0])
        raise ValueError(f"token {token} is partly masked: mask all of its numbers, which removes the token, or none")
    return np.asarray(given.data)[~masked] if given.ndim > 1 else np.asarray(given.data)


def _empty_matrix() -> Matrix:
    """Returns the matrix of a document without vectors. `to_uniform` sets its dimension."""
    return np.zeros((0, 0), dtype="<f4")


def _is_empty(m: Any) -> bool:
    return m is None or isinstance(m, (list, tuple)) and not m


def empty_matrices(count: int) -> list[Matrix]:
    """Returns the matrices of documents without vectors."""
    return [_empty_matrix()] * count


def to_uniform(matrices: list[Matrix], what: str) -> list[Matrix]:
    """Converts matrices to one type for a request. Raises ValueError if their dimensions differ."""
    first = next(((i, m) for i, m in enumerate(matrices) if len(m)), None)
    if first is None:
        return empty_matrices(len(matrices))
    for i, m in enumerate(matrices):
        if len(m) and m.shape[1] != first[1].shape[1]:
            raise ValueError(f"{what} {i} has dimension {m.shape[1]}, {what} {first[0]} has {first[1].shape[1]}")
    dtype = first[1].dtype if len({m.dtype for m in matrices if len(m)}) == 1 else np.dtype("<f4")
    dim = first[1].shape[1]
    return [np.zeros((0, dim), dtype) if not len(m) else m if m.dtype == dtype else to_float32(m) for m in matrices]


def documents_body(matrices: Sequence[Matrix], request: Mapping[str, Any]) -> Body | Mapping[str, Any]:
    """Returns the request that stores documents. If none of them has vectors, it is JSON."""
    if any(len(m) for m in matrices):
        return tensors_body(matrices, request)
    return {"documents": [{"embeddings": []} for _ in matrices], **request}


def tensors_body(
    matrices: Sequence[Matrix] | None, request: Mapping[str, Any] | None, query: Matrix | None = None
) -> Body:
    """Returns a request as a safetensors file, without copying vectors.

    The file has the vectors, the number of vectors of each matrix, and ``request`` as JSON. ``query`` has the vectors
    of a single query. The vectors come last, so that the service can process them while it receives them.
    """
    entries: list[str] = []
    head: list[bytes | memoryview] = []
    lengths = [len(m) for m in matrices or ()]
    offset = 0

    def add(name: str, kind: str, shape: str, size: int) -> None:
        nonlocal offset
        entries.append(f'"{name}":{{"dtype":"{kind}","shape":[{shape}],"data_offsets":[{offset},{offset + size}]}}')
        offset += size

    if matrices is not None:
        add("lengths", "I64", str(len(lengths)), 8 * len(lengths))
        head.append(struct.pack(f"<{len(lengths)}q", *lengths))
    if request is not None:
        text = to_json(request)
        text += b" " * (-len(text) % 8)  # aligns the next tensor
        add("request", "U8", str(len(text)), len(text))
        head.append(text)
    if query is not None:
        add("query", _TYPES[query.dtype.str], f"{query.shape[0]},{query.shape[1]}", query.nbytes)
        head.append(_to_bytes(query))
    vectors: list[memoryview] = []
    if matrices is not None:
        shape = f"{sum(lengths)},{matrices[0].shape[1]}"
        add("vectors", _TYPES[matrices[0].dtype.str], shape, sum(m.nbytes for m in matrices))
        vectors = [_to_bytes(m) for m in matrices if len(m)]
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    start = b"".join([struct.pack("<Q", len(header)), header, *head])
    return Body([start, *vectors], 8 + len(header) + offset, TENSORS)


def _to_bytes(m: Matrix) -> memoryview:
    return m.view("u1").data.cast("B")


def read_tensors(body: bytes) -> dict[str, Any]:
    """Decodes an answer that is a safetensors file. Its key ``vectors`` has the matrices, which are writable."""
    (size,) = struct.unpack_from("<Q", body)
    tensors = json.loads(body[8 : 8 + size])

    def array(name: str, dtype: str) -> npt.NDArray[Any]:
        begin, end = tensors[name]["data_offsets"]
        count = (end - begin) // np.dtype(dtype).itemsize
        return np.frombuffer(body, dtype, count, 8 + size + begin).reshape(tensors[name]["shape"])

    answer: dict[str, Any] = json.loads(array("answer", "u1").tobytes())
    ends = np.cumsum(array("lengths", "<i8"))
    vectors = array("vectors", "<f4")
    answer["vectors"] = [vectors[i:j].copy() for i, j in zip([0, *ends[:-1].tolist()], ends.tolist())]
    return answer


def split_batches(
    sizes: Sequence[int], max_bytes: int, max_items: int, together: Sequence[str | None] | None = None
) -> Iterator[slice]:
    """Splits items into batches within both limits. A batch has at least one item.

    ``sizes`` has the bytes of each item. Consecutive items with the same text in ``together`` are not split. If they
    exceed a limit, they are a batch by themselves.
    """
    begin, total, i = 0, 0, 0
    while i < len(sizes):
        end = i + 1
        while together is not None and together[i] is not None and end < len(sizes) and together[end] == together[i]:
            end += 1
        n = sum(sizes[i:end])
        if i > begin and (total + n > max_bytes or end - begin > max_items):
            yield slice(begin, i)
            begin, total = i, 0
        total += n
        i = end
    if begin < len(sizes):
        yield slice(begin, len(sizes))
