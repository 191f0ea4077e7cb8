"""Drives the service with the clients that exist, as they are published.

Takes the URLs of services in different states; see clients_test.go. Prints a line for
each part and ends with status 1 at the first thing that is not as it should be.
"""

import argparse
import asyncio
import inspect
import json
import math
import threading

import generated
import others
import requests
from click.testing import CliRunner
from langchain_core.documents import Document as LangchainDocument
from langchain_plaid import NextPlaidVectorStore
from next_plaid_client import (
    AsyncNextPlaidClient,
    Document,
    IndexConfig,
    IndexExistsError,
    IndexNotFoundError,
    ModelNotLoadedError,
    NextPlaidClient,
    NextPlaidError,
    RateLimitError,
    SearchParams,
    ValidationError,
)
from next_plaid_client.cli import cli
from next_plaid_client.exceptions import ConnectionError as PlaidConnectionError
from next_plaid_client.exceptions import ServerError

DIM = 16


def vector(word):
    """A unit vector for a word: the same word, the same vector."""
    state, out = 2166136261, []
    for c in word.encode():
        state = (state ^ c) * 16777619 % 2**32
    for _ in range(DIM):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state / 2**31 - 1)
    norm = math.sqrt(sum(x * x for x in out))
    return [x / norm for x in out]


def matrix(text):
    return [vector(w) for w in text.lower().split()]


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(repr(w) for w in what))


def equal(got, want):
    check(got == want, got, "is not", want)


class Caller:
    """Calls methods of either client."""

    def __init__(self, client):
        self.client = client

    async def __call__(self, method, *args, **kwargs):
        result = getattr(self.client, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def fails(self, kind, method, *args, code=None, status=None, **kwargs):
        try:
            result = await self(method, *args, **kwargs)
        except NextPlaidError as e:
            check(type(e) is kind, type(e), e, "is no", kind)
            check(isinstance(e.message, str) and isinstance(e.code, str), e)
            if code:
                equal(e.code, code)
            if status:
                equal(e.status_code, status)
            return e
        raise AssertionError(f"{method}{args} gave {result!r}")


TEXTS = ["cats sleep all day", "dogs bark at night", "birds sing in the morning", "cats and dogs fight"]
META = [
    {"title": "cats", "year": 2019, "tags": ["a", "b"]},
    {"title": "dogs", "year": 2020, "good": True},
    {"title": "birds", "year": 2021, "score": 0.5},
    {"title": "both", "year": 2022, "_id": "both"},
]


async def every_method(call, name, keywords):
    health = await call("health")
    equal(health.status, "healthy")
    check(health.version and health.memory_usage_bytes > 0 and health.index_dir, health)
    created = await call("create_index", name, IndexConfig(nbits=4, seed=7))
    equal((created["name"], created["config"]["nbits"], created["config"]["seed"]), (name, 4, 7))
    check(name in await call("list_indices"))
    await call.fails(IndexExistsError, "create_index", name, code="INDEX_ALREADY_EXISTS", status=409)
    await call.fails(IndexNotFoundError, "get_index", name, code="INDEX_NOT_FOUND", status=404)  # no documents yet

    said = await call("add", name, [{"embeddings": matrix(t)} for t in TEXTS[:2]], metadata=META[:2])
    check(isinstance(said, str) and "2 documents" in said and not said.startswith("{"), said)
    said = await call("add", name, [Document(matrix(t)) for t in TEXTS[2:]], metadata=META[2:])
    check(isinstance(said, str), said)

    info = await call("get_index", name)
    equal((info.name, info.num_documents, info.num_embeddings, info.dimension), (name, 4, sum(len(t.split()) for t in TEXTS), DIM))
    equal((info.has_metadata, info.metadata_count, info.max_documents), (True, 4, None))
    check(info.num_partitions > 0 and abs(info.avg_doclen - info.num_embeddings / 4) < 1e-9, info)
    summary = [i for i in (await call("health")).indices if i.name == name]
    equal([(s.num_documents, s.dimension, s.has_metadata) for s in summary], [(4, DIM, True)])

    found = await call("search", name, [matrix("cats sleep all day"), {"embeddings": matrix("dogs bark")}], params=SearchParams(top_k=2))
    equal((found.num_queries, [r.query_id for r in found.results]), (2, [0, 1]))
    equal([r.document_ids[0] for r in found.results], [0, 1])
    check(abs(found.results[0].scores[0] - 4) < 0.1, found.results[0].scores)
    equal([len(r.document_ids) for r in found.results], [2, 2])
    first = found.results[0].metadata[0]
    equal((first["_subset_"], first["title"], first["tags"]), (0, "cats", ["a", "b"]))
    check(isinstance(first["_id"], str) and "score" not in first, first)

    found = await call("search", name, [matrix("cats")], params=SearchParams(top_k=100, n_ivf_probe=4, n_full_scores=64, centroid_score_threshold=None))
    equal(sorted(found.results[0].document_ids), [0, 1, 2, 3])  # top_k above the number of documents
    scores = found.results[0].scores
    equal(scores, sorted(scores, reverse=True))
    found = await call("search", name, [matrix("cats")], subset=[1, 2, 777])
    equal(sorted(found.results[0].document_ids), [1, 2])
    found = await call("search", name, [matrix("cats")], filter_condition="year >= ? AND title != ?", filter_parameters=[2020, "both"])
    equal(sorted(found.results[0].document_ids), [1, 2])
    found = await call("search", name, [matrix("cats")], filter_condition="year > ?", filter_parameters=[3000])
    equal((found.results[0].document_ids, found.results[0].scores, found.results[0].metadata), ([], [], []))
    found = await call("search", name, [matrix("cats")], filter_condition="_id = ?", filter_parameters=["both"])
    equal(found.results[0].document_ids, [3])
    await call.fails(ValidationError, "search", name, [matrix("cats")], filter_condition="nope = ?", filter_parameters=[1], code="BAD_REQUEST")
    await call.fails(ValidationError, "search", name, [matrix("cats")], filter_condition="year = ?", code="BAD_REQUEST")
    await call.fails(ValidationError, "search", name, [matrix("cats")], filter_condition="year = ?; DROP", filter_parameters=[1])
    await call.fails(ValidationError, "search", name, [[[1.0, 2.0]]], code="DIMENSION_MISMATCH", status=400)
    await call.fails(ValidationError, "search", name, [], code="BAD_REQUEST")

    if keywords:
        found = await call("keyword_search", name, "birds")
        equal([r.document_ids for r in found.results], [[2]])
        check(found.results[0].scores[0] > 0, found)
        found = await call("keyword_search", name, ["birds", "cats"], params=SearchParams(top_k=1), filter_condition="year < ?", filter_parameters=[2021])
        equal([r.document_ids for r in found.results], [[], [0]])
        for fusion in (None, "rrf", "relative_score"):
            found = await call("search", name, [matrix("cats sleep"), matrix("dogs bark")], text_query=["cats", "dogs"], alpha=0.5, fusion=fusion)
            equal([r.document_ids[0] for r in found.results], [0, 1])
        await call.fails(ValidationError, "search", name, [matrix("cats")], text_query=["cats", "dogs"])
        await call.fails(ValidationError, "search", name, [matrix("cats")], text_query=["cats"], alpha=1.5)
        await call.fails(ValidationError, "search", name, [matrix("cats")], text_query=["cats"], fusion="best")
        await call("keyword_search", name, "what's this? (a \"lone quote")  # a plain sentence is words
    else:
        await call.fails(ValidationError, "keyword_search", name, "birds", code="NOT_SUPPORTED")

    meta = await call("get_metadata", name)
    equal((meta.count, [m["_subset_"] for m in meta.metadata]), (4, [0, 1, 2, 3]))
    equal(meta.metadata[3]["_id"], "both")
    equal(meta.metadata[1]["good"], True)
    equal(await call("get_metadata_count", name), {"count": 4, "passages": 0, "has_metadata": True})
    there = await call("check_metadata", name, [0, 3, 9])
    equal((there.existing_ids, there.missing_ids, there.existing_count, there.missing_count), ([0, 3], [9], 2, 1))
    equal(await call("query_metadata", name, "year BETWEEN ? AND ? OR title LIKE ?", [2020, 2021, "BOT%"]), {"document_ids": [1, 2, 3], "count": 3})
    equal((await call("query_metadata", name, "title REGEXP ?", ["^c.ts$"]))["document_ids"], [0])
    await call.fails(ValidationError, "query_metadata", name, "nope = ?", [1])
    got = await call("get_metadata_by_ids", name, document_ids=[2, 0, 9])
    equal([m["title"] for m in got.metadata], ["birds", "cats"])
    got = await call("get_metadata_by_ids", name, condition="year >= ?", parameters=[2020], limit=2)
    equal([m["_subset_"] for m in got.metadata], [1, 2])
    equal((await call("get_metadata_by_ids", name)).count, 4)
    await call.fails(ValidationError, "get_metadata_by_ids", name, document_ids=[1], condition="year = ?", parameters=[1])
    equal(await call("update_metadata", name, "year < ?", {"old": True, "year": 1999}, [2020]), {"updated": 1, "passages": 0})
    equal((await call("get_metadata_by_ids", name, document_ids=[0])).metadata[0]["year"], 1999)
    equal(await call("update_metadata", name, "year > ?", {"old": True}, [3000]), {"updated": 0, "passages": 0})

    said = await call("delete", name, "title = ? OR year = ?", ["dogs", 1999])
    check("2 documents" in said, said)
    found = await call("search", name, [matrix("cats sleep all day")])
    equal(sorted(found.results[0].document_ids), [2, 3])  # ids have not moved
    await call("add", name, [{"embeddings": matrix("new words")}], metadata=[{"_id": "both", "title": "replaced"}])
    equal((await call("get_metadata_by_ids", name, condition="_id = ?", parameters=["both"])).metadata, [{"_subset_": 4, "_id": "both", "title": "replaced"}])
    changed = await call("update_index_config", name, 2)
    equal(changed["config"]["max_documents"], 2)
    await call("add", name, [{"embeddings": matrix("newest of all")}])  # without metadata; the oldest goes
    equal([m["_subset_"] for m in (await call("get_metadata", name)).metadata], [4, 5])
    equal((await call("get_index", name)).max_documents, 2)
    equal((await call("update_index_config", name, None))["config"]["max_documents"], None)

    for bad in (
        [{"embeddings": matrix("fine")}, {"embeddings": [[1.0] * 3]}],
        [{"embeddings": [[float("nan")] * DIM]}],
        [{"embeddings": [[float("inf")] * DIM]}],
    ):
        e = await call.fails(ValidationError, "add", name, bad, status=400)
        check("document" in (e.details or {}), e.details)
    equal((await call("get_index", name)).num_documents, 2)
    await call.fails(ValidationError, "add", name, [{"embeddings": matrix("x")}], metadata=[{"_Subset_": 1}])
    await call.fails(IndexNotFoundError, "add", name + "-undeclared", [{"embeddings": matrix("x")}], code="INDEX_NOT_DECLARED")

    ranked = await call("rerank", matrix("cats sleep"), [{"embeddings": matrix(t)} for t in TEXTS])
    equal((ranked.num_documents, ranked.results[0].index), (4, 0))
    check(abs(ranked.results[0].score - 2) < 1e-5, ranked.results)
    await call.fails(ValidationError, "rerank", matrix("cats"), [])
    await call.fails(ValidationError, "rerank", matrix("cats"), [{"embeddings": [[1.0]]}], code="DIMENSION_MISMATCH")

    equal(await call("delete_index", name), {"deleted": True, "name": name})
    equal((await call("delete_index", name))["deleted"], False)
    await call.fails(IndexNotFoundError, "search", name, [matrix("cats")])
    await call.fails(IndexNotFoundError, "delete", name, "year = ?", [1])
    await call.fails(ValidationError, "create_index", "a b", code="BAD_REQUEST")


async def text_routes(call, name):
    await call("create_index", name)
    check("4 documents" in await call("add", name, TEXTS, metadata=META))
    found = await call("search", name, ["cats sleep all day"], params=SearchParams(top_k=1))
    equal(found.results[0].document_ids, [0])
    found = await call("search", name, ["cats sleep all day"], filter_condition="year > ?", filter_parameters=[2019])
    check(0 not in found.results[0].document_ids and len(found.results[0].document_ids) == 3, found)
    found = await call("search", name, ["cats"], subset=[1])
    equal(found.results[0].document_ids, [1])
    query = await call("encode", ["cats sleep", "dogs"], input_type="query")
    equal((query.num_texts, [len(e) for e in query.embeddings], len(query.embeddings[0][0])), (2, [2, 1], DIM))
    docs = await call("encode", TEXTS, input_type="document", pool_factor=2)
    equal([len(e) for e in docs.embeddings], [2, 2, 3, 2])
    await call.fails(ValidationError, "encode", ["x"], input_type="poem")
    ranked = await call("rerank", "dogs bark", TEXTS)
    equal(ranked.results[0].index, 1)
    await call("add", name, ["fish swim far away"], pool_factor=2)
    equal((await call("get_index", name)).num_embeddings, 17 + 2)
    await call("delete_index", name)


async def no_model(call):
    for method, args in (("encode", (["x"],)), ("rerank", ("q", ["d"]))):
        await call.fails(ValidationError, method, *args, code="MODEL_NOT_LOADED", status=400)


async def exceptions(o):
    with NextPlaidClient(o.loading) as client:
        await Caller(client).fails(ModelNotLoadedError, "encode", ["x"], code="MODEL_LOADING", status=503)
    with NextPlaidClient(o.damaged) as client:
        await Caller(client).fails(ServerError, "get_index", "damaged", code="INDEX_CORRUPT", status=500)
        equal((await Caller(client)("health")).loaded_indices, 0)
    with NextPlaidClient(o.limited) as client:
        call = Caller(client)
        for _ in range(100):
            try:
                await call("list_indices")
            except RateLimitError as e:
                equal(e.code, "RATE_LIMITED")
                break
        else:
            raise AssertionError("a hundred requests at once were answered")
    r = requests.get(o.limited + "/indices")
    check(r.status_code == 429 and int(r.headers["Retry-After"]) >= 1 and r.json()["retry_after_seconds"] >= 1, r.text)
    with NextPlaidClient("http://127.0.0.1:1") as client:
        await Caller(client).fails(PlaidConnectionError, "health", code="CONNECTION_ERROR")
    async with AsyncNextPlaidClient("http://127.0.0.1:1") as client:
        await Caller(client).fails(PlaidConnectionError, "health", code="CONNECTION_ERROR")
    with NextPlaidClient(o.tokens) as client:
        await Caller(client).fails(NextPlaidError, "list_indices", code="UNAUTHORIZED", status=401)
    with NextPlaidClient(o.tokens, headers={"Authorization": "Bearer read-read-read-read"}) as client:
        equal(await Caller(client)("list_indices"), [])
        await Caller(client).fails(NextPlaidError, "create_index", "x", code="FORBIDDEN", status=403)


def command(url, *args, code=0, stdin=None, as_json=False, header=()):
    words = ["-u", url, *(("--json",) if as_json else ()), *header, *args]
    result = CliRunner().invoke(cli, words, input=stdin)
    check(result.exit_code == code, words, result.exit_code, result.output)
    return json.loads(result.stdout) if as_json and code == 0 else result.output


def command_line(url, url_texts, tmp, keywords):
    docs, meta = tmp + "/docs.json", tmp + "/meta.json"
    with open(docs, "w") as f:
        json.dump([{"embeddings": matrix(t)} for t in TEXTS], f)
    with open(meta, "w") as f:
        json.dump(META, f)
    for as_json in (False, True):
        def run(*args, **kwargs):
            return command(url, *args, as_json=as_json, **kwargs)

        run("health")
        run("index", "create", "cli", "--nbits", "2", "--max-documents", "100", "--seed", "1", "--fts-tokenizer", "trigram")
        run("index", "create", "cli", code=1)
        check("cli" in run("index", "list"))
        run("document", "add", "cli", "--file", docs, "--metadata-file", meta)
        run("document", "add", "cli", "--stdin", stdin=json.dumps([{"embeddings": matrix("one more")}]))
        info = run("index", "get", "cli")
        check(info["num_documents"] == 5 if as_json else "documents: 5" in info, info)
        run("index", "config", "cli", "--max-documents", "50")
        run("index", "config", "cli", "--max-documents", "0")
        if keywords:
            run("search", "cli", "--text-query", "cats", "-k", "2", "--filter", "year < ?", "--filter-param", "2022")
        run("search", "cli", code=2)
        run("metadata", "list", "cli")
        run("metadata", "count", "cli")
        run("metadata", "check", "cli", "-i", "0", "-i", "99")
        run("metadata", "query", "cli", "-c", "year > ?", "-p", "2020")
        run("metadata", "query", "cli", "-c", "year >", code=1)
        got = run("metadata", "get", "cli", "-c", "year > ?", "-p", "2020", "-l", "1")
        check("birds" in json.dumps(got), got)
        run("metadata", "get", "cli", "-i", "0", "-i", "1")
        run("metadata", "update", "cli", "-c", "year > ?", "-p", "2020", "--set", '{"new": true}', "--yes")
        run("document", "delete", "cli", "-c", "year = ?", "-p", "2019", "--yes")
        run("index", "get", "none", code=1)
        check("Error:" in command(url, "index", "get", "none", code=1))
        run("encode", "x", code=1)
        run("rerank", "-q", "cats", "-d", "dogs", code=1)
        run("index", "delete", "cli", "--yes")

        def texts(*args, **kwargs):
            return command(url_texts, *args, as_json=as_json, **kwargs)

        texts("index", "create", "cli")
        texts("document", "add", "cli", "--text", TEXTS[0], "--text", TEXTS[1], "--pool-factor", "1")
        texts("document", "add", "cli", "--stdin", stdin=json.dumps(TEXTS[2:]))
        got = texts("search", "cli", "dogs bark at night", "-k", "1", "--n-ivf-probe", "4", "--n-full-scores", "100", "--centroid-threshold", "0")
        check(got["results"][0]["document_ids"] == [1] if as_json else "doc_id=1 " in got, got)
        texts("search", "cli", "--stdin", "--subset", "1", "--subset", "2", stdin='["cats"]')
        if keywords:
            texts("search", "cli", "cats", "--text-query", "cats", "--alpha", "0.5", "--fusion", "rrf")
        texts("encode", "cats", "--input-type", "query")
        texts("encode", "--stdin", "--pool-factor", "2", stdin='["cats and dogs"]')
        texts("rerank", "-q", "cats", "-d", "dogs", "-d", "cats")
        texts("index", "delete", "cli", "-y")
    command("http://127.0.0.1:1", "health", code=1)


class Embeddings:
    def embed_documents(self, texts):
        return [matrix(t) for t in texts]

    def embed_query(self, text):
        return matrix(text)

    def embed_images(self, images):
        return [matrix(i) for i in images]


def langchain(url):
    for name, timeout in (("lc0", 0), ("lc8", 8)):
        store = NextPlaidVectorStore(url, name, Embeddings(), write_timeout=timeout)
        equal(store.similarity_search("cats"), [])  # no documents yet
        ids = store.add_texts(TEXTS, metadatas=[{"source": "wiki", "n": i} for i in range(4)], ids=["a", "b", "c", "d"])
        equal(ids, ["a", "b", "c", "d"])
        hits = store.similarity_search_with_score("cats sleep all day", k=2)
        equal((hits[0][0].page_content, hits[0][0].id, hits[0][0].metadata["source"]), (TEXTS[0], "a", "wiki"))
        check(abs(hits[0][1] - 4) < 0.1 and len(hits) == 2, hits)
        hits = store.similarity_search("cats", k=4, filter={"source": "wiki", "n": 2})
        equal([h.id for h in hits], ["c"])
        equal([d.page_content for d in store.get_by_ids(["b", "x"])], [TEXTS[1]])
        equal(store.get_by_ids(["x"]), [])
        # An upsert: the id is deleted and added again, and the new text has to be there.
        for again in range(3):
            store.add_texts([f"fishes swim {again}"], ids=["a"])
            equal([d.page_content for d in store.get_by_ids(["a"])], [f"fishes swim {again}"])
            equal(store.similarity_search(f"fishes swim {again}", k=1)[0].id, "a")
        equal(store.similarity_search_by_vector(matrix("dogs bark"), k=1)[0].id, "b")
        store.add_images(["an image"], ids=["i"])
        store.add_items(["a text and", "more text"], ids=["j", "k"])
        store.add_texts(["read as pdf"], metadatas=[{"ptex.fullbanner": "TeX", "Page Number": 3}], ids=["p"])
        equal(store.get_by_ids(["p"])[0].metadata["ptex.fullbanner"], "TeX")
        equal([h.id for h in store.similarity_search("pdf", filter={'"ptex.fullbanner"': "TeX", '"Page Number"': 3})], ["p"])
        store.delete(["p"])
        check(store.delete(["b", "i", "j", "k", None]))
        equal(store.get_by_ids(["b"]), [])
        check("b" not in [h.id for h in store.similarity_search("dogs bark", k=10)])
        store.delete(["a", "c", "d"])
        equal(store.similarity_search("cats"), [])
        store.add_texts(["back again"], ids=["a"])  # in an index all documents of which are deleted
        equal(store.similarity_search("back", k=1)[0].id, "a")
        again = NextPlaidVectorStore(url, name, Embeddings())  # exists already
        equal(again.similarity_search("back", k=1)[0].id, "a")
    store = NextPlaidVectorStore.from_documents([LangchainDocument("cats sleep", metadata={"n": 1})], Embeddings(), url=url, index_name="lcd")
    equal(store.similarity_search("cats")[0].metadata["n"], 1)


def order(url):
    """Deletions and additions from two connections, in the order of the answers."""
    name = "order"
    requests.post(url + "/indices", json={"name": name})
    add = {"documents": [{"embeddings": matrix("cats")}], "metadata": [{"key": "x"}]}
    gone = {"condition": "key = ?", "parameters": ["x"]}
    one, two = requests.Session(), requests.Session()
    for _ in range(5):
        equal(one.post(f"{url}/indices/{name}/update", json=add).status_code, 202)
        equal(two.delete(f"{url}/indices/{name}/documents", json=gone).status_code, 202)
        equal(one.post(f"{url}/indices/{name}/metadata/query", json=gone).json().get("count", 0), 0)
        equal(two.post(f"{url}/indices/{name}/update", json=add).status_code, 202)
        equal(one.post(f"{url}/indices/{name}/metadata/query", json=gone).json()["count"], 1)
        equal(one.delete(f"{url}/indices/{name}/documents", json=gone).status_code, 202)
    # Many writers at once: nothing that was acknowledged is missing.
    done = []

    def writer(k):
        for i in range(10):
            body = {"documents": [{"embeddings": matrix(f"w{k} n{i}")}], "metadata": [{"who": k, "n": i}]}
            if requests.post(f"{url}/indices/{name}/update?wait=true", json=body).status_code == 202:
                done.append((k, i))

    threads = [threading.Thread(target=writer, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rows = requests.post(f"{url}/indices/{name}/metadata/get", json={"condition": "who >= ?", "parameters": [0]}).json()["metadata"]
    equal(sorted((r["who"], r["n"]) for r in rows), sorted(done))
    equal(len(done), 40)
    equal(len({r["_subset_"] for r in rows}), 40)


def openapi(url):
    from openapi_spec_validator import validate

    doc = requests.get(url + "/openapi.json").json()
    validate(doc)
    check(doc["openapi"].startswith("3.1") and len(doc["paths"]) > 20)
    equal(requests.get(url + "/api-docs/openapi.json").json(), doc)


async def main():
    p = argparse.ArgumentParser()
    for name in ("plain", "texts", "loading", "damaged", "limited", "tokens", "tmp"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--keywords", action="store_true")
    o = p.parse_args()
    with NextPlaidClient(o.plain + "/") as client:
        await every_method(Caller(client), "sync", o.keywords)
        await no_model(Caller(client))
    print("sync: passed")
    async with AsyncNextPlaidClient(o.plain) as client:
        await every_method(Caller(client), "async", o.keywords)
        await no_model(Caller(client))
    print("async: passed")
    with NextPlaidClient(o.texts) as client:
        await text_routes(Caller(client), "sync")
    async with AsyncNextPlaidClient(o.texts) as client:
        await text_routes(Caller(client), "async")
    print("texts: passed")
    others.embeddings(o.texts, matrix)
    others.rerank(o.texts)
    print("others: passed")
    generated.make(o.texts, o.tmp)
    generated.use(o.texts)
    print("generated client: passed")
    await exceptions(o)
    print("exceptions: passed")
    command_line(o.plain, o.texts, o.tmp, o.keywords)
    print("command line: passed")
    langchain(o.plain)
    print("langchain: passed")
    order(o.plain)
    print("order: passed")
    openapi(o.plain)
    print("openapi: passed")


if __name__ == "__main__":
    asyncio.run(main())
