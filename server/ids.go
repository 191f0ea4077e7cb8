package server

import "github.com/plaid-ir/plaid/collection"

// idsIn asks for a page of the ids of documents.
type idsIn struct {
	Condition  string         `json:"condition,omitempty" doc:"condition over the metadata; none: all documents"`
	Parameters parametersJSON `json:"parameters,omitempty" doc:"a value for each ?"`
	From       uint64         `json:"from,omitempty" doc:"the document id to begin with: next of the page before"`
	Limit      *int           `json:"limit,omitempty" doc:"how many ids at most, 1 to 100000; default 10000"`
}

type idsOut struct {
	IDs []string `json:"ids"`
	// Next is 0 at the end: no later page begins with document 0, the first one.
	Next uint64 `json:"next,omitempty" doc:"from of the next page; left out at the end"`
}

const (
	defaultIDs = 10_000  // ids of a page without limit
	maxIDs     = 100_000 // the largest limit
	maxIDBytes = 8 << 20 // a page ends when its ids have more bytes
)

func idRoutes() []route {
	return []route{typedRoute(route{
		method:      "POST",
		pattern:     "/indices/{name}/ids",
		operationID: "list_ids",
		tag:         "documents",
		permission:  Read,
		group:       groupLookup,
		params:      []param{conditionParam},
		summary:     "Ids of documents, in pages",
		doc: "Each page is of the documents as they are then. One that is replaced meanwhile has a new document id, " +
			"behind all others, " +
			"and so may be there again in a later page.",
		example: `{"condition": "year >= ?", "parameters": [2020], "limit": 1000}`,
	}, listIDs)}
}

// listIDs answers POST /indices/{name}/ids.
func listIDs(q *request, in *idsIn) (idsOut, error) {
	out := idsOut{IDs: []string{}}
	limit := defaultIDs
	if in.Limit != nil {
		limit = *in.Limit
	}
	if limit < 1 || limit > maxIDs {
		return out, badRequest("limit is %d; want 1 to %d", limit, maxIDs)
	}
	err := q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		selection, err := q.selectionFromCondition(in.Condition, in.Parameters)
		if err != nil {
			return err
		}
		size, last := 0, ""
		for d, err := range v.Documents(q.ctx, selection, collection.ReadOptions{From: in.From}) {
			if err != nil {
				return err
			}
			id := d.ID
			if d.Of != "" {
				id = d.Of
			}
			if id == last { // the passages of a document follow one another
				continue
			}
			if len(out.IDs) == limit || size > maxIDBytes {
				out.Next = d.Number
				return nil
			}
			const overhead = 8 // bytes of an id, without its text
			if err := q.reserveAnswer(len(id) + overhead); err != nil {
				return err
			}
			out.IDs, size, last = append(out.IDs, id), size+len(id)+overhead, id
		}
		return nil
	})
	return out, err
}
