"""Reads page images from files, PDFs, arrays and Pillow images, and stores pictures of pages."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import itertools
import os
import re
import shutil
import tempfile
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, Literal, Mapping, Sequence, cast

import numpy as np

from ._checks import check_choice, import_extra, unexpected_value, unexpected_type
from ._errors import add_remark, caller_level
from ._tables import to_items, to_rows

#: The suffixes of the files of a folder that are read.
SUFFIXES = (".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".jp2")
#: The largest picture that is decoded, in pixels. ISO A0 at 300 dots per inch is smaller.
MAX_PIXELS = 178_956_970
#: The longest side of a page that a model gets, in pixels. Larger pages are scaled down.
MAX_SIDE = 4096
#: The longest side of a stored picture in pixels, and its JPEG quality.
KEPT_SIDE, KEPT_QUALITY = 1600, 75
#: The folder of pictures, inside the folder of the indexes. No index has a name that begins with a dot.
PICTURES_FOLDER = ".images"
#: The largest number of pages of a file.
MAX_PAGES = 1 << 20
#: Keys of the metadata that this package sets for each page.
_OWN_KEYS = ("image", "grid")
#: Whether a page that cannot be read raises an error or is skipped.
OnError = Literal["raise", "skip"]
#: The PDF library must not be called by two threads at a time.
_pdf_lock = threading.Lock()


@dataclass
class Page:
    """A page as an RGB picture, with the id and the metadata of its document."""

    id: str
    picture: Any
    fields: dict[str, Any] = field(default_factory=dict[str, Any])


class Problems:
    """Raises an error for a page that cannot be read, or collects all of them for one warning at the end."""

    def __init__(self, on_error: str) -> None:
        self._skips = check_choice(on_error, "on_error", OnError) == "skip"
        self._messages: list[str] = []
        self._count = 0

    def add(self, error: Exception) -> None:
        if not self._skips:
            raise error
        self._count += 1
        if len(self._messages) < 5:
            self._messages.append(str(error))

    def warn(self) -> None:
        if self._count:
            more = "; …" if self._count > len(self._messages) else ""
            warnings.warn(
                f"pages or files that were skipped ({self._count}): {'; '.join(self._messages)}{more}",
                UserWarning,
                stacklevel=caller_level(),
            )


def import_pillow(part: str) -> Any:
    """Imports a module of Pillow."""
    return import_extra(f"PIL.{part}", "page images need Pillow", "pillow")


def read_pages(images: Any, ids: Any, metadata: Any, dpi: int, problems: Problems, numbered: bool) -> Iterator[Page]:
    """Yields the pages of inputs, one after another.

    ``ids`` and ``metadata`` are None, or have an item for each input. With ``numbered``, an input without a path gets
    its number as its id; otherwise it needs an id.
    """
    inputs = [images] if _is_single_input(images) else to_items(images, "images")
    if not hasattr(inputs, "__iter__"):
        raise unexpected_value("images", images, "paths, pictures, arrays or bytes")
    names = None if ids is None else iter([ids] if isinstance(ids, (str, int)) else to_items(ids, "ids"))
    one_row = isinstance(metadata, Mapping) and _is_single_input(images)
    rows: Iterator[Any] | None = None
    if metadata is not None:
        rows = iter(cast("Any", [metadata] if one_row else to_rows(metadata)))
    nothing = object()
    for n, given in enumerate(inputs):
        name, row = (None if more is None else next(more, nothing) for more in (names, rows))
        for what, value in (("ids", name), ("metadata", row)):
            if value is nothing:
                raise ValueError(f"there are {n} {what}, but more images: want one for each input")
        fields = _check_metadata(row, n)
        if isinstance(given, (str, os.PathLike)):
            files, is_list = _find_files(os.fspath(cast("str", given)), n)
            if is_list and name is not None:
                path = os.fspath(cast("str", given))
                raise ValueError(f"input {n}, {path!r}, names several files, and an id is for one: pass the files")
        else:
            files = [given]
        for file in files:
            yield from _read_input(file, n, None if name is None else str(name), fields, dpi, problems, numbered)
    for what, more in (("ids", names), ("metadata", rows)):
        if more is not None and next(more, nothing) is not nothing:
            raise ValueError(f"there are more {what} than images: want one for each input")


def _is_single_input(images: Any) -> bool:
    """Reports whether ``images`` is a single input."""
    if isinstance(images, np.ndarray):
        return cast("Any", images).ndim in (2, 3) and cast("Any", images).dtype != object
    return isinstance(images, (str, bytes, bytearray, memoryview, os.PathLike)) or _is_picture(images)


def _is_picture(x: Any) -> bool:
    return hasattr(x, "convert") and hasattr(x, "getbands")


def _check_metadata(row: Any, n: int) -> dict[str, Any]:
    if row is None:
        return {}
    if not isinstance(row, Mapping):
        raise unexpected_type(f"metadata of input {n}", row, "a dictionary")
    fields = dict(cast("Mapping[str, Any]", row))
    for key in _OWN_KEYS:
        if key in fields:
            raise ValueError(f"metadata of input {n} has the key {key!r}, which is set automatically: leave it out")
    return fields


def _find_files(path: str, n: int) -> tuple[list[str], bool]:
    """Returns the files of a path, a folder or a pattern, and whether it can name several files."""
    if re.match(r"[a-z]+://", path, re.IGNORECASE):
        raise ValueError(f"input {n}, {path!r}, is a URL: download the file, and pass its path or its bytes")
    if os.path.isdir(path):
        files = sorted(_walk_folder(path))
        if not files:
            raise FileNotFoundError(
                f"input {n}: the folder {path} has no files that can be read as pages ({' '.join(SUFFIXES)})"
            )
        return files, True
    if not os.path.exists(path) and glob.has_magic(path):
        files = sorted(f for f in glob.glob(path, recursive=True) if os.path.isfile(f))
        if not files:
            raise FileNotFoundError(f"input {n}: no file matches {path}")
        return files, True
    return [path], False


def _walk_folder(folder: str) -> Iterator[str]:
    def fail(e: OSError) -> None:
        raise e

    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in names:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(root, name)


def _read_input(
    given: Any, n: int, name: str | None, fields: dict[str, Any], dpi: int, problems: Problems, numbered: bool
) -> Iterator[Page]:
    """Yields the pages of input number ``n``: a file, the bytes of one, a picture or an array."""
    source: str | None = None
    data: Any = given
    if isinstance(given, str):
        source = os.path.normpath(given).replace(os.sep, "/")
    elif _is_picture(given):
        if getattr(given, "filename", ""):
            source = str(given.filename).replace(os.sep, "/")
    elif isinstance(given, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", given))
    elif not isinstance(given, np.ndarray):
        raise unexpected_type(f"input {n}", given, "a path, bytes, an array, or a Pillow image")
    if not (name or source or numbered):
        raise ValueError(f"input {n} has no path, and the index has documents already: pass ids")
    name = name or source or str(n)
    place = source or f"input {n}"
    fields = {"source": source, **fields} if source is not None else fields
    pages: Iterator[tuple[int | None, Any]]
    try:
        pages = iter(_read_pdf(data, place, dpi, problems) if _is_pdf(data) else _read_picture(data, place))
    except (OSError, ValueError) as e:
        problems.add(_name_place(e, place))
        return
    while True:
        try:
            number, picture = next(pages)
        except StopIteration:
            return
        except (OSError, ValueError) as e:
            problems.add(_name_place(e, place))
            return
        if number is None:
            yield Page(name, picture, fields)
        else:
            yield Page(f"{name}#{number}", picture, {"page": number, **fields})


def _name_place(e: Exception, place: str) -> Exception:
    """Returns an error whose message names the file or input."""
    if isinstance(e, OSError) and e.filename is not None or place in str(e):
        return e
    named = ValueError(f"{place}: {e}")
    named.__cause__ = e
    return named


def _is_pdf(data: Any) -> bool:
    if isinstance(data, str):
        with open(data, "rb") as f:
            head = f.read(1024)
    else:
        head = data[:1024] if isinstance(data, bytes) else b""
    return b"%PDF-" in head


def _read_pdf(data: Any, place: str, dpi: int, problems: Problems) -> Iterator[tuple[int, Any]]:
    pdfium = import_extra("pypdfium2", f"{place} is a PDF, which pypdfium2 reads", "pypdfium2")
    try:
        with _pdf_lock:
            document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as e:
        if "password" in str(e).lower():
            raise ValueError(f"{place}: the PDF is encrypted: save it without a password first") from e
        raise ValueError(f"{place}: the PDF cannot be read: {e}") from e
    try:
        with _pdf_lock:
            count = len(document)
            with contextlib.suppress(pdfium.PdfiumError):
                document.init_forms()  # renders the values of forms, too
        if not 1 <= count <= MAX_PAGES:
            raise ValueError(f"{place}: the PDF has {count} pages; want 1 to {MAX_PAGES}")
        for i in range(count):
            try:
                picture = _render_page(document, i, dpi)
            except Exception as e:
                problems.add(ValueError(f"{place}, page {i + 1}: the page cannot be rendered: {e}"))
                continue
            yield i + 1, picture
    finally:
        with _pdf_lock:
            document.close()


def _render_page(document: Any, i: int, dpi: int) -> Any:
    with _pdf_lock:
        page = document[i]
        try:
            width, height = page.get_size()  # in points, 1/72 inch
            if not (width > 0 and height > 0):
                raise ValueError(f"its size is {width} × {height} points")
            scale = min(dpi / 72, MAX_SIDE / max(width, height))
            return page.render(scale=scale).to_pil().convert("RGB")
        finally:
            page.close()


def _read_picture(data: Any, place: str) -> Iterator[tuple[int | None, Any]]:
    """Yields the pages of a TIFF file, or a single picture. Of an animation it is the first frame."""
    image = import_pillow("Image")
    if isinstance(data, np.ndarray):
        data = _picture_from_array(data, place)
    if _is_picture(data):
        yield None, to_rgb(data, place)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", image.DecompressionBombWarning)
        try:
            opened = image.open(io.BytesIO(data) if isinstance(data, bytes) else data)
        except image.UnidentifiedImageError as e:
            raise ValueError(f"{place}: neither a PDF nor a picture that Pillow can read") from e
        except image.DecompressionBombError as e:
            raise ValueError(f"{place}: the picture is too large: {e}") from e
    with opened:
        has_pages = opened.format == "TIFF" and getattr(opened, "n_frames", 1) > 1
        if not has_pages:
            if opened.format == "JPEG" and max(opened.size) > MAX_SIDE:
                _check_size(opened.size, place)
                opened.draft("RGB", (MAX_SIDE, MAX_SIDE))  # decodes fewer pixels
            yield None, to_rgb(opened, place, own=True)
            return
        for i in range(min(opened.n_frames, MAX_PAGES)):
            opened.seek(i)
            yield i + 1, to_rgb(opened, f"{place}, page {i + 1}")


def _picture_from_array(a: Any, place: str) -> Any:
    """Converts an array [rows, columns] or [rows, columns, channels] to a Pillow image."""
    if a.ndim not in (2, 3) or 0 in a.shape or a.ndim == 3 and a.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"{place}: the array has shape {list(a.shape)}; want [rows, columns] or [rows, columns, 3 or 4]"
        )
    if a.shape[0] * a.shape[1] > MAX_PIXELS:
        shape = f"{a.shape[0]} × {a.shape[1]}"
        raise ValueError(f"{place}: the array has {shape} pixels; want at most {MAX_PIXELS}")
    if a.dtype == bool:
        a = a.astype("u1") * np.uint8(255)
    elif a.dtype.kind == "f":
        if not np.isfinite(a).all() or a.min() < 0 or a.max() > 1:
            raise ValueError(
                f"{place}: the array of {a.dtype} has other numbers than 0 to 1: scale or convert it to uint8"
            )
        a = np.rint(a * 255).astype("u1")
    elif a.dtype == np.uint16:
        a = (a >> 8).astype("u1")
    elif a.dtype.kind in "iu":
        if a.min() < 0 or a.max() > 255:
            raise ValueError(f"{place}: the array of {a.dtype} has other numbers than 0 to 255")
        a = a.astype("u1")
    else:
        raise TypeError(f"{place}: the array has type {a.dtype}; want bool, integers or floats")
    return import_pillow("Image").fromarray(np.ascontiguousarray(a[:, :, 0] if a.ndim == 3 and a.shape[2] == 1 else a))


def to_rgb(picture: Any, place: str, own: bool = False) -> Any:
    """Converts a picture for a model: upright, RGB, on a white background, and scaled down if it is too large.

    Unless ``own`` is set, the picture itself is not changed.
    """
    _check_size(picture.size, place)
    try:
        turned = import_pillow("ImageOps").exif_transpose(picture, in_place=own)
        picture = picture if own else turned
        picture.load()
    except Exception as e:  # the decoders of Pillow raise many types
        raise ValueError(f"{place}: the picture is damaged: {e}") from e
    if picture.mode.startswith("I;16"):
        picture = import_pillow("Image").fromarray((np.asarray(picture).astype("u2") >> 8).astype("u1"))
    elif picture.mode in ("I", "F"):
        numbers = np.asarray(picture, dtype="f8")
        largest = float(numbers.max())
        white = 1.0 if largest <= 1 and picture.mode == "F" else 255.0 if largest <= 255 else 65535.0
        picture = import_pillow("Image").fromarray((np.clip(numbers / white, 0, 1) * 255).astype("u1"))
    if max(picture.size) > MAX_SIDE:
        if picture.mode in ("1", "P"):
            picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
        picture.thumbnail((MAX_SIDE, MAX_SIDE), reducing_gap=2.0)
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        background = import_pillow("Image").new("RGBA", picture.size, "white")
        background.alpha_composite(picture)
        picture = background
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _check_size(size: tuple[int, int], place: str) -> None:
    width, height = size
    if not 1 <= width * height <= MAX_PIXELS:
        raise ValueError(f"{place}: the picture has {width} × {height} pixels; want 1 to {MAX_PIXELS}")


def _picture_path(id: str) -> str:
    """Returns the path of a page's picture, relative to the folder of its index."""
    code = hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:12]
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", id).strip("-.")[-60:].strip("-.")
    return f"{code[:2]}/{words}-{code}.jpg" if words else f"{code[:2]}/{code}.jpg"


class Pictures:
    """The pictures of an index's pages, in a folder that has the name of the index.

    ``plaid serve --images`` reads the folder above.
    """

    def __init__(self, folder: str, index_name: str) -> None:
        self.folder = folder
        self._index_folder = os.path.join(folder, index_name)

    def store(self, id: str, picture: Any) -> str:
        """Stores the picture of a page, and returns the path for its metadata. Replaces a picture for the same id."""
        name = _picture_path(id)
        path = os.path.join(self._index_folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        small = picture.copy()
        small.thumbnail((KEPT_SIDE, KEPT_SIDE), reducing_gap=2.0)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                small.save(f, format="JPEG", quality=KEPT_QUALITY, optimize=True)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return name

    def exist(self) -> bool:
        """Reports whether the folder exists, and so may have pictures."""
        return os.path.isdir(self._index_folder)

    def remove_pages(self, ids: Iterable[str]) -> None:
        """Removes pictures that `store` has written for these ids."""
        for id in ids:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._index_folder, *_picture_path(id).split("/")))

    def remove_all(self) -> None:
        """Removes the pictures of all pages."""
        shutil.rmtree(self._index_folder, ignore_errors=True)

    def find(self, name: str) -> str | None:
        """Returns the file of a picture by the name in the metadata; None if it does not exist.

        A name, or a link in the folder, that leads out of the folder is treated as missing.
        """
        if "\0" in name:
            return None
        root = os.path.realpath(self._index_folder)
        path = os.path.realpath(os.path.join(root, name))
        return path if path.startswith(root + os.sep) and os.path.isfile(path) else None


def encode_batches(
    model: Any, pages: Iterable[Page], pictures: Pictures | None, batch_size: int, problems: Problems
) -> Iterator[tuple[list[str], Sequence[Any], list[dict[str, Any]]]]:
    """Encodes pages in batches, and yields the ids, vectors and metadata of each batch."""
    source = iter(pages)
    try:
        while batch := list(itertools.islice(source, batch_size)):
            encoded_pages = _encode_pages(model, batch, problems)
            for page, encoded in encoded_pages:
                stored = None if pictures is None else pictures.store(page.id, page.picture)
                page.fields["image"] = stored or str(page.fields.get("source") or page.id)
                if encoded.grid is not None:
                    page.fields["grid"] = encoded.grid
            if encoded_pages:
                ids = [page.id for page, _ in encoded_pages]
                vectors = [encoded.vectors for _, encoded in encoded_pages]
                yield ids, vectors, [page.fields for page, _ in encoded_pages]
    finally:
        problems.warn()


def _encode_pages(model: Any, batch: list[Page], problems: Problems) -> list[tuple[Page, Any]]:
    """Encodes a batch of pages. After an error, encodes each page separately to find the one that causes it."""
    try:
        return list(zip(batch, model.encode_pages([page.picture for page in batch])))
    except Exception as e:
        if type(e).__name__ == "OutOfMemoryError":  # torch's
            add_remark(e, f"with {len(batch)} pages at a time; try a smaller batch_size")
            raise
        if len(batch) == 1:
            add_remark(e, f"the page is {batch[0].id!r}")
            problems.add(e)
            return []
    return [pair for page in batch for pair in _encode_pages(model, [page], problems)]
