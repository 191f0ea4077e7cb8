"""From what encoders return to arrays, and from arrays to the body of a request."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Iterator, Mapping, Protocol, Sequence, TypeAlias, Union, cast

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
Embeddings: TypeAlias = Union[MatrixLike, Sequence[npt.NDArray[Any]], Sequence[Tensor], Sequence[Sequence[Sequence[float]]]]

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)
_ASCII = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_TYPES = {"<f2": "F16", "<f4": "F32"}


def to_json(value: Any) -> bytes:
    """JSON without escapes for what is not ASCII: metadata is stored as it is written, and lists
    are compared as their text."""
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:  # half of a character, which the service refuses by its place
        return _ASCII.encode(value).encode()


def to_array(x: Any) -> npt.NDArray[Any]:
    """An array of what numpy knows, or of a torch tensor on any device; float16 and
    float32 share memory with it where they can, all else becomes float32."""
    if hasattr(x, "detach"):  # a torch tensor, without importing torch
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":  # which numpy does not have
            x = x.float()
        x = x.numpy()
    a = np.asarray(x)
    if a.dtype.kind not in "fiu":
        raise TypeError(f"vectors are numbers, not {a.dtype}")
    if a.dtype.str not in _TYPES:
        with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused
            a = a.astype("<f4")
    return np.ascontiguousarray(a)


def _number_of_axes(x: Any) -> int:
    if isinstance(x, (list, tuple)):
        return 1 + (_number_of_axes(x[0]) if x else 0)
    ndim = getattr(x, "ndim", None)
    return 0 if ndim is None else int(ndim)


def _without_padding(m: Matrix) -> Matrix:
    """The rows up to the last that is not zero: encoders pad batches with zeros."""
    used = np.flatnonzero(m.any(axis=1))
    return m[: used[-1] + 1] if len(used) else m[:0]


def to_matrices(embeddings: Embeddings, what: str) -> list[Matrix]:
    """The matrices of documents or queries: of a list of matrices, of one matrix
    [tokens, dim], or of padded arrays [documents, tokens, dim], whose last rows of
    zeros are left out."""
    if type(embeddings) is np.ndarray and embeddings.ndim == 2 and embeddings.dtype.str in _TYPES and embeddings.size:
        return [np.ascontiguousarray(embeddings)]
    axes = _number_of_axes(embeddings)
    if isinstance(embeddings, (list, tuple)):
        if not embeddings:
            return []
        if axes == 2 and not hasattr(embeddings[0], "ndim"):  # lists of numbers: one matrix
            matrices = [to_array(embeddings)]
        elif axes == 2:
            raise ValueError(f"{what} 0 has one axis; want matrices, [tokens, dim]")
        else:
            matrices = [to_array(m) for m in embeddings]
            # PyLate pads like this: a list of [1, tokens, dim].
            matrices = [_without_padding(m[0]) if m.ndim == 3 and len(m) == 1 else m for m in matrices]
    elif axes == 3:
        matrices = [_without_padding(m) for m in to_array(embeddings)]
    elif axes == 2:
        matrices = [to_array(embeddings)]
    else:
        matrices = [to_array(m) for m in cast("Any", embeddings)]  # an array of objects, or any other sequence
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ValueError(f"{what} {i} has {m.ndim} axes; want a matrix, [tokens, dim]")
        if m.shape[0] == 0:
            raise ValueError(f"{what} {i} has no vectors")
        if m.shape[1] != matrices[0].shape[1]:
            raise ValueError(f"{what} {i} has dimension {m.shape[1]}, {what} 0 has {matrices[0].shape[1]}")
    if len({m.dtype for m in matrices}) > 1:
        matrices = [m.astype("<f4", copy=False) for m in matrices]
    return matrices


def tensors_body(matrices: Sequence[Matrix], request: Mapping[str, Any]) -> tuple[list[bytes | memoryview], int]:
    """The pieces of a safetensors file, and their size: the vectors of the matrices as
    they lie in memory, the length of each, and the request as JSON."""
    text = to_json(request)
    lengths = [len(m) for m in matrices]
    size = sum(m.nbytes for m in matrices)
    parts: list[str] = []
    at = 0
    for name, kind, shape, n in (
        ("request", "U8", str(len(text)), len(text)),
        ("lengths", "I64", str(len(lengths)), 8 * len(lengths)),
        ("vectors", _TYPES[matrices[0].dtype.str], f"{sum(lengths)},{matrices[0].shape[1]}", size),
    ):
        parts.append(f'"{name}":{{"dtype":"{kind}","shape":[{shape}],"data_offsets":[{at},{at + n}]}}')
        at += n
    head = ("{" + ",".join(parts) + "}").encode()
    head += b" " * (-len(head) % 8)
    small = struct.pack("<Q", len(head)) + head + text + struct.pack(f"<{len(lengths)}q", *lengths)
    return [small, *(m.data.cast("B") for m in matrices)], len(small) + size


def batches(sizes: Sequence[int], most_bytes: int, most: int) -> Iterator[slice]:
    """Runs of items of at most so many bytes, and so many items; at least one item."""
    begin, total = 0, 0
    for i, n in enumerate(sizes):
        if i > begin and (total + n > most_bytes or i - begin >= most):
            yield slice(begin, i)
            begin, total = i, 0
        total += n
    if begin < len(sizes):
        yield slice(begin, len(sizes))


def vectors_of(text: str, shape: Sequence[int]) -> Vectors:
    """A matrix as the service sends it."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(shape).copy()  # to be written to


def matrix_of(parts: Sequence[Mapping[str, Any]]) -> Vectors:
    """The vectors of documents, one after another."""
    return np.concatenate([vectors_of(d["embeddings_b64"], d["shape"]) for d in parts])
