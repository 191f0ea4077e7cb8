"""The clients of other services for embeddings and reranking, as they are published."""

import math

import cohere
import openai
from rerankers.models.api_rankers import APIRanker


def near(got, want):
    assert len(got) == len(want) and all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(got, want)), (got, want)


def embeddings(url, matrix):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    (model,) = client.models.list().data
    texts = ["cats sleep", "dogs"]
    lists = client.embeddings.create(model=model.id, input=texts, encoding_format="float")
    assert [len(x.embedding) for x in lists.data] == [2, 1], lists
    for x, text in zip(lists.data, texts):
        for row, want in zip(x.embedding, matrix(text)):
            near(row, want)
    assert lists.usage.prompt_tokens == 3, lists.usage
    # What the client asks for by itself: base64, which it unpacks to one list.
    flat = client.embeddings.create(model=model.id, input=texts)
    for x, text in zip(flat.data, texts):
        want = [v for row in matrix(text) for v in row]
        near(x.embedding, want)
        assert x.shape == [len(matrix(text)), len(matrix(text)[0])], x
    client.embeddings.create(model=model.id, input="cats", dimensions=len(matrix("cats")[0]), user="me")
    try:
        client.embeddings.create(model=model.id, input="cats", dimensions=3)
    except openai.BadRequestError as e:
        assert "dimensions is 3" in str(e), e
    else:
        raise AssertionError("another dimension is no error")


def rerank(url):
    documents = ["dogs bark", "cats sleep", "cats"]
    first = cohere.Client(base_url=url, api_key="none").rerank(model="plaid", query="cats sleep", documents=documents, top_n=2, return_documents=True)
    assert [r.index for r in first.results] == [1, 2], first
    assert first.results[0].document.text == "cats sleep", first
    second = cohere.ClientV2(base_url=url, api_key="none").rerank(model="plaid", query="cats sleep", documents=documents)
    assert [r.index for r in second.results] == [1, 2, 0], second
    assert math.isclose(second.results[0].relevance_score, 1, abs_tol=1e-6), second
    # Jina's own service has no client of its own; this one sends what it takes.
    jina = APIRanker(model="plaid", api_key="none", api_provider="jina", url=url + "/v1/rerank")
    third = jina.rank("cats sleep", documents, doc_ids=["a", "b", "c"])
    assert [r.doc_id for r in third.results] == ["b", "c", "a"], third
    assert math.isclose(third.results[0].score, 1, abs_tol=1e-6), third
