"""A client that openapi-python-client makes of /openapi.json calls the service, as it is.

    generated.py URL FOLDER: the client is made in FOLDER.
"""

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path


def make(url, folder):
    scripts = Path(sys.executable).parent
    config = Path(folder) / "client.yaml"
    config.write_text("content_type_overrides: {application/safetensors: application/octet-stream}\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--url", url + "/openapi.json", "--config", config, "--meta", "none", "--output-path", Path(folder) / "made"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"})
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # What takes an archive is left out, and the answer of a picture is not parsed.
    expected = ["PUT /indices/{name}/import", "GET /indices/{name}/image"]
    assert said.count("WARNING") == len(expected) and all(f"WARNING parsing {route}" in said for route in expected), said
    sys.path.insert(0, folder)


def use(url):
    from made import Client, models
    from made.types import File

    client = Client(base_url=url)

    def call(path, *args, status=200, **more):
        answer = importlib.import_module("made.api." + path).sync_detailed(*args, client=client, **more)
        assert answer.status_code == status, (path, answer.status_code, answer.content)
        assert answer.parsed is not None, path
        return answer.parsed

    def body(name, value):
        return getattr(models, name).from_dict(value)

    def request(path, name, value, *args, **more):
        return call(path, *args, body=body(name, value), **more)

    made = request("indices.create_index", "DeclareRequest", {"name": "g", "config": {"nbits": 4}})
    assert made.name == "g", made
    call("indices.get_index", "g", status=404)
    problem = call("search.search", "g", body=body("SearchRequest", {"queries": [{"embeddings": [[1, 0]]}]}), status=404)
    assert str(problem.code) == "INDEX_NOT_FOUND", problem
    texts = ["cats sleep all day", "dogs bark at night", "birds sing"]
    metadata = [{"_id": i, "Page Number": n, "ptex.fullbanner": "TeX", "text": t} for n, (i, t) in enumerate(zip("abc", texts))]
    said = request("documents.update_index_with_encoding", "UpdateTextRequest", {"documents": texts, "metadata": metadata}, "g", status=202)
    assert "3 documents" in said, said
    query = request("encode.encode", "EncodeRequest", {"texts": ["cats sleep"], "input_type": "query"})
    matrix = query.embeddings[0]
    document = request("encode.encode", "EncodeRequest", {"texts": ["cats sleep"], "input_type": "document"}).embeddings[0]
    request("documents.update_index", "UpdateRequest", {"documents": [{"embeddings": document}], "metadata": [{"_id": "d"}]}, "g", status=202)
    done = request("documents.update_index", "UpdateRequest", {"documents": [{"embeddings": document}], "metadata": [{"_id": "e"}]}, "g", prefer="return=representation")
    assert done.ids == ["e"], done

    def ids(answer, of=0):
        hit = answer.results[of]
        return hit.ids or [m["_id"] for m in hit.metadata]

    found = request("search.search", "SearchRequest", {"queries": [{"embeddings": matrix}], "params": {"top_k": 5}}, "g")
    assert set(ids(found)) == set("abcde") and found.num_queries == 1, found
    condition = {"filter_condition": '"Page Number" >= ? AND "ptex.fullbanner" = \'TeX\'', "filter_parameters": [1]}
    found = request("search.search_filtered", "SearchRequest", {"queries": [{"embeddings": matrix}], **condition}, "g")
    assert set(ids(found)) == {"b", "c"}, found
    found = request("search.search_with_encoding", "SearchTextRequest", {"queries": ["dogs bark", {"text": "birds", "ids": ["c"]}], "metadata": False}, "g")
    assert ids(found)[0] == "b" and ids(found, 1) == ["c"], found
    found = request("search.search_filtered_with_encoding", "SearchTextRequest", {"queries": ["cats"], **condition}, "g")
    assert set(ids(found)) == {"b", "c"}, found
    found = request("search.search", "SearchRequest", {"text_query": ["night"]}, "g")
    assert ids(found) == ["b"], found
    found = request("search.search_with_encoding", "SearchTextRequest", {"queries": ["dogs"], "text_query": ["dogs"], "alpha": 0.5, "fusion": "rrf"}, "g")
    assert ids(found)[0] == "b", found

    passages = [{"_id": f"p#{n}", "_passage": {"of": "p", "n": n, "start": 10 * n, "end": 10 * n + 9}} for n in range(2)]
    request("documents.update_index_with_encoding", "UpdateTextRequest", {"documents": ["owls hunt", "owls hear"], "metadata": passages, "text_field": "text"}, "g", status=202)
    found = request("search.search_with_encoding", "SearchTextRequest", {"queries": ["owls hear"], "group": "best", "passages": 1, "highlight": True, "params": {"top_k": 1}}, "g")
    best = found.results[0].passages[0][0]
    assert ids(found) == ["p"] and best.id == "p#1" and best.n == 1 and best.spans, found

    tensors = safetensors(matrix, {"params": {"top_k": 2}})
    found = call("search.search", "g", body=File(payload=io.BytesIO(tensors)))
    assert len(found.results[0].document_ids) == 2, found

    assert request("admin.check_recall", "RecallRequest", {"queries": [{"embeddings": matrix}], "params": {"top_k": 1}}, "g").recall == 1

    why = request("search.explain", "ExplainRequest", {"text": "dogs bark", "id": "b"}, "g")
    assert str(why.stage) == "returned", why
    facet = request("metadata.facets", "FacetsRequest", {"fields": ['"ptex.fullbanner"']}, "g").facets[0]
    assert facet.values[0].docs == 3, facet
    assert request("metadata.query_metadata", "ConditionRequest", {"condition": '"Page Number" = 1'}, "g").document_ids == [1]
    assert request("metadata.update_metadata", "UpdateMetadataRequest", {"condition": "_id = 'a'", "updates": {"seen": True}}, "g").updated == 1
    assert request("metadata.get_metadata", "GetMetadataRequest", {"document_ids": [0]}, "g").metadata[0]["seen"] is True
    assert call("documents.get_documents", "g", id=["a"], vectors=models.GetDocumentsVectors.JSON).documents[0].embeddings
    problem = request("documents.delete_documents", "DeleteRequest", {"condition": "seem IS NULL"}, "g", status=400)
    assert "unknown field seem" in problem.message, problem  # a cluster names no nearest ones
    assert request("documents.delete_documents", "DeleteRequest", {"condition": "seem IS NOT NULL"}, "g", status=202, prefer="unknown-fields=null").startswith("0 documents")
    assert request("documents.delete_documents", "DeleteRequest", {"ids": ["d", "e"]}, "g", status=202).startswith("2 documents")

    ranked = request("rerank.rerank", "RerankRequest", {"query": matrix, "documents": [{"embeddings": document}, {"embeddings": matrix}]})
    assert ranked.num_documents == 2, ranked
    ranked = request("rerank.rerank_with_encoding", "RerankTextRequest", {"query": "dogs", "documents": ["cats sleep", "dogs bark"]})
    assert ranked.results[0].index == 1, ranked
    ranked = request("rerank.rerank_v1", "RerankAPIRequest", {"query": "dogs", "documents": ["cats sleep", {"text": "dogs bark"}], "top_n": 1})
    assert ranked.results[0].index == 1, ranked
    answer = request("encode.embeddings", "EmbeddingsRequest", {"input": "dogs bark", "encoding_format": "float"})
    assert len(answer.data[0].embedding[0]) == len(matrix[0]) and answer.usage.prompt_tokens > 0, answer
    assert call("encode.models").data[0].object_, "no model"
    assert call("service.health").status == "healthy"
    assert call("indices.get_index_stats", "g").documents == 4
    assert "g" in call("indices.list_indices")
    assert call("indices.delete_index", "g").deleted


def safetensors(matrix, request):
    """A body of vectors: one matrix, and the JSON of the request."""
    import struct

    parts = {
        "vectors": ("F32", [len(matrix), len(matrix[0])], b"".join(struct.pack("<f", x) for row in matrix for x in row)),
        "lengths": ("I64", [1], struct.pack("<q", len(matrix))),
        "request": ("U8", [len(json.dumps(request))], json.dumps(request).encode()),
    }
    head, body = {}, b""
    for name, (kind, shape, raw) in parts.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + body


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2])
    use(sys.argv[1])
    print("generated client: passed")
