package server

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
)

// rerankAPIIn is the request of the services that rerank texts, Cohere's and Jina's first,
// as their clients send it.
type rerankAPIIn struct {
	Query     string             `json:"query"`
	Documents []rerankDocumentIn `json:"documents,omitempty" doc:"texts, or objects with a text; or index and ids"`
	Index     string             `json:"index,omitempty" doc:"with ids, instead of documents: the index that has them"`
	IDs       []string           `json:"ids,omitempty" doc:"each _id of a document of index; one that is not there is not found"`
	TopN      *int               `json:"top_n,omitempty" doc:"how many results; default: all"`
	Return    *bool              `json:"return_documents,omitempty" doc:"give the texts back; default false"`
	Model     string             `json:"model,omitempty" doc:"is given back: the service has one model"`
}

// fieldsOfOthers: those services have settings that this one has no use for.
func (*rerankAPIIn) fieldsOfOthers() {}

// rerankDocumentIn is a text, or an object with one.
type rerankDocumentIn struct {
	Text string `json:"text"`
}

// UnmarshalJSON reads either; other fields of an object are not looked at.
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
	return object{"anyOf": []object{{"type": "string"}, (&describer{}).fields(reflect.TypeFor[plain]())}}
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
	Relevance float64           `json:"relevance_score" doc:"MaxSim by the number of query tokens: the mean cosine of each with what it matches best, 1 at most"`
	Document  *rerankDocumentIn `json:"document,omitempty"`
}

type rerankUsage struct {
	Tokens int `json:"total_tokens" doc:"vectors that were computed for the request"`
}

func rerankAPIRoutes() (all []route) {
	for _, version := range []string{"v1", "v2"} {
		all = append(all, typed(route{
			method: "POST", pattern: "/" + version + "/rerank", id: "rerank_" + version, tag: "rerank", need: Read, group: searching,
			fails:   append([]Code{CodeDimension, CodeIndexNotFound, CodeDocumentNotFound, CodeNotSupported}, modelCodes...),
			summary: "Rerank texts, or documents of an index, with the request and answer of Cohere's and Jina's services",
			example: `{"query": "how long do cats sleep?", "documents": ["Cats sleep for most of the day.", "Dogs bark."], "top_n": 1}`,
		}, rerankAPI))
	}
	return all
}

func rerankAPI(q *request, in *rerankAPIIn) (rerankAPIOut, error) {
	out := rerankAPIOut{ID: q.w.Header().Get(headerRequestID), Object: "list", Model: in.Model, Results: []rerankAPIResult{}}
	ofIndex := in.Index != "" || len(in.IDs) > 0
	switch {
	case ofIndex && len(in.Documents) > 0:
		return out, bad("there are documents, and ids of an index: want one of them")
	case ofIndex && (in.Index == "" || len(in.IDs) == 0):
		return out, bad("index and ids go together")
	case !ofIndex && len(in.Documents) == 0:
		return out, bad("documents is empty")
	case in.TopN != nil && *in.TopN < 1:
		return out, bad("top_n is %d; want 1 or more", *in.TopN)
	}
	if ofIndex {
		if p := q.asks(in.Index); p != nil {
			return out, p
		}
	}
	queries, err := q.encode(encode.Query, []string{in.Query}, nil)
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
		docs, err := q.encode(encode.Document, texts, nil)
		if err != nil {
			return out, err
		}
		for _, d := range docs {
			out.Usage.Tokens += d.Tokens
		}
		scored, err := ranked(q, query, docs)
		if err != nil {
			return out, err
		}
		for _, r := range scored.Results {
			out.Results = append(out.Results, rerankAPIResult{Index: r.Index, Relevance: float64(r.Score)})
		}
	}
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

// asks makes a request one of an index that its body names: by the permission of the token
// and the quota that hold for that.
func (q *request) asks(index string) *Problem {
	if !q.may(Read, index) {
		return problem(CodeForbidden, "the bearer token allows %s of this index; this needs %s", q.token.On(index), Read)
	}
	q.SetPathValue("name", index)
	return q.limitIndex()
}

// rerankStored scores documents of the index exactly, each place of ids by itself: one of
// passages by the best of them.
func (q *request) rerankStored(query Matrix, ids []string) ([]rerankAPIResult, error) {
	places := make(map[string][]int, len(ids))
	var wanted []string
	for i, id := range ids {
		if places[id] == nil {
			wanted = append(wanted, id)
		}
		places[id] = append(places[id], i)
	}
	results, names := make([]rerankAPIResult, 0, len(ids)), false
	asked := task{query: search.Query{Vectors: query.Data, Dim: query.Dim, Model: q.s.askedBy()}}
	// Passages of one document may take the places of others. Then whole documents are asked
	// for, and at last those that are passages themselves.
	for _, group := range []string{"", string(search.GroupBest), ""} {
		k := len(wanted)
		if k == 0 {
			break
		}
		found, err := q.search([]task{asked}, nil, &common{
			Params: paramsIn{TopK: &k, Mode: "candidates"}, restriction: restriction{IDs: &wanted}, Metadata: &names, Group: group,
		}, false)
		if err != nil {
			return nil, err
		}
		for _, r := range found.Results {
			for i, id := range r.IDs {
				for _, at := range places[id] {
					results = append(results, rerankAPIResult{Index: at, Relevance: r.Scores[i]})
				}
				delete(places, id)
			}
		}
		wanted = slices.DeleteFunc(wanted, func(id string) bool { return places[id] == nil })
	}
	if len(wanted) > 0 {
		return nil, problem(CodeDocumentNotFound, "there is no document with _id %.300q", wanted[0]).at(Where{Document: &places[wanted[0]][0]})
	}
	slices.SortStableFunc(results, func(a, b rerankAPIResult) int { return cmp.Compare(b.Relevance, a.Relevance) })
	return results, nil
}
