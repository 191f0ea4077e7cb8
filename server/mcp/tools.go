package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// tools are what agents call. Errors of theirs are for the agent to read.
type tools struct{ service *Service }

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
			return "", fmt.Errorf("which index is meant is not clear: name one of %.200q", names)
		}
		name = names[0]
	}
	return "/indices/" + url.PathEscape(name), nil
}

// mostNamed is how many indexes an error names.
const mostNamed = 20

// withNames names the indexes that there are where a tool was asked for another, nearest first.
func (t tools) withNames(ctx context.Context, from http.Header, arguments json.RawMessage, err error) error {
	if !refusedWith(err, "INDEX_NOT_FOUND") {
		return err
	}
	var asked struct {
		Index string `json:"index"`
	}
	names, failed := t.names(ctx, from)
	if json.Unmarshal(arguments, &asked) != nil || failed != nil || slices.Contains(names, asked.Index) {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w; there are no indexes", err)
	}
	more := ""
	if n := len(names) - mostNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	near := human.ByDistance(asked.Index, names)
	return fmt.Errorf("%w; there are %s%s", err, strings.Join(near[:min(len(near), mostNamed)], ", "), more)
}

type getIn struct {
	Index string   `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	IDs   []string `json:"ids" jsonschema:"ids of documents, 1 to 20"`
	Start whole    `json:"start,omitempty" jsonschema:"byte of long texts to begin at; what was cut says where to go on"`
	tokensIn
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
	Left   int            `json:"fields_left,omitempty" jsonschema:"how many more fields there is no room for"`
	Next   int            `json:"next,omitempty" jsonschema:"some text goes on: call get with this start for more"`
}

func (t tools) get(ctx context.Context, from http.Header, in *getIn) (getOut, error) {
	out := getOut{Documents: []documentOut{}}
	if len(in.IDs) < 1 || len(in.IDs) > MaxHits {
		return out, fmt.Errorf("bad argument: %d ids; 1 to %d are possible", len(in.IDs), MaxHits)
	}
	if in.Start < 0 {
		return out, fmt.Errorf("bad argument: start is %d", in.Start)
	}
	room, err := in.room(TextBytes)
	if err != nil {
		return out, err
	}
	path, err := t.index(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	left := 0
	for _, id := range in.IDs {
		found, err := t.document(ctx, from, path, id, window{limit: mostShown, bytes: max(room, 0)})
		if refusedWith(err, "DOCUMENT_NOT_FOUND") {
			out.Missing = append(out.Missing, id)
			continue
		} else if err != nil {
			return out, err
		}
		left += found.Total - len(found.Documents)
		for _, d := range found.Documents {
			if room <= 0 || d.Metadata == nil { // the first one is shown in any case
				room = 0
				if left++; len(out.NoRoom) < MaxHits {
					out.NoRoom = append(out.NoRoom, d.ID)
				}
				continue
			}
			doc, err := piece(d.Metadata, int(in.Start), &room)
			if err != nil {
				return out, fmt.Errorf("document %.80q: %w", id, err)
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

// mostShown is how many passages of a document are shown, or named, at most.
const mostShown = 100

// window is the part of a document to read: limit passages from offset on, with at most bytes of
// their metadata, but always that of the first; 0 bytes: none.
type window struct {
	offset, limit, bytes int
	vectors              bool
}

func (w window) query(ids ...string) string {
	form := "none"
	if w.vectors {
		form = "base64"
	}
	return url.Values{
		"id": ids, "offset": {strconv.Itoa(w.offset)}, "limit": {strconv.Itoa(w.limit)},
		"metadata_bytes": {strconv.Itoa(w.bytes)}, "vectors": {form},
	}.Encode()
}

// stored are documents, or the passages of one, as the service answers them.
type stored struct {
	Documents []struct {
		ID      string `json:"id"`
		Passage *struct {
			Of string `json:"of"`
		} `json:"passage"` // nil: it is a document
		Metadata json.RawMessage `json:"metadata"` // nil: it is not read
		Base64   []byte          `json:"embeddings_b64"`
		Shape    []int           `json:"shape"`
	} `json:"documents"`
	Total int `json:"total"`
}

// document reads a document, or its passages.
func (t tools) document(ctx context.Context, from http.Header, index, id string, w window) (found stored, err error) {
	err = t.service.ask(ctx, from, "GET", index+"/documents?"+w.query(id), nil, &found)
	found.Total = max(found.Total, len(found.Documents))
	if err == nil && found.Total == 0 {
		err = &RefusedError{http.StatusNotFound, "DOCUMENT_NOT_FOUND", fmt.Sprintf("there is no document with _id %.80q", id)}
	}
	return found, err
}

// Keys of resources: the URI to go on with, and how many fields there was no room for.
const (
	nextKey = "_next"
	leftKey = "_fields_left"
)

// resource reads plaid://index/id from a passage on, and from a byte of its long text.
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
	first, start, err := placeOf(u)
	if err != nil {
		return nil, err
	}
	found, err := t.document(ctx, from, "/indices/"+url.PathEscape(u.Hostname()), id,
		window{offset: first, limit: mostShown, bytes: ResourceBytes})
	if refusedWith(err, "DOCUMENT_NOT_FOUND") || refusedWith(err, "INDEX_NOT_FOUND") {
		return nil, sdk.ResourceNotFoundError(uri)
	} else if err != nil {
		return nil, err
	}
	if len(found.Documents) == 0 {
		return nil, badURI("%s: the document has %d passages, and none from number %d on", uri, found.Total, first)
	}
	var texts []string
	next, nextStart := first, 0
	for i, d := range found.Documents {
		if d.Metadata == nil || i > 0 && nextStart > 0 {
			break
		}
		text := string(d.Metadata)
		if i == 0 && (start > 0 || len(text) > ResourceBytes) {
			if text, nextStart, err = part(d.Metadata, start); err != nil {
				return nil, fmt.Errorf("document %.80q: %w", id, err)
			}
		}
		texts = append(texts, text)
		if nextStart == 0 {
			next++
		}
	}
	if next < found.Total {
		u.RawQuery = url.Values{"passage": {strconv.Itoa(next)}, "start": {strconv.Itoa(nextStart)}}.Encode()
		last := &texts[len(texts)-1]
		*last = strings.TrimSuffix(*last, "}") + fmt.Sprintf(",%q:%q}", nextKey, u)
	}
	out := &sdk.ReadResourceResult{}
	for _, text := range texts {
		out.Contents = append(out.Contents, &sdk.ResourceContents{URI: uri, MIMEType: mediaJSON, Text: text})
	}
	return out, nil
}

// placeOf is where a resource is read from, by its URI.
func placeOf(u *url.URL) (passage, start int, err error) {
	query := u.Query()
	for name, into := range map[string]*int{"passage": &passage, "start": &start} {
		if text := query.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil || *into < 0 {
				return 0, 0, badURI("%s: %s is %q; want a whole number from 0", u, name, text)
			}
		}
	}
	return passage, start, nil
}

// badURI is an error of the agent's.
func badURI(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// part returns a part of a long document, and where the next one begins.
func part(m json.RawMessage, start int) (text string, next int, err error) {
	room := ResourceBytes
	doc, err := piece(m, start, &room)
	if err != nil {
		return "", 0, err
	}
	doc.Fields[idKey] = doc.ID
	if doc.Left > 0 {
		doc.Fields[leftKey] = doc.Left
	}
	b, err := jsontext.Plain(doc.Fields)
	return string(b), doc.Next, err
}

// tokensIn bounds an answer.
type tokensIn struct {
	MaxTokens whole `json:"max_tokens,omitempty" jsonschema:"about how many tokens the answer has at most, 3 bytes counting as one; fewer documents and shorter texts are shown then"`
}

// room is how many bytes an answer may have, most if nothing is said.
func (in *tokensIn) room(most int) (int, error) {
	if in.MaxTokens < 0 {
		return 0, fmt.Errorf("bad argument: max_tokens is %d", in.MaxTokens)
	}
	if n := int(in.MaxTokens); n > 0 && n <= most/tokenBytes {
		return n * tokenBytes, nil
	}
	return most, nil
}

// whole is a whole number of an agent. Some write 5.0 for 5, which is whole too (as JSON Schema has
// it), and numbers that no int has, which become the greatest or the least one.
type whole int

// UnmarshalJSON implements [json.Unmarshaler].
func (w *whole) UnmarshalJSON(text []byte) error {
	if n, err := strconv.Atoi(string(text)); err == nil {
		*w = whole(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || f != math.Trunc(f):
		return fmt.Errorf("bad argument: %.40s is no whole number", text)
	case f >= math.MaxInt:
		*w = math.MaxInt
	case f <= math.MinInt:
		*w = math.MinInt
	default:
		*w = whole(f)
	}
	return nil
}

// hits is how many documents are asked for.
func hits(k int) (int, error) {
	if k == 0 {
		return DefaultHits, nil
	}
	if k < 1 || k > MaxHits {
		return 0, fmt.Errorf("bad argument: k is %d; 1 to %d are possible", k, MaxHits)
	}
	return k, nil
}

func refusedWith(err error, code string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == code
}
