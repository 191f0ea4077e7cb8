"""One service, and indexes in it, for the tests of all frameworks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

import pytest

from plaid_ir import Index

MODEL = os.environ.get("PLAID_MODEL", str(Path(__file__).parents[3] / "docs/examples/quickstart/colbert-nano"))
TEXTS = ["cats sleep for most of the day", "dogs bark at night", "birds sing in the morning"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: Any) -> Iterator[str]:
    """One service for all indexes: opening a model takes time."""
    path = str(tmp_path_factory.mktemp("indexes"))
    with Index(path, "keeps-it-open", model=MODEL):
        yield path


@pytest.fixture()
def index(folder: str) -> Iterator[Index]:
    with Index(folder, "try", override=True, model=MODEL) as made:
        yield made


@pytest.fixture()
def filled(index: Index) -> Index:
    metadata = [{"year": 2019 + i, "ptex.fullbanner": f"TeX {i}"} for i in range(3)]
    return index.add_texts(TEXTS, ["cat", "dog", "bird"], metadata)
