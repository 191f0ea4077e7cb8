package server

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

// queryIn is a query as vectors, and what holds for it alone.
type queryIn struct {
	vectorsJSON
	Weights []float32 `json:"weights,omitempty" doc:"a factor for each token's maximum"`
	Mask    []bool    `json:"mask,omitempty" doc:"false: the token takes no part"`
	Model   *modelIn  `json:"model,omitempty" doc:"what made the vectors; an error if the index names another"`
	restriction
}

// textQueryIn is a query as a text: a string, or an object with what holds for it
// alone.
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
	whole := (&describer{strict: true}).structSchema(reflect.TypeFor[plain]())
	whole["description"] = "a text, and what holds for this query alone"
	return object{"anyOf": []object{{"type": "string"}, whole}}
}

// paramsIn is how a search goes about it.
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

// Values of parameters that clients send when their users say nothing.
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

// resultOut are the hits of one query, best first, in lists of one length.
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

func searchRoutes() []route {
	searching := func(path, id, summary, example string) route {
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
	texts := func(r route) route {
		r.codes = append(r.codes, modelCodes...)
		return r
	}
	return []route{
		typedRoute(searching("", "search", "Find the best documents for queries given as vectors, by keywords, or by both",
			`{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "params": {"top_k": 3}}`),
			func(q *request, in *searchIn) (searchOut, error) { return searchVectors(q, in, false) }),
		typedRoute(searching("/filtered", "search_filtered", "The same among the documents that a condition holds for",
			`{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "filter_condition": "year >= ?", "filter_parameters": [2020]}`),
			func(q *request, in *searchIn) (searchOut, error) { return searchVectors(q, in, true) }),
		typedRoute(texts(searching("_with_encoding", "search_with_encoding", "Find the best documents for queries given as texts",
			`{"queries": ["how long do cats sleep?"]}`)),
			func(q *request, in *searchTextIn) (searchOut, error) { return searchTexts(q, in, false) }),
		typedRoute(texts(searching("/filtered_with_encoding", "search_filtered_with_encoding", "The same among the documents that a condition holds for",
			`{"queries": ["how long do cats sleep?"], "filter_condition": "year >= ?", "filter_parameters": [2020]}`)),
			func(q *request, in *searchTextIn) (searchOut, error) { return searchTexts(q, in, true) }),
	}
}

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

// task is one query and the documents that may answer it.
type task struct {
	query       search.Query
	text        string // of the query, if it is one
	restriction restriction
}

func searchVectors(q *request, in *searchIn, filtered bool) (searchOut, error) {
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
	return q.search(tasks, nil, &in.searchFields, filtered)
}

// toQuery is the query, number i of the request.
func (in *queryIn) toQuery(i int) (search.Query, error) {
	m, err := in.toMatrix()
	if err != nil {
		return search.Query{}, queryProblem(i, err)
	}
	by, err := in.Model.toModel()
	if err != nil {
		return search.Query{}, queryProblem(i, err)
	}
	return search.Query{
		Vectors: m.Data,
		Dim:     m.Dim,
		Mask:    in.Mask,
		Weights: in.Weights,
		Model:   by,
	}, nil
}

func queryProblem(i int, err error) *Problem {
	p := documentProblem(i, err)
	p.Message = fmt.Sprintf("query %d: %v", i, err)
	p.Details.Document, p.Details.Query = nil, &i
	return p
}

func searchTexts(q *request, in *searchTextIn, filtered bool) (searchOut, error) {
	// What is wrong with the rest need not wait for the model.
	if err := in.validate(len(in.Queries), filtered); err != nil {
		return searchOut{}, err
	}
	if _, err := q.collection(); err != nil {
		return searchOut{}, err
	}
	texts := make([]string, len(in.Queries))
	for i := range in.Queries {
		texts[i] = in.Queries[i].Text
	}
	byWords, place := len(texts) == 0, inList("queries")
	if byWords && in.Highlight { // what is found by words shows them as if it had been found by vectors
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
			tasks[i] = task{query: search.Query{Vectors: m.Data, Dim: m.Dim, Model: q.server.queryModel()}, text: texts[i]}
			if !byWords {
				tasks[i].restriction = in.Queries[i].restriction
			}
		}
	}
	if byWords {
		return q.search(nil, tasks, &in.searchFields, filtered)
	}
	return q.search(tasks, tasks, &in.searchFields, filtered)
}

const (
	fusionRelative = "relative_score"
	fusionRanks    = "rrf"

	textWords      = "words"
	textExpression = "expression"
)

// validate finds what is wrong with a search of so many queries, whatever is stored.
func (in *searchFields) validate(queries int, filtered bool) error {
	switch {
	case filtered && in.Condition == "":
		return badRequest("filter_condition is missing")
	case queries == 0 && len(in.TextQuery) == 0:
		return badRequest("queries is empty, and there is no text_query")
	case queries > 0 && len(in.TextQuery) > 0 && queries != len(in.TextQuery):
		return badRequest("there are %d queries and %d texts in text_query: want one for each", queries, len(in.TextQuery))
	case in.TextMode != "" && in.TextMode != textWords && in.TextMode != textExpression:
		return badRequest("text_mode is %q; there is words and expression", in.TextMode)
	case in.Alpha != nil && !(*in.Alpha >= 0 && *in.Alpha <= 1):
		return badRequest("alpha is %g; want 0 to 1", *in.Alpha)
	case queries == 0 && in.Group != "" && in.Group != string(search.GroupBest):
		return badRequest("group is %q; text_query alone ranks documents by their best passages: best", in.Group)
	case in.Fusion != "" && in.Fusion != fusionRelative && in.Fusion != fusionRanks:
		return badRequest("fusion is %q; there is relative_score and rrf", in.Fusion)
	}
	if err := in.checkEvidence(queries); err != nil {
		return err
	}
	p := &in.Params
	if p.TopK != nil && *p.TopK < 1 {
		return badRequest("params.top_k is %d; want 1 or more", *p.TopK)
	}
	if p.Offset < 0 {
		return badRequest("params.offset is %d; want no negative number", p.Offset)
	}
	for _, v := range []struct {
		name string
		at   *int
	}{{"n_ivf_probe", p.Probes}, {"n_full_scores", p.FullScores}, {"n_approximate_scores", p.Approx}} {
		if v.at != nil && *v.at < 0 {
			return badRequest("params.%s is %d; want no negative number", v.name, *v.at)
		}
	}
	_, err := p.searchMode()
	return err
}

func (p *paramsIn) searchMode() (search.Mode, error) {
	if p.Mode == "" {
		return search.Pruned, nil
	}
	m, err := search.ParseMode(p.Mode)
	if err != nil {
		return 0, badRequest("params.mode is %q; there is pruned, exhaustive and candidates", p.Mode)
	}
	return m, nil
}

// searchPage is the wanted page of the hits of an index of that many documents; K is 0 where it is empty.
func (p *paramsIn) searchPage(documents int) search.Page {
	k, offset := 10, min(p.Offset, documents)
	if p.TopK != nil {
		k = *p.TopK
	}
	if offset == documents {
		k = 0
	}
	// K does not shrink towards the end: pruned searches make their ranking of blocks of that length.
	return search.Page{Offset: offset, K: min(k, documents), MinScore: p.MinScore}
}

// searchOptions are those of a search for a page.
func (p *paramsIn) searchOptions(page search.Page) (search.Options, error) {
	mode, err := p.searchMode()
	if err != nil {
		return search.Options{}, err
	}
	if mode == search.Candidates {
		mode = search.Exhaustive // of what the filter lets through
	}
	k := page.K
	o := search.Options{Mode: mode}
	o.SetPage(page)
	if p.Probes != nil && *p.Probes != clientDefaultProbes {
		o.Probes = *p.Probes
	}
	if p.FullScores != nil && *p.FullScores != clientDefaultFullScores && *p.FullScores > 0 {
		o.Exact = max(*p.FullScores, k)
	}
	if p.Approx != nil && *p.Approx > 0 {
		o.Approx = max(*p.Approx, o.Exact, k)
	}
	return o, nil
}

// search answers queries, number i of them with the text i of text_query. asked are the questions
// whose words are shown.
func (q *request) search(tasks, asked []task, in *searchFields, filtered bool) (searchOut, error) {
	out := searchOut{Results: []resultOut{}}
	if err := in.validate(len(tasks), filtered); err != nil {
		return out, err
	}
	n := max(len(tasks), len(in.TextQuery))
	return out, q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		f, page, err := q.prepareSearch(v, tasks, asked, in, n)
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
		var shown *highlighter
		if err == nil && in.Highlight {
			var d search.Description
			if d, err = v.Describe(q.ctx); err == nil {
				shown, err = q.newHighlighter(v, &d, asked, in, ranked)
			}
		}
		if err != nil {
			return err
		}
		for i := range ranked {
			if err := q.ctx.Err(); err != nil {
				return err
			}
			r, err := ranked[i].toResult(q, i, in)
			r.Notes = q.appendTruncationNote(i, r.Notes)
			if st := ranked[i].stats; st != nil && st.FeedbackCut > 0 {
				r.Notes = append(r.Notes, fmt.Sprintf("feedback: the query has no room for %d of the tokens that it adds",
					st.FeedbackCut))
			}
			if err == nil && in.Highlight {
				err = shown.addSpans(&ranked[i], &asked[i], &r)
			}
			if err != nil {
				return err
			}
			out.Results = append(out.Results, r)
		}
		out.Queries, out.Truncated, out.Dropped = n, q.truncation.Truncated, q.truncation.Dropped
		return nil
	})
}

// searchFilters are the documents that may answer: to all queries, and to each beside that.
type searchFilters struct {
	shared       *search.Filter
	perQuery     []*search.Filter
	keywordBytes int64 // bytes that searches by words have taken
}

// prepareSearch finds the documents that may answer n queries, and which page of them is wanted.
func (q *request) prepareSearch(v collection.Snapshot, tasks, asked []task, in *searchFields, n int) (f searchFilters, page search.Page, err error) {
	if f.keywordBytes, err = q.reserveKeywordMemory(v, in); err != nil {
		return f, page, err
	}
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
	page = in.Params.searchPage(v.Most())
	perHit := 1
	if in.Group != "" {
		perHit += min(in.passagesPerDocument(), v.Most())
	}
	if err := q.reserveEvidence(tasks, asked, in, page.End(), perHit); err != nil {
		return f, page, err
	}
	const hit = 64 // bytes, while it is found and sent, without its metadata
	found := page.End()
	if len(tasks) > 0 && len(in.TextQuery) > 0 {
		found = page.Sides(v.Most()).K
	}
	return f, page, q.reserveAnswer(saturatingProduct(hit, perHit, n, found))
}

// queryError says which query an error is of.
func queryError(i int, err error) error { return &search.QueryError{Index: i, Err: err} }

// ranking are documents, best first, of a view that has what is stored beside them.
type ranking struct {
	snapshot collection.Snapshot
	hits     []search.RankedHit
	stats    *search.Stats
	coverage *search.Coverage // nil: all documents
}

func newRanking(v collection.Snapshot, hits []search.Hit) ranking {
	return ranking{snapshot: v, hits: search.Ranked(hits)}
}

// toResult is the answer to query i.
func (r *ranking) toResult(q *request, i int, in *searchFields) (resultOut, error) {
	out := resultOut{
		Query:     i,
		Documents: make([]uint64, len(r.hits)),
		Scores:    make([]float64, len(r.hits)),
		IDs:       make([]string, len(r.hits)),
		Coverage:  r.coverage,
	}
	for j := range r.hits {
		out.IDs[j] = r.hits[j].Hit.ID
		out.Documents[j], out.Scores[j] = collection.NumberOf(&r.hits[j].Hit), r.hits[j].Score
	}
	if in.Stats {
		out.Stats = r.stats
	}
	if in.Group != "" {
		if err := r.addPassages(q, in, &out); err != nil {
			return out, err
		}
	}
	if !in.wantsMetadata() {
		return out, nil
	}
	out.Metadata = make([]json.RawMessage, len(r.hits))
	for j := range r.hits {
		if err := q.ctx.Err(); err != nil {
			return out, err
		}
		h := &r.hits[j].Hit
		payload, err := r.snapshot.MetadataOf(h)
		if err != nil {
			return out, err
		}
		if len(h.Passages) > 0 && h.Passages[0].Passage != nil {
			payload = vectors.WholePayload(payload)
		}
		if out.Metadata[j], err = q.documentMetadata(&collection.StoredDocument{Number: collection.NumberOf(h), ID: h.ID, Metadata: payload}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// wantsMetadata tells whether that of the hits is wanted.
func (in *searchFields) wantsMetadata() bool { return in.Metadata == nil || *in.Metadata }
