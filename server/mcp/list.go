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
	Fields    []string `json:"fields,omitempty" jsonschema:"fields that the first documents have; conditions are over them"`
	Left      int      `json:"fields_left,omitempty" jsonschema:"how many more fields they have"`
	Error     string   `json:"error,omitempty" jsonschema:"why the index cannot be searched"`
}

// sampled is how many documents are looked at for the names of fields.
const sampled = 5

const (
	// maxIndexes is how many indexes are described.
	maxIndexes = 100
	// maxFields is how many fields of them all are named. Each index names some in any case.
	maxFields = 500
)

func (t tools) list(ctx context.Context, from http.Header, _ *listIn) (listOut, error) {
	out := listOut{Indexes: []indexOut{}}
	names, err := t.names(ctx, from)
	if err != nil {
		return out, err
	}
	known, texts, err := t.health(ctx, from)
	if err != nil {
		return out, err
	}
	out.Texts, out.Left = texts, max(len(names)-maxIndexes, 0)
	room := maxFields
	for _, name := range names[:min(len(names), maxIndexes)] {
		x := indexOut{Name: name}
		x.Fields, x.Left, err = t.fields(ctx, from, name)
		documents, there := known[name]
		switch {
		case refusedWith(err, "INDEX_NOT_FOUND"): // declared, and without documents
			err = nil
		case err == nil && !there: // it was slow to say how many it has
			documents, err = t.documents(ctx, from, name)
		}
		if err != nil {
			var refused *RefusedError
			if !errors.As(err, &refused) { // the service is out of reach
				return out, err
			}
			x.Error = err.Error()
		}
		x.Documents = documents
		if n := max(room, shownFields); len(x.Fields) > n {
			x.Fields, x.Left = x.Fields[:n], x.Left+len(x.Fields)-n
		}
		room -= len(x.Fields)
		out.Indexes = append(out.Indexes, x)
	}
	return out, nil
}

// fields are those that the first documents of an index have, in the order of their names. left
// counts those with long names, which are not shown.
func (t tools) fields(ctx context.Context, from http.Header, index string) (fields []string, left int, err error) {
	var some struct {
		Metadata []map[string]json.RawMessage `json:"metadata"`
	}
	if err := t.service.ask(ctx, from, "POST", "/indices/"+url.PathEscape(index)+"/metadata/get", map[string]any{"limit": sampled, "values": false}, &some); err != nil {
		return nil, 0, err
	}
	for _, m := range some.Metadata {
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

// health says how many documents the indexes have that answer soon, and whether the service
// has a model.
func (t tools) health(ctx context.Context, from http.Header) (documents map[string]int64, encodes bool, err error) {
	var health struct {
		Model   *struct{} `json:"model"`
		Indices []struct {
			Name      string `json:"name"`
			Documents int64  `json:"num_documents"`
		} `json:"indices"`
	}
	if err := t.service.ask(ctx, from, "GET", "/health", nil, &health); err != nil {
		return nil, false, err
	}
	documents = make(map[string]int64, len(health.Indices))
	for _, x := range health.Indices {
		documents[x.Name] = x.Documents
	}
	return documents, health.Model != nil, nil
}

// documents is how many an index has.
func (t tools) documents(ctx context.Context, from http.Header, index string) (int64, error) {
	var info struct {
		Documents int64 `json:"num_documents"`
	}
	err := t.service.ask(ctx, from, "GET", "/indices/"+url.PathEscape(index), nil, &info)
	return info.Documents, err
}
