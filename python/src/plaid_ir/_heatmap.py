"""Shows where on a page a query matches: the region of the best cells, and a heat map over the picture."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

#: The largest number of cells that a heat map shows.
_MAX_CELLS = 1 << 14
#: The largest picture that is embedded in a notebook, in bytes.
_MAX_BYTES = 8 << 20
#: The width of a heat map in pixels.
_WIDTH = 480
#: The first bytes of the picture formats that browsers can show.
_TYPES = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))


@dataclass(frozen=True)
class Region:
    """The rectangle of a page in which the query matches best.

    It encloses the best cell and all cells connected with it that are at least half as far above the page's median.

    Parameters
    ----------
    rows, columns
        The first row or column, and the one after the last.
    box
        Left, top, right and bottom as fractions of the page.
    score
        The mean similarity of the best cell to the tokens of the query.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    box: tuple[float, float, float, float]
    score: float

    def to_pixels(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Returns the rectangle in pixels of a picture of the page.

        Parameters
        ----------
        width, height
            The size of the picture.

        Returns
        -------
        tuple of int
            Left, top, right and bottom, as Pillow's ``crop`` expects them.
        """
        left, top, right, bottom = self.box
        return round(left * width), round(top * height), round(right * width), round(bottom * height)


def best_region(cells: npt.NDArray[np.float32]) -> Region:
    """Returns the region in which the query matches best, from similarities [query tokens, rows, columns]."""
    mean = cells.mean(axis=0)
    rows, columns = mean.shape
    best = int(mean.argmax())
    best_score = float(mean.flat[best])
    is_hot = mean >= (best_score + float(np.median(mean))) / 2
    # Find the hot cells that are connected with the best one.
    reached = np.zeros((rows, columns), dtype=bool)
    queue = [divmod(best, columns)]
    while queue:
        r, c = queue.pop()
        is_inside = 0 <= r < rows and 0 <= c < columns
        if not is_inside or reached[r, c] or not (is_hot[r, c] or mean[r, c] >= best_score):
            continue
        reached[r, c] = True
        queue += [(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    # Enclose them.
    in_rows, in_columns = np.flatnonzero(reached.any(axis=1)), np.flatnonzero(reached.any(axis=0))
    first, last, left, right = int(in_rows[0]), int(in_rows[-1]) + 1, int(in_columns[0]), int(in_columns[-1]) + 1
    box = left / columns, first / rows, right / columns, last / rows
    return Region((first, last), (left, right), box, best_score)


def heatmap_html(cells: npt.NDArray[np.float32], picture: str | None) -> str:
    """Returns the heat map of a page as HTML: cells coloured by their mean similarity to the tokens of the query.

    The cells lie over ``picture``, a URL or a file, unless it is None or cannot be read. A frame marks the best
    region. The result is empty if there are too many cells.
    """
    rows, columns = cells.shape[1:]
    if not 0 < cells.size <= 1 << 22 or rows * columns > _MAX_CELLS:
        return ""
    mean = cells.mean(axis=0)
    low, high = float(mean.min()), float(mean.max())
    heat = ((mean - low) / (high - low or 1)) ** 2 * 0.6
    address, shape = _picture_url(picture)
    width, height = shape if shape is not None else (columns, rows)
    depth = _WIDTH * height / width
    x, y = _WIDTH / columns, depth / rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{depth:.0f}" '
        f'viewBox="0 0 {_WIDTH} {depth:.2f}" role="img" aria-label="heat map of the page">'
    ]
    if address is not None:
        size = f'width="{_WIDTH}" height="{depth:.2f}" preserveAspectRatio="none"'
        parts.append(f'<image href="{escape(address)}" {size}/>')
    for (r, c), h in np.ndenumerate(heat):
        if h >= 0.005:
            place = f'x="{c * x:.2f}" y="{r * y:.2f}" width="{x:.2f}" height="{y:.2f}"'
            parts.append(f'<rect {place} fill="#e63c00" fill-opacity="{h:.2f}"><title>{mean[r, c]:.3f}</title></rect>')
    left, top, right, bottom = best_region(cells).box
    place = f'x="{left * _WIDTH:.2f}" y="{top * depth:.2f}" width="{(right - left) * _WIDTH:.2f}" '
    place += f'height="{(bottom - top) * depth:.2f}"'
    parts.append(f'<rect {place} fill="none" stroke="#0b57d0" stroke-width="2"/></svg>')
    return "".join(parts)


def _picture_url(picture: str | None) -> tuple[str | None, tuple[int, int] | None]:
    """Returns the URL of a picture for HTML, and its width and height if Pillow can read them."""
    if picture is None:
        return None, None
    if picture.startswith(("http://", "https://")):
        return picture, None
    try:
        if os.path.getsize(picture) > _MAX_BYTES:
            return None, None
        with open(picture, "rb") as f:
            data = f.read()
    except OSError:
        return None, None
    kind = next((kind for start, kind in _TYPES if data.startswith(start)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        return None, None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}", _picture_size(picture)


def _picture_size(picture: str) -> tuple[int, int] | None:
    try:
        from PIL import Image  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError:
        return None
    try:
        with Image.open(picture) as opened:  # pyright: ignore
            width, height = opened.size  # pyright: ignore
            return int(width), int(height)  # pyright: ignore
    except Exception:  # a damaged file: the cells are shown without it
        return None
