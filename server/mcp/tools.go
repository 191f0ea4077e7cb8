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

func (t tools) indexNames(ctx context.Context, from http.Header) (names []string, err error) {
	err = t.service.send(ctx, from, "GET", "/indices", nil, &names)
	return names, err
}

// indexPath is the path of one; without a name it is the only one that there is.
func (t tools) indexPath(ctx context.Context, from http.Header, name string) (string, error) {
	if name == "" {
		names, err := t.indexNames(ctx, from)
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

// maxNamedIndexes is how many indexes an error names.
const maxNamedIndexes = 20

// suggestIndexes names the indexes that there are where a tool was asked for another, nearest first.
func (t tools) suggestIndexes(ctx context.Context, from http.Header, arguments json.RawMessage, err error) error {
	if !refusedWith(err, "INDEX_NOT_FOUND") {
		return err
	}
	var asked struct {
		Index string `json:"index"`
	}
	names, failed := t.indexNames(ctx, from)
	if json.Unmarshal(arguments, &asked) != nil || failed != nil || slices.Contains(names, asked.Index) {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w; there are no indexes", err)
	}
	more := ""
	if n := len(names) - maxNamedIndexes; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	near := human.ByDistance(asked.Index, names)
	return fmt.Errorf("%w; there are %s%s", err, strings.Join(near[:min(len(near), maxNamedIndexes)], ", "), more)
}

type getIn struct {
	Index string      `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	IDs   []string    `json:"ids" jsonschema:"ids of documents, 1 to 20"`
	Start wholeNumber `json:"start,omitempty" jsonschema:"byte of long texts to begin at; what was cut says where to go on"`
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

func (t tools) getDocuments(ctx context.Context, from http.Header, in *getIn) (getOut, error) {
	out := getOut{Documents: []documentOut{}}
	if len(in.IDs) < 1 || len(in.IDs) > MaxHits {
		return out, fmt.Errorf("bad argument: %d ids; 1 to %d are possible", len(in.IDs), MaxHits)
	}
	if in.Start < 0 {
		return out, fmt.Errorf("bad argument: start is %d", in.Start)
	}
	room, err := in.byteBudget(TextBytes)
	if err != nil {
		return out, err
	}
	path, err := t.indexPath(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	omitted := 0
	for _, id := range in.IDs {
		found, err := t.fetchDocument(ctx, from, path, id, documentRange{limit: maxPassages, bytes: max(room, 0)})
		if refusedWith(err, "DOCUMENT_NOT_FOUND") {
			out.Missing = append(out.Missing, id)
			continue
		} else if err != nil {
			return out, err
		}
		omitted += found.Total - len(found.Documents)
		for _, d := range found.Documents {
			if room <= 0 || d.Metadata == nil { // the first one is shown in any case
				room = 0
				if omitted++; len(out.NoRoom) < MaxHits {
					out.NoRoom = append(out.NoRoom, d.ID)
				}
				continue
			}
			doc, err := fitDocument(d.Metadata, int(in.Start), &room)
			if err != nil {
				return out, fmt.Errorf("document %.80q: %w", id, err)
			}
			room -= len(doc.ID) + documentBytes
			out.Documents = append(out.Documents, doc)
		}
	}
	if omitted > len(out.NoRoom) {
		out.Left = omitted
	}
	return out, nil
}

// maxPassages is how many passages of a document are shown, or named, at most.
const maxPassages = 100

// documentRange is the part of a document to read: limit passages from offset on, with at most bytes of
// their metadata, but always that of the first; 0 bytes: none.
type documentRange struct {
	offset, limit, bytes int
	vectors              bool
}

func (w documentRange) encodeQuery(ids ...string) string {
	form := "none"
	if w.vectors {
		form = "base64"
	}
	return url.Values{
		"id": ids, "offset": {strconv.Itoa(w.offset)}, "limit": {strconv.Itoa(w.limit)},
		"metadata_bytes": {strconv.Itoa(w.bytes)}, "vectors": {form},
	}.Encode()
}

// storedAnswer are documents, or the passages of one, as the service answers them.
type storedAnswer struct {
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

// fetchDocument reads a document, or its passages.
func (t tools) fetchDocument(ctx context.Context, from http.Header, index, id string, w documentRange) (found storedAnswer, err error) {
	err = t.service.send(ctx, from, "GET", index+"/documents?"+w.encodeQuery(id), nil, &found)
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

// readResource reads plaid://index/id from a passage on, and from a byte of its long text.
func (t tools) readResource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	from, uri := headerFrom(r.GetExtra()), r.Params.URI
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "plaid" || u.Host == "" || len(u.EscapedPath()) < 2 {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	id, err := url.PathUnescape(u.EscapedPath()[1:])
	if err != nil {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	first, start, err := resourceStart(u)
	if err != nil {
		return nil, err
	}
	found, err := t.fetchDocument(ctx, from, "/indices/"+url.PathEscape(u.Hostname()), id,
		documentRange{offset: first, limit: maxPassages, bytes: ResourceBytes})
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
			if text, nextStart, err = resourceText(d.Metadata, start); err != nil {
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

// resourceStart is where a resource is read from, by its URI.
func resourceStart(u *url.URL) (passage, start int, err error) {
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

// resourceText returns a part of a long document, and where the next one begins.
func resourceText(m json.RawMessage, start int) (text string, next int, err error) {
	room := ResourceBytes
	doc, err := fitDocument(m, start, &room)
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
	MaxTokens wholeNumber `json:"max_tokens,omitempty" jsonschema:"about how many tokens the answer has at most, 3 bytes counting as one; fewer documents and shorter texts are shown then"`
}

// byteBudget is how many bytes an answer may have, most if nothing is said.
func (in *tokensIn) byteBudget(defaultBytes int) (int, error) {
	if in.MaxTokens < 0 {
		return 0, fmt.Errorf("bad argument: max_tokens is %d", in.MaxTokens)
	}
	if n := int(in.MaxTokens); n > 0 && n <= defaultBytes/tokenBytes {
		return n * tokenBytes, nil
	}
	return defaultBytes, nil
}

// wholeNumber is a whole number of an agent. Some write 5.0 for 5, which is whole too (as JSON Schema has
// it), and numbers that no int has, which become the greatest or the least one.
type wholeNumber int

// UnmarshalJSON implements [json.Unmarshaler].
func (w *wholeNumber) UnmarshalJSON(text []byte) error {
	if n, err := strconv.Atoi(string(text)); err == nil {
		*w = wholeNumber(n)
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
		*w = wholeNumber(f)
	}
	return nil
}

// hitCount is how many documents are asked for.
func hitCount(k int) (int, error) {
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
