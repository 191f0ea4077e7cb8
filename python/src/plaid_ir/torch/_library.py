"""Loads the library libplaid_maxsim, and defines the records of its calls and its errors.

This is the only module that depends on capi/plaid_maxsim.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from .._binary import compile_command

ENVIRONMENT: Final = "PLAID_MAXSIM_LIBRARY"
VERSION: Final = 1

# Types of elements.
TYPES: Final[dict[torch.dtype, int]] = {
    torch.float32: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.int8: 4,
    torch.float8_e4m3fn: 5,
}
# Kinds of pairs.
ALL: Final = 0
OWN: Final = 1
LISTED: Final = 2
# Metrics of distances.
METRICS: Final = {"l2": 0, "l2_sq": 0, "l1": 1}

_ERROR_BYTES: Final = 1024
# Codes of errors.
MEMORY: Final = 4
_FORKED: Final = 5


class DeviceError(RuntimeError):
    """The device or its driver failed or is missing."""


def _find_library() -> str:
    named = os.environ.get(ENVIRONMENT)
    if named:
        path, source = named, ENVIRONMENT
    else:
        suffix = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path, source = os.path.join(folder, "bin", "libplaid_maxsim." + suffix), "this package"
    if not os.path.isfile(path):
        command = compile_command()
        cure = "the wheel was built without a C compiler; build the library in capi/ of the repository (capi/README.md)"
        if command:
            cure = f"compile it with Go and a C compiler: {command}"
        hint = "" if named else f"; {cure}, or set {ENVIRONMENT} to its path"
        raise ImportError(f"the library of plaid_ir.torch is not at {path} (from {source}){hint}")
    return path


PATH: Final = _find_library()


class Error(threading.local):
    """The buffer for the error message of a thread's calls."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_ERROR_BYTES)
        struct.pack_into("=q", self.buffer, 0, _ERROR_BYTES)
        self.address = ctypes.addressof(self.buffer)


error: Final = Error()


def raise_error(code: int, words: tuple[tuple[str, str], ...] = ()) -> NoReturn:
    """Raises the error of this thread's last call, which returned ``code``.

    ``words`` replaces the library's names of arguments by those of the caller.
    """
    message = error.buffer.raw[16:].split(b"\0", 1)[0].decode(errors="replace") or f"error {code} of libplaid_maxsim"
    for theirs, ours in words:
        message = message.replace(theirs, ours)
    if code == _FORKED:
        message = (
            "plaid_ir.torch cannot be used in this process, which was forked from one that has used it: start workers "
            'with multiprocessing.get_context("spawn"), or use it only in the parent'
        )
    kinds: dict[int, type[Exception]] = {1: ValueError, 2: NotImplementedError, 3: DeviceError, MEMORY: MemoryError}
    raise kinds.get(code, RuntimeError)(message)


_loaded: ctypes.CDLL | None = None
_forked = False
# Also acquired while a process forks, so that a child never has a half-loaded library. Reentrant, since a signal
# handler may fork within load_library.
_lock = threading.RLock()


def load_library() -> ctypes.CDLL:
    """Returns the library. It is loaded by the first call: children of a process that forks earlier can use it."""
    global _loaded
    with _lock:
        if _loaded is None:
            try:
                library = ctypes.CDLL(PATH)
            except OSError as e:
                raise ImportError(f"the library of plaid_ir.torch at {PATH} cannot be loaded: {e}") from e
            try:
                library.plaid_maxsim_version.restype = ctypes.c_int64
                version = library.plaid_maxsim_version()
            except AttributeError:
                raise ImportError(f"{PATH} is a library, but not libplaid_maxsim: check {ENVIRONMENT}") from None
            if version != VERSION:
                raise ImportError(f"the library at {PATH} has version {version}, but this package needs {VERSION}")
            _loaded = library
        return _loaded


def _mark_forked() -> None:
    _lock.release()
    if _loaded is not None:
        _loaded.plaid_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_mark_forked)


class Call:
    """A function of the library, and the layout of its record:

    1. size and device;
    2. stream, workspace, bytes of the workspace, threads;
    3. for each side, pointers to data, scales, zeros, offsets, lengths and mask, and the bytes of pack_batch;
    4. the bytes of pack_pairs, and pointers to the queries and documents of the pairs;
    5. additional fields of the function.
    """

    def __init__(self, name: str, tail: str) -> None:
        self._name = name
        record = struct.Struct("=16sQQqq6Q56s6Q56s16sQQ" + tail)
        self.pack: Final = record.pack
        self.size: Final = record.size
        # The beginning of the record for each device. The first is for the processor.
        self.heads: Final = tuple(struct.pack("=qq", record.size, i) for i in range(-1, 64))
        self.function: Callable[[bytes, int], int] = self._first

    def _first(self, record: bytes, address: int) -> int:
        function: Any = getattr(load_library(), self._name)
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        function.restype = ctypes.c_int
        self.function = function
        return int(function(record, address))

    def workspace(self, record: bytes) -> int:
        """Returns the bytes of device memory that the call needs."""
        function: Any = getattr(load_library(), self._name + "_workspace")
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
        function.restype = ctypes.c_int
        count = ctypes.c_int64()
        code = int(function(record, ctypes.addressof(count), error.address))
        if code:
            raise_error(code)
        return count.value


# The additional fields of each function. pack_rule packs weights and normalize, or metric and mean.
SCORE: Final = Call("plaid_score", "16sQQ")  # rule, scores, argmax
GRADIENTS: Final = Call("plaid_gradients", "16sQQQQqq")  # rule, argmax, upstream, dq, dd, dq_type, dd_type
CHAMFER: Final = Call("plaid_chamfer", "16sQQQ")  # rule, distances, nearest_q, nearest_d
# rule, nearest_q, nearest_d, upstream, dq, dd, dq_type, dd_type
CHAMFER_GRADIENTS: Final = Call("plaid_chamfer_gradients", "16sQQQQQqq")
HEAD: Final = Call("plaid_head", "QqQqQQ")  # query_weights, normalize, head, head_type, bias, scores


def pack_batch(mask_stride: int, kind: int, dim: int, items: int, rows: int, stride: int, longest: int) -> bytes:
    return struct.pack("=7q", mask_stride, kind, dim, items, rows, stride, longest)


def pack_pairs(kind: int, count: int) -> bytes:
    return struct.pack("=qq", kind, count)


def pack_rule(first: int, second: int) -> bytes:
    return struct.pack("=qq", first, second)


def backend() -> str:
    """Returns the tier of kernels that the processor uses, such as avx512."""
    name = ctypes.create_string_buffer(256)
    function: Any = load_library().plaid_backend
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    function.restype = ctypes.c_int
    code = int(function(ctypes.addressof(name), 256, error.address))
    if code:
        raise_error(code)
    return name.value.decode()
