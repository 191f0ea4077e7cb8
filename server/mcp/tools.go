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

// tools has the functions that agents call. Agents read their errors.
type tools struct{ service *Service }

// indexNames returns the names of the indexes that the agent may read.
func (t tools) indexNames(ctx context.Context, header http.Header) (names []string, err error) {
	err = t.service.send(ctx, header, "GET", "/indices", nil, &names)
	return names, err
}

// indexPath returns the path of an index. An empty name stands for the only index that there is.
func (t tools) indexPath(ctx context.Context, header http.Header, name string) (string, error) {
	if name == "" {
		names, err := t.indexNames(ctx, header)
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

// maxNamedIndexes is the largest number of indexes that an error names.
const maxNamedIndexes = 20

// suggestIndexes adds the names of the existing indexes to an error about another name, most similar first.
// Other errors it returns as they are.
func (t tools) suggestIndexes(ctx context.Context, header http.Header, arguments json.RawMessage, err error) error {
	if !refusedWith(err, "INDEX_NOT_FOUND") {
		return err
	}
	var call struct {
		Index string `json:"index"`
	}
	names, namesErr := t.indexNames(ctx, header)
	if json.Unmarshal(arguments, &call) != nil || namesErr != nil || slices.Contains(names, call.Index) {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w; there are no indexes", err)
	}
	more := ""
	if n := len(names) - maxNamedIndexes; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	near := human.ByDistance(call.Index, names)
	return fmt.Errorf("%w; there are %s%s", err, strings.Join(near[:min(len(near), maxNamedIndexes)], ", "), more)
}

type getIn struct {
	Index string      `json:"index,omitempty" jsonschema:"name of the index; optional if there is only one"`
	IDs   []string    `json:"ids" jsonschema:"ids of documents, 1 to 20"`
	Start wholeNumber `json:"start,omitempty" jsonschema:"byte of long texts to begin at: next of the answer before"`
	tokensIn
}

type getOut struct {
	Documents []documentOut `json:"documents"`
	Missing   []string      `json:"missing,omitempty" jsonschema:"ids that no document has"`
	NoRoom    []string      `json:"no_room,omitempty" jsonschema:"ids that did not fit: call get with these"`
	Left      int           `json:"left,omitempty" jsonschema:"how many did not fit, if no_room names fewer"`
}

type documentOut struct {
	ID     string         `json:"id"`
	Fields map[string]any `json:"fields"`
	Left   int            `json:"fields_left,omitempty" jsonschema:"how many more fields there is no room for"`
	Next   int            `json:"next,omitempty" jsonschema:"some text goes on: call get with this start for more"`
}

// getDocuments is the tool get.
func (t tools) getDocuments(ctx context.Context, header http.Header, in *getIn) (getOut, error) {
	// Check the arguments.
	out := getOut{Documents: []documentOut{}}
	if len(in.IDs) < 1 || len(in.IDs) > MaxHits {
		return out, fmt.Errorf("bad argument: %d ids; 1 to %d are possible", len(in.IDs), MaxHits)
	}
	if in.Start < 0 {
		return out, fmt.Errorf("bad argument: start is %d", in.Start)
	}
	budget, err := in.byteBudget(TextBytes)
	if err != nil {
		return out, err
	}
	path, err := t.indexPath(ctx, header, in.Index)
	if err != nil {
		return out, err
	}

	// Read the documents, as long as the budget lasts. Others are only named.
	omitted := 0
	for _, id := range in.IDs {
		found, err := t.fetchDocument(ctx, header, path, id, documentRange{limit: maxPassages, bytes: max(budget, 0)})
		if refusedWith(err, "DOCUMENT_NOT_FOUND") {
			out.Missing = append(out.Missing, id)
			continue
		} else if err != nil {
			return out, err
		}
		omitted += found.Total - len(found.Documents)
		for _, d := range found.Documents {
			// The service sends metadata until the bytes of the range are used up, but always those of the first
			// document: a document without metadata does not fit, nor do the next ones.
			if budget <= 0 || d.Metadata == nil {
				budget = 0
				if omitted++; len(out.NoRoom) < MaxHits {
					out.NoRoom = append(out.NoRoom, d.ID)
				}
				continue
			}
			doc, err := fitDocument(d.Metadata, int(in.Start), &budget)
			if err != nil {
				return out, fmt.Errorf("document %.80q: %w", id, err)
			}
			budget -= len(doc.ID) + documentBytes
			out.Documents = append(out.Documents, doc)
		}
	}
	if omitted > len(out.NoRoom) {
		out.Left = omitted
	}
	return out, nil
}

// maxPassages is the largest number of passages of a document that are shown or named.
const maxPassages = 100

// documentRange selects passages of a document to read.
type documentRange struct {
	offset, limit int
	bytes         int // of all their metadata, except that the first passage always has its own. 0 means no metadata
	vectors       bool
}

// encodeQuery returns the query string that reads the ranges of documents.
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

// storedAnswer is the service's answer with documents, or with the passages of one.
type storedAnswer struct {
	Documents []struct {
		ID      string `json:"id"`
		Passage *struct {
			Of string `json:"of"`
		} `json:"passage"` // nil for a whole document
		Metadata json.RawMessage `json:"metadata"` // nil if it was not read
		Base64   []byte          `json:"embeddings_b64"`
		Shape    []int           `json:"shape"`
	} `json:"documents"`
	Total int `json:"total"`
}

// fetchDocument returns a range of a document of the index with a path. A document that does not exist is an
// error.
func (t tools) fetchDocument(
	ctx context.Context, header http.Header, path, id string, w documentRange,
) (found storedAnswer, err error) {
	err = t.service.send(ctx, header, "GET", path+"/documents?"+w.encodeQuery(id), nil, &found)
	found.Total = max(found.Total, len(found.Documents))
	if err == nil && found.Total == 0 {
		err = &RefusedError{http.StatusNotFound, "DOCUMENT_NOT_FOUND",
			fmt.Sprintf("there is no document with _id %.80q", id)}
	}
	return found, err
}

// Keys that are added to resources.
const (
	nextKey = "_next"        // the URI that continues this one
	leftKey = "_fields_left" // the number of fields that are left out
)

// readResource reads plaid://index/id, from a passage of the document on and, in a long one, from a byte of
// its text on.
func (t tools) readResource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	header, uri := headerFrom(r.GetExtra()), r.Params.URI
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

	// Read passages.
	found, err := t.fetchDocument(ctx, header, "/indices/"+url.PathEscape(u.Hostname()), id,
		documentRange{offset: first, limit: maxPassages, bytes: ResourceBytes})
	if refusedWith(err, "DOCUMENT_NOT_FOUND") || refusedWith(err, "INDEX_NOT_FOUND") {
		return nil, sdk.ResourceNotFoundError(uri)
	} else if err != nil {
		return nil, err
	}
	if len(found.Documents) == 0 {
		return nil, badURI("%s: the document has %d passages, and none from number %d on", uri, found.Total, first)
	}

	// Show them: of a long first passage a part, of others all.
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

	// Add the URI to go on with.
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

// resourceStart returns the passage, and the byte of its text, from which a URI reads a resource.
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

// badURI returns an error about a URI of the agent.
func badURI(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// resourceText returns the part of a long document from a byte on, as JSON, and the byte at which the next
// part begins. 0 means that this part is the last.
func resourceText(m json.RawMessage, start int) (text string, next int, err error) {
	budget := ResourceBytes
	doc, err := fitDocument(m, start, &budget)
	if err != nil {
		return "", 0, err
	}
	doc.Fields[idKey] = doc.ID
	if doc.Left > 0 {
		doc.Fields[leftKey] = doc.Left
	}
	b, err := jsontext.MarshalUnescaped(doc.Fields)
	return string(b), doc.Next, err
}

// tokensIn has the argument that limits the size of an answer.
type tokensIn struct {
	MaxTokens wholeNumber `json:"max_tokens,omitempty" jsonschema:"limit of the answer, of 3 bytes a token"`
}

// byteBudget returns how many bytes an answer may have: defaultBytes, or fewer if max_tokens says so.
func (in *tokensIn) byteBudget(defaultBytes int) (int, error) {
	if in.MaxTokens < 0 {
		return 0, fmt.Errorf("bad argument: max_tokens is %d", in.MaxTokens)
	}
	if n := int(in.MaxTokens); n > 0 && n <= defaultBytes/tokenBytes {
		return n * tokenBytes, nil
	}
	return defaultBytes, nil
}

// wholeNumber is a whole number in an argument. Some agents write 5.0 for 5, which JSON Schema allows, and
// numbers beyond an int, which become the largest or smallest int.
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

// hitCount returns the number of hits for the argument k.
func hitCount(k int) (int, error) {
	if k == 0 {
		return DefaultHits, nil
	}
	if k < 1 || k > MaxHits {
		return 0, fmt.Errorf("bad argument: k is %d; 1 to %d are possible", k, MaxHits)
	}
	return k, nil
}

// refusedWith reports whether the service has answered with an error code.
func refusedWith(err error, code string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == code
}
