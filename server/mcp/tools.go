package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
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

type getIn struct {
	Index string   `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	IDs   []string `json:"ids" jsonschema:"ids of documents, 1 to 20"`
	Start int      `json:"start,omitempty" jsonschema:"byte of long texts to begin at; what was cut says where to go on"`
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

// tokensIn bounds an answer.
type tokensIn struct {
	MaxTokens int `json:"max_tokens,omitempty" jsonschema:"about how many tokens the answer has at most, 3 bytes counting as one; fewer documents and shorter texts are shown then"`
}

// room is how many bytes an answer may have, most if nothing is said.
func (in *tokensIn) room(most int) (int, error) {
	if in.MaxTokens < 0 {
		return 0, fmt.Errorf("bad argument: max_tokens is %d", in.MaxTokens)
	}
	if in.MaxTokens == 0 || in.MaxTokens > most/tokenBytes {
		return most, nil
	}
	return in.MaxTokens * tokenBytes, nil
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
