"""Pictures, PDFs and a folder for the tests of page images."""

from __future__ import annotations

import importlib.util
import io
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from plaid_ir import _images


ROOT = Path(__file__).resolve().parents[2]


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


needs_pillow = unittest.skipUnless(has("PIL"), "Pillow is not installed")

needs_pdfium = unittest.skipUnless(has("PIL") and has("pypdfium2"), "pypdfium2 or Pillow is not installed")

needs_engine = unittest.skipUnless(
    has("colpali_engine") and has("torch") and has("PIL"), "colpali-engine is not installed"
)


def picture(width: int = 40, height: int = 60, color: Any = "white", mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.new(mode, (width, height), color)


def noise(width: int, height: int, seed: int) -> Any:
    from PIL import Image

    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, format=kind, **options)
    return data.getvalue()


def pdf(objects: list[str], trailer: str = "") -> bytes:
    """A PDF of objects, the first of which is its catalogue."""
    data, places = b"%PDF-1.4\n", []
    for n, text in enumerate(objects, 1):
        places.append(len(data))
        data += f"{n} 0 obj\n{text}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\n"
    return data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode()


def plain_pdf(pages: int, width: int = 144, height: int = 288) -> bytes:
    kids = " ".join(f"{n + 3} 0 R" for n in range(pages))
    sheets = [f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] >>"] * pages
    return pdf(["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>", *sheets])


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)

    def write(self, name: str, data: bytes) -> str:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        Path(name).write_bytes(data)
        return name


def read(
    images: Any, ids: Any = None, metadata: Any = None, *, dpi: int = 72, on_error: str = "raise", numbered: bool = True
) -> list[_images.Page]:
    return list(_images.read_pages(images, ids, metadata, dpi, _images.Problems(on_error), numbered))
