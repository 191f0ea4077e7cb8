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
	// Texts is true if the service has a model.
	Texts bool `json:"texts" jsonschema:"true: finds by meaning; false: has no model, and finds by words"`
}

type indexOut struct {
	Name      string   `json:"name"`
	Documents int64    `json:"documents"`
	Passages  int64    `json:"passages,omitempty" jsonschema:"in which some of them are stored"`
	Fields    []string `json:"fields,omitempty" jsonschema:"fields of the first documents, for conditions"`
	Left      int      `json:"fields_left,omitempty" jsonschema:"how many more fields they have"`
	Error     string   `json:"error,omitempty" jsonschema:"why the index cannot be searched"`
}

// sampledDocuments is how many documents are read for the names of fields.
const sampledDocuments = 5

const (
	// maxIndexes is the largest number of indexes that are described.
	maxIndexes = 100
	// maxFields is the largest number of fields that are named for all indexes. Each index may name
	// maxShortFields in any case.
	maxFields = 500
)

// listIndexes is the tool list.
func (t tools) listIndexes(ctx context.Context, header http.Header, _ *listIn) (listOut, error) {
	out := listOut{Indexes: []indexOut{}}
	names, err := t.indexNames(ctx, header)
	if err != nil {
		return out, err
	}
	sizes, hasModel, err := t.fetchHealth(ctx, header)
	if err != nil {
		return out, err
	}
	out.Texts, out.Left = hasModel, max(len(names)-maxIndexes, 0)
	remaining := maxFields
	for _, name := range names[:min(len(names), maxIndexes)] {
		x := indexOut{Name: name}
		x.Fields, x.Left, err = t.fetchFields(ctx, header, name)
		size, known := sizes[name]
		switch {
		case refusedWith(err, "INDEX_NOT_FOUND"): // declared, and without documents
			err = nil
		case err == nil && !known: // it was too slow for the answer with all sizes
			size, err = t.fetchSize(ctx, header, name)
		}
		if err != nil {
			var refused *RefusedError
			if !errors.As(err, &refused) { // the service does not answer at all
				return out, err
			}
			x.Error = err.Error()
		}
		x.Documents, x.Passages = size.Documents, size.Passages
		if n := max(remaining, maxShortFields); len(x.Fields) > n {
			x.Fields, x.Left = x.Fields[:n], x.Left+len(x.Fields)-n
		}
		remaining -= len(x.Fields)
		out.Indexes = append(out.Indexes, x)
	}
	return out, nil
}

// fetchFields returns the names of the fields that the first documents of an index have, sorted. omitted
// counts those with long names, which are left out.
func (t tools) fetchFields(
	ctx context.Context, header http.Header, index string,
) (fields []string, omitted int, err error) {
	var answer struct {
		Metadata []map[string]json.RawMessage `json:"metadata"`
	}
	if err := t.service.send(ctx, header, "POST", "/indices/"+url.PathEscape(index)+"/metadata/get",
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
	total := len(fields)
	fields = slices.DeleteFunc(fields, func(name string) bool { return len(name) > shortField })
	slices.Sort(fields)
	return fields, total - len(fields), nil
}

// indexSize has the number of documents of an index, and of the passages that some are stored in.
type indexSize struct {
	Documents int64 `json:"num_documents"`
	Passages  int64 `json:"num_passages"`
}

// fetchHealth returns the sizes of the indexes, except for those that are slow to answer, and reports whether
// the service has a model.
func (t tools) fetchHealth(
	ctx context.Context, header http.Header,
) (sizes map[string]indexSize, hasModel bool, err error) {
	var health struct {
		Model   *struct{} `json:"model"`
		Indices []struct {
			Name string `json:"name"`
			indexSize
		} `json:"indices"`
	}
	if err := t.service.send(ctx, header, "GET", "/health", nil, &health); err != nil {
		return nil, false, err
	}
	sizes = make(map[string]indexSize, len(health.Indices))
	for _, x := range health.Indices {
		sizes[x.Name] = x.indexSize
	}
	return sizes, health.Model != nil, nil
}

// fetchSize returns the size of an index.
func (t tools) fetchSize(ctx context.Context, header http.Header, index string) (info indexSize, err error) {
	err = t.service.send(ctx, header, "GET", "/indices/"+url.PathEscape(index), nil, &info)
	return info, err
}
