package server

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
	"github.com/plaid-ir/plaid/search"
)

// rerankIn has a query as vectors in one of two forms, and documents.
type rerankIn struct {
	Query       rowsJSON     `json:"query,omitzero" doc:"a list of numbers for each token"`
	QueryBase64 floatsJSON   `json:"query_b64,omitzero"`
	QueryShape  []int        `json:"query_shape,omitempty" doc:"of query_b64: tokens and dimension"`
	Documents   []documentIn `json:"documents"`

	body *tensorBody // has all of them as tensors, or nil if they are JSON
}

// tensorNames implements tensorReceiver.
func (*rerankIn) tensorNames() (names []string, streams bool) {
	return []string{tensorQuery, tensorLengths, tensorVectors}, true
}

// setTensors implements tensorReceiver.
func (in *rerankIn) setTensors(t *tensorBody) error {
	in.body = t
	return nil
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

type rerankTextOut struct {
	rerankOut
	cutOut
}

type rerankedOut struct {
	Index int     `json:"index" doc:"place in documents"`
	Score float32 `json:"score" doc:"MaxSim of the vectors as they are, not scaled"`
}

func rerankRoutes() []route {
	return []route{
		typedRoute(route{
			method:      "POST",
			pattern:     "/rerank",
			operationID: "rerank",
			tag:         "rerank",
			permission:  Read,
			group:       groupSearch,
			codes:       []Code{CodeDimension},
			summary:     "Score documents that are sent with the query",
			params:      []param{lenientParam},
			doc: "Documents that come as tensors are scored while they come, and the body may have any size, " +
				"if the tensors query and lengths are before vectors.",
			example: `{"query": [[1, 0], [0, 1]], "documents": [{"embeddings": [[1, 0]]}, {"embeddings": [[0.6, ` +
				`0.8]]}]}`,
		}, rerankVectors),
		typedRoute(route{
			method:      "POST",
			pattern:     "/rerank_with_encoding",
			operationID: "rerank_with_encoding",
			tag:         "rerank",
			permission:  Read,
			group:       groupSearch,
			codes:       modelCodes,
			summary:     "The same for texts",
			example: `{"query": "how long do cats sleep?", "documents": ["Cats sleep for most of the day.", ` +
				`"Dogs bark."]}`,
		}, rerankTexts),
	}
}

// rerankVectors answers POST /rerank.
func rerankVectors(q *request, in *rerankIn) (rerankOut, error) {
	if in.body != nil {
		return in.rerankTensors(q)
	}
	query, err := matrixFromJSON(in.Query, in.QueryBase64, in.QueryShape, "query")
	if err != nil {
		return rerankOut{}, queryVectorsProblem(err)
	}
	docs := make([]Matrix, len(in.Documents))
	for i := range in.Documents {
		if docs[i], err = in.Documents[i].toMatrix(); err != nil {
			return rerankOut{}, documentProblem(i, err)
		}
		if docs[i].Dim != query.Dim {
			return rerankOut{}, problem(CodeDimension, "document %d has dimension %d, the query %d", i, docs[i].Dim,
				query.Dim).withPlace(Where{Document: &i})
		}
	}
	return rankMatrices(q, query, docs)
}

// rerankTensors ranks documents that come as tensors: batch by batch while they arrive, if the vectors are
// the last tensor.
func (in *rerankIn) rerankTensors(q *request) (rerankOut, error) {
	// The query and the lengths are read.
	t := in.body
	offsets, err := t.rowOffsets()
	if err != nil {
		return rerankOut{}, err
	}
	if i := slices.Index(t.lengths, 0); i >= 0 {
		return rerankOut{}, documentProblem(i, &matrixError{-1, errNoVectors})
	}
	if err := q.reserveScratch(&t.query); err != nil {
		return rerankOut{}, err
	}

	// Score the documents, either from memory or while they arrive.
	scores := make([]float32, len(t.lengths))
	if t.vectors != nil {
		matrix := maxsim.Float32(t.vectors, t.dim)
		if err := checkFiniteRows(&matrix, 0, offsets); err != nil {
			return rerankOut{}, err
		}
		if err := q.acquireSlot(); err != nil {
			return rerankOut{}, err
		}
		if err := scoreBatch(q.ctx, q.server, &t.query, maxsim.Packed(matrix, offsets), scores); err != nil {
			return rerankOut{}, err
		}
	} else {
		bytes := batchBytes
		if q.server.options.Scorer != nil {
			bytes = batchBytesDevice
		}
		err := t.scoreBatches(offsets, bytes, func(ctx context.Context, first int, docs *maxsim.Batch) error {
			if err := q.acquireBatchSlot(first); err != nil {
				return err
			}
			defer q.releaseSlot()
			return scoreBatch(ctx, q.server, &t.query, docs, scores[first:first+docs.Len()])
		})
		if err == nil {
			err = tensorError(t.readRest())
		}
		if err != nil {
			return rerankOut{}, err
		}
	}

	// The JSON request may be the last tensor.
	if err := t.decodeRequest(in); err != nil {
		return rerankOut{}, err
	}
	if in.Query.present || in.QueryBase64.present || in.Documents != nil {
		return rerankOut{}, badRequest("query and documents are in the request, and as tensors too")
	}
	return rankedByScore(scores)
}

// acquireBatchSlot waits for a slot for a batch of documents. Between batches the request has none, since
// its client may be slow.
func (q *request) acquireBatchSlot(first int) error {
	if first == 0 {
		return q.acquireSlot()
	}
	return q.reacquireSlot(q.groupGate())
}

// checkNoneEmpty returns an error if a text is empty: it would have no score.
func checkNoneEmpty(texts []string) error {
	if i := slices.Index(texts, ""); i >= 0 {
		return badRequest("documents[%d] is empty", i).withPlace(Where{Document: &i})
	}
	return nil
}

// rerankTexts answers POST /rerank_with_encoding.
func rerankTexts(q *request, in *rerankTextIn) (out rerankTextOut, err error) {
	if err := checkNoneEmpty(in.Documents); err != nil {
		return out, err
	}
	query, err := q.encode(encode.Query, inField("query"), []string{in.Query}, nil)
	if err != nil {
		return out, err
	}
	docs, err := q.encode(encode.Document, inList("documents"), in.Documents, in.PoolFactor)
	if err != nil {
		return out, err
	}
	out.rerankOut, err = rankMatrices(q, query[0], docs)
	out.cutOut = q.truncation
	return out, err
}

// rankMatrices ranks documents by their MaxSim with a query.
func rankMatrices(q *request, query Matrix, docs []Matrix) (rerankOut, error) {
	if len(docs) == 0 {
		return rerankOut{}, badRequest("documents is empty")
	}
	for i := range docs {
		if docs[i].Tokens == 0 {
			return rerankOut{}, badRequest("document %d has no token that is kept", i).withPlace(Where{Document: &i})
		}
	}
	if err := q.reserveScratch(&query); err != nil {
		return rerankOut{}, err
	}
	offsets, tokens := make([]int, 1, len(docs)+1), 0
	for _, d := range docs {
		tokens += d.Tokens
		offsets = append(offsets, tokens)
	}
	if err := q.body.reserve(4 * int64(tokens) * int64(query.Dim)); err != nil {
		return rerankOut{}, err
	}
	packed := make([]float32, 0, tokens*query.Dim)
	for _, d := range docs {
		packed = append(packed, d.Data...)
	}
	scores := make([]float32, len(docs))
	batch := maxsim.Packed(maxsim.Float32(packed, query.Dim), offsets)
	if err := scoreBatch(q.ctx, q.server, &query, batch, scores); err != nil {
		return rerankOut{}, err
	}
	return rankedByScore(scores)
}

// reserveScratch reserves the memory in which a query is scored. For each of its vectors that is a float32
// copy, 8 bytes of settings, and 8 bytes in each goroutine for the best match.
func (q *request) reserveScratch(query *Matrix) error {
	perToken := 4*query.Dim + 8 + 8*parallel.Processors()
	return q.body.reserve(int64(query.Tokens) * int64(perToken))
}

// scoreBatch computes the scores of documents, which must have the dimension of the query.
func scoreBatch(ctx context.Context, s *Server, query *Matrix, docs *maxsim.Batch, scores []float32) error {
	if query.Dim > kernels.MaxDim {
		return problem(CodeDimension, "the query has dimension %d; the limit is %d", query.Dim, kernels.MaxDim)
	}
	backend := s.options.Scorer
	if backend == nil {
		var err error
		if backend, err = maxsim.Select(""); err != nil {
			return err
		}
	}
	return backend.Score(ctx, &maxsim.Call{
		Q: maxsim.Single(maxsim.Float32(query.Data, query.Dim)), D: docs, Scores: scores,
	})
}

// rankedByScore ranks documents by their scores. Documents with the same score stay in their order.
func rankedByScore(scores []float32) (rerankOut, error) {
	if len(scores) == 0 {
		return rerankOut{}, badRequest("documents is empty")
	}
	out := rerankOut{Results: make([]rerankedOut, len(scores)), Documents: len(scores)}
	for i, score := range scores {
		if score-score != 0 { // infinite or NaN
			return rerankOut{}, badRequest("document %d: its score is beyond float32", i).withPlace(Where{Document: &i})
		}
		out.Results[i] = rerankedOut{i, score}
	}
	slices.SortStableFunc(out.Results, func(a, b rerankedOut) int { return cmp.Compare(b.Score, a.Score) })
	return out, nil
}

// rerankAPIIn is the request that clients of other services for reranking send, such as Cohere's and Jina's.
type rerankAPIIn struct {
	Query     string             `json:"query"`
	Documents []rerankDocumentIn `json:"documents,omitempty" doc:"texts, or objects with a text; or index and ids"`
	Index     string             `json:"index,omitempty" doc:"with ids, instead of documents: the index that has them"`
	IDs       []string           `json:"ids,omitempty"`
	TopN      *int               `json:"top_n,omitempty" doc:"how many results; default: all"`
	Return    *bool              `json:"return_documents,omitempty" doc:"give the texts back; default false"`
	Model     string             `json:"model,omitempty" doc:"is given back: the service has one model"`
}

// fieldsOfOthers marks a body with unknown fields: clients send settings that this service does not have.
func (*rerankAPIIn) fieldsOfOthers() {}

// rerankDocumentIn is a text, or an object with one.
type rerankDocumentIn struct {
	Text string `json:"text"`
}

// UnmarshalJSON reads a text, or an object, whose other fields it ignores.
func (d *rerankDocumentIn) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &d.Text)
	}
	type plain rerankDocumentIn
	return json.Unmarshal(b, (*plain)(d))
}

// schema implements schemer.
func (rerankDocumentIn) schema() object {
	type plain rerankDocumentIn
	return object{"anyOf": []object{{"type": "string"}, (&describer{}).structSchema(reflect.TypeFor[plain]())}}
}

type rerankAPIOut struct {
	ID      string            `json:"id" doc:"of the request"`
	Object  string            `json:"object" enum:"list"`
	Model   string            `json:"model"`
	Results []rerankAPIResult `json:"results" doc:"best first"`
	Usage   rerankUsage       `json:"usage"`
}

type rerankAPIResult struct {
	Index     int               `json:"index" doc:"place in documents, or in ids"`
	Relevance float64           `json:"relevance_score"`
	Document  *rerankDocumentIn `json:"document,omitempty"`
}

type rerankUsage struct {
	Tokens int `json:"total_tokens" doc:"vectors that were computed for the request"`
	cutOut
}

func rerankAPIRoutes() (routes []route) {
	for _, version := range []string{"v1", "v2"} {
		routes = append(routes, typedRoute(route{
			method:      "POST",
			pattern:     "/" + version + "/rerank",
			operationID: "rerank_" + version,
			tag:         "rerank",
			permission:  Read,
			group:       groupSearch,
			codes: append([]Code{CodeDimension, CodeIndexNotFound, CodeDocumentNotFound, CodeNotSupported},
				modelCodes...),
			summary: "Rerank texts, or documents of an index, with the request and answer of Cohere's and Jina's " +
				"services",
			example: `{"query": "how long do cats sleep?", "documents": ["Cats sleep for most of the day.", "Dogs ` +
				`bark."], "top_n": 1}`,
		}, rerankAPI))
	}
	return routes
}

// rerankAPI answers POST /v1/rerank and /v2/rerank.
func rerankAPI(q *request, in *rerankAPIIn) (rerankAPIOut, error) {
	// Check the request before anything is encoded.
	out := rerankAPIOut{
		ID:      q.w.Header().Get(headerRequestID),
		Object:  "list",
		Model:   in.Model,
		Results: []rerankAPIResult{},
	}
	ofIndex := in.Index != "" || len(in.IDs) > 0
	switch {
	case ofIndex && len(in.Documents) > 0:
		return out, badRequest("there are documents, and ids of an index: want one of them")
	case ofIndex && (in.Index == "" || len(in.IDs) == 0):
		return out, badRequest("index and ids go together")
	case !ofIndex && len(in.Documents) == 0:
		return out, badRequest("documents is empty")
	case in.TopN != nil && *in.TopN < 1:
		return out, badRequest("top_n is %d; want 1 or more", *in.TopN)
	}
	if ofIndex {
		if p := q.authorizeIndex(in.Index); p != nil {
			return out, p
		}
	}

	// Encode and score.
	queries, err := q.encode(encode.Query, inField("query"), []string{in.Query}, nil)
	if err != nil {
		return out, err
	}
	query := queries[0]
	out.Usage.Tokens = query.Tokens
	if ofIndex {
		if out.Results, err = q.rerankStored(query, in.IDs); err != nil {
			return out, err
		}
	} else {
		texts := make([]string, len(in.Documents))
		for i, d := range in.Documents {
			texts[i] = d.Text
		}
		if err := checkNoneEmpty(texts); err != nil {
			return out, err
		}
		docs, err := q.encode(encode.Document, inList("documents"), texts, nil)
		if err != nil {
			return out, err
		}
		for _, d := range docs {
			out.Usage.Tokens += d.Tokens
		}
		scored, err := rankMatrices(q, query, docs)
		if err != nil {
			return out, err
		}
		for _, r := range scored.Results {
			out.Results = append(out.Results, rerankAPIResult{Index: r.Index, Relevance: float64(r.Score)})
		}
	}

	// Relevance is the mean over the tokens of the query.
	out.Usage.cutOut = q.truncation
	if in.TopN != nil {
		out.Results = out.Results[:min(*in.TopN, len(out.Results))]
	}
	for i := range out.Results {
		r := &out.Results[i]
		r.Relevance /= float64(query.Tokens)
		if in.Return != nil && *in.Return && !ofIndex {
			r.Document = &in.Documents[r.Index]
		}
	}
	return out, nil
}

// authorizeIndex makes the index that a body names the index of the request, after it has checked the
// token's permission and the rate of the index, as for a path.
func (q *request) authorizeIndex(index string) *Problem {
	if !q.permitted(Read, index) {
		return problem(CodeForbidden, "the bearer token allows %s of this index; this needs %s",
			q.token.PermissionOn(index), Read)
	}
	q.SetPathValue("name", index)
	return q.limitIndexRate()
}

// rerankStored scores documents of the index exactly, and returns a result for each of ids, best first. The
// score of a document of passages is that of the best one.
func (q *request) rerankStored(query Matrix, ids []string) ([]rerankAPIResult, error) {
	positions := make(map[string][]int, len(ids)) // of each id in ids, until the id has its score
	var unscored []string
	for i, id := range ids {
		if positions[id] == nil {
			unscored = append(unscored, id)
		}
		positions[id] = append(positions[id], i)
	}
	results, withMetadata := make([]rerankAPIResult, 0, len(ids)), false
	queryTask := task{query: search.Query{Vectors: query.Data, Dim: query.Dim, Model: q.server.queryModel()}}
	// An id may be that of a document or of a passage, and the id of a document finds all of its passages,
	// which can fill the k hits of the first search. The second search returns documents, by their best
	// passages; the last one finds ids of passages that the first had no place for.
	for _, group := range []string{"", string(search.GroupBest), ""} {
		k := len(unscored)
		if k == 0 {
			break
		}
		answer, err := q.search([]task{queryTask}, nil, &searchFields{
			Params:      paramsIn{TopK: &k, Mode: "candidates"},
			restriction: restriction{IDs: &unscored},
			Metadata:    &withMetadata,
			Group:       group,
		}, conditionOptional)
		if err != nil {
			return nil, err
		}
		for _, r := range answer.Results {
			for i, id := range r.IDs {
				for _, position := range positions[id] {
					results = append(results, rerankAPIResult{Index: position, Relevance: r.Scores[i]})
				}
				delete(positions, id)
			}
		}
		unscored = slices.DeleteFunc(unscored, func(id string) bool { return positions[id] == nil })
	}
	if len(unscored) > 0 {
		return nil, problem(CodeDocumentNotFound, "there is no document with _id %.300q", unscored[0]).
			withPlace(Where{Document: &positions[unscored[0]][0]})
	}
	slices.SortStableFunc(results, func(a, b rerankAPIResult) int { return cmp.Compare(b.Relevance, a.Relevance) })
	return results, nil
}
