"""Vectors: from the outputs of encoders to arrays, and from arrays to the body of a request and back."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Protocol, Sequence, TypeAlias, Union, cast

import numpy as np
import numpy.typing as npt

#: A float matrix, [tokens, dim].
Matrix: TypeAlias = npt.NDArray[Any]

#: The vectors of a text or a document, [tokens, dim].
Vectors: TypeAlias = npt.NDArray[np.float32]


class Tensor(Protocol):
    """A tensor of torch, on any device."""

    def detach(self) -> Any: ...


#: A matrix [tokens, dim]: a numpy array, a torch tensor, or lists of numbers.
MatrixLike: TypeAlias = Union[npt.NDArray[Any], Tensor, Sequence[Sequence[float]]]

#: One matrix or several, or an array [documents, tokens, dim].
Embeddings: TypeAlias = Union[
    MatrixLike, Sequence[npt.NDArray[Any]], Sequence[Tensor], Sequence[Sequence[Sequence[float]]]
]

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)
_ASCII = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
#: numpy's types that go to the service as they are, and their names in safetensors.
_TYPES = {"<f2": "F16", "<f4": "F32"}


class Body(NamedTuple):
    """The body of a request in pieces."""

    pieces: Iterable[bytes | memoryview]
    size: int
    media_type: str = "application/octet-stream"


def to_json(value: Any) -> bytes:
    """JSON without escapes for letters that are not ASCII: metadata is stored as it is written, and lists are compared
    by their text."""
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:  # half of a character, which the service refuses and names
        return _ASCII.encode(value).encode()


def to_array(x: Any) -> npt.NDArray[Any]:
    """An array of anything that numpy takes, or of a torch tensor on any device. float16 and float32 share memory with
    it where they can; all other types become float32."""
    if hasattr(x, "detach"):  # a torch tensor, without importing torch
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":  # which numpy does not have
            x = x.float()
        x = x.numpy()
    a = np.asarray(x)
    if a.dtype.kind not in "fiu":
        raise TypeError(f"vectors are numbers, not {a.dtype}")
    if a.dtype.str not in _TYPES:
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and is refused
            a = a.astype("<f4")
    return np.ascontiguousarray(a)


def _number_of_axes(x: Any) -> int:
    if isinstance(x, (list, tuple)):
        return 1 + _number_of_axes(next((v for v in cast("Iterable[Any]", x) if not _is_empty(v)), None))
    ndim = getattr(x, "ndim", None)
    return 0 if ndim is None else int(ndim)


def _without_padding(m: Matrix) -> Matrix:
    """The rows up to the last that is not zero: encoders pad batches with zeros."""
    used = np.flatnonzero(m.any(axis=1))
    return m[: used[-1] + 1] if len(used) else m[:0]


def to_matrices(embeddings: Embeddings, what: str) -> list[Matrix]:
    """The matrices of documents or queries: from a list of matrices, one matrix [tokens, dim], or a padded array
    [documents, tokens, dim], whose last rows of zeros are left out. ``what`` names them in errors. A matrix of a
    document may have no rows."""
    if type(embeddings) is np.ndarray and embeddings.ndim == 2 and embeddings.dtype.str in _TYPES and embeddings.size:
        return [np.ascontiguousarray(embeddings)]
    axes = _number_of_axes(embeddings)
    if isinstance(embeddings, (list, tuple)):
        if not embeddings:
            return []
        if axes == 2 and not hasattr(embeddings[0], "ndim") and not _is_empty(embeddings[0]):  # numbers: one matrix
            matrices = [to_array(embeddings)]
        elif axes == 2:
            raise ValueError(f"{what} 0 has one axis; want matrices, [tokens, dim]")
        else:
            matrices = [_empty() if _is_empty(m) else to_array(m) for m in embeddings]
            # PyLate pads like this: a list of [1, tokens, dim].
            matrices = [_without_padding(m[0]) if m.ndim == 3 and len(m) == 1 else m for m in matrices]
    elif axes == 3:
        matrices = [_without_padding(m) for m in to_array(embeddings)]
    elif axes == 2:
        matrices = [to_array(embeddings)]
    elif not hasattr(embeddings, "__iter__"):
        kind = type(cast("object", embeddings)).__name__
        raise TypeError(f"{what} 0 is of type {kind}; want a matrix, [tokens, dim]" + ", or a text" * (what == "query"))
    else:
        matrices = [to_array(m) for m in cast("Any", embeddings)]  # an array of objects, or any other sequence
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ValueError(f"{what} {i} has {m.ndim} axes; want a matrix, [tokens, dim]")
        if m.shape[0] == 0 and what != "document":
            raise ValueError(f"{what} {i} has no vectors")
    return alike(matrices, what)


def _empty() -> Matrix:
    """The matrix of a document without vectors, whose dimension `alike` sets."""
    return np.zeros((0, 0), dtype="<f4")


def _is_empty(m: Any) -> bool:
    return m is None or isinstance(m, (list, tuple)) and not m


def without_vectors(count: int) -> list[Matrix]:
    """The matrices of documents without vectors."""
    return [_empty()] * count


def alike(matrices: list[Matrix], what: str) -> list[Matrix]:
    """Matrices as those of one request: of one dimension, which they must have, and of one type of numbers."""
    first = next(((i, m) for i, m in enumerate(matrices) if len(m)), None)
    if first is None:
        return without_vectors(len(matrices))
    for i, m in enumerate(matrices):
        if len(m) and m.shape[1] != first[1].shape[1]:
            raise ValueError(f"{what} {i} has dimension {m.shape[1]}, {what} {first[0]} has {first[1].shape[1]}")
    dtype = first[1].dtype if len({m.dtype for m in matrices if len(m)}) == 1 else np.dtype("<f4")
    return [m.astype(dtype, copy=False) if len(m) else np.zeros((0, first[1].shape[1]), dtype) for m in matrices]


def documents_body(matrices: Sequence[Matrix], request: Mapping[str, Any]) -> Body | Mapping[str, Any]:
    """The request of documents: without any vectors there is no dimension, and it is plain JSON."""
    if any(len(m) for m in matrices):
        return tensors_body(matrices, request)
    return {"documents": [{"embeddings": []} for _ in matrices], **request}


def tensors_body(matrices: Sequence[Matrix], request: Mapping[str, Any]) -> Body:
    """A safetensors file of the vectors as they lie in memory, the number of vectors of each matrix, and the request
    as JSON."""
    text = to_json(request)
    lengths = [len(m) for m in matrices]
    size = sum(m.nbytes for m in matrices)
    entries: list[str] = []
    at = 0
    for name, kind, shape, n in (
        ("request", "U8", str(len(text)), len(text)),
        ("lengths", "I64", str(len(lengths)), 8 * len(lengths)),
        ("vectors", _TYPES[matrices[0].dtype.str], f"{sum(lengths)},{matrices[0].shape[1]}", size),
    ):
        entries.append(f'"{name}":{{"dtype":"{kind}","shape":[{shape}],"data_offsets":[{at},{at + n}]}}')
        at += n
    head = ("{" + ",".join(entries) + "}").encode()
    head += b" " * (-len(head) % 8)
    start = struct.pack("<Q", len(head)) + head + text + struct.pack(f"<{len(lengths)}q", *lengths)
    return Body([start, *(m.data.cast("B") for m in matrices if len(m))], len(start) + size)


def batches(
    sizes: Sequence[int], max_bytes: int, max_items: int, together: Sequence[str | None] | None = None
) -> Iterator[slice]:
    """Splits items of some sizes into batches within both limits, with at least one item each. Items next to each
    other for which ``together`` has the same text stay together, and are a batch of their own if they are over a limit
    themselves."""
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


def to_base64(m: Matrix) -> str:
    """A matrix as the service takes it in JSON."""
    return base64.b64encode(m.astype("<f4").tobytes()).decode()


def vectors_of(text: str, shape: Sequence[int]) -> Vectors:
    """A matrix as the service sends it in JSON."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(shape).copy()  # a copy can be written to


def matrix_of(documents: Sequence[Mapping[str, Any]]) -> Vectors:
    """The vectors of documents of the service, one after another."""
    return np.concatenate([vectors_of(d.get("embeddings_b64", ""), d["shape"]) for d in documents])
