"""An explanation as text, as the command line prints it."""

from __future__ import annotations

from typing import Any, Mapping

#: Rows of the table that are printed.
_MAX_ROWS = 128
#: Characters of a piece of a text.
_MAX_PIECE = 24


def as_text(e: Mapping[str, Any]) -> str:
    """Where a document left a search, and a row for each token of the query with the token that it matches best."""
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
    lines = [f"{key + ':':<10}{_printable(value, 200)}" for key, value in head.items()]
    matches = e.get("matches") or ()
    if not matches:
        return "\n".join(lines)
    rows = [("QUERY", "", "DOCUMENT", "", "SCORE")]
    for m in matches[:_MAX_ROWS]:
        q, d = m["query_token"], m["doc_token"]
        asked, there = _piece(e.get("query_tokens"), q), _piece(e.get("document_tokens"), d)
        rows.append((str(q), asked, str(d), there, f"{m['score']:.4f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines.append("")
    for row in rows:
        cells = [cell.rjust(w) if i in (0, 2, 4) and row is not rows[0] else cell.ljust(w)
                 for i, (cell, w) in enumerate(zip(row, widths))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    if len(matches) > _MAX_ROWS:
        lines.append(f"… {len(matches) - _MAX_ROWS} more tokens of the query")
    return "\n".join(lines)


def _piece(tokens: Any, i: int) -> str:
    """The text of a token; nothing where it is not known."""
    if tokens is None or not 0 <= i < len(tokens):
        return ""
    return _printable(str(tokens[i]["piece"]), _MAX_PIECE)


def _printable(text: str, most: int) -> str:
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[:most])
    return shown + ("…" if len(text) > most else "")
