"""Pictures of pages go with their pages."""

from __future__ import annotations

import unittest
from pathlib import Path

import numpy as np

from plaid_ir import Index, RequestError, _images, delete_index

from .image_files import Folder, needs_pillow, picture


@needs_pillow
class Deleting(Folder):
    def test_pictures_go_with_their_pages(self) -> None:
        ids = ["a#1", "a#2", "b", "c"]
        with Index("indexes", "docs") as index:
            kept = index._connection.pictures
            assert kept is not None
            index.add_documents(ids, [np.eye(4)] * 4, [{"image": kept.store(i, picture()), "n": n} for n, i in enumerate(ids)])
            own = self.write("indexes/.images/docs/own.jpg", b"")

            def there() -> set[str]:
                return {i for i in ids if kept.find(_images._picture_path(i))}

            self.assertEqual((index.delete(where="n = 1"), there()), (1, {"a#1", "b", "c"}))
            self.assertEqual((index.delete(["b", "nobody"]), there()), (1, {"a#1", "c"}))
            index.remove_documents("c")
            self.assertEqual(there(), {"a#1"})
            with self.assertRaises(RequestError):
                index.delete(where="nope = 1")
            self.assertTrue(there() and Path(own).exists())
        delete_index("docs", "indexes")
        self.assertFalse(Path("indexes/.images/docs").exists())


if __name__ == "__main__":
    unittest.main()
