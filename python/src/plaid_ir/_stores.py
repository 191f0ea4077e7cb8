"""Object stores: their addresses, and the folders that cache them."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile


def is_store(place: object) -> bool:
    """Reports whether ``place`` is an object store (``s3://BUCKET/PREFIX``, ``file:///FOLDER``), not a folder."""
    return isinstance(place, str) and ("://" in place or place.startswith("s3:"))  # the program reports typos


def cache_folder(store: str) -> str:
    """Returns the folder in which this user's service caches the indexes of a store."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or tempfile.gettempdir()
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "plaid", "python-" + hashlib.sha256(store.encode()).hexdigest()[:16])
