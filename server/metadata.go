package server

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// Keys that answers add to the metadata of a document.
const (
	keyOrdinal  = "_subset_"
	keyID       = "_id"
	keyMetadata = "_metadata"
)

// keyBytes is about how many bytes the keys add to metadata, without the id: names, punctuation and a number
// of up to 20 digits.
const keyBytes = 48

// documentMetadata returns the metadata of a document with its document id and its id added. A value that is
// not an object becomes the field _metadata.
func (q *request) documentMetadata(d *collection.StoredDocument) (json.RawMessage, error) {
	if err := q.reserveAnswer(len(d.Metadata) + len(d.ID) + keyBytes); err != nil {
		return nil, err
	}
	return withKeys(d.Metadata, d.Number, d.ID), nil
}

// withKeys returns metadata as an object with the keys _subset_ and _id first. It copies the fields without
// decoding them, since metadata can be most of an answer.
func withKeys(payload []byte, document uint64, id string) json.RawMessage {
	b := make([]byte, 0, len(payload)+len(id)+keyBytes)
	b = append(b, `{"`+keyOrdinal+`":`...)
	b = strconv.AppendUint(b, document, 10)
	b = append(b, `,"`+keyID+`":`...)
	b = appendString(b, id)
	payload = bytes.TrimSpace(payload)
	switch {
	case len(payload) == 0:
	case payload[0] != '{' || !isJSON(payload):
		text := json.RawMessage(payload)
		if !isJSON(payload) {
			text, _ = json.Marshal(string(payload)) // a file of another program can hold any bytes
		}
		b = append(append(b, `,"`+keyMetadata+`":`...), text...)
	default:
		// Look for "_" first, which is rarer than a quotation mark, and so faster to rule out.
		if bytes.IndexByte(payload, '_') >= 0 &&
			(bytes.Contains(payload, []byte(`"`+keyOrdinal+`"`)) || bytes.Contains(payload, []byte(`"`+keyID+`"`))) {
			payload = withoutKeys(payload)
		}
		if inner := bytes.TrimSpace(payload[1 : len(payload)-1]); len(inner) > 0 {
			b = append(append(b, ','), inner...)
		}
	}
	return append(b, '}')
}

// appendString appends a string as JSON, escaped as encoding/json does it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			text, _ := json.Marshal(s) // a string
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// isJSON returns the same as json.Valid, in a quarter of the time.
func isJSON(text []byte) bool { return jsontext.Valid(text, len(text), nil) }

// withoutKeys removes the keys that withKeys adds: files of other programs may have them already.
func withoutKeys(payload []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return []byte("{}")
	}
	delete(fields, keyOrdinal)
	delete(fields, keyID)
	b, err := json.Marshal(fields)
	if err != nil {
		return []byte("{}")
	}
	return b
}

type metadataOut struct {
	Metadata []json.RawMessage `json:"metadata"`
	Count    int               `json:"count"`
}

type countOut struct {
	Count       uint64 `json:"count" doc:"documents that have metadata; all passages of one count as one"`
	Passages    uint64 `json:"passages" doc:"in which some of them are stored"`
	HasMetadata bool   `json:"has_metadata"`
}

type checkIn struct {
	DocumentIDs []int64 `json:"document_ids"`
}

type checkOut struct {
	Existing      []int64 `json:"existing_ids"`
	Missing       []int64 `json:"missing_ids"`
	ExistingCount int     `json:"existing_count"`
	MissingCount  int     `json:"missing_count"`
}

type conditionIn struct {
	Condition  string         `json:"condition"`
	Parameters parametersJSON `json:"parameters,omitempty" doc:"a value for each ?"`
}

type foundOut struct {
	DocumentIDs []uint64 `json:"document_ids"`
	Count       int      `json:"count"`
}

type getMetadataIn struct {
	DocumentIDs *[]int64       `json:"document_ids,omitempty"`
	Condition   string         `json:"condition,omitempty" doc:"instead of document_ids"`
	Parameters  parametersJSON `json:"parameters,omitempty" doc:"a value for each ?"`
	Limit       *int           `json:"limit,omitempty" doc:"how many at most"`
	Values      *bool          `json:"values,omitempty"`
}

type updateMetadataIn struct {
	Condition  string                     `json:"condition,omitempty"`
	Parameters parametersJSON             `json:"parameters,omitempty" doc:"a value for each ?"`
	IDs        []string                   `json:"ids,omitempty"`
	Updates    map[string]json.RawMessage `json:"updates" doc:"fields and their new values; null removes a field"`
}

type updatedMetadataOut struct {
	Updated  int `json:"updated" doc:"documents that were changed, wholly or in part"`
	Passages int `json:"passages" doc:"passages that were changed"`
}

func metadataRoutes() []route {
	const tag = "metadata"
	lookupRoute := func(method, path, id, summary, example string) route {
		var params []param
		if path == "/query" || path == "/get" {
			params = []param{conditionParam}
		}
		return route{
			params:      params,
			method:      method,
			pattern:     "/indices/{name}/metadata" + path,
			operationID: id,
			tag:         tag,
			permission:  Read,
			group:       groupLookup,
			summary:     summary,
			example:     example,
		}
	}
	return []route{
		typedRoute(lookupRoute("GET", "", "get_all_metadata", "Metadata of all documents, by document id", ""),
			allMetadata),
		typedRoute(lookupRoute("GET", "/count", "get_metadata_count", "How many documents have metadata", ""),
			countMetadata),
		typedRoute(lookupRoute("POST", "/check", "check_metadata", "Which documents are there",
			`{"document_ids": [0, 99]}`), checkMetadata),
		typedRoute(lookupRoute("POST", "/query", "query_metadata", "Ids of the documents that a condition holds for",
			`{"condition": "year >= ?", "parameters": [2020]}`), queryMetadata),
		typedRoute(lookupRoute("POST", "/get", "get_metadata", "Metadata of documents by id or by condition; of all "+
			"without either",
			`{"document_ids": [0]}`), getMetadata),
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/metadata/update",
			operationID: "update_metadata",
			tag:         tag,
			permission:  Write,
			group:       groupWrite,
			params:      []param{conditionParam},
			summary:     "Set fields of the metadata of the documents that a condition holds for",
			codes:       []Code{CodeOutcomeUnknown},
			example:     `{"condition": "year < ?", "parameters": [2020], "updates": {"old": true}}`,
		}, updateMetadata),
	}
}

// readMetadata returns the metadata of a selection of documents. limit 0 means no limit.
func readMetadata(q *request, v collection.Snapshot, s collection.Selection, limit int) (metadataOut, error) {
	out := metadataOut{Metadata: []json.RawMessage{}}
	for d, err := range v.Documents(q.ctx, s, collection.ReadOptions{Limit: limit, Metadata: true}) {
		if err != nil {
			return out, err
		}
		m, err := q.documentMetadata(&d)
		if err != nil {
			return out, err
		}
		out.Metadata = append(out.Metadata, m)
	}
	out.Count = len(out.Metadata)
	return out, nil
}

// readFieldNames returns the same as readMetadata, with null in place of all values.
func readFieldNames(q *request, v collection.Snapshot, s collection.Selection, limit int) (metadataOut, error) {
	out := metadataOut{Metadata: []json.RawMessage{}}
	for d, err := range v.Documents(q.ctx, s, collection.ReadOptions{Limit: limit, Metadata: true}) {
		if err != nil {
			return out, err
		}
		names := []byte{'{'}
		w := scanner{text: withKeys(d.Metadata, d.Number, d.ID)}
		if err := q.memory.reserve(q.ctx, int64(len(w.text))); err != nil {
			return out, err
		}
		err := w.visitMembers(func(name string) error {
			text, err := json.Marshal(name)
			if len(names) > 1 {
				names = append(names, ',')
			}
			names = append(append(names, text...), ":null"...)
			w.skipValue()
			return err
		})
		if err != nil {
			return out, err
		}
		if err := q.reserveAnswer(len(names)); err != nil {
			return out, err
		}
		q.memory.release(int64(len(w.text)))
		out.Metadata = append(out.Metadata, append(names, '}'))
	}
	out.Count = len(out.Metadata)
	return out, nil
}

// allMetadata answers GET /indices/{name}/metadata.
func allMetadata(q *request, _ *noBody) (out metadataOut, err error) {
	err = q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) (err error) {
		out, err = readMetadata(q, v, collection.Selection{}, 0)
		return err
	})
	return out, err
}

// countMetadata answers GET /indices/{name}/metadata/count.
func countMetadata(q *request, _ *noBody) (out countOut, err error) {
	// The snapshot is only opened because an index without documents must be an error.
	err = q.withSnapshot(func(c collection.Collection, _ collection.Snapshot) error {
		st, err := c.Stats(q.ctx)
		out = countOut{st.Metadata, st.Passages, st.Metadata > 0}
		return err
	})
	return out, err
}

// checkMetadata answers POST /indices/{name}/metadata/check.
func checkMetadata(q *request, in *checkIn) (checkOut, error) {
	out := checkOut{Existing: []int64{}, Missing: []int64{}}
	err := q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		existing := map[uint64]bool{}
		selection := collection.Selection{Numbers: validNumbers(in.DocumentIDs)}
		for d, err := range v.Documents(q.ctx, selection, collection.ReadOptions{}) {
			if err != nil {
				return err
			}
			existing[d.Number] = true
		}
		for _, id := range in.DocumentIDs {
			if id >= 0 && existing[uint64(id)] {
				out.Existing = append(out.Existing, id)
			} else {
				out.Missing = append(out.Missing, id)
			}
		}
		return nil
	})
	out.ExistingCount, out.MissingCount = len(out.Existing), len(out.Missing)
	return out, err
}

// queryMetadata answers POST /indices/{name}/metadata/query.
func queryMetadata(q *request, in *conditionIn) (foundOut, error) {
	out := foundOut{DocumentIDs: []uint64{}}
	if in.Condition == "" {
		return out, badRequest("condition is empty")
	}
	err := q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) (err error) {
		ctx, end := q.startStage("select")
		defer func() { end(err) }()
		selection, err := q.selectionFromCondition(in.Condition, in.Parameters)
		if err != nil {
			return err
		}
		for d, err := range v.Documents(ctx, selection, collection.ReadOptions{}) {
			if err != nil {
				return err
			}
			out.DocumentIDs = append(out.DocumentIDs, d.Number)
		}
		return nil
	})
	out.Count = len(out.DocumentIDs)
	return out, err
}

// getMetadata answers POST /indices/{name}/metadata/get.
func getMetadata(q *request, in *getMetadataIn) (metadataOut, error) {
	out := metadataOut{Metadata: []json.RawMessage{}}
	switch {
	case in.DocumentIDs != nil && in.Condition != "":
		return out, badRequest("document_ids and a condition are given: want one of them")
	case in.Limit != nil && *in.Limit < 0:
		return out, badRequest("limit is %d; want 0 or more", *in.Limit)
	}
	limit := 0
	if in.Limit != nil {
		limit = max(*in.Limit, 1)
	}
	err := q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		selection, err := q.selectionFromCondition(in.Condition, in.Parameters)
		if err != nil {
			return err
		}
		if in.DocumentIDs != nil {
			selection.Numbers = validNumbers(*in.DocumentIDs)
		}
		if in.Values != nil && !*in.Values {
			out, err = readFieldNames(q, v, selection, limit)
		} else {
			out, err = readMetadata(q, v, selection, limit)
		}
		return err
	})
	if err == nil && in.Limit != nil && *in.Limit == 0 { // one document was read to check the condition
		out = metadataOut{Metadata: []json.RawMessage{}}
	}
	return out, err
}

// updateMetadata answers POST /indices/{name}/metadata/update.
func updateMetadata(q *request, in *updateMetadataIn) (updatedMetadataOut, error) {
	if in.Condition == "" && in.IDs == nil {
		return updatedMetadataOut{}, badRequest("condition is empty, and there are no ids")
	}
	for name := range in.Updates {
		if strings.EqualFold(name, vectors.PassageField) {
			return updatedMetadataOut{}, badRequest("updates: field %s says of which document one is a passage, and "+
				"stays as it is", name)
		}
	}
	c, err := q.collection()
	if err != nil {
		return updatedMetadataOut{}, err
	}
	selection, err := q.selectionFromCondition(in.Condition, in.Parameters)
	if err != nil {
		return updatedMetadataOut{}, err
	}
	selection.IDs = in.IDs
	ctx, end := q.startStage("write")
	changed, err := c.UpdateMetadata(ctx, selection, in.Updates)
	end(err)
	if err != nil {
		return updatedMetadataOut{}, err
	}
	q.server.metrics.written.WithLabelValues(c.Name(), "updated").Add(float64(changed.Documents))
	return updatedMetadataOut{changed.Documents, changed.Passages}, nil
}

// facetsIn asks how many documents have each value of some fields.
type facetsIn struct {
	Fields []string `json:"fields"`
	Values *int     `json:"values,omitempty"`
	restriction
}

type facetsOut struct {
	Facets []*index.Facet `json:"facets" doc:"one for each of fields, in their order"`
}

const (
	maxFacetFields = 100 // of a request
	// facetMemory bounds the memory of the distinct values of a field while they are counted, including
	// the values of other fields that are returned. It is at most half of the memory of all answers.
	facetMemory = 32 << 20
)

func facetRoutes() []route {
	return []route{typedRoute(route{
		method:      "POST",
		pattern:     "/indices/{name}/facets",
		operationID: "facets",
		tag:         "metadata",
		permission:  Read,
		group:       groupSearch,
		params:      []param{conditionParam},
		summary:     "How many documents have each value of a field",
		codes:       []Code{CodeNotSupported},
		doc: "Of all documents, or of those that a search with the same restriction could return. " +
			"Each passage of a document counts by itself.",
		example: `{"fields": ["lang"], "filter_condition": "year >= 2020"}`,
	}, countFacets)}
}

// countFacets answers POST /indices/{name}/facets.
func countFacets(q *request, in *facetsIn) (out facetsOut, err error) {
	o := index.FacetOptions{
		Values:  index.DefaultFacetValues,
		Memory:  min(facetMemory, q.server.answerMemory.capacity/2),
		Lenient: q.prefers(preferNull),
	}
	switch {
	case len(in.Fields) == 0:
		return out, badRequest("fields is empty")
	case len(in.Fields) > maxFacetFields:
		return out, badRequest("there are %d fields; the limit is %d", len(in.Fields), maxFacetFields)
	case in.Values != nil && *in.Values < 1:
		return out, badRequest("values is %d; want 1 or more", *in.Values)
	case in.Values != nil:
		o.Values = *in.Values
	}

	// Parse the fields, and count.
	fields := make([]condition.Field, len(in.Fields))
	for i, name := range in.Fields {
		if fields[i], err = condition.ParseField(name); err != nil {
			return out, badRequest("fields[%d]: %w", i, err)
		}
	}
	err = q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		faceter, ok := v.(collection.Faceter)
		if !ok {
			return collection.Unsupported("facets")
		}
		selection, err := in.selection(q)
		if err != nil {
			return err
		}
		if err := q.memory.reserve(q.ctx, o.Memory); err != nil {
			return err
		}
		ctx, end := q.startStage("facets")
		out.Facets, err = faceter.Facets(ctx, fields, selection, o)
		end(err)
		return err
	})
	if err != nil {
		return out, err
	}
	for _, f := range out.Facets {
		const overhead = 64 // bytes of a value, without its text
		for i := range f.Values {
			if err := q.reserveAnswer(overhead + len(f.Values[i].Value.String())); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}
