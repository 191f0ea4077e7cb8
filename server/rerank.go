package server

import (
	"slices"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
)

// rerankIn has a query in one of the two forms of vectors, and documents.
type rerankIn struct {
	Query       rowsJSON     `json:"query,omitzero" doc:"a list of numbers for each token"`
	QueryBase64 floatsJSON   `json:"query_b64,omitzero" doc:"base64 of little-endian float32, row after row; wins over query"`
	QueryShape  []int        `json:"query_shape,omitempty" doc:"of query_b64: tokens and dimension"`
	Documents   []documentIn `json:"documents"`
}

type rerankTextIn struct {
	Query      string   `json:"query"`
	Documents  []string `json:"documents"`
	PoolFactor *int     `json:"pool_factor,omitempty" doc:"of documents: one vector for so many similar ones"`
}

type rerankOut struct {
	Results   []rerankedOut `json:"results" doc:"best first"`
	Documents int           `json:"num_documents"`
}

type rerankedOut struct {
	Index int     `json:"index" doc:"place in documents"`
	Score float32 `json:"score" doc:"MaxSim of the vectors as they are, not scaled"`
}

func rerankRoutes() []route {
	return []route{
		typed(route{method: "POST", pattern: "/rerank", id: "rerank", tag: "rerank", need: Read, group: searching, fails: []Code{CodeDimension},
			summary: "Score documents that are sent with the query",
			example: `{"query": [[1, 0], [0, 1]], "documents": [{"embeddings": [[1, 0]]}, {"embeddings": [[0.6, 0.8]]}]}`}, rerank),
		typed(route{method: "POST", pattern: "/rerank_with_encoding", id: "rerank_with_encoding", tag: "rerank", need: Read, group: searching, fails: modelCodes,
			summary: "The same for texts",
			example: `{"query": "how long do cats sleep?", "documents": ["Cats sleep for most of the day.", "Dogs bark."]}`}, rerankTexts),
	}
}

func rerank(q *request, in *rerankIn) (rerankOut, error) {
	query, err := matrixOf(in.Query, in.QueryBase64, in.QueryShape, "query")
	if err != nil {
		p := badDocument(0, err)
		p.Message, p.Details.Document = "query: "+err.Error(), nil
		return rerankOut{}, p
	}
	docs := make([]Matrix, len(in.Documents))
	for i := range in.Documents {
		if docs[i], err = in.Documents[i].matrix(); err != nil {
			return rerankOut{}, badDocument(i, err)
		}
		if docs[i].Dim != query.Dim {
			return rerankOut{}, problem(CodeDimension, "document %d has dimension %d, the query %d", i, docs[i].Dim, query.Dim).at(Where{Document: &i})
		}
	}
	return ranked(q, query, docs)
}

func rerankTexts(q *request, in *rerankTextIn) (rerankOut, error) {
	query, err := q.encode(encode.Query, []string{in.Query}, nil)
	if err != nil {
		return rerankOut{}, err
	}
	docs, err := q.encode(encode.Document, in.Documents, in.PoolFactor)
	if err != nil {
		return rerankOut{}, err
	}
	return ranked(q, query[0], docs)
}

func ranked(q *request, query Matrix, docs []Matrix) (rerankOut, error) {
	if len(docs) == 0 {
		return rerankOut{}, bad("documents is empty")
	}
	scores, err := scoresOf(q, query, docs)
	if err != nil {
		return rerankOut{}, err
	}
	out := rerankOut{Results: make([]rerankedOut, len(docs)), Documents: len(docs)}
	for i, score := range scores {
		if score-score != 0 { // infinite, or none
			return rerankOut{}, bad("document %d: its score is beyond float32", i).at(Where{Document: &i})
		}
		out.Results[i] = rerankedOut{i, score}
	}
	slices.SortStableFunc(out.Results, func(a, b rerankedOut) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	return out, nil
}

// scoresOf are the scores of documents that have the dimension of the query.
func scoresOf(q *request, query Matrix, docs []Matrix) ([]float32, error) {
	backend := q.s.o.Scorer
	if backend == nil {
		var err error
		if backend, err = maxsim.Select(""); err != nil {
			return nil, err
		}
	}
	offsets, tokens := make([]int, 1, len(docs)+1), 0
	for _, d := range docs {
		tokens += d.Tokens
		offsets = append(offsets, tokens)
	}
	if err := q.body.hold(4 * int64(tokens) * int64(query.Dim)); err != nil {
		return nil, err
	}
	all := make([]float32, 0, tokens*query.Dim)
	for _, d := range docs {
		all = append(all, d.Data...)
	}
	scores := make([]float32, len(docs))
	return scores, backend.Score(q.ctx, &maxsim.Call{
		Q: maxsim.Single(maxsim.Float32(query.Data, query.Dim)), D: maxsim.Packed(maxsim.Float32(all, query.Dim), offsets), Scores: scores,
	})
}
