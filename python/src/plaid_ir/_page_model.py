"""Encodes pages, and questions about them, by models of colpali-engine."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import json
import math
import os
import re
import threading
from typing import Any, Iterator, NamedTuple, Sequence, cast

from ._arrays import Matrix, to_array, to_float32
from ._checks import import_extra, unexpected_type

#: The files of a model that can name the class of its processor.
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
#: Matches the name of a model at the hub.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
#: The number of queries that a model encodes at a time.
_QUERIES = 32
#: The number of values of each tensor that a fingerprint reads.
_SAMPLES = 64


class EncodedPage(NamedTuple):
    """The vectors of a page and its grid: [rows, columns], or [rows, columns, number of vectors before the cells]."""

    vectors: Matrix
    grid: list[int] | None


class PageModel:
    """A model of colpali-engine, or one with the same methods, that encodes pages and questions in this process.

    Pass it to `Index` as ``model``. `Index` also accepts a name or a pair ``(model, processor)``, and creates a
    `PageModel` from it. Only one thread at a time encodes.

    Parameters
    ----------
    model
        The model, such as a ColPali, ColQwen2 or ColIdefics3; or its name at the Hugging Face hub, or its folder.
    processor
        The processor of the model. Omit it with a name or a folder.
    name
        The name that an index stores. The index refuses vectors and questions of a model with another name.
        Default: the name at the hub; for a folder, its last component, with a fingerprint of the weights.
    device
        The torch device of a model that is loaded by name. Default: the first accelerator, or the processor.

    Examples
    --------
    >>> from plaid_ir import Index, PageModel
    >>> model = PageModel("vidore/colqwen2-v1.0", device="cuda:1")   # doctest: +SKIP
    >>> index = Index.from_images("reports", model=model)            # doctest: +SKIP
    """

    def __init__(self, model: Any, processor: Any = None, *, name: str | None = None, device: Any = None) -> None:
        fingerprint: str | None = None
        if isinstance(model, (str, os.PathLike)):
            path = os.fspath(cast("str", model))
            if processor is not None:
                raise TypeError("processor is for a model that is already loaded: omit it with a name or a folder")
            model, processor = _load_model(path, device)
            local = os.path.isdir(path)
        else:
            if device is not None:
                raise TypeError("device is for a model that is loaded by name: move this one with model.to(device)")
            path = str(getattr(model, "name_or_path", "") or "")
            # With an adapter, name_or_path is the name of the base model.
            local = not path or os.path.isdir(path) or bool(getattr(model, "_hf_peft_config_loaded", False))
        for what, given, method in (("model", model, "forward"), ("processor", processor, "process_images")):
            if not callable(getattr(given, method, None)):
                kind = type(given).__name__
                raise TypeError(f"{what} is a {kind}, which has no {method}(): want a {what} of colpali-engine")
        if name is None:
            name = os.path.basename(os.path.abspath(path)) if path and local else path or type(model).__name__
            fingerprint = _fingerprint(model) if local else None
        self.model, self.processor = model, processor
        #: The model as an index stores it: the name and, for a model that is not at a hub, a fingerprint.
        self.identity: dict[str, str] = {"name": name, **({"fingerprint": fingerprint} if fingerprint else {})}
        self._lock = threading.Lock()

    def encode_pages(self, pictures: Sequence[Any]) -> list[EncodedPage]:
        """Encodes pages.

        Parameters
        ----------
        pictures
            RGB images of Pillow.

        Returns
        -------
        list of EncodedPage
            For each page, its ``vectors`` [tokens, dim] and its ``grid``, which is None if it is not known which tokens
            are cells of the picture. All vectors of the model are returned, except padding. The cells come one after
            another, row by row from the top left; other tokens come before and after them.
        """
        with self._lock:
            batch = self.processor.process_images(list(pictures))
            vectors = self._run_model(batch)
            ids = batch["input_ids"].tolist()
            attention = batch["attention_mask"].bool().cpu()
            image_mask = self._image_mask(batch)
            pages: list[EncodedPage] = []
            for i, picture in enumerate(pictures):
                used = attention[i] & (vectors[i] != 0).any(dim=1)
                cells: list[int] = [] if image_mask is None else (image_mask[i] & used).nonzero().flatten().tolist()
                shape, cells = self._find_grid(batch, i, ids[i], cells, picture)
                tokens: list[int] = used.nonzero().flatten().tolist()
                if shape is None:
                    pages.append(EncodedPage(to_array(vectors[i][tokens]), None))
                    continue
                cell_set = set(cells)
                before = [t for t in tokens if t < cells[0] and t not in cell_set]
                after = [t for t in tokens if t > cells[0] and t not in cell_set]
                grid = [*shape, len(before)] if before else shape
                pages.append(EncodedPage(to_array(vectors[i][[*before, *cells, *after]]), grid))
            return pages

    def encode_queries(self, texts: Sequence[str]) -> list[Matrix]:
        """Encodes questions, with the prompt and the additional tokens of the processor.

        Parameters
        ----------
        texts
            The questions.

        Returns
        -------
        list of numpy.ndarray
            A float32 matrix [tokens, dim] for each question.
        """
        return [matrix for matrix, _ in self.encode_questions(texts)]

    def encode_questions(self, texts: Sequence[str]) -> list[tuple[Matrix, list[str]]]:
        """Encodes questions as `encode_queries` does, and returns the text of each token, too.

        Parameters
        ----------
        texts
            The questions.

        Returns
        -------
        list of tuple
            A matrix [tokens, dim] and its tokens for each question.
        """
        encoded: dict[int, tuple[Matrix, list[str]]] = {}
        with self._lock:
            # A batch has questions of one length, so that none is padded: padding changes the vectors of some models.
            by_length: dict[int, list[tuple[int, Any]]] = {}
            for i, text in enumerate(texts):
                batch = self.processor.process_queries([text])
                by_length.setdefault(batch["input_ids"].shape[1], []).append((i, batch))
            for items in by_length.values():
                for begin in range(0, len(items), _QUERIES):
                    encoded.update(self._encode_same_length(items[begin : begin + _QUERIES]))
        return [encoded[i] for i in range(len(texts))]

    def _encode_same_length(self, items: list[tuple[int, Any]]) -> Iterator[tuple[int, tuple[Matrix, list[str]]]]:
        """Encodes numbered questions of one length, and yields the number, vectors and tokens of each."""
        torch = importlib.import_module("torch")
        batch = items[0][1]
        for name in list(batch.keys()):
            batch[name] = torch.cat([item[name] for _, item in items])
        vectors = self._run_model(batch)
        masks = batch["attention_mask"].bool().cpu()
        for (number, _), rows, ids, mask in zip(items, vectors, batch["input_ids"].cpu(), masks):
            used = mask & (rows != 0).any(dim=1)
            yield number, (to_float32(to_array(rows[used])), self._token_texts(ids[used]))

    def _run_model(self, batch: Any) -> Any:
        """Runs the model, and returns the vectors of a batch, [texts or pages, tokens, dim], on the processor."""
        torch = importlib.import_module("torch")
        device = getattr(self.model, "device", None) or next(self.model.parameters()).device
        with torch.inference_mode():
            out = self.model(**batch.to(device))
        vectors: Any = out if hasattr(out, "detach") else out.embeddings  # as models of transformers return them
        return vectors.detach().cpu()

    def _token_texts(self, ids: Any) -> list[str]:
        tokenizer = getattr(self.processor, "tokenizer", None)
        names = tokenizer.convert_ids_to_tokens(ids.tolist()) if tokenizer is not None else ids.tolist()
        return [str(name).replace("\u2581", " ").replace("\u0120", " ").strip() or str(name) for name in names]

    def _image_mask(self, batch: Any) -> Any:
        """Returns a mask of the tokens of a batch that are cells of pictures; None if they are not known."""
        if hasattr(self.processor, "get_image_mask"):
            return self.processor.get_image_mask(batch).cpu()
        owners = getattr(self.model, "config", None), self.processor
        ids = (getattr(owner, "image_token_id", None) for owner in owners)
        token = next((t for t in ids if t is not None), None)
        return None if token is None else (batch["input_ids"] == token).cpu()

    def _find_grid(
        self, batch: Any, i: int, ids: list[int], cells: list[int], picture: Any
    ) -> tuple[list[int] | None, list[int]]:
        """Returns rows and columns of page ``i``, and the tokens of its cells, row by row.

        Instead of the shape it returns None if it is not known.
        """
        if not cells:
            return None, []
        tiles = self._order_tiles(ids, cells)
        if tiles is not None:
            return tiles
        shape = self._picture_shape(batch, i, len(cells), picture)
        return (shape, cells) if shape is not None and shape[0] * shape[1] == len(cells) else (None, [])

    def _order_tiles(self, ids: list[int], cells: list[int]) -> tuple[list[int], list[int]] | None:
        """Returns the shape and the cells of a picture that the model splits into square tiles; None if it does not.

        The tokens of the tiles come one after another; the tokens of the whole picture, scaled down, come last. The
        latter do not count as cells.
        """
        size = int(getattr(self.processor, "image_seq_len", None) or 0)
        side = math.isqrt(size)
        if side == 0 or side * side != size or len(cells) % size:
            return None
        if len(cells) == size:  # the picture is one tile
            return [side, side], cells
        rows = columns = 0
        for name in self.processor.tokenizer.convert_ids_to_tokens(ids):
            if mark := re.fullmatch(r"<row_(\d+)_col_(\d+)>", str(name)):
                rows, columns = max(rows, int(mark[1])), max(columns, int(mark[2]))
        if rows * columns * size + size != len(cells):
            return None
        places = itertools.product(range(rows * side), range(columns * side))
        return [rows * side, columns * side], [
            cells[((r // side) * columns + c // side) * size + (r % side) * side + c % side] for r, c in places
        ]

    def _picture_shape(self, batch: Any, i: int, count: int, picture: Any) -> list[int] | None:
        """Returns rows and columns of a picture with ``count`` cells; None if they are not known."""
        pixels = getattr(self.processor, "image_processor", None)
        sizes = batch.get("image_grid_thw")
        if sizes is not None:  # patches, before they are merged
            merge = int(getattr(pixels, "merge_size", 1))
            return [int(sizes[i][1]) // merge, int(sizes[i][2]) // merge]
        rows, columns = self._count_patches(picture)
        merged = math.isqrt(rows * columns // count) if rows * columns else 0
        if merged and rows % merged == 0 and columns % merged == 0 and rows * columns == count * merged * merged:
            return [rows // merged, columns // merged]
        size: Any = getattr(pixels, "size", None) or {}
        with contextlib.suppress(TypeError, KeyError, AttributeError):
            side = math.isqrt(count)
            if size["height"] == size["width"] and side * side == count:
                return [side, side]
        return None

    def _count_patches(self, picture: Any) -> tuple[int, int]:
        """Returns rows and columns of patches according to the processor, or 0 if they are not known."""
        count = getattr(self.processor, "get_n_patches", None)
        if count is None:
            return 0, 0
        config = getattr(getattr(self.model, "config", None), "vision_config", None)
        options: dict[str, Any] = {}
        for name in ("patch_size", "spatial_merge_size"):
            if name in inspect.signature(count).parameters:
                options[name] = getattr(config, name, None)
                with contextlib.suppress(AttributeError):
                    options[name] = getattr(self.model, name)
        if None in options.values():
            return 0, 0
        try:
            columns, rows = count(picture.size, **options)
        except Exception:  # some processors fail: the caller derives the shape from the number of cells
            return 0, 0
        return int(rows), int(columns)


def to_page_model(model: Any, *, text: bool = True) -> PageModel | None:
    """Returns the page model that ``model`` is or names; None for None.

    With ``text``, ``model`` may also name a text model: returns None unless the name is known as a page model.
    """
    if model is None and text or isinstance(model, PageModel):
        return model
    if isinstance(model, (tuple, list)):
        pair: Sequence[Any] = cast("Any", model)
        if len(pair) != 2:
            raise TypeError(f"model has {len(pair)} items; want a pair (model, processor)")
        return PageModel(*pair)
    if isinstance(model, (str, os.PathLike)):
        is_page_model = not text or _processor_class(os.fspath(cast("str", model)), fetch=False) is not None
        return PageModel(model) if is_page_model else None
    raise unexpected_type("model", model, "a name, a folder, a PageModel, or a pair (model, processor)")


def _processor_class(name: str, *, fetch: bool) -> str | None:
    """Returns the colpali-engine class that a model's files name for its processor; None if they name none.

    With ``fetch``, files that are not in the hub's cache are downloaded; otherwise they are ignored.
    """
    if importlib.util.find_spec("colpali_engine") is None:
        return None
    for path in _model_files(name, fetch):
        with contextlib.suppress(OSError, ValueError, AttributeError), open(path, encoding="utf-8") as f:
            kind = str(cast("dict[str, Any]", json.load(f)).get("processor_class"))
            if kind.startswith("Col") and _model_class(kind):
                return kind
    return None


def _model_files(name: str, fetch: bool) -> Iterator[str]:
    """Yields the files of a model that can name the class of its processor."""
    if os.path.isdir(name):
        yield from (path for path in (os.path.join(name, file) for file in _PROCESSOR_FILES) if os.path.isfile(path))
        return
    name, revision = _split_revision(name)
    if _HUB_NAME.fullmatch(name) is None:
        return
    hub, errors = importlib.import_module("huggingface_hub"), importlib.import_module("huggingface_hub.errors")
    for file in _PROCESSOR_FILES:
        path: Any = None
        with contextlib.suppress(ValueError):  # the hub does not accept such a name
            path = hub.try_to_load_from_cache(name, file, revision=revision)
        if path is None and fetch:
            try:
                path = hub.hf_hub_download(name, file, revision=revision)
            except errors.LocalEntryNotFoundError:  # the hub cannot be reached: do not try again
                fetch = False
            except errors.EntryNotFoundError:
                continue
        if isinstance(path, str):
            yield path


def _split_revision(name: str) -> tuple[str, str | None]:
    """Splits the name of a model at the hub into the name and the revision, which may be None."""
    name, _, revision = name.partition("@")
    return name, revision or None


def _model_class(processor_class: str) -> str | None:
    """Returns the model class for a processor class: ColQwen2_5 for ColQwen2_5_Processor."""
    name = processor_class.replace("Processor", "").rstrip("_")
    models = importlib.util.find_spec("colpali_engine.models")
    if models is None:
        return None
    return name if hasattr(importlib.import_module("colpali_engine.models"), name) else None


def _load_model(name: str, device: Any) -> tuple[Any, Any]:
    """Loads a model and its processor by name."""
    import_extra("colpali_engine", "models of page images need colpali-engine", "colpali-engine")
    kind = _processor_class(name, fetch=True)
    if kind is None and not os.path.isdir(name) and not any(_model_files(name, fetch=False)):
        place, revision = _split_revision(name)
        command = f"hf download {place}" + (f" --revision {revision}" if revision else "")
        hint = f"; with a network connection, {command} downloads it" if _HUB_NAME.fullmatch(place) else ""
        raise FileNotFoundError(
            f"model {name} was not found: it is neither a folder nor in the cache of the Hugging Face hub, "
            f"and cannot be downloaded{hint}"
        )
    if kind is None:
        raise ValueError(
            f"the files of model {name} name no processor of colpali-engine (processor_class): load it with its own "
            "library, and pass the pair (model, processor)"
        )
    models, torch = importlib.import_module("colpali_engine.models"), importlib.import_module("torch")
    if device is None:
        device = importlib.import_module("colpali_engine.utils.torch_utils").get_torch_device("auto")
    dtype = torch.float32 if str(device).startswith("cpu") else torch.bfloat16
    place, revision = (name, None) if os.path.isdir(name) else _split_revision(name)
    model = getattr(models, str(_model_class(kind))).from_pretrained(place, revision=revision, dtype=dtype)
    return model.to(device).eval(), getattr(models, kind).from_pretrained(place, revision=revision)


def _fingerprint(model: Any) -> str:
    """Returns a digest of samples of a model's tensors, which is the same for weights in float32 and bfloat16."""
    torch = importlib.import_module("torch")
    digest = hashlib.sha256(type(model).__name__.encode())
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // _SAMPLES)
        sample = flat[::step][:_SAMPLES].to(torch.bfloat16).view(torch.int16).cpu().numpy()
        digest.update(f"{name} {list(tensor.shape)} ".encode() + sample.tobytes())
    return digest.hexdigest()
