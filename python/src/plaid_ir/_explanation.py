"""Explanations of scores, as dictionaries, text and HTML."""

from __future__ import annotations

from html import escape
from typing import Any, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ._heatmap import Region, heatmap_html, best_region
from ._images import Pictures

#: The number of rows of a table that are printed.
_MAX_ROWS = 128
#: The number of characters of a token's text that are printed.
_MAX_PIECE = 24


class Explanation(dict[str, Any]):
    """Explains the score of a document, and how far the document got in a search.

    It is the answer of the service (docs/service.md) as a dictionary. A notebook shows it as a heat map.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index
    >>> with Index(None) as index:
    ...     why = index.add_documents(["a"], [np.eye(4)[:3]]).explain("a", np.eye(4)[:2])
    >>> why.stage, why.similarities.shape
    ('returned', (2, 3))
    """

    #: The pictures of the index's pages.
    _pictures: Pictures | None = None

    @property
    def score(self) -> float:
        """The exact MaxSim score of the document, even if the search dropped it earlier."""
        return float(self["score"])

    @property
    def stage(self) -> str:
        """The stage at which the search dropped the document; ``"returned"`` for a hit."""
        return str(self["stage"])

    @property
    def similarities(self) -> npt.NDArray[np.float32]:
        """The inner products of the tokens, [query tokens, document tokens]."""
        return np.asarray(self["similarities"], dtype=np.float32)

    @property
    def cells(self) -> npt.NDArray[np.float32] | None:
        """The inner products with the cells of a page image, [query tokens, rows, columns].

        None if the document has no grid, or if pooling has removed it.
        """
        grid = self.get("grid")
        if not grid:
            return None
        scores = [s["cells"] for s in grid["scores"]]
        return np.asarray(scores, dtype=np.float32).reshape(len(scores), grid["rows"], grid["columns"])

    @property
    def region(self) -> Region | None:
        """The region of a page image in which the query matches best; None if ``cells`` is None."""
        cells = self.cells
        return None if cells is None or cells.size == 0 else best_region(cells)

    @property
    def picture(self) -> str | None:
        """The file of the page's picture, or its URL; None if neither is known on this machine."""
        image = self.get("image")
        if not isinstance(image, str) or image.startswith(("http://", "https://")):
            return image if isinstance(image, str) else None
        return None if self._pictures is None else self._pictures.find(image)

    def query_tokens(self) -> list[str]:
        """Returns the tokens of the query.

        Returns
        -------
        list of str
            The texts of the tokens; their numbers if the query was a matrix.
        """
        return _token_texts(self.get("query_tokens"), self.similarities.shape[0])

    def document_tokens(self) -> list[str]:
        """Returns the tokens of the document.

        Returns
        -------
        list of str
            The texts of the tokens; their numbers if the text or the model is not known.
        """
        return _token_texts(self.get("document_tokens"), self.similarities.shape[1])

    def __str__(self) -> str:
        return _explanation_text(self)

    def __repr__(self) -> str:
        rank = f", rank {self['rank']}" if self.get("rank") else ""
        return f"<Explanation of {self['id']!r}: score {self.score:.4f}, {self.stage}{rank}>"

    def _repr_html_(self) -> str:
        similarities = self.similarities
        query_tokens, document_tokens = self.query_tokens(), self.document_tokens()
        rank = f", rank {self['rank']}" if self.get("rank") else ""
        parts = [f"<p><b>{escape(str(self['id']))}</b>: {self.score:.4f}, {escape(self.stage)}{rank}</p>"]
        cells = self.cells
        if cells is not None:
            parts.append(heatmap_html(cells, self.picture))
        parts.append('<table style="font-size:small"><tr><th></th><th>best</th>')
        columns = range(min(len(document_tokens), 200))
        parts += [f"<th>{escape(document_tokens[j])}</th>" for j in columns]
        parts.append("</tr>")
        for i, name in enumerate(query_tokens):
            row = similarities[i]
            best = int(row.argmax()) if len(row) else 0
            best_token = escape(document_tokens[best]) if document_tokens else ""
            parts.append(f"<tr><th>{escape(name)}</th><td>{best_token}</td>")
            for j in columns:
                depth = min(max(float(row[j]), 0.0), 1.0)
                edge = ";outline:1px solid" if j == best else ""
                style = f"background:rgba(33,110,200,{depth:.2f}){edge}"
                title = f"{escape(document_tokens[j])}: {row[j]:.3f}"
                parts.append(f'<td style="{style}" title="{title}">{row[j]:.2f}</td>')
            parts.append("</tr>")
        parts.append("</table>")
        if len(document_tokens) > len(columns):
            parts.append(f"<p>{len(document_tokens) - len(columns)} more tokens</p>")
        return "".join(parts)


def _token_texts(tokens: Sequence[dict[str, Any]] | None, count: int) -> list[str]:
    if tokens is None or len(tokens) != count:
        return [str(i) for i in range(count)]
    return [str(t["piece"]) for t in tokens]


def _explanation_text(e: Mapping[str, Any]) -> str:
    """Returns the stage at which a search dropped a document, and the best match of each token of the query."""
    stage = str(e["stage"])
    if e.get("rank"):
        stage += f", rank {e['rank']}"
    elif e.get("stage_score") is not None and e.get("stage_limit") is not None:
        stage += f": {e['stage_score']:.4f} in this stage, {e['stage_limit']:.4f} was needed; both are approximate"
    head = {"document": f"{e['id']} ({e.get('tokens', 0)} tokens)", "score": f"{e['score']:.4f}", "stage": stage}
    head |= {key: str(e[key]) for key in ("plan", "image") if e.get(key)}
    grid = e.get("grid")
    if grid:
        head["grid"] = f"{grid['rows']} rows, {grid['columns']} columns"
    lines = [f"{key + ':':<10}{_replace_unprintable(value, 200)}" for key, value in head.items()]
    matches = e.get("matches") or ()
    if not matches:
        return "\n".join(lines)
    rows = [("QUERY", "", "DOCUMENT", "", "SCORE")]
    for m in matches[:_MAX_ROWS]:
        q, d = m["query_token"], m["doc_token"]
        query_text, document_text = _token_text(e.get("query_tokens"), q), _token_text(e.get("document_tokens"), d)
        rows.append((str(q), query_text, str(d), document_text, f"{m['score']:.4f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines.append("")
    for row in rows:
        cells = [cell.rjust(w) if i in (0, 2, 4) and row is not rows[0] else cell.ljust(w)
                 for i, (cell, w) in enumerate(zip(row, widths))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    if len(matches) > _MAX_ROWS:
        lines.append(f"… {len(matches) - _MAX_ROWS} more tokens of the query")
    return "\n".join(lines)


def _token_text(tokens: Any, i: int) -> str:
    """Returns the text of token ``i``, or "" if it is not known."""
    if tokens is None or not 0 <= i < len(tokens):
        return ""
    return _replace_unprintable(str(tokens[i]["piece"]), _MAX_PIECE)


def _replace_unprintable(text: str, limit: int) -> str:
    printable = "".join(c if c.isprintable() else "\ufffd" for c in text[:limit])
    return printable + ("…" if len(text) > limit else "")
