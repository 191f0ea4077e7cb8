"""Page images: their files, ids and metadata, and the region of a page that a question matches.

Reading files needs Pillow, and for PDFs pypdfium2. `.ci/long torch` has both.
"""

from __future__ import annotations

import os
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from plaid_ir import Index, Region, _images
from plaid_ir._heatmap import heatmap_html, best_region

from .image_files import ROOT, needs_pillow, needs_pdfium, picture, noise, encoded, pdf, plain_pdf, Folder, read


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
        for given in (
            path,
            Path(path),
            image,
            array,
            encoded(image, "PNG"),
            bytearray(encoded(image, "WEBP", lossless=True)),
            encoded(image, "TIFF"),
            array.astype(np.int64),
            array / 255,
            array.astype(np.uint16) << 8,
        ):
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
        self.assertEqual(
            self.only(Image.fromarray(np.full((8, 8), 40000, dtype=np.int32))).getpixel((0, 0)), (155, 155, 155)
        )
        self.assertEqual(
            self.only(Image.fromarray(np.full((8, 8), 0.5, dtype=np.float32))).getpixel((0, 0)), (127, 127, 127)
        )
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
                with self.assertRaisesRegex(
                    ValueError, "input 0: the (picture|array) has (40 × 60|50 × 50) pixels; want (at most|1 to) 1000"
                ):
                    read([large])

    def test_folders_and_patterns(self) -> None:
        for name in ("in/b.png", "in/a/z.JPG", "in/.hidden/c.png", "in/.d.png", "in/notes.txt", "in/c.webp"):
            self.write(name, encoded(picture(), "PNG"))
        self.assertEqual([p.id for p in read("in")], ["in/a/z.JPG", "in/b.png", "in/c.webp"])
        self.assertEqual([p.id for p in read([Path("in/a"), "in/*.webp"])], ["in/a/z.JPG", "in/c.webp"])
        self.assertEqual([p.id for p in read("in/**/*.png")], ["in/b.png"])
        os.makedirs("empty")
        for given, said in (
            ("empty", "the folder empty has no files that can be read"),
            ("in/*.pdf", "no file matches"),
            ("none.png", "none.png"),
        ):
            with self.assertRaisesRegex(FileNotFoundError, said):
                read(given)
        strange = self.write("in/a[1].png", encoded(picture(), "PNG"))
        self.assertEqual([p.id for p in read(strange)], [strange])

    def test_ids_and_metadata(self) -> None:
        path = self.write("a.png", encoded(picture(), "PNG"))
        pages = read([path, picture()], ["x", 7], [{"lang": "en"}, {"lang": "de", "source": "scanner"}])
        self.assertEqual(
            [(p.id, p.fields) for p in pages],
            [("x", {"source": "a.png", "lang": "en"}), ("7", {"lang": "de", "source": "scanner"})],
        )
        self.assertEqual(read(path, "one", {"lang": "en"})[0].id, "one")
        for arguments, said in (
            ((["a.png"], ["a", "b"]), "more ids than images"),
            ((["a.png", "a.png"], ["a"]), "there are 1 ids, but more images"),
            ((["a.png"], None, []), "there are 0 metadata, but more images"),
            ((["a.png"], None, [{"grid": 1}]), "metadata of input 0 has the key 'grid'"),
            ((["a.png"], None, [3]), "metadata of input 0 is of type int"),
            (([self.folder], ["a"]), "names several files"),
            ((["https://example.org/a.png"],), "is a URL"),
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
        for name in (
            "../../secret.jpg",
            os.path.join(self.folder, "secret.jpg"),
            "link.jpg",
            "",
            ".",
            "none.jpg",
            "a\0b",
        ):
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
        locked = (
            "/Encrypt << /Filter /Standard /V 1 /R 2 /O <"
            + "ab" * 32
            + "> /U <"
            + "cd" * 32
            + "> /P -4 >> /ID [<00> <00>]"
        )
        page = [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
        ]
        for name, data, said in (
            ("locked.pdf", pdf(page, locked), "the PDF is encrypted"),
            ("broken.pdf", b"%PDF-1.4\nnothing", "the PDF cannot be read"),
            (
                "none.pdf",
                pdf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"]),
                "the PDF (has 0 pages|cannot be read)",
            ),
        ):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name}: {said}"):
                read(self.write(name, data))

    def test_a_page_that_cannot_be_drawn(self) -> None:
        path, draw = self.write("a.pdf", plain_pdf(3)), _images._render_page

        def fail(document: Any, i: int, dpi: int) -> Any:
            if i == 1:
                raise MemoryError("no room")
            return draw(document, i, dpi)

        with mock.patch.object(_images, "_render_page", fail):
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
        html = heatmap_html(
            np.random.default_rng(1).random((3, 4, 4), dtype=np.float32), 'https://example.org/a.png?"onload="x'
        )
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
