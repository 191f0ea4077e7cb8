package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tools are what agents call. Errors of theirs are for the agent to read.
type tools struct{ service *Service }

// Errors of arguments.
var (
	ErrIndex    = errors.New("which index is meant is not clear")
	ErrArgument = errors.New("bad argument")
)

type listIn struct{}

type listOut struct {
	Indexes []indexOut `json:"indexes"`
	// Texts says whether questions can be asked by meaning.
	Texts bool `json:"texts" jsonschema:"true: questions are answered by meaning; false: the service has no model, and searches by words"`
}

type indexOut struct {
	Name      string   `json:"name"`
	Documents int64    `json:"documents"`
	Fields    []string `json:"fields,omitempty" jsonschema:"fields that the first documents have; conditions are over them"`
}

// sampled is how many documents are looked at for the names of fields.
const sampled = 5

// maxIndexes is how many indexes are described.
const maxIndexes = 100

func (t tools) list(ctx context.Context, from http.Header, _ *listIn) (listOut, error) {
	out := listOut{Indexes: []indexOut{}}
	names, err := t.names(ctx, from)
	if err != nil {
		return out, err
	}
	for _, name := range names[:min(len(names), maxIndexes)] {
		var info struct {
			Documents int64 `json:"num_documents"`
		}
		x := indexOut{Name: name}
		switch err := t.service.ask(ctx, from, "GET", "/indices/"+url.PathEscape(name), nil, &info); {
		case refusedWith(err, "INDEX_NOT_FOUND"): // declared, and without documents
		case err != nil:
			return out, fmt.Errorf("index %s: %w", name, err)
		default:
			x.Documents = info.Documents
			if x.Fields, err = t.fields(ctx, from, name); err != nil {
				return out, fmt.Errorf("index %s: %w", name, err)
			}
		}
		out.Indexes = append(out.Indexes, x)
	}
	out.Texts, err = t.encodes(ctx, from)
	return out, err
}

// fields are those that the first documents of an index have, in the order of their names.
func (t tools) fields(ctx context.Context, from http.Header, index string) ([]string, error) {
	var some struct {
		Metadata []map[string]json.RawMessage `json:"metadata"`
	}
	if err := t.service.ask(ctx, from, "POST", "/indices/"+url.PathEscape(index)+"/metadata/get", map[string]any{"limit": sampled}, &some); err != nil {
		return nil, err
	}
	var fields []string
	for _, m := range some.Metadata {
		for key := range m {
			if key != ordinalKey && key != idKey && !slices.Contains(fields, key) {
				fields = append(fields, key)
			}
		}
	}
	slices.Sort(fields)
	return fields, nil
}

// encodes tells whether the service has a model.
func (t tools) encodes(ctx context.Context, from http.Header) (bool, error) {
	var health struct {
		Model *struct{} `json:"model"`
	}
	err := t.service.ask(ctx, from, "GET", "/health", nil, &health)
	return health.Model != nil, err
}

func (t tools) names(ctx context.Context, from http.Header) (names []string, err error) {
	err = t.service.ask(ctx, from, "GET", "/indices", nil, &names)
	return names, err
}

// index is the path of one; without a name it is the only one that there is.
func (t tools) index(ctx context.Context, from http.Header, name string) (string, error) {
	if name == "" {
		names, err := t.names(ctx, from)
		if err != nil {
			return "", err
		}
		if len(names) != 1 {
			return "", fmt.Errorf("%w: name one of %.200q", ErrIndex, names)
		}
		name = names[0]
	}
	return "/indices/" + url.PathEscape(name), nil
}

type searchIn struct {
	Index     string   `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	Query     string   `json:"query" jsonschema:"the question, in words"`
	Condition string   `json:"condition,omitempty" jsonschema:"only documents for which this holds: SQL over the fields, such as year >= 2020 AND lang = 'en'"`
	K         int      `json:"k,omitempty" jsonschema:"how many documents, 1 to 20; default 5"`
	Mode      string   `json:"mode,omitempty" jsonschema:"meaning (the default where the service has a model), words, or both"`
	Group     bool     `json:"group,omitempty" jsonschema:"true: return whole documents, each with its best passage, where long ones are stored as passages"`
	Like      []string `json:"like,omitempty" jsonschema:"ids of documents that are what is wanted: more like these is found; by meaning only"`
	Unlike    []string `json:"unlike,omitempty" jsonschema:"ids of documents that are not wanted"`
}

// The ways to search.
const (
	byMeaning = "meaning"
	byWords   = "words"
	byBoth    = "both"
)

type searchOut struct {
	Hits []hitOut `json:"hits"`
	Mode string   `json:"mode" jsonschema:"how it was searched"`
}

type hitOut struct {
	ID    string  `json:"id"`
	Score float64 `json:"score"`
	// Passage is the id of the one that the text is of.
	Passage string `json:"passage,omitempty" jsonschema:"id of the passage that the text is of"`
	Title   string `json:"title,omitempty"`
	// Text is the part that fits the question, and Field and Start where it is from.
	Text   string         `json:"text,omitempty" jsonschema:"the part of the text that fits the question best"`
	Field  string         `json:"field,omitempty" jsonschema:"the field that the text is from"`
	Start  int            `json:"start,omitempty" jsonschema:"byte of the field where the part begins"`
	Length int            `json:"length,omitempty" jsonschema:"bytes of the whole field"`
	Fields map[string]any `json:"fields,omitempty" jsonschema:"short fields of the document"`
}

func (t tools) search(ctx context.Context, from http.Header, in *searchIn) (searchOut, error) {
	out := searchOut{Mode: in.Mode, Hits: []hitOut{}}
	k, err := hits(in.K)
	if err != nil {
		return out, err
	}
	if in.Query == "" || len(in.Query) > MaxQuery {
		return out, fmt.Errorf("%w: query has %d bytes; 1 to %d are possible", ErrArgument, len(in.Query), MaxQuery)
	}
	path, err := t.index(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	switch in.Mode {
	case "":
		out.Mode = byWords
		if yes, err := t.encodes(ctx, from); err != nil {
			return out, err
		} else if yes {
			out.Mode = byMeaning
		}
	case byMeaning, byWords, byBoth:
	default:
		return out, fmt.Errorf("%w: mode is %q; %s, %s and %s are possible", ErrArgument, in.Mode, byMeaning, byWords, byBoth)
	}
	body := map[string]any{"params": map[string]any{"top_k": k}}
	route := "/search"
	if in.Condition != "" {
		route += "/filtered"
		body["filter_condition"] = in.Condition
	}
	if out.Mode != byMeaning {
		body["text_query"] = []string{in.Query}
	}
	if out.Mode != byWords {
		body["queries"] = []string{in.Query}
		route += "_with_encoding"
	}
	if in.Group {
		body["group"], body["passages"] = "best", 1
	}
	if len(in.Like)+len(in.Unlike) > 0 {
		body["feedback"] = map[string]any{"like": in.Like, "unlike": in.Unlike}
	}
	out.Hits, err = t.find(ctx, from, path+route, body, in.Query)
	return out, err
}

// find asks for the hits of one query.
func (t tools) find(ctx context.Context, from http.Header, path string, body map[string]any, words string) ([]hitOut, error) {
	var found struct {
		Results []struct {
			Scores   []float64         `json:"scores"`
			Metadata []json.RawMessage `json:"metadata"`
			Passages [][]struct {
				ID       string          `json:"id"`
				Number   int             `json:"n"`
				Metadata json.RawMessage `json:"metadata"`
			} `json:"passages"`
		} `json:"results"`
	}
	hits := []hitOut{}
	if err := t.service.ask(ctx, from, "POST", path, body, &found); err != nil {
		return hits, err
	}
	for _, r := range found.Results {
		for i, m := range r.Metadata[:min(len(r.Metadata), len(r.Scores))] {
			whole, passage := m, ""
			if i < len(r.Passages) && len(r.Passages[i]) > 0 && r.Passages[i][0].Number >= 0 {
				m, passage = r.Passages[i][0].Metadata, r.Passages[i][0].ID // has the document's fields, too
			}
			hit, err := shown(m, words)
			if err == nil && passage != "" {
				hit.Passage = passage
				hit.ID, _, err = fieldsOf(whole)
			}
			if err != nil {
				return hits, err
			}
			hit.Score = r.Scores[i]
			hits = append(hits, hit)
		}
	}
	return hits, nil
}

type getIn struct {
	Index string   `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	IDs   []string `json:"ids" jsonschema:"ids of documents, 1 to 20"`
	Start int      `json:"start,omitempty" jsonschema:"byte of long texts to begin at; what was cut says where to go on"`
}

type getOut struct {
	Documents []documentOut `json:"documents"`
	Missing   []string      `json:"missing,omitempty" jsonschema:"ids that no document has"`
	NoRoom    []string      `json:"no_room,omitempty" jsonschema:"ids of documents, or of passages, that this answer has no room for: call get with these"`
	Left      int           `json:"left,omitempty" jsonschema:"how many there is no room for, where they are more than no_room names"`
}

type documentOut struct {
	ID     string         `json:"id"`
	Fields map[string]any `json:"fields"`
	Next   int            `json:"next,omitempty" jsonschema:"some text goes on: call get with this start for more"`
}

func (t tools) get(ctx context.Context, from http.Header, in *getIn) (getOut, error) {
	out := getOut{Documents: []documentOut{}}
	if len(in.IDs) < 1 || len(in.IDs) > MaxHits {
		return out, fmt.Errorf("%w: %d ids; 1 to %d are possible", ErrArgument, len(in.IDs), MaxHits)
	}
	if in.Start < 0 {
		return out, fmt.Errorf("%w: start is %d", ErrArgument, in.Start)
	}
	path, err := t.index(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	room, left := TextBytes, 0
	for _, id := range in.IDs {
		found, err := t.document(ctx, from, path, id)
		if refusedWith(err, "DOCUMENT_NOT_FOUND") {
			out.Missing = append(out.Missing, id)
			continue
		} else if err != nil {
			return out, err
		}
		for _, m := range found {
			if room <= 0 { // the first one is shown in any case
				if left++; left <= MaxHits {
					of, _, err := fieldsOf(m)
					if err != nil {
						return out, fmt.Errorf("document %q: %w", id, err)
					}
					out.NoRoom = append(out.NoRoom, of)
				}
				continue
			}
			doc, err := piece(m, in.Start, &room)
			if err != nil {
				return out, fmt.Errorf("document %q: %w", id, err)
			}
			room -= len(doc.ID) + documentBytes
			out.Documents = append(out.Documents, doc)
		}
	}
	if left > len(out.NoRoom) {
		out.Left = left
	}
	return out, nil
}

// document reads the metadata of one, or of its passages.
func (t tools) document(ctx context.Context, from http.Header, index, id string) ([]json.RawMessage, error) {
	var found struct {
		Documents []struct {
			Metadata json.RawMessage `json:"metadata"`
		} `json:"documents"`
	}
	if err := t.service.ask(ctx, from, "GET", index+"/documents?"+url.Values{"id": {id}}.Encode(), nil, &found); err != nil {
		return nil, err
	}
	if len(found.Documents) == 0 {
		return nil, &RefusedError{http.StatusNotFound, "DOCUMENT_NOT_FOUND", fmt.Sprintf("there is no document with _id %q", id)}
	}
	all := make([]json.RawMessage, len(found.Documents))
	for i, d := range found.Documents {
		all[i] = d.Metadata
	}
	return all, nil
}

// resource reads plaid://index/id.
func (t tools) resource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	from, uri := headerOf(r.GetExtra()), r.Params.URI
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "plaid" || u.Host == "" || len(u.EscapedPath()) < 2 {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	id, err := url.PathUnescape(u.EscapedPath()[1:])
	if err != nil {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	m, err := t.document(ctx, from, "/indices/"+url.PathEscape(u.Hostname()), id)
	if refusedWith(err, "DOCUMENT_NOT_FOUND") || refusedWith(err, "INDEX_NOT_FOUND") {
		return nil, sdk.ResourceNotFoundError(uri)
	} else if err != nil {
		return nil, err
	}
	out := &sdk.ReadResourceResult{}
	for _, text := range m {
		out.Contents = append(out.Contents, &sdk.ResourceContents{URI: uri, MIMEType: mediaJSON, Text: string(text)})
	}
	return out, nil
}

// hits is how many documents are asked for.
func hits(k int) (int, error) {
	if k == 0 {
		return DefaultHits, nil
	}
	if k < 1 || k > MaxHits {
		return 0, fmt.Errorf("%w: k is %d; 1 to %d are possible", ErrArgument, k, MaxHits)
	}
	return k, nil
}

func refusedWith(err error, code string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == code
}
