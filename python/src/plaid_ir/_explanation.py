"""Why a document is where it is."""

from __future__ import annotations

from html import escape
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt


class Explanation(dict[str, Any]):
    """How the score of a document comes about, and how far it got in a search: the answer of the
    service (docs/service.md) as a dictionary. In a notebook it is a heat map.

    Examples
    --------
    >>> import numpy as np
    >>> from plaid_ir import Index
    >>> with Index(None) as index:
    ...     why = index.add_documents(["a"], [np.eye(4)[:3]]).explain("a", np.eye(4)[:2])
    >>> why.stage, why.similarities.shape
    ('returned', (2, 3))
    """

    @property
    def score(self) -> float:
        """MaxSim, whatever became of the document."""
        return float(self["score"])

    @property
    def stage(self) -> str:
        """Where the document left the search; ``"returned"``: it is a hit."""
        return str(self["stage"])

    @property
    def similarities(self) -> npt.NDArray[np.float32]:
        """Inner products of the tokens, [query tokens, document tokens]."""
        return np.asarray(self["similarities"], dtype=np.float32)

    @property
    def cells(self) -> npt.NDArray[np.float32] | None:
        """Inner products with the cells of a page that is a picture, [query tokens, rows,
        columns]; None where there is no grid, or pooling has lost it."""
        grid = self.get("grid")
        if not grid:
            return None
        scores = [s["cells"] for s in grid["scores"]]
        return np.asarray(scores, dtype=np.float32).reshape(len(scores), grid["rows"], grid["columns"])

    def query_tokens(self) -> list[str]:
        """The tokens of the query.

        Returns
        -------
        list of str
            Their texts; their numbers where the query was vectors.
        """
        return _names(self.get("query_tokens"), self.similarities.shape[0])

    def document_tokens(self) -> list[str]:
        """The tokens of the document.

        Returns
        -------
        list of str
            Their texts; their numbers where the text or the model is not known.
        """
        return _names(self.get("document_tokens"), self.similarities.shape[1])

    def _repr_html_(self) -> str:
        table = self.similarities
        asked, there = self.query_tokens(), self.document_tokens()
        rank = f", rank {self['rank']}" if self.get("rank") else ""
        parts = [f"<p><b>{escape(str(self['id']))}</b>: {self.score:.4f}, {escape(self.stage)}{rank}</p>"]
        parts.append(self._picture())
        parts.append('<table style="font-size:small"><tr><th></th><th>best</th>')
        shown = range(min(len(there), 200))
        parts += [f"<th>{escape(there[j])}</th>" for j in shown]
        parts.append("</tr>")
        for i, name in enumerate(asked):
            row = table[i]
            best = int(row.argmax()) if len(row) else 0
            parts.append(f"<tr><th>{escape(name)}</th><td>{escape(there[best]) if there else ''}</td>")
            for j in shown:
                depth = min(max(float(row[j]), 0.0), 1.0)
                edge = ";outline:1px solid" if j == best else ""
                parts.append(f'<td style="background:rgba(33,110,200,{depth:.2f}){edge}" title="{escape(there[j])}: {row[j]:.3f}">{row[j]:.2f}</td>')
            parts.append("</tr>")
        parts.append("</table>")
        if len(there) > len(shown):
            parts.append(f"<p>{len(there) - len(shown)} tokens more</p>")
        return "".join(parts)

    def _picture(self) -> str:
        """The cells of a page, the redder the more all tokens of the query are like them."""
        cells = self.cells
        if cells is None or not 0 < cells.size <= 1 << 20 or cells[0].size > 1 << 14:
            return ""
        mean = cells.mean(axis=0)
        low, high = float(mean.min()), float(mean.max())
        heat = ((mean - low) / (high - low or 1)) ** 2 * 0.75
        rows = ("".join(f'<td style="padding:0;width:8px;height:8px;background:rgba(230,60,0,{h:.2f})"></td>' for h in row) for row in heat)
        return '<table style="border-spacing:0"><tr>' + "</tr><tr>".join(rows) + "</tr></table>"


def _names(tokens: Sequence[dict[str, Any]] | None, count: int) -> list[str]:
    if tokens is None or len(tokens) != count:
        return [str(i) for i in range(count)]
    return [str(t["piece"]) for t in tokens]
