// Package remote asks a server for token vectors, by HTTP and JSON.
//
// Three kinds of servers are known by the last part of their addresses:
//
//   - /v1/embeddings, of PyLate: {"input": [texts], "is_query": true, "model": …}
//     gives {"data": [{"embedding": [tokens][dimensions]}, …]};
//   - /pooling, of vLLM: {"input": [texts], "model": …, "task": "token_embed"}
//     gives {"data": [{"index": 0, "data": [tokens][dimensions]}, …]};
//   - /embed_all, of text-embeddings-inference: {"inputs": [texts], "truncate": true}
//     gives [texts][tokens][dimensions].
//
// Only PyLate's knows queries from documents. To the others a role is what
// [Options.QueryPrefix] and [Options.DocumentPrefix] make of it.
package remote
