"""Page images: what pages are read from, how models encode them, and where on a page a question is.

What is read needs Pillow, and for PDFs pypdfium2; models need colpali-engine. `.ci/long torch` has all of them. The
models are tiny random ones, and nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from plaid_ir import Index, PageModel, Region, RequestError, _images, _page_model
from plaid_ir._binary import find_binary
from plaid_ir._connection import Connection
from plaid_ir._heatmap import heatmap_html, best_region

from . import page_models
from .common import maxsim

ROOT = Path(__file__).resolve().parents[2]


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


needs_pillow = unittest.skipUnless(has("PIL"), "Pillow is not installed")
needs_pdfium = unittest.skipUnless(has("PIL") and has("pypdfium2"), "pypdfium2 or Pillow is not installed")
needs_engine = unittest.skipUnless(has("colpali_engine") and has("torch") and has("PIL"), "colpali-engine is not installed")


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


def read(images: Any, ids: Any = None, metadata: Any = None, *, dpi: int = 72, on_error: str = "raise", numbered: bool = True) -> list[_images.Page]:
    return list(_images.read_pages(images, ids, metadata, dpi, _images.Problems(on_error), numbered))


@needs_pillow
class Reading(Folder):
    def only(self, given: Any) -> Any:
        (page,) = read(given)
        self.assertEqual(page.picture.mode, "RGB")
        return page.picture

    def test_kinds_of_inputs(self) -> None:
        image = noise(20, 30, 1)
        array = np.asarray(image)
        path = self.write("a.png", encoded(image, "PNG"))
        for given in (path, Path(path), image, array, encoded(image, "PNG"), bytearray(encoded(image, "WEBP", lossless=True)), encoded(image, "TIFF"), array.astype(np.int64), array / 255, array.astype(np.uint16) << 8):
            self.assertTrue((np.asarray(self.only(given)) == array).all(), type(given))
        self.assertTrue((np.asarray(self.only(array[:, :, 0]))[:, :, 1] == array[:, :, 0]).all())
        self.assertEqual(self.only(array[:, :, 0] > 100).getpixel((0, 0))[0], 255 * int(array[0, 0, 0] > 100))
        self.assertEqual(len(read(np.stack([array, array]))), 2)
        self.assertEqual([p.id for p in read(iter([path, image, array]))], ["a.png", "1", "2"])
        with self.assertRaisesRegex(ValueError, "input 1 has no path, and the index has documents already: pass ids"):
            read([path, image], numbered=False)

    def test_colours(self) -> None:
        from PIL import Image

        self.assertEqual(self.only(picture(mode="CMYK", color=(0, 255, 255, 0))).getpixel((0, 0)), (255, 0, 0))
        deep = Image.fromarray(np.full((8, 8), 0x80FF, dtype=np.uint16))
        self.assertEqual(self.only(encoded(deep, "PNG")).getpixel((0, 0)), (128, 128, 128))
        self.assertEqual(self.only(Image.fromarray(np.full((8, 8), 40000, dtype=np.int32))).getpixel((0, 0)), (155, 155, 155))
        self.assertEqual(self.only(Image.fromarray(np.full((8, 8), 0.5, dtype=np.float32))).getpixel((0, 0)), (127, 127, 127))
        for clear in (picture(mode="RGBA", color=(0, 0, 0, 0)), picture(mode="LA", color=(0, 0))):
            self.assertEqual(self.only(encoded(clear, "PNG")).getpixel((0, 0)), (255, 255, 255), "paper shows through")
        palette = picture(mode="P", color=0)
        self.assertEqual(self.only(encoded(palette, "PNG", transparency=0)).getpixel((0, 0)), (255, 255, 255))

    def test_a_photograph_is_upright(self) -> None:
        from PIL import Image

        exif = Image.Exif()
        exif[0x0112] = 6
        self.assertEqual(self.only(encoded(picture(40, 60), "JPEG", exif=exif)).size, (60, 40))

    def test_several_pictures_in_a_file(self) -> None:
        frames = [picture(color=c) for c in ("red", "green", "blue")]
        gif = self.write("a.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
        tiff = self.write("b.tif", encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:]))
        pages = read([gif, tiff])
        self.assertEqual([p.id for p in pages], ["a.gif", "b.tif#1", "b.tif#2", "b.tif#3"])
        self.assertEqual([p.fields for p in pages[:2]], [{"source": "a.gif"}, {"source": "b.tif", "page": 1}])
        self.assertEqual(pages[3].picture.getpixel((0, 0)), (0, 0, 255))

    def test_sizes_are_bounded(self) -> None:
        wide = self.only(encoded(picture(9000, 30), "JPEG"))
        self.assertLessEqual(max(wide.size), _images.MAX_SIDE)
        given = picture(9000, 30)
        self.assertLessEqual(max(self.only(given).size), _images.MAX_SIDE)
        self.assertEqual(given.size, (9000, 30), "a picture of the caller stays as it is")
        with mock.patch.object(_images, "MAX_PIXELS", 1000):
            for large in (picture(), np.zeros((50, 50)), encoded(picture(), "PNG")):
                with self.assertRaisesRegex(ValueError, "input 0: the (picture|array) has (40 × 60|50 × 50) pixels; (at most|1 to) 1000"):
                    read([large])

    def test_folders_and_patterns(self) -> None:
        for name in ("in/b.png", "in/a/z.JPG", "in/.hidden/c.png", "in/.d.png", "in/notes.txt", "in/c.webp"):
            self.write(name, encoded(picture(), "PNG"))
        self.assertEqual([p.id for p in read("in")], ["in/a/z.JPG", "in/b.png", "in/c.webp"])
        self.assertEqual([p.id for p in read([Path("in/a"), "in/*.webp"])], ["in/a/z.JPG", "in/c.webp"])
        self.assertEqual([p.id for p in read("in/**/*.png")], ["in/b.png"])
        os.makedirs("empty")
        for given, said in (("empty", "the folder empty has no files that can be read"), ("in/*.pdf", "no file matches"), ("none.png", "none.png")):
            with self.assertRaisesRegex(FileNotFoundError, said):
                read(given)
        strange = self.write("in/a[1].png", encoded(picture(), "PNG"))
        self.assertEqual([p.id for p in read(strange)], [strange])

    def test_ids_and_metadata(self) -> None:
        path = self.write("a.png", encoded(picture(), "PNG"))
        pages = read([path, picture()], ["x", 7], [{"lang": "en"}, {"lang": "de", "source": "scanner"}])
        self.assertEqual([(p.id, p.fields) for p in pages], [("x", {"source": "a.png", "lang": "en"}), ("7", {"lang": "de", "source": "scanner"})])
        self.assertEqual(read(path, "one", {"lang": "en"})[0].id, "one")
        for arguments, said in (
            ((["a.png"], ["a", "b"]), "more ids than images"),
            ((["a.png", "a.png"], ["a"]), "there are 1 ids, and more images"),
            ((["a.png"], None, []), "there are 0 metadata, and more images"),
            ((["a.png"], None, [{"grid": 1}]), "metadata of input 0 has the key 'grid'"),
            ((["a.png"], None, [3]), "metadata of input 0 is of type int"),
            (([self.folder], ["a"]), "names several files"),
            ((["https://example.org/a.png"],), "is an address"),
            (([3],), "input 0 is of type int; want a path"),
            ((None,), "images is None; want paths"),
            ((5,), "images is 5; want paths"),
        ):
            with self.subTest(said), self.assertRaisesRegex((ValueError, TypeError), said):
                read(*arguments)

    def test_damage_names_the_file(self) -> None:
        whole = encoded(noise(200, 200, 1), "PNG")
        bad = [self.write("cut.png", whole[:5000]), self.write("text.png", b"hello"), self.write("empty.jpg", b"")]
        for path in bad:
            with self.assertRaisesRegex(ValueError, re.escape(path) + ": "):
                read(path)
        problems = _images.Problems("skip")
        pages = list(_images.read_pages([*bad, "gone.png", encoded(picture(), "PNG")], None, None, 72, problems, True))
        self.assertEqual([p.id for p in pages], ["4"])
        with self.assertWarnsRegex(UserWarning, r"skipped \(4\): cut.png: .*gone.png"):
            problems.warn()
        with self.assertRaisesRegex(ValueError, "on_error is 'ignore'"):
            _images.Problems("ignore")

    def test_pictures_are_kept(self) -> None:
        kept = _images.Pictures(os.path.join(self.folder, "pictures"), "docs")
        name = kept.store("reports/Q3 report.pdf#12", noise(3000, 1000, 1))
        self.assertRegex(name, r"^[0-9a-f]{2}/reports-Q3-report.pdf-12-[0-9a-f]{12}\.jpg$")
        path = kept.find(name)
        self.assertIsNotNone(path)
        from PIL import Image

        with Image.open(str(path)) as found:
            self.assertEqual((found.format, found.size), ("JPEG", (1600, 533)))
        self.assertEqual(kept.store("reports/Q3 report.pdf#12", picture()), name)
        self.assertRegex(kept.store("../../x", picture()), r"^[0-9a-f]{2}/x-[0-9a-f]{12}\.jpg$")
        self.write("secret.jpg", b"\xff\xd8\xff")
        os.symlink(os.path.join(self.folder, "secret.jpg"), os.path.join(self.folder, "pictures", "docs", "link.jpg"))
        for name in ("../../secret.jpg", os.path.join(self.folder, "secret.jpg"), "link.jpg", "", ".", "none.jpg", "a\0b"):
            self.assertIsNone(kept.find(name), name)
        self.assertEqual([n for _, _, names in os.walk("pictures") for n in names if n.startswith(".")], [])


@needs_pdfium
class PDFs(Folder):
    def test_pages(self) -> None:
        path = self.write("in/report.pdf", plain_pdf(3))
        pages = read([path, plain_pdf(1)], dpi=144)
        self.assertEqual([p.id for p in pages], ["in/report.pdf#1", "in/report.pdf#2", "in/report.pdf#3", "1#1"])
        self.assertEqual([p.fields for p in pages[2:]], [{"source": "in/report.pdf", "page": 3}, {"page": 1}])
        self.assertEqual({p.picture.size for p in pages}, {(288, 576)})
        self.assertEqual([p.id for p in read(path, "r")], ["r#1", "r#2", "r#3"])
        self.assertEqual(max(read(plain_pdf(1, 14000, 9000), dpi=300)[0].picture.size), _images.MAX_SIDE)

    def test_what_cannot_be_read(self) -> None:
        locked = "/Encrypt << /Filter /Standard /V 1 /R 2 /O <" + "ab" * 32 + "> /U <" + "cd" * 32 + "> /P -4 >> /ID [<00> <00>]"
        page = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"]
        for name, data, said in (
            ("locked.pdf", pdf(page, locked), "the PDF is encrypted"),
            ("broken.pdf", b"%PDF-1.4\nnothing", "the PDF cannot be read"),
            ("none.pdf", pdf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"]), "the PDF (has 0 pages|cannot be read)"),
        ):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name}: {said}"):
                read(self.write(name, data))

    def test_a_page_that_cannot_be_drawn(self) -> None:
        path, draw = self.write("a.pdf", plain_pdf(3)), _images._render_page

        def fail(document: Any, i: int, dpi: int) -> Any:
            if i == 1:
                raise MemoryError("no room")
            return draw(document, i, dpi)

        with mock.patch.object(_images, "_render", fail):
            with self.assertRaisesRegex(ValueError, "a.pdf, page 2: the page cannot be rendered: no room"):
                read(path)
            self.assertEqual([p.id for p in read(path, on_error="skip")], ["a.pdf#1", "a.pdf#3"])


class HeatMaps(unittest.TestCase):
    def test_region(self) -> None:
        cells = np.zeros((2, 6, 8), dtype=np.float32)
        cells[:, 2:4, 3:6] = 0.8
        cells[:, 2, 4] = 1
        cells[:, 5, 0] = 0.9  # elsewhere on the page
        region = best_region(cells)
        self.assertEqual((region.rows, region.columns, region.score), ((2, 4), (3, 6), 1.0))
        self.assertEqual(region.box, (3 / 8, 2 / 6, 6 / 8, 4 / 6))
        self.assertEqual(region.to_pixels(800, 600), (300, 200, 600, 400))
        self.assertEqual(best_region(np.full((1, 2, 3), 0.5)), Region((0, 2), (0, 3), (0, 0, 1, 1), 0.5))
        self.assertEqual(best_region(-np.ones((1, 1, 1))).box, (0, 0, 1, 1))

    def test_html(self) -> None:
        html = heatmap_html(np.random.default_rng(1).random((3, 4, 4), dtype=np.float32), 'https://example.org/a.png?"onload="x')
        self.assertIn('href="https://example.org/a.png?&quot;onload=&quot;x"', html)
        self.assertIn('stroke="#0b57d0"', html)
        self.assertEqual(heatmap_html(np.zeros((1, 200, 200), dtype=np.float32), None), "")
        self.assertNotIn("<image", heatmap_html(np.zeros((1, 4, 4), dtype=np.float32), str(ROOT / "README.md")))

    def test_explanation(self) -> None:
        """A page without a model: vectors that are given, and a picture that is kept elsewhere."""
        with tempfile.TemporaryDirectory() as folder, Index(None, pictures=folder) as index:
            os.makedirs(os.path.join(folder, "plaid"))
            Path(folder, "plaid", "a.png").write_bytes(b"\x89PNG\r\n\x1a\n0000")
            index.add_documents(["a"], [np.eye(8)[[7, 0, 1, 2, 3]]], [{"image": "a.png", "grid": [2, 2, 1]}])
            why = index.explain("a", np.eye(8)[[2]])
            self.assertEqual(why.region, Region((1, 2), (0, 1), (0, 0.5, 0.5, 1), why.region.score))
            self.assertEqual(why.picture, os.path.realpath(os.path.join(folder, "plaid", "a.png")))
            self.assertIn("data:image/png;base64,", why._repr_html_())
            index.add_documents(["b", "c"], [np.eye(8)] * 2, [{"image": "../../etc/passwd", "grid": [2, 2]}, {}])
            self.assertIsNone(index.explain("b", np.eye(8)[[2]]).picture)
            self.assertIsNone(index.explain("c", np.eye(8)[[2]]).region)


class Models(unittest.TestCase):
    def test_what_is_no_model(self) -> None:
        for given, said in ((3, "model is of type int"), ((1, 2, 3), "model has 3 items"), ((object(), object()), "has no forward")):
            with self.assertRaisesRegex(TypeError, said):
                Index(None, model=given)  # type: ignore[arg-type]
        with Index(None) as index, self.assertRaisesRegex(TypeError, "page images need a model"):
            index.add_images([])


@needs_engine
class Engine(Folder):
    """Models of colpali-engine: vectors, cells and scores are those of the engine."""

    QUESTIONS = ["where is the owl", "red", "what is the total of invoice a"]

    @classmethod
    def setUpClass(cls) -> None:
        import torch

        torch.set_num_threads(1)
        cls.models = {name: getattr(page_models, name)() for name in page_models.NAMES}

    def engine_vectors(self, name: str, batch: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.models[name][0](**batch)

    def test_scores_are_those_of_the_engine(self) -> None:
        images = [noise(150, 200, 1), noise(170, 100, 2), noise(60, 60, 3)]
        for name, (model, processor) in self.models.items():
            with self.subTest(name):
                # One at a time: in a batch the engine pads, and the padding takes part in its scores.
                queries = [self.engine_vectors(name, processor.process_queries([text]))[0] for text in self.QUESTIONS]
                pages = [self.engine_vectors(name, processor.process_images([image]))[0] for image in images]
                want = [[float((q @ page.T).amax(dim=1).sum()) for page in pages] for q in queries]
                alone = processor.score_multi_vector(queries[:1], pages[:1], device="cpu")
                self.assertAlmostEqual(float(alone), want[0][0], delta=1e-4)
                own = PageModel(model, processor)
                asked = own.encode_queries(self.QUESTIONS)
                self.assertEqual([len(q) for q in asked], [len(q) for q in queries])
                for encoded_at_once in (own.encode_pages(images), [own.encode_pages([image])[0] for image in images]):
                    got = [[maxsim(q, page.vectors) for page in encoded_at_once] for q in asked]
                    np.testing.assert_allclose(got, want, atol=2e-4)
                    for page, theirs in zip(encoded_at_once, pages):
                        self.assertEqual(page.vectors.shape, tuple(theirs.shape))

    def test_cells_are_those_of_the_engine(self) -> None:
        for name, (model, processor) in self.models.items():
            for image in (noise(150, 200, 1), noise(170, 100, 2)):
                with self.subTest(name, size=image.size), Index.from_images(image, "a", model=(model, processor), nbits=8) as index:
                    batch, question = processor.process_images([image]), processor.process_queries(self.QUESTIONS[:1])
                    pages, queries = self.engine_vectors(name, batch), self.engine_vectors(name, question)
                    why = index.explain("a", self.QUESTIONS[0])
                    _, rows, columns = why.cells.shape
                    if name in ("colidefics3", "colmodernvbert"):
                        mask = processor.get_local_image_mask(batch)
                        (want,) = processor.get_similarity_maps_from_embeddings(pages, queries, (columns, rows), mask)
                    else:
                        if name == "colgemma3":  # its processor counts patches, four of which are a token
                            self.assertEqual((rows, columns), (2, 2))
                            mask = batch["input_ids"] == model.config.image_token_id
                        else:
                            size = {"patch_size": 14} if name == "colpali" else {"spatial_merge_size": 2}
                            self.assertEqual(processor.get_n_patches(image.size, **size), (columns, rows))
                            mask = processor.get_image_mask(batch)
                        cells = pages[0][mask[0]]
                        want = (queries[0] @ cells.T).reshape(-1, rows, columns).transpose(1, 2)
                    self.assertLess(np.abs(why.cells - want.numpy().transpose(0, 2, 1)).max(), 0.02, "8 bits a component")
                    self.assertIn("where is the owl", " ".join(why.query_tokens()))

    def test_a_picture_of_one_tile(self) -> None:
        model = PageModel(*page_models.colidefics3(split=False))
        self.assertEqual([p.grid[:2] for p in model.encode_pages([noise(150, 200, 1)])], [[2, 2]])

    def test_unknown_cells(self) -> None:
        """Without a way to tell which tokens are cells, a page is found, and has no grid."""
        model, processor = self.models["colpali"]
        own = PageModel(model, processor)
        with mock.patch.object(own, "_shape", return_value=[3, 5]):
            self.assertEqual([p.grid for p in own.encode_pages([noise(50, 50, 1)])], [None])
        with mock.patch.object(own, "_image_mask", return_value=None):
            (page,) = own.encode_pages([noise(50, 50, 1)])
            self.assertEqual((page.grid, len(page.vectors)), (None, 22))
        with mock.patch.object(type(processor), "get_n_patches", side_effect=NotImplementedError):
            self.assertEqual([p.grid for p in own.encode_pages([noise(50, 50, 1)])], [[4, 4]], "by the size of its pictures")

    def test_only_cells(self) -> None:
        """A model that gives zeros for all tokens but the cells has no others."""
        model, processor = page_models.colqwen2()
        model.mask_non_image_embeddings = True
        pages = PageModel(model, processor).encode_pages([noise(150, 200, 1), noise(170, 100, 2)])
        self.assertEqual([(p.grid, len(p.vectors)) for p in pages], [([7, 5], 35), ([4, 6], 24)])

    def test_model_of_an_index(self) -> None:
        pages = [noise(60, 80, n) for n in range(3)]
        own = self.models["colpali"]
        with Index.from_images(pages, model=own, index_folder="indexes") as index:
            best = index.search(self.QUESTIONS[0], k=3)
            self.assertEqual(index.stats()["model"]["name"], "ColPali")
        with Index("indexes", model=own) as index:
            self.assertEqual([dict(h) for h in index.search(self.QUESTIONS[0], k=3)], [dict(h) for h in best])
            self.assertEqual(len(index.search_token_scores(self.QUESTIONS[:1], 2)[0]), 2)
            index.add_images(noise(70, 70, 7), "more")
            with self.assertRaisesRegex(ValueError, "input 0 has no path, and the index has documents"):
                index.add_images(noise(70, 70, 7))
            self.assertEqual(len(index), 4)
        for other in (self.models["colqwen2"], PageModel(*own, name="vidore/other")):
            with self.assertRaisesRegex(ValueError, "has vectors of the model 'ColPali', not of"):
                Index("indexes", model=other)
        with Index("indexes") as index:
            with self.assertRaisesRegex(RequestError, r"texts need a model \('ColPali' encoded this index\)"):
                index.search(self.QUESTIONS[0])
            with self.assertRaisesRegex(TypeError, "page images need a model"):
                index.add_images(pages)
        with Index("indexes", model=ROOT / "docs/examples/quickstart/colbert-nano") as index:
            with self.assertRaisesRegex(RequestError, "vectors of another model than those of the index"):
                index.search(self.QUESTIONS[0])

    def test_loaded_by_name(self) -> None:
        model, processor = self.models["colqwen2"]
        model.save_pretrained("tiny")
        processor.save_pretrained("tiny")
        loaded = PageModel("tiny", device="cpu")
        self.assertEqual(type(loaded.model).__name__, "ColQwen2")
        self.assertEqual((loaded.identity["name"], loaded.identity["fingerprint"]), ("tiny", PageModel(model, processor).identity["fingerprint"]))
        image = noise(100, 100, 1)
        with Index.from_images(image, "a", model="tiny", index_folder="indexes") as index:
            want = maxsim(PageModel(model, processor).encode_queries(["owl"])[0], PageModel(model, processor).encode_pages([image])[0].vectors)
            self.assertAlmostEqual(index.search("owl")[0]["score"], want, delta=0.1)
        with Index("indexes", model="tiny") as index:
            self.assertEqual(index.search("owl")[0]["id"], "a")
        for name in ("lightonai/none", "a..b/c--d", "none/at/all", "x.git", "a@b@c", ""):
            self.assertIsNone(_page_model.to_page_model(name), "a model of texts, or none")
        with self.assertRaisesRegex(FileNotFoundError, "model /none/at/all was not found"):
            PageModel("/none/at/all")
        from huggingface_hub.errors import LocalEntryNotFoundError

        with mock.patch("huggingface_hub.hf_hub_download", side_effect=LocalEntryNotFoundError("no network")) as fetch:
            with self.assertRaisesRegex(FileNotFoundError, "network, hf download org/pages --revision v2 fetches it$"):
                PageModel("org/pages@v2")
        fetch.assert_called_once()  # each time takes half a minute
        with self.assertRaisesRegex(ValueError, "quickstart/colbert-nano: its files name no processor of colpali-engine"):
            PageModel(ROOT / "docs/examples/quickstart/colbert-nano")

    def test_what_is_wrong_with_a_page(self) -> None:
        """The processor refuses a page of a batch: the page is named, and what came before is stored."""
        pages = [noise(60, 80, 1), noise(70, 70, 2), noise(4000, 4, 3), noise(60, 80, 4)]
        with Index(None, model=self.models["colqwen2"]) as index:
            with self.assertRaisesRegex(ValueError, r"aspect ratio.*the page is 'c'") as raised:
                index.add_images(pages, list("abcd"), batch_size=2)
            self.assertEqual(index.ids(), ["a", "b"], raised.exception)
            with self.assertWarnsRegex(UserWarning, r"pages or files that were skipped \(1\): .*'c'") as warned:
                index.add_images(pages, list("abcd"), batch_size=4, on_error="skip")
            self.assertEqual(warned.filename, __file__)
            self.assertEqual(index.ids(), ["a", "b", "d"])

    def test_batches(self) -> None:
        """Pages are read as they are needed, and progress counts them."""
        read, seen = [], []

        def source() -> Any:
            for n in range(7):
                read.append(n)
                yield noise(60, 60, n)

        def progress(done: int, total: int | None) -> None:
            seen.append((done, len(read)))

        with Index(None, model=self.models["colpali"]) as index:
            index.add_images(source(), batch_size=2, wait=False, progress=progress)
            self.assertEqual(len(index), 7)
        self.assertEqual(seen, [(2, 2), (4, 4), (6, 6), (7, 7)])

    def test_pooled_cells(self) -> None:
        for by, grid in (("tiles", [4, 3, 3]), ("neighbours", None)):
            with Index.from_images(noise(150, 200, 1), "a", model=self.models["colqwen2"], pool_factor=4, pool_by=by) as index:
                self.assertEqual(index.get("a")[0].get("grid"), grid)
                self.assertEqual(index.stats()["tokens"], 10 + (12 if grid else 9))
                self.assertEqual(index.explain("a", "owl").region is None, grid is None)
        with Index(None, model=self.models["colqwen2"]) as index:
            for wrong in ({"batch_size": 0}, {"dpi": "x"}, {"keep_pictures": 1}, {"on_error": "ignore"}, {"pool_factor": 0}, {"pool_factor": 2, "pool_by": "x"}):
                with self.assertRaisesRegex((TypeError, ValueError), f"{list(wrong)[-1]} is"):
                    index.add_images(noise(60, 60, 1), **wrong)

    def test_many_pages_are_built(self) -> None:
        with mock.patch.object(Connection, "train_tokens", 50):
            with Index.from_images([noise(60, 60, n) for n in range(5)], model=self.models["colpali"], index_folder="indexes") as index:
                stats = index.stats()
                self.assertEqual((stats["documents"], stats["nbits"], stats["model"]["name"]), (5, 4, "ColPali"))
                self.assertIsNotNone(index.explain("3", "owl").region)

    def test_pictures(self) -> None:
        own = self.models["colpali"]
        with Index.from_images(noise(60, 80, 1), "a", model=own, index_folder="indexes", index_name="docs") as index:
            image = index.get("a")[0]["image"]
            self.assertTrue(Path("indexes/.images/docs", image).is_file())
            served = subprocess.run([find_binary(None), "serve", "--help-all"], capture_output=True, text=True)
            self.assertIn("--images", served.stdout + served.stderr)
        with Index.from_images(noise(60, 80, 2), "b", model=own, index_folder="indexes", index_name="docs", override=True) as index:
            self.assertFalse(Path("indexes/.images/docs", image).exists(), "the pictures of the index that was replaced")
            index.add_images(noise(60, 80, 3), "c", keep_pictures=False)
            self.assertEqual((index.get("c")[0]["image"], index.explain("c", "owl").picture), ("c", None))
            self.assertIsNotNone(index.explain("c", "owl").region)
        os.makedirs("mine/docs")
        own_file = self.write("mine/docs/a.jpg", b"")
        with Index.from_images(noise(60, 80, 2), "b", model=own, index_name="docs", pictures="mine", override=True) as index:
            self.assertTrue(str(index.explain("b", "owl").picture).startswith(os.path.realpath("mine/docs")))
        self.assertTrue(os.path.exists(own_file), "a folder that the caller named")


@needs_engine
@needs_pdfium
class Page(Folder):
    def test_blocks(self) -> None:
        """The blocks of the page for Python run, with a tiny model in place of the one that they name."""
        text = (ROOT / "docs" / "page-images.md").read_text()
        code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(code), 1)
        self.assertEqual(len(code[0].strip().split("\n")), 4, "an import, and three lines from a folder to a region")
        os.makedirs("reports")
        pages = [noise(200, 300, n) for n in range(3)]
        pages[0].save("reports/a.pdf", save_all=True, append_images=pages[1:])
        space: dict[str, Any] = {}
        with mock.patch.object(_page_model, "_load", lambda name, device: page_models.colqwen2()), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            for block in code:
                exec(compile(block, "docs/page-images.md", "exec"), space)
        self.assertIsInstance(space["region"], Region)
        self.assertRegex(space["hit"]["id"], r"^reports/a\.pdf#[123]$")
        space["index"].close()


if __name__ == "__main__":
    unittest.main()
