package server

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

// queryIn is a query as vectors, with settings for this query alone.
type queryIn struct {
	vectorsJSON
	Weights []float32 `json:"weights,omitempty" doc:"a factor for each token's maximum"`
	Mask    []bool    `json:"mask,omitempty" doc:"false: the token takes no part"`
	Model   *modelIn  `json:"model,omitempty" doc:"what made the vectors; an error if the index names another"`
	restriction
}

// textQueryIn is a query as a text: a string, or an object with settings for this query alone.
type textQueryIn struct {
	Text string `json:"text"`
	restriction
}

// UnmarshalJSON reads a string or an object.
func (t *textQueryIn) UnmarshalJSON(b []byte) error {
	*t = textQueryIn{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.Text)
	}
	type plain textQueryIn
	return json.Unmarshal(b, (*plain)(t))
}

// schema implements schemer.
func (textQueryIn) schema() object {
	type plain textQueryIn
	asObject := (&describer{strict: true}).structSchema(reflect.TypeFor[plain]())
	asObject["description"] = "a text, and what holds for this query alone"
	return object{"anyOf": []object{{"type": "string"}, asObject}}
}

// paramsIn are the parameters of a search.
type paramsIn struct {
	TopK       *int     `json:"top_k,omitempty" doc:"how many documents; default 10"`
	Offset     int      `json:"offset,omitempty"`
	MinScore   *float64 `json:"min_score,omitempty" doc:"leave documents out that score less"`
	Probes     *int     `json:"n_ivf_probe,omitempty"`
	FullScores *int     `json:"n_full_scores,omitempty"`
	Threshold  *float64 `json:"centroid_score_threshold,omitempty"`
	Approx     *int     `json:"n_approximate_scores,omitempty"`
	Mode       string   `json:"mode,omitempty" enum:"pruned,exhaustive,candidates"`
}

// The values that clients of next-plaid send if their users set no parameters. They count as not set.
const (
	clientDefaultProbes     = 8
	clientDefaultFullScores = 4096
)

// searchFields are the fields that all searches have.
type searchFields struct {
	Params paramsIn `json:"params,omitzero"`
	restriction
	TextQuery []string    `json:"text_query,omitempty"`
	TextMode  string      `json:"text_mode,omitempty" enum:"words,expression"`
	Alpha     *float64    `json:"alpha,omitempty"`
	Fusion    string      `json:"fusion,omitempty" enum:"relative_score,rrf"`
	Metadata  *bool       `json:"metadata,omitempty" doc:"false: leave the metadata out"`
	Stats     bool        `json:"stats,omitempty" doc:"tell what each query did, and how long its stages took"`
	Group     string      `json:"group,omitempty" enum:"best,sum,maxsim"`
	Passages  int         `json:"passages,omitempty"`
	Feedback  *feedbackIn `json:"feedback,omitempty" doc:"add to each query what good documents have, and search again"`
	Highlight bool        `json:"highlight,omitempty"`
}

type searchIn struct {
	Queries []queryIn `json:"queries,omitempty"`
	searchFields
}

type searchTextIn struct {
	Queries []textQueryIn `json:"queries,omitempty"`
	searchFields
}

type searchOut struct {
	Results   []resultOut `json:"results"`
	Queries   int         `json:"num_queries"`
	Truncated int         `json:"truncated,omitempty"`
	Dropped   int64       `json:"dropped_tokens,omitempty" doc:"tokens at their ends that took no part"`
}

// resultOut has the hits of one query, best first, in lists of the same length.
type resultOut struct {
	Query     int                `json:"query_id" doc:"place in the request"`
	Documents []uint64           `json:"document_ids"`
	Scores    []float64          `json:"scores"`
	IDs       []string           `json:"ids" doc:"the _id of each"`
	Metadata  []json.RawMessage  `json:"metadata,omitzero"`
	Passages  [][]passageOut     `json:"passages,omitempty"`
	Spans     [][]highlight.Span `json:"spans,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
	Stats     *search.Stats      `json:"stats,omitempty"`
	Coverage  *search.Coverage   `json:"coverage,omitempty"`
}

// searchRoutes returns the routes of searches: by vectors and by texts, each with and without a condition.
func searchRoutes() []route {
	searchRoute := func(path, id, summary, example string) route {
		return route{
			method:      "POST",
			pattern:     "/indices/{name}/search" + path,
			operationID: id,
			tag:         "search",
			permission:  Read,
			group:       groupSearch,
			summary:     summary,
			example:     example,
			codes:       []Code{CodeDimension, CodeNotSupported},
			params:      []param{conditionParam},
		}
	}
	withModel := func(r route) route {
		r.codes = append(r.codes, modelCodes...)
		return r
	}
	return []route{
		typedRoute(searchRoute("", "search", "Find the best documents for queries given as vectors, by keywords, or "+
			"by both",
			`{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "params": {"top_k": 3}}`),
			func(q *request, in *searchIn) (searchOut, error) { return searchVectors(q, in, conditionOptional) }),
		typedRoute(searchRoute("/filtered", "search_filtered",
			"The same among the documents that a condition holds for",
			`{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "filter_condition": "year >= ?", "filter_parameters": `+
				`[2020]}`),
			func(q *request, in *searchIn) (searchOut, error) { return searchVectors(q, in, conditionRequired) }),
		typedRoute(withModel(searchRoute("_with_encoding", "search_with_encoding", "Find the best documents for "+
			"queries given as texts",
			`{"queries": ["how long do cats sleep?"]}`)),
			func(q *request, in *searchTextIn) (searchOut, error) { return searchTexts(q, in, conditionOptional) }),
		typedRoute(withModel(searchRoute("/filtered_with_encoding", "search_filtered_with_encoding",
			"The same among the documents that a condition holds for",
			`{"queries": ["how long do cats sleep?"], "filter_condition": "year >= ?", "filter_parameters": [2020]}`)),
			func(q *request, in *searchTextIn) (searchOut, error) { return searchTexts(q, in, conditionRequired) }),
	}
}

// conditionRule is the rule of a route about filter_condition: the routes /filtered require one.
type conditionRule bool

const (
	conditionOptional conditionRule = false
	conditionRequired conditionRule = true
)

// passageOut is a passage of a document of a result.
type passageOut struct {
	DocumentID uint64           `json:"document_id" doc:"of the passage"`
	ID         string           `json:"id"`
	Score      float64          `json:"score"`
	Number     int              `json:"n" doc:"from 0; -1: the document has no passages, and this is it"`
	Start      int              `json:"start" doc:"first byte in the text of the document"`
	End        int              `json:"end" doc:"byte after the last"`
	Metadata   json.RawMessage  `json:"metadata,omitempty"`
	Spans      []highlight.Span `json:"spans,omitempty"`
}

// task is one query of a request.
type task struct {
	query       search.Query
	text        string      // of the query, or "" if it came as vectors
	restriction restriction // of the documents that this query may find, in addition to that of the request
}

// searchVectors answers POST /indices/{name}/search and search/filtered.
func searchVectors(q *request, in *searchIn, rule conditionRule) (searchOut, error) {
	tasks := make([]task, len(in.Queries))
	for i := range in.Queries {
		query, err := in.Queries[i].toQuery(i)
		if err != nil {
			return searchOut{}, err
		}
		tasks[i] = task{query: query, restriction: in.Queries[i].restriction}
	}
	if in.Highlight {
		return searchOut{}, badRequest("highlight needs queries as texts")
	}
	return q.search(tasks, nil, &in.searchFields, rule)
}

// toQuery returns the query; i is its index in the request, for errors.
func (in *queryIn) toQuery(i int) (search.Query, error) {
	m, err := in.toMatrix()
	if err != nil {
		return search.Query{}, queryProblem(i, err)
	}
	model, err := in.Model.toModel()
	if err != nil {
		return search.Query{}, queryProblem(i, err)
	}
	return search.Query{
		Vectors: m.Data,
		Dim:     m.Dim,
		Mask:    in.Mask,
		Weights: in.Weights,
		Model:   model,
	}, nil
}

// queryProblem is the answer to a request whose query i is wrong.
func queryProblem(i int, err error) *Problem {
	p := documentProblem(i, err)
	p.Message = fmt.Sprintf("query %d: %v", i, err)
	p.Details.Document, p.Details.Query = nil, &i
	return p
}

// searchTexts answers POST /indices/{name}/search_with_encoding and search/filtered_with_encoding.
func searchTexts(q *request, in *searchTextIn, rule conditionRule) (searchOut, error) {
	// Check everything else before the texts are encoded, which takes longest.
	if err := in.validate(len(in.Queries), rule); err != nil {
		return searchOut{}, err
	}
	if _, err := q.collection(); err != nil {
		return searchOut{}, err
	}
	texts := make([]string, len(in.Queries))
	for i := range in.Queries {
		texts[i] = in.Queries[i].Text
	}

	// Encode the queries. A search by words alone needs vectors only to highlight: the matching words of
	// its hits are shown as for a search by vectors.
	byWords, place := len(texts) == 0, inList("queries")
	if byWords && in.Highlight {
		texts, place = in.TextQuery, inList("text_query")
	}
	var tasks []task
	if len(texts) > 0 {
		matrices, err := q.encode(encode.Query, place, texts, nil)
		if err != nil {
			return searchOut{}, err
		}
		tasks = make([]task, len(texts))
		for i, m := range matrices {
			tasks[i] = task{query: search.Query{Vectors: m.Data, Dim: m.Dim, Model: q.server.queryModel()},
				text: texts[i]}
			if !byWords {
				tasks[i].restriction = in.Queries[i].restriction
			}
		}
	}

	// Search.
	if byWords {
		return q.search(nil, tasks, &in.searchFields, rule)
	}
	return q.search(tasks, tasks, &in.searchFields, rule)
}

// search answers queries; if there is text_query, too, query i is fused with text i. highlighted has the
// queries whose matching words are shown if the request asks for highlights.
func (q *request) search(tasks, highlighted []task, in *searchFields, rule conditionRule) (searchOut, error) {
	out := searchOut{Results: []resultOut{}}
	if err := in.validate(len(tasks), rule); err != nil {
		return out, err
	}
	queries := max(len(tasks), len(in.TextQuery))
	return out, q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		// Rank.
		f, page, err := q.prepareSearch(v, tasks, highlighted, in, queries)
		if err != nil {
			return err
		}
		var ranked []ranking
		switch {
		case len(in.TextQuery) == 0:
			ranked, err = q.rankByVectors(v, tasks, in, f, page)
		case len(tasks) == 0:
			ranked, err = q.rankByKeywords(v, in, f, page)
		default:
			ranked, err = q.rankHybrid(v, tasks, in, f, page)
		}
		var marker *highlighter
		if err == nil && in.Highlight {
			var d search.Description
			if d, err = v.Describe(q.ctx); err == nil {
				marker, err = q.newHighlighter(v, &d, highlighted, in, ranked)
			}
		}
		if err != nil {
			return err
		}

		// Add metadata, notes and matching words to the hits.
		for i := range ranked {
			if err := q.ctx.Err(); err != nil {
				return err
			}
			r, err := ranked[i].toResult(q, i, in)
			r.Notes = q.appendTruncationNote(i, r.Notes)
			if st := ranked[i].stats; st != nil && st.FeedbackCut > 0 {
				r.Notes = append(r.Notes, fmt.Sprintf("feedback: the query has no room for %d of the tokens that it "+
					"adds",
					st.FeedbackCut))
			}
			if err == nil && in.Highlight {
				err = marker.addSpans(&ranked[i], &highlighted[i], &r)
			}
			if err != nil {
				return err
			}
			out.Results = append(out.Results, r)
		}
		out.Queries, out.Truncated, out.Dropped = queries, q.truncation.Truncated, q.truncation.Dropped
		return nil
	})
}

// searchFilters are the documents that queries may find. A nil filter allows all.
type searchFilters struct {
	shared       *search.Filter   // for all queries
	perQuery     []*search.Filter // for each query, in addition
	keywordBytes int64            // reserved memory of the body, for searches by words
}

// prepareSearch selects the documents that n queries may find, returns the page of hits that is wanted, and
// reserves the memory of the search and its answer.
func (q *request) prepareSearch(
	v collection.Snapshot, tasks, highlighted []task, in *searchFields, n int,
) (f searchFilters, page search.Page, err error) {
	// Memory of the body comes first: see reserveKeywordMemory.
	if f.keywordBytes, err = q.reserveKeywordMemory(v, in); err != nil {
		return f, page, err
	}

	// Filters.
	if f.shared, err = in.allowedDocuments(q, v); err != nil {
		return f, page, err
	}
	f.perQuery = make([]*search.Filter, n)
	for i := range tasks {
		if f.perQuery[i], err = tasks[i].restriction.allowedDocuments(q, v); err != nil {
			return f, page, queryError(i, err)
		}
	}
	for i := range f.perQuery {
		if in.Params.Mode == "candidates" && f.perQuery[i] == nil && f.shared == nil {
			return f, page, badRequest("mode candidates needs a subset, ids or a filter_condition")
		}
	}

	// Memory of the answer.
	page = in.Params.searchPage(v.MaxHits())
	perHit := 1 // the document, and its passages
	if in.Group != "" {
		perHit += min(in.passagesPerDocument(), v.MaxHits())
	}
	if err := q.reserveEvidence(tasks, highlighted, in, page.End(), perHit); err != nil {
		return f, page, err
	}
	const hitBytes = 64 // while it is found and sent, without its metadata
	hits := page.End()
	if len(tasks) > 0 && len(in.TextQuery) > 0 {
		hits = page.RankingPage(v.MaxHits()).K
	}
	return f, page, q.reserveAnswer(saturatingProduct(hitBytes, perHit, n, hits))
}

// queryError returns an error that names the query that it is about.
func queryError(i int, err error) error { return &search.QueryError{Index: i, Err: err} }
