"""Models by the names that a hub gives them."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import tempfile
import threading
import unittest
from unittest import mock
from urllib.parse import urlsplit

from plaid_ir import Index, PlaidError

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "examples", "quickstart", "colbert-nano")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub with the model org/nano, and with org/gated, which it refuses."""

    asked: list[str] = []

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        Hub.asked.append(path)
        parts = path.strip("/").split("/")
        if "gated" in path:
            self.answer(401, b"", {"X-Error-Code": "GatedRepo"})
        elif path in (f"/api/models/org/nano/revision/{r}" for r in ("main", COMMIT)):
            files = [self.entry(f) for f in os.listdir(MODEL)]
            self.answer(200, json.dumps({"sha": COMMIT, "siblings": files}).encode())
        elif parts[:4] == ["org", "nano", "resolve", COMMIT]:
            self.answer(200, self.content(parts[4]))
        else:
            self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    def content(self, name: str) -> bytes:
        with open(os.path.join(MODEL, name), "rb") as f:
            return f.read()

    def entry(self, name: str) -> dict[str, object]:
        b = self.content(name)
        blob = hashlib.sha1(b"blob %d\0" % len(b) + b).hexdigest()
        return {"rfilename": name, "size": len(b), "blobId": blob}

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class TestHub(unittest.TestCase):
    def setUp(self) -> None:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = os.path.join(folder.name, "cache")
        environment = {"HF_ENDPOINT": f"http://127.0.0.1:{self.server.server_address[1]}", "HF_HUB_CACHE": self.cache}
        patch = mock.patch.dict(os.environ, {**environment, "HF_TOKEN": "", "HF_HUB_OFFLINE": ""})
        patch.start()
        self.addCleanup(patch.stop)
        Hub.asked.clear()

    def test_a_name_is_fetched_once(self) -> None:
        texts = ["cats sleep most of the day", "dogs bark at night"]
        with Index.from_texts(texts, model="org/nano") as index:
            self.assertEqual(index.search("who barks?", k=1)[0]["id"], 1)
        self.assertIn(f"/org/nano/resolve/{COMMIT}/model.safetensors", Hub.asked)
        self.assertNotIn(f"/org/nano/resolve/{COMMIT}/golden.npz", Hub.asked)
        Hub.asked.clear()
        with mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}), tempfile.TemporaryDirectory() as folder:
            with Index(folder, model="org/nano") as index, Index(folder, "other", model=f"org/nano@{COMMIT}") as other:
                index.add_texts(texts, ["a", "b"])
                other.add_texts(texts, ["a", "b"])
                self.assertEqual(index.search("who barks?", k=1)[0]["id"], "b")
        self.assertEqual(Hub.asked, [])

    def test_errors(self) -> None:
        with self.assertRaisesRegex(PlaidError, "^org/gated: the model is gated: .*set HF_TOKEN to a token"):
            Index(None, model="org/gated")
        with self.assertRaisesRegex(FileNotFoundError, "^org/none: the hub has no such model"):
            Index(None, model="org/none")
        with self.assertRaisesRegex(FileNotFoundError, r"^answerai-colbert-small-v1: .*; did you mean answerdotai/answerai-colbert-small-v1\?$"):
            Index(None, model="answerai-colbert-small-v1")
        with mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}):
            with self.assertRaisesRegex(FileNotFoundError, "^org/nano@v1: .*HF_HUB_OFFLINE=1.*hf download org/nano --revision v1 fetches it"):
                Index(None, model="org/nano@v1")
        self.assertEqual([path for path in Hub.asked if "nano" in path], [])
        for name in ("./org/nano", "/nowhere", "nano", "a/b/c"):
            with self.assertRaisesRegex(FileNotFoundError, f"^{name}: no such file or directory; .*ORG/NAME"):
                Index(None, model=name)


if __name__ == "__main__":
    unittest.main()
