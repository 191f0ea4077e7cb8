"""Models of page images: their vectors, cells and scores are those of colpali-engine.

They need colpali-engine. `.ci/long torch` has it. The models are tiny random ones, and nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from plaid_ir import Index, PageModel, Region, RequestError, _page_model
from plaid_ir._binary import find_binary
from plaid_ir._connection import Connection

from . import page_models
from .common import maxsim
from .image_files import ROOT, needs_pdfium, needs_engine, noise, Folder


class Models(unittest.TestCase):
    def test_what_is_no_model(self) -> None:
        for given, said in (
            (3, "model is of type int"),
            ((1, 2, 3), "model has 3 items"),
            ((object(), object()), "has no forward"),
        ):
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
                with (
                    self.subTest(name, size=image.size),
                    Index.from_images(image, "a", model=(model, processor), nbits=8) as index,
                ):
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
                    self.assertLess(
                        np.abs(why.cells - want.numpy().transpose(0, 2, 1)).max(), 0.02, "8 bits a component"
                    )
                    self.assertIn("where is the owl", " ".join(why.query_tokens()))

    def test_a_picture_of_one_tile(self) -> None:
        model = PageModel(*page_models.colidefics3(split=False))
        self.assertEqual([p.grid[:2] for p in model.encode_pages([noise(150, 200, 1)])], [[2, 2]])

    def test_unknown_cells(self) -> None:
        """Without a way to tell which tokens are cells, a page is found, and has no grid."""
        model, processor = self.models["colpali"]
        own = PageModel(model, processor)
        with mock.patch.object(own, "_picture_shape", return_value=[3, 5]):
            self.assertEqual([p.grid for p in own.encode_pages([noise(50, 50, 1)])], [None])
        with mock.patch.object(own, "_image_mask", return_value=None):
            (page,) = own.encode_pages([noise(50, 50, 1)])
            self.assertEqual((page.grid, len(page.vectors)), (None, 22))
        with mock.patch.object(type(processor), "get_n_patches", side_effect=NotImplementedError):
            self.assertEqual(
                [p.grid for p in own.encode_pages([noise(50, 50, 1)])], [[4, 4]], "by the size of its pictures"
            )

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
        self.assertEqual(
            (loaded.identity["name"], loaded.identity["fingerprint"]),
            ("tiny", PageModel(model, processor).identity["fingerprint"]),
        )
        image = noise(100, 100, 1)
        with Index.from_images(image, "a", model="tiny", index_folder="indexes") as index:
            want = maxsim(
                PageModel(model, processor).encode_queries(["owl"])[0],
                PageModel(model, processor).encode_pages([image])[0].vectors,
            )
            self.assertAlmostEqual(index.search("owl")[0]["score"], want, delta=0.1)
        with Index("indexes", model="tiny") as index:
            self.assertEqual(index.search("owl")[0]["id"], "a")
        for name in ("lightonai/none", "a..b/c--d", "none/at/all", "x.git", "a@b@c", ""):
            self.assertIsNone(_page_model.to_page_model(name), "a model of texts, or none")
        with self.assertRaisesRegex(FileNotFoundError, "model /none/at/all was not found"):
            PageModel("/none/at/all")
        from huggingface_hub.errors import LocalEntryNotFoundError

        with mock.patch("huggingface_hub.hf_hub_download", side_effect=LocalEntryNotFoundError("no network")) as fetch:
            with self.assertRaisesRegex(FileNotFoundError, "network connection, hf download org/pages --revision v2 downloads it$"):
                PageModel("org/pages@v2")
        fetch.assert_called_once()  # each time takes half a minute
        with self.assertRaisesRegex(
            ValueError, "quickstart/colbert-nano name no processor of colpali-engine"
        ):
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
            with Index.from_images(
                noise(150, 200, 1), "a", model=self.models["colqwen2"], pool_factor=4, pool_by=by
            ) as index:
                self.assertEqual(index.get("a")[0].get("grid"), grid)
                self.assertEqual(index.stats()["tokens"], 10 + (12 if grid else 9))
                self.assertEqual(index.explain("a", "owl").region is None, grid is None)
        with Index(None, model=self.models["colqwen2"]) as index:
            for wrong in (
                {"batch_size": 0},
                {"dpi": "x"},
                {"keep_pictures": 1},
                {"on_error": "ignore"},
                {"pool_factor": 0},
                {"pool_factor": 2, "pool_by": "x"},
            ):
                with self.assertRaisesRegex((TypeError, ValueError), f"{list(wrong)[-1]} is"):
                    index.add_images(noise(60, 60, 1), **wrong)

    def test_many_pages_are_built(self) -> None:
        with mock.patch.object(Connection, "train_tokens", 50):
            with Index.from_images(
                [noise(60, 60, n) for n in range(5)], model=self.models["colpali"], index_folder="indexes"
            ) as index:
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
        with Index.from_images(
            noise(60, 80, 2), "b", model=own, index_folder="indexes", index_name="docs", override=True
        ) as index:
            self.assertFalse(
                Path("indexes/.images/docs", image).exists(), "the pictures of the index that was replaced"
            )
            index.add_images(noise(60, 80, 3), "c", keep_pictures=False)
            self.assertEqual((index.get("c")[0]["image"], index.explain("c", "owl").picture), ("c", None))
            self.assertIsNotNone(index.explain("c", "owl").region)
        os.makedirs("mine/docs")
        own_file = self.write("mine/docs/a.jpg", b"")
        with Index.from_images(
            noise(60, 80, 2), "b", model=own, index_name="docs", pictures="mine", override=True
        ) as index:
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
        with (
            mock.patch.object(_page_model, "_load_model", lambda name, device: page_models.colqwen2()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error", UserWarning)
            for block in code:
                exec(compile(block, "docs/page-images.md", "exec"), space)
        self.assertIsInstance(space["region"], Region)
        self.assertRegex(space["hit"]["id"], r"^reports/a\.pdf#[123]$")
        space["index"].close()
