"""Every block of the pages for Python users runs, and prints what it says."""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import importlib
import inspect
import io
import os
import pickle
import re
import subprocess
import sys
import tempfile
import types
import unittest
import zlib
from pathlib import Path

import numpy as np

from plaid_ir._binary import find_binary

from .common import long_form

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["python/README.md", "docs/python.md", "docs/coming-from.md"]


def encode(text: str) -> np.ndarray:
    """A vector for each word; words that differ by an ending have the same."""
    rows = []
    for word in text.lower().split():
        rng = np.random.default_rng(zlib.crc32(word.rstrip("s").encode()))
        v = rng.standard_normal(64).astype(np.float32)
        rows.append(v / np.linalg.norm(v))
    return np.stack(rows)


def encode_all(texts: object) -> object:
    return encode(texts) if isinstance(texts, str) else [encode(t) for t in texts]


class ColBERT:
    """The part of pylate.models.ColBERT that the page uses."""

    def __init__(self, model_name_or_path: str) -> None:
        self.name = model_name_or_path

    def encode(self, sentences: object, *, is_query: bool, batch_size: int = 32) -> object:
        return encode_all(sentences)


class Retriever:
    """pylate.retrieve.ColBERT, as far as it concerns an index that ranks by itself."""

    def __init__(self, index: object) -> None:
        self.index = index

    def retrieve(self, queries_embeddings: object, k: int = 10, subset: object = None) -> object:
        assert self.index.is_end_to_end_index
        return self.index(queries_embeddings=queries_embeddings, k=k, subset=subset)


class MultiVectorEncoder:
    """The part of sentence_transformers.MultiVectorEncoder that the page uses."""

    def __init__(self, model_name_or_path: str) -> None:
        self.name = model_name_or_path

    def encode_document(self, inputs: object) -> object:
        return encode_all(inputs)

    encode_query = encode_document


def modules() -> dict[str, types.ModuleType]:
    pylate, st = types.ModuleType("pylate"), types.ModuleType("sentence_transformers")
    pylate.models = types.SimpleNamespace(ColBERT=ColBERT)
    pylate.retrieve = types.SimpleNamespace(ColBERT=Retriever)
    st.MultiVectorEncoder = MultiVectorEncoder
    return {"pylate": pylate, "sentence_transformers": st}


def foreign_index(folder: Path) -> None:
    """An index folder of fast-plaid, and one of PyLate around it."""
    rng = np.random.default_rng(0)
    docs = [rng.standard_normal((rng.integers(4, 12), 32)) for _ in range(60)]
    docs = [d / np.linalg.norm(d, axis=1, keepdims=True) for d in docs]
    np.save(folder / "v.npy", np.concatenate(docs).astype(np.float32))
    np.save(folder / "l.npy", np.array([len(d) for d in docs], dtype=np.int32))
    plaid = find_binary(None)
    subprocess.run([plaid, "index", folder / "own.plaid", "--vectors", folder / "v.npy", "--lengths", folder / "l.npy", "--scales", "none", "-q"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([plaid, "export", "-q", folder / "own.plaid", folder / "fast-plaid-index", "--format", "fast-plaid"], check=True, stdout=subprocess.DEVNULL)
    old = folder / "pylate-indexes" / "old"
    old.mkdir(parents=True)
    subprocess.run([plaid, "export", "-q", folder / "own.plaid", old / "fast_plaid_index", "--format", "fast-plaid"], check=True, stdout=subprocess.DEVNULL)
    with open(old / "plaid_ids_to_documents_ids.pkl", "wb") as f:
        pickle.dump({i: hashlib.md5(bytes([i])).hexdigest() for i in range(len(docs))}, f)


def blocks(page: Path) -> list[tuple[int, str, str]]:
    found, kind, begin, lines = [], None, 0, []
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if line.startswith("```"):
            if kind is None:
                kind, begin, lines = line[3:], number, []
            else:
                found.append((begin, kind, "\n".join(lines)))
                kind = None
        elif kind is not None:
            lines.append(line)
    return found


def expected(code: str) -> list[str]:
    """The output of a block according to the comments of its prints."""
    return [m[1] for m in re.finditer(r"^ *print\(.*\) +# (.*)$", code, re.MULTILINE)]


@long_form
class Documentation(unittest.TestCase):
    def run_page(self, name: str) -> None:
        space: dict[str, object] = {"__name__": name}
        before = os.getcwd()
        fakes = modules()
        kept = {m: sys.modules.get(m) for m in fakes}
        with tempfile.TemporaryDirectory() as folder:
            tools = Path(folder) / "bin"
            tools.mkdir()
            (tools / "pip").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
            (tools / "pip").chmod(0o755)
            path = [str(tools), os.path.dirname(sys.executable), os.environ["PATH"]]
            shell = {**os.environ, "PATH": os.pathsep.join(path), "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            foreign_index(Path(folder))
            os.symlink(ROOT / "docs", Path(folder) / "docs")
            os.chdir(folder)
            sys.modules.update(fakes)
            try:
                ran = 0
                for line, kind, code in blocks(ROOT / name):
                    where = f"{name}, line {line}"
                    if kind == "sh":
                        done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], env=shell, capture_output=True, text=True)
                        self.assertEqual(done.returncode, 0, f"{where}: {done.stdout}{done.stderr}")
                    elif kind == "python":
                        said = io.StringIO()
                        with contextlib.redirect_stdout(said):
                            exec(compile("\n" * line + code, str(ROOT / name), "exec"), space)
                        self.assertEqual(said.getvalue().splitlines(), expected(code), where)
                    else:
                        self.assertEqual(kind, "text", where)
                        continue
                    ran += 1
                self.assertGreater(ran, 0)
            finally:
                os.chdir(before)
                for m, module in kept.items():
                    if module is None:
                        del sys.modules[m]
                    else:
                        sys.modules[m] = module


#: Names with docstrings for users.
DOCUMENTED = [
    ("plaid_ir", "Index"), ("plaid_ir", "list_indexes"), ("plaid_ir", "delete_index"), ("plaid_ir", "Hits"), ("plaid_ir", "Results"), ("plaid_ir", "Explanation"),
    ("plaid_ir", "PlaidError"), ("plaid_ir", "PageModel"), ("plaid_ir", "Region"), ("plaid_ir.mteb", "PlaidSearchIndex"), ("plaid_ir.mteb", "with_index"),
    ("plaid_ir.evaluation", "ranx_run"), ("plaid_ir.evaluation", "scored_docs"),
]  # fmt: skip


def section(text: str, name: str) -> str:
    """A section of a docstring as numpydoc has it; "" for none."""
    found = re.search(rf"^{name}\n-{{{len(name)}}}\n(.*?)(?=^\w[\w ]*\n--|\Z)", inspect.cleandoc(text), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def callables(of: object) -> list[tuple[str, object, str]]:
    """Functions of a class, or one, with their docstrings."""
    if not inspect.isclass(of):
        return [(of.__name__, of, of.__doc__ or "")]
    listed = []
    for cls in of.__mro__:
        if not cls.__module__.startswith("plaid_ir"):
            continue
        for name, value in vars(cls).items():
            f = value.fget if isinstance(value, property) else value.__func__ if isinstance(value, classmethod) else value
            if inspect.isfunction(f) and (not name.startswith("_") or name == "__call__") and name not in dir(list) and not inspect.iscoroutinefunction(f):
                listed.append((f"{of.__name__}.{name}", f, f.__doc__ or ""))
    if "__init__" in vars(of):
        listed.append((of.__name__, of.__init__, of.__doc__ or ""))
    return listed


class Docstrings(unittest.TestCase):
    def test_parameters_and_returns(self) -> None:
        """Docstrings describe every parameter and no other, and the result unless it is the index."""
        seen = 0
        for module, name in DOCUMENTED:
            named = getattr(importlib.import_module(module), name)
            properties = [v.fget for cls in getattr(named, "__mro__", ()) for v in vars(cls).values() if isinstance(v, property)]
            for where, f, text in callables(named):
                signature = inspect.signature(f)
                names = [p for p in signature.parameters if p not in ("self", "cls")]
                kinds = {p: {inspect.Parameter.VAR_KEYWORD: "**"}.get(signature.parameters[p].kind, "") + p for p in names}
                described = [n for line in re.findall(r"^(\S.*)$", section(text, "Parameters"), re.MULTILINE) for n in line.split(", ")]
                with self.subTest(where):
                    self.assertEqual(sorted(described), sorted(kinds.values()))
                    if signature.return_annotation not in (None, "None", "Index", inspect.Signature.empty) and f not in properties:
                        self.assertRegex(section(text, "Returns"), r"\A\S.*\n    \S", "the section Returns")
                    seen += 1
        self.assertGreater(seen, 35)

    def test_asyncio_has_every_method(self) -> None:
        from plaid_ir import Index

        own = {where.split(".")[1] for where, f, _ in callables(Index) if "." in where and not isinstance(vars(Index).get(where.split(".")[1]), classmethod)}
        for name in own - {"close", "__call__"}:
            twin = getattr(Index, "a" + name, None)
            self.assertTrue(inspect.iscoroutinefunction(twin), name)


class Examples(unittest.TestCase):
    @long_form
    def test_those_of_docstrings(self) -> None:
        ran = 0
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(ROOT / "docs", Path(folder) / "docs")
            os.chdir(folder)
            try:
                for name in ("_explanation", "_index", "_indexes", "_lookup", "_reader", "_results", "_writer", "mteb"):
                    result = doctest.testmod(importlib.import_module(f"plaid_ir.{name}"))
                    self.assertEqual(result.failed, 0, name)
                    self.assertGreater(result.attempted, 0, name)
                    ran += result.attempted
            finally:
                os.chdir(before)
        self.assertGreater(ran, 30)


for page in PAGES:
    setattr(Documentation, "test_" + re.sub(r"\W", "_", page), lambda self, page=page: self.run_page(page))


if __name__ == "__main__":
    unittest.main()
