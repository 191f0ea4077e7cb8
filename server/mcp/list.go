package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
)

type listIn struct{}

type listOut struct {
	Indexes []indexOut `json:"indexes"`
	Left    int        `json:"left,omitempty" jsonschema:"how many more indexes there are"`
	// Texts says whether questions can be asked by meaning.
	Texts bool `json:"texts" jsonschema:"true: questions are answered by meaning; false: the service has no model, and searches by words"`
}

type indexOut struct {
	Name      string   `json:"name"`
	Documents int64    `json:"documents"`
	Passages  int64    `json:"passages,omitempty" jsonschema:"in which some of them are stored"`
	Fields    []string `json:"fields,omitempty" jsonschema:"fields that the first documents have; conditions are over them"`
	Left      int      `json:"fields_left,omitempty" jsonschema:"how many more fields they have"`
	Error     string   `json:"error,omitempty" jsonschema:"why the index cannot be searched"`
}

// sampledDocuments is how many documents are looked at for the names of fields.
const sampledDocuments = 5

const (
	// maxIndexes is how many indexes are described.
	maxIndexes = 100
	// maxFields is how many fields of them all are named. Each index names some in any case.
	maxFields = 500
)

func (t tools) listIndexes(ctx context.Context, from http.Header, _ *listIn) (listOut, error) {
	out := listOut{Indexes: []indexOut{}}
	names, err := t.indexNames(ctx, from)
	if err != nil {
		return out, err
	}
	known, texts, err := t.fetchHealth(ctx, from)
	if err != nil {
		return out, err
	}
	out.Texts, out.Left = texts, max(len(names)-maxIndexes, 0)
	room := maxFields
	for _, name := range names[:min(len(names), maxIndexes)] {
		x := indexOut{Name: name}
		x.Fields, x.Left, err = t.fetchFields(ctx, from, name)
		size, there := known[name]
		switch {
		case refusedWith(err, "INDEX_NOT_FOUND"): // declared, and without documents
			err = nil
		case err == nil && !there: // it was slow to say how many it has
			size, err = t.fetchSize(ctx, from, name)
		}
		if err != nil {
			var refused *RefusedError
			if !errors.As(err, &refused) { // the service is out of reach
				return out, err
			}
			x.Error = err.Error()
		}
		x.Documents, x.Passages = size.Documents, size.Passages
		if n := max(room, maxShortFields); len(x.Fields) > n {
			x.Fields, x.Left = x.Fields[:n], x.Left+len(x.Fields)-n
		}
		room -= len(x.Fields)
		out.Indexes = append(out.Indexes, x)
	}
	return out, nil
}

// fetchFields are those that the first documents of an index have, in the order of their names. left
// counts those with long names, which are not shown.
func (t tools) fetchFields(ctx context.Context, from http.Header, index string) (fields []string, left int, err error) {
	var answer struct {
		Metadata []map[string]json.RawMessage `json:"metadata"`
	}
	if err := t.service.send(ctx, from, "POST", "/indices/"+url.PathEscape(index)+"/metadata/get",
		map[string]any{"limit": sampledDocuments, "values": false}, &answer); err != nil {
		return nil, 0, err
	}
	for _, m := range answer.Metadata {
		for key := range m {
			if key != ordinalKey && key != idKey && !slices.Contains(fields, key) {
				fields = append(fields, key)
			}
		}
	}
	all := len(fields)
	fields = slices.DeleteFunc(fields, func(name string) bool { return len(name) > shortField })
	slices.Sort(fields)
	return fields, all - len(fields), nil
}

// indexSize is how many documents an index has, and in how many passages some of them are stored.
type indexSize struct {
	Documents int64 `json:"num_documents"`
	Passages  int64 `json:"num_passages"`
}

// fetchHealth says how many documents the indexes have that answer soon, and whether the service
// has a model.
func (t tools) fetchHealth(ctx context.Context, from http.Header) (sizes map[string]indexSize, encodes bool, err error) {
	var health struct {
		Model   *struct{} `json:"model"`
		Indices []struct {
			Name string `json:"name"`
			indexSize
		} `json:"indices"`
	}
	if err := t.service.send(ctx, from, "GET", "/health", nil, &health); err != nil {
		return nil, false, err
	}
	sizes = make(map[string]indexSize, len(health.Indices))
	for _, x := range health.Indices {
		sizes[x.Name] = x.indexSize
	}
	return sizes, health.Model != nil, nil
}

// fetchSize asks for the size of an index.
func (t tools) fetchSize(ctx context.Context, from http.Header, index string) (info indexSize, err error) {
	err = t.service.send(ctx, from, "GET", "/indices/"+url.PathEscape(index), nil, &info)
	return info, err
}
