"""Drives a service over a cluster with the clients that exist, as they are published.

Most of it is what server/testdata/clients does with a folder of indexes. See
clients_test.go.
"""

import argparse
import asyncio
import sys

p = argparse.ArgumentParser()
p.add_argument("--folder", required=True)
p.add_argument("--url", required=True)
p.add_argument("--tokens", required=True)
o = p.parse_args()
sys.path.insert(0, o.folder)

from clients import META, TEXTS, Caller, check, command, equal, langchain, matrix, openapi, order  # noqa: E402
from next_plaid_client import (  # noqa: E402
    AsyncNextPlaidClient,
    Document,
    IndexConfig,
    IndexExistsError,
    IndexNotFoundError,
    NextPlaidClient,
    NextPlaidError,
    SearchParams,
    ValidationError,
)


def named(i):
    return {**META[i], "_id": f"t{i}"}


def ids(result):
    return sorted(m["_id"] for m in result.metadata)


async def every_method(call, name):
    health = await call("health")
    equal(health.status, "healthy")
    check(health.version and health.index_dir, health)
    created = await call("create_index", name, IndexConfig(nbits=4, seed=7))
    equal((created["name"], created["config"]["nbits"], created["config"]["seed"]), (name, 4, 7))
    check(name in await call("list_indices"))
    await call.fails(IndexNotFoundError, "get_index", name, code="INDEX_NOT_FOUND", status=404)  # no documents yet
    await call.fails(IndexExistsError, "create_index", name, code="INDEX_ALREADY_EXISTS", status=409)
    await call.fails(IndexNotFoundError, "get_index", "nothing", code="INDEX_NOT_FOUND", status=404)

    said = await call("add", name, [{"embeddings": matrix(t)} for t in TEXTS[:2]], metadata=[named(0), named(1)])
    check(isinstance(said, str) and "2 documents" in said, said)
    await call("add", name, [Document(matrix(t)) for t in TEXTS[2:]], metadata=[named(2), named(3)])
    info = await call("get_index", name)
    equal((info.name, info.num_documents, info.num_embeddings, info.dimension), (name, 4, sum(len(t.split()) for t in TEXTS), 16))
    equal((info.has_metadata, info.metadata_count, info.max_documents), (True, 4, None))
    summary = [i for i in (await call("health")).indices if i.name == name]
    equal([(s.num_documents, s.dimension, s.has_metadata) for s in summary], [(4, 16, True)])

    found = await call("search", name, [matrix("cats sleep all day"), {"embeddings": matrix("dogs bark")}], params=SearchParams(top_k=2))
    equal((found.num_queries, [r.query_id for r in found.results]), (2, [0, 1]))
    equal([r.metadata[0]["_id"] for r in found.results], ["t0", "t1"])
    check(abs(found.results[0].scores[0] - 4) < 0.1, found.results[0].scores)
    equal([len(r.document_ids) for r in found.results], [2, 2])
    first = found.results[0].metadata[0]
    equal((first["_subset_"], first["title"], first["tags"]), (found.results[0].document_ids[0], "cats", ["a", "b"]))
    found = await call("search", name, [matrix("cats")], params=SearchParams(top_k=100, n_ivf_probe=4, n_full_scores=64, centroid_score_threshold=None))
    equal(ids(found.results[0]), ["t0", "t1", "t2", "t3"])
    numbers = {m["_id"]: m["_subset_"] for m in found.results[0].metadata}
    found = await call("search", name, [matrix("cats")], subset=[numbers["t1"], numbers["t2"], 777 << 32])
    equal(ids(found.results[0]), ["t1", "t2"])
    found = await call("search", name, [matrix("cats")], filter_condition="year >= ? AND title != ?", filter_parameters=[2020, "both"])
    equal(ids(found.results[0]), ["t1", "t2"])
    # Fields that one document has, in whichever shard that is.
    for condition, parameters, want in (("good = ?", [True], ["t1"]), ("score > ? OR good = ?", [0.1, True], ["t1", "t2"]), ("score IS NULL", [], ["t0", "t1", "t3"])):
        found = await call("search", name, [matrix("cats")], filter_condition=condition, filter_parameters=parameters)
        equal(ids(found.results[0]), want)
    found = await call("search", name, [matrix("cats")], filter_condition="year > ?", filter_parameters=[3000])
    equal((found.results[0].document_ids, found.results[0].scores, found.results[0].metadata), ([], [], []))
    await call.fails(ValidationError, "search", name, [matrix("cats")], filter_condition="nope = ?", filter_parameters=[1], code="BAD_REQUEST")
    await call.fails(ValidationError, "search", name, [matrix("cats")], filter_condition="year = ?", code="BAD_REQUEST")
    await call.fails(ValidationError, "search", name, [[[1.0, 2.0]]], code="DIMENSION_MISMATCH", status=400)
    await call.fails(ValidationError, "search", name, [], code="BAD_REQUEST")
    found = await call("keyword_search", name, ["birds", "cats both"])
    equal([ids(r) for r in found.results], [["t2"], ["t0", "t3"]])
    found = await call("search", name, [matrix("dogs bark")], text_query=["dogs"], alpha=0.5)
    equal(found.results[0].metadata[0]["_id"], "t1")

    meta = await call("get_metadata", name)
    equal((meta.count, [m["_subset_"] for m in meta.metadata]), (4, sorted(numbers.values())))
    equal(await call("get_metadata_count", name), {"count": 4, "passages": 0, "has_metadata": True})
    there = await call("check_metadata", name, [numbers["t0"], numbers["t3"], 9 << 32])
    equal((there.existing_ids, there.missing_ids), ([numbers["t0"], numbers["t3"]], [9 << 32]))
    got = await call("query_metadata", name, "year BETWEEN ? AND ? OR title LIKE ?", [2020, 2021, "BOT%"])
    equal(got, {"document_ids": sorted(numbers[i] for i in ("t1", "t2", "t3")), "count": 3})
    await call.fails(ValidationError, "query_metadata", name, "nope = ?", [1])
    got = await call("get_metadata_by_ids", name, document_ids=[numbers["t2"], numbers["t0"], 9 << 32])
    equal([m["title"] for m in got.metadata], ["birds", "cats"])
    equal((await call("get_metadata_by_ids", name, condition="year >= ?", parameters=[2020], limit=2)).count, 2)
    equal(await call("update_metadata", name, "year < ?", {"old": True, "year": 1999}, [2020]), {"updated": 1, "passages": 0})
    equal((await call("get_metadata_by_ids", name, document_ids=[numbers["t0"]])).metadata[0]["year"], 1999)
    equal(await call("update_metadata", name, "year > ?", {"old": True}, [3000]), {"updated": 0, "passages": 0})

    said = await call("delete", name, "title = ? OR year = ?", ["dogs", 1999])
    check("2 documents" in said, said)
    found = await call("search", name, [matrix("cats sleep all day")])
    equal(ids(found.results[0]), ["t2", "t3"])
    await call("add", name, [{"embeddings": matrix("new words")}], metadata=[{"_id": "t3", "title": "replaced"}])
    got = (await call("get_metadata_by_ids", name, condition="_id = ?", parameters=["t3"])).metadata
    equal([(m["_id"], m["title"], "year" in m) for m in got], [("t3", "replaced", False)])
    await call("add", name, [{"embeddings": matrix("without a name")}])
    equal((await call("get_index", name)).num_documents, 3)
    equal((await call("update_index_config", name, 3))["config"]["max_documents"], 3)
    await call("add", name, [{"embeddings": matrix("one more")}], metadata=[{"_id": "newest"}])
    equal((await call("get_index", name)).num_documents, 3)
    equal((await call("get_metadata_by_ids", name, condition="_id = ?", parameters=["newest"])).count, 1)
    equal((await call("update_index_config", name, None))["config"]["max_documents"], None)
    for bad in ([{"embeddings": matrix("fine")}, {"embeddings": [[1.0] * 3]}], [{"embeddings": [[float("nan")] * 16]}]):
        e = await call.fails(ValidationError, "add", name, bad, status=400)
        check("document" in (e.details or {}), e.details)
    equal((await call("get_index", name)).num_documents, 3)
    await call.fails(ValidationError, "add", name, [{"embeddings": matrix("x")}], metadata=[{"_Subset_": 1}])
    await call.fails(IndexNotFoundError, "add", name + "-new", [{"embeddings": matrix("x")}], code="INDEX_NOT_DECLARED")
    ranked = await call("rerank", matrix("cats sleep"), [{"embeddings": matrix(t)} for t in TEXTS])
    equal((ranked.num_documents, ranked.results[0].index), (4, 0))

    # Texts: the service has an encoder.
    await call("add", name, TEXTS, metadata=[{"_id": f"x{i}"} for i in range(4)])
    found = await call("search", name, ["dogs bark at night"], params=SearchParams(top_k=1))
    equal(found.results[0].metadata[0]["_id"], "x1")
    await call("delete", name, "_id LIKE ? OR _id LIKE ?", ["x%", "t%"])

    # The name is used again: nothing of what was there is in the new index.
    equal(await call("delete_index", name), {"deleted": True, "name": name})
    equal((await call("delete_index", name))["deleted"], False)
    check(name not in await call("list_indices"))
    await call.fails(IndexNotFoundError, "search", name, [matrix("cats")], code="INDEX_NOT_FOUND", status=404)
    await call("create_index", name, IndexConfig(nbits=2))
    await call("add", name, [{"embeddings": matrix("quite another thing")}], metadata=[{"_id": "only"}])
    found = await call("search", name, [matrix("cats")], params=SearchParams(top_k=9))
    equal(ids(found.results[0]), ["only"])


async def main():
    with NextPlaidClient(o.url) as client:
        await every_method(Caller(client), "sync")
    async with AsyncNextPlaidClient(o.url) as client:
        await every_method(Caller(client), "async")
    print("methods: passed")
    with NextPlaidClient(o.tokens) as client:
        await Caller(client).fails(NextPlaidError, "list_indices", code="UNAUTHORIZED", status=401)
    with NextPlaidClient(o.tokens, headers={"Authorization": "Bearer read-read-read-read"}) as client:
        check("sync" in await Caller(client)("list_indices"))
        await Caller(client).fails(NextPlaidError, "delete", "sync", "_id = ?", ["a"], code="FORBIDDEN", status=403)
    print("tokens: passed")
    check("sync" in command(o.url, "index", "list"))
    command(o.url, "metadata", "count", "sync")
    command(o.url, "index", "create", "cli", "--nbits", "2")
    command(o.url, "index", "create", "cli", code=1)
    command(o.url, "index", "delete", "cli", "--yes")
    print("command line: passed")
    langchain(o.url)
    print("langchain: passed")
    order(o.url)
    print("order: passed")
    openapi(o.url)


asyncio.run(main())
