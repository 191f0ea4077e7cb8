"""Models that make token vectors of pages and of questions about them: those of colpali-engine."""

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

#: Files of a model that name the class of its processor.
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
#: The name of a model at the hub.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
#: Queries that a model gets at a time.
_QUERIES = 32
#: Numbers of each tensor that take part in a fingerprint.
_SAMPLES = 64


class EncodedPage(NamedTuple):
    """The vectors of a page, and which of them are its cells: [rows, columns] or [rows, columns, vectors before]."""

    vectors: Matrix
    grid: list[int] | None


class PageModel:
    """A model of colpali-engine, or one with the same methods, which encodes pages and questions in this process.

    `Index` takes one as its ``model``, and makes one of a pair ``(model, processor)`` or of a name by itself. Threads
    take turns.

    Parameters
    ----------
    model
        The model, such as a ColPali, ColQwen2 or ColIdefics3; or its name at the Hugging Face hub, or its folder.
    processor
        The processor of the model; left out with a name or a folder.
    name
        The name that an index keeps. An index refuses vectors and questions of a model with another name.
        Default: the name at the hub; for a folder its last part, with a fingerprint of the weights.
    device
        For a model that is loaded here: a device of torch. Default: the first accelerator, or the processor.

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
                raise TypeError("processor goes with a model that is loaded already, and this is a name")
            model, processor = _load_model(path, device)
            local = os.path.isdir(path)
        else:
            if device is not None:
                raise TypeError("device is for a model that is loaded here; move this one with model.to(device)")
            path = str(getattr(model, "name_or_path", "") or "")
            # With an adapter the name is that of the model beneath.
            local = not path or os.path.isdir(path) or bool(getattr(model, "_hf_peft_config_loaded", False))
        for what, given, method in (("model", model, "forward"), ("processor", processor, "process_images")):
            if not callable(getattr(given, method, None)):
                kind = type(given).__name__
                raise TypeError(f"{what} is a {kind}, which has no {method}(): want one of colpali-engine")
        if name is None:
            name = os.path.basename(os.path.abspath(path)) if path and local else path or type(model).__name__
            fingerprint = _fingerprint(model) if local else None
        self.model, self.processor = model, processor
        #: The model as an index keeps it: the name and, for a model without a name at a hub, a fingerprint.
        self.identity: dict[str, str] = {"name": name, **({"fingerprint": fingerprint} if fingerprint else {})}
        self._lock = threading.Lock()

    def encode_pages(self, pictures: Sequence[Any]) -> list[EncodedPage]:
        """The vectors of pages.

        Parameters
        ----------
        pictures
            Pictures of Pillow, in RGB.

        Returns
        -------
        list of EncodedPage
            For each page ``vectors`` [tokens, dim] and ``grid``, or None where it is not known which tokens are parts
            of the picture. All vectors of the model are kept, except padding. Cells are in a row, row after row from
            the top left; other tokens come before and after them.
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
                there: list[int] = used.nonzero().flatten().tolist()
                if shape is None:
                    pages.append(EncodedPage(to_array(vectors[i][there]), None))
                    continue
                among = set(cells)
                before = [t for t in there if t < cells[0] and t not in among]
                after = [t for t in there if t > cells[0] and t not in among]
                grid = [*shape, len(before)] if before else shape
                pages.append(EncodedPage(to_array(vectors[i][[*before, *cells, *after]]), grid))
            return pages

    def encode_queries(self, texts: Sequence[str]) -> list[Matrix]:
        """The vectors of questions, with the prompt and the further tokens that the processor adds.

        Parameters
        ----------
        texts
            The questions.

        Returns
        -------
        list of numpy.ndarray
            A matrix [tokens, dim] of float32 for each.
        """
        return [matrix for matrix, _ in self.encode_questions(texts)]

    def encode_questions(self, texts: Sequence[str]) -> list[tuple[Matrix, list[str]]]:
        """Questions as `encode_queries` has them, with the text of each token.

        Parameters
        ----------
        texts
            The questions.

        Returns
        -------
        list of tuple
            A matrix [tokens, dim] and its tokens for each.
        """
        done: dict[int, tuple[Matrix, list[str]]] = {}
        with self._lock:
            # Only questions of one length go together, without padding: some models make other vectors of padded ones.
            alike: dict[int, list[tuple[int, Any]]] = {}
            for i, text in enumerate(texts):
                batch = self.processor.process_queries([text])
                alike.setdefault(batch["input_ids"].shape[1], []).append((i, batch))
            for items in alike.values():
                for begin in range(0, len(items), _QUERIES):
                    done.update(self._encode_padded(items[begin : begin + _QUERIES]))
        return [done[i] for i in range(len(texts))]

    def _encode_padded(self, items: list[tuple[int, Any]]) -> Iterator[tuple[int, tuple[Matrix, list[str]]]]:
        """The vectors and tokens of questions of one length, which come with their numbers."""
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
        """The vectors of a batch, [texts or pages, tokens, dim], in the memory of the processor."""
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
        """Marks the tokens of a batch that are parts of pictures; None if the model does not say."""
        if hasattr(self.processor, "get_image_mask"):
            return self.processor.get_image_mask(batch).cpu()
        owners = getattr(self.model, "config", None), self.processor
        ids = (getattr(owner, "image_token_id", None) for owner in owners)
        token = next((t for t in ids if t is not None), None)
        return None if token is None else (batch["input_ids"] == token).cpu()

    def _find_grid(
        self, batch: Any, i: int, ids: list[int], cells: list[int], picture: Any
    ) -> tuple[list[int] | None, list[int]]:
        """Rows and columns of page ``i``, and its tokens that are cells, row after row; None if they are not known."""
        if not cells:
            return None, []
        tiles = self._order_tiles(ids, cells)
        if tiles is not None:
            return tiles
        shape = self._picture_shape(batch, i, len(cells), picture)
        return (shape, cells) if shape is not None and shape[0] * shape[1] == len(cells) else (None, [])

    def _order_tiles(self, ids: list[int], cells: list[int]) -> tuple[list[int], list[int]] | None:
        """Cells of a picture that is cut into square tiles. The tiles come one after another, and last the whole
        picture, whose cells are among the other tokens. None if the model makes no tiles."""
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
        """Rows and columns of a picture that has ``count`` cells."""
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
        """Rows and columns of patches by the processor; 0 where it does not say."""
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
        except Exception:  # not every processor can: the cells of the picture are counted then
            return 0, 0
        return int(rows), int(columns)


def to_page_model(model: Any, *, text: bool = True) -> PageModel | None:
    """The model of pages that is given or named. None stays None; where a model of texts may be meant (``text``), a
    name that is not known to be of a model of pages becomes None, too."""
    if model is None and text or isinstance(model, PageModel):
        return model
    if isinstance(model, (tuple, list)):
        pair: Sequence[Any] = cast("Any", model)
        if len(pair) != 2:
            raise TypeError(f"model has {len(pair)} parts; want a pair (model, processor)")
        return PageModel(*pair)
    if isinstance(model, (str, os.PathLike)):
        is_page_model = not text or _processor_class(os.fspath(cast("str", model)), fetch=False) is not None
        return PageModel(model) if is_page_model else None
    raise unexpected_type("model", model, "a name, a folder, a PageModel, or a pair (model, processor)")


def _processor_class(name: str, *, fetch: bool) -> str | None:
    """The class of colpali-engine that a model's files name for its processor; None if they name none of its classes.
    Files that are not in the hub's cache are fetched if ``fetch`` is set, and else not read."""
    if importlib.util.find_spec("colpali_engine") is None:
        return None
    for path in _model_files(name, fetch):
        with contextlib.suppress(OSError, ValueError, AttributeError), open(path, encoding="utf-8") as f:
            kind = str(cast("dict[str, Any]", json.load(f)).get("processor_class"))
            if kind.startswith("Col") and _model_class(kind):
                return kind
    return None


def _model_files(name: str, fetch: bool) -> Iterator[str]:
    """The files of a model that may name the class of its processor."""
    if os.path.isdir(name):
        yield from (path for path in (os.path.join(name, file) for file in _PROCESSOR_FILES) if os.path.isfile(path))
        return
    name, revision = _split_revision(name)
    if _HUB_NAME.fullmatch(name) is None:
        return
    hub, errors = importlib.import_module("huggingface_hub"), importlib.import_module("huggingface_hub.errors")
    for file in _PROCESSOR_FILES:
        path: Any = None
        with contextlib.suppress(ValueError):  # the hub refuses the form of the name
            path = hub.try_to_load_from_cache(name, file, revision=revision)
        if path is None and fetch:
            try:
                path = hub.hf_hub_download(name, file, revision=revision)
            except errors.LocalEntryNotFoundError:  # the hub cannot be reached: it is asked once
                fetch = False
            except errors.EntryNotFoundError:
                continue
        if isinstance(path, str):
            yield path


def _split_revision(name: str) -> tuple[str, str | None]:
    """The name of a model at the hub, and its revision."""
    name, _, revision = name.partition("@")
    return name, revision or None


def _model_class(processor_class: str) -> str | None:
    """The class of the model that goes with one of a processor: of ColQwen2_5_Processor it is ColQwen2_5."""
    name = processor_class.replace("Processor", "").rstrip("_")
    models = importlib.util.find_spec("colpali_engine.models")
    if models is None:
        return None
    return name if hasattr(importlib.import_module("colpali_engine.models"), name) else None


def _load_model(name: str, device: Any) -> tuple[Any, Any]:
    """A model and its processor, by name."""
    import_extra("colpali_engine", "models of page images need colpali-engine", "colpali-engine")
    kind = _processor_class(name, fetch=True)
    if kind is None and not os.path.isdir(name) and not any(_model_files(name, fetch=False)):
        place, revision = _split_revision(name)
        command = f"hf download {place}" + (f" --revision {revision}" if revision else "")
        hint = f"; where there is network, {command} fetches it" if _HUB_NAME.fullmatch(place) else ""
        raise FileNotFoundError(
            f"there is no folder of a model at {name}, the cache of the Hugging Face hub has no model of this name, "
            f"and none can be fetched{hint}"
        )
    if kind is None:
        raise ValueError(
            f"{name}: its files name no processor of colpali-engine (processor_class): load it with its own library, "
            "and give the pair (model, processor)"
        )
    models, torch = importlib.import_module("colpali_engine.models"), importlib.import_module("torch")
    if device is None:
        device = importlib.import_module("colpali_engine.utils.torch_utils").get_torch_device("auto")
    dtype = torch.float32 if str(device).startswith("cpu") else torch.bfloat16
    place, revision = (name, None) if os.path.isdir(name) else _split_revision(name)
    model = getattr(models, str(_model_class(kind))).from_pretrained(place, revision=revision, dtype=dtype)
    return model.to(device).eval(), getattr(models, kind).from_pretrained(place, revision=revision)


def _fingerprint(model: Any) -> str:
    """A digest of samples of all tensors of a model, equal for the same weights in float32 and bfloat16."""
    torch = importlib.import_module("torch")
    digest = hashlib.sha256(type(model).__name__.encode())
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // _SAMPLES)
        sample = flat[::step][:_SAMPLES].to(torch.bfloat16).view(torch.int16).cpu().numpy()
        digest.update(f"{name} {list(tensor.shape)} ".encode() + sample.tobytes())
    return digest.hexdigest()
