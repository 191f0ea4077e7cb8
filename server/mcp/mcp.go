// Package mcp lets agents search the collections of a service, by the Model Context
// Protocol: tools that list, search, read, compare and explain, and documents as resources.
//
// A [Server] asks a service as any of its clients does, in the same process ([In]) or
// elsewhere ([At]): what a token may see, and how much a request may take, is decided
// there. It only reads.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Limits of what tools give back. An agent reads all of it.
const (
	// MaxHits is how many documents a search returns at most.
	MaxHits = 20
	// DefaultHits is how many it returns where nothing is asked for.
	DefaultHits = 5
	// SnippetBytes is about how much of a hit's text is shown.
	SnippetBytes = 600
	// TextBytes is how much of documents' texts one answer has at most, about.
	TextBytes = 16 << 10
	// ResourceBytes is how much of a document is read at a time as a resource, about.
	ResourceBytes = 64 << 10
	// tokenBytes is how many bytes of an answer count as a token of the agent's model: of
	// English texts it has about four, of code and of other languages fewer.
	tokenBytes = 3
	// MaxQuery is the longest question in bytes.
	MaxQuery = 8 << 10
)

// Server offers the tools.
type Server struct{ sdk *sdk.Server }

// New makes a server of tools that ask a service.
func New(service *Service, version string) *Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "plaid", Title: "plaid: search by late interaction", Version: version}, &sdk.ServerOptions{
		Instructions: "Searches collections of documents by meaning and by words. Call list first to learn the names of the indexes and of their fields, then search; get reads a whole document by its id.",
		Logger:       slog.New(slog.DiscardHandler),
		// No lists change.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	s.AddReceivingMiddleware(containPanics)
	t := tools{service}
	addTool(s, t, "list", "List the indexes", "The indexes that can be searched, with how many documents each has and which fields its documents have.", t.listIndexes)
	addTool(s, t, "search", "Search an index", "Find the documents of an index that answer a question best, with the part of each text that matches.", t.searchIndex)
	addTool(s, t, "get", "Read documents", "Read documents by their ids: all their fields, long texts in pieces.", t.getDocuments)
	addTool(s, t, "similar", "Find similar documents", "Find the documents that are most like a given one.", t.findSimilar)
	addTool(s, t, "explain", "Explain a score", "Tell which words of a document match which words of a question, and where the document left the search if it was not found.", t.explainScore)
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name:        "document",
		Title:       "A document of an index",
		URITemplate: "plaid://{index}/{id}{?passage,start}",
		MIMEType:    mediaJSON,
		Description: "The fields of a document, as JSON, or of each of its passages. Both names are percent-encoded. Of a long document the beginning is read; _next is then the URI to go on with.",
	}, t.readResource)
	return &Server{s}
}

// containPanics keeps a panic within its own call: calls run in goroutines of the library, where one would end
// the process. Errors have a code.
func containPanics(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (_ sdk.Result, err error) {
		defer func() {
			if fault := recover(); fault != nil {
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("internal error in %s: %v", method, fault)}
			}
		}()
		if http, ok := ctx.Value(requestKey{}).(context.Context); ok { // who has left needs no answer
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(http, cancel)()
		}
		result, err := next(ctx, method, r)
		if known := (*jsonrpc.Error)(nil); err != nil && !errors.As(err, &known) {
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return result, err
	}
}

// addTool adds a tool that changes nothing.
func addTool[In, Out any](s *sdk.Server, t tools, name, title, doc string, do func(ctx context.Context, from http.Header, in *In) (Out, error)) {
	closed := false
	sdk.AddTool(s, &sdk.Tool{
		Name:        name,
		Title:       title,
		Description: doc,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed},
	},
		func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
			from := headerFrom(r.GetExtra())
			out, err := do(ctx, from, &in)
			if err != nil {
				return nil, out, t.suggestIndexes(ctx, from, r.Params.Arguments, err)
			}
			text, err := jsontext.Plain(out) // the library would write < as \u003c, which is six bytes for an agent to read
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}, out, err
		})
}

func headerFrom(extra *sdk.RequestExtra) http.Header {
	if extra == nil {
		return nil
	}
	return extra.Header
}
