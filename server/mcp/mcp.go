// Package mcp lets agents search the collections of a service by the Model Context Protocol, with tools
// that list, search, read, compare and explain, and with documents as resources.
//
// A [Server] sends requests to a service like any client, in the same process ([NewInProcess]) or elsewhere
// ([NewRemote]), so that the tokens and limits of the service hold. It only reads.
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

// Limits of the answers of tools. Agents read all of an answer.
const (
	// MaxHits is the largest number of documents that a search returns.
	MaxHits = 20
	// DefaultHits is the number of documents that a search without k returns.
	DefaultHits = 5
	// SnippetBytes is about how many bytes of a hit's text are shown.
	SnippetBytes = 600
	// TextBytes is about the largest size of the texts of documents in one answer.
	TextBytes = 16 << 10
	// ResourceBytes is about how many bytes of a document one reading of a resource returns.
	ResourceBytes = 64 << 10
	// tokenBytes is how many bytes of an answer count as a token of the agent's model. Tokens of English
	// have about four bytes; those of code and of other languages have fewer.
	tokenBytes = 3
	// MaxQuery is the longest question in bytes.
	MaxQuery = 8 << 10
)

// Server offers the tools to agents.
type Server struct{ sdk *sdk.Server }

// New returns a server with tools that send requests to a service.
func New(service *Service, version string) *Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "plaid", Title: "plaid: search by late interaction", Version: version},
		&sdk.ServerOptions{
			Instructions: "Searches collections of documents by meaning and by words. Call list first to learn the " +
				"names of the indexes and of their fields, then search; get reads a whole document by its id.",
			Logger: slog.New(slog.DiscardHandler),
			// The lists of tools and resources never change.
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{},
				Resources: &sdk.ResourceCapabilities{}},
		})
	s.AddReceivingMiddleware(containPanics)
	t := tools{service}
	addTool(s, t, "list", "List the indexes", "The indexes that can be searched, with how many documents each has "+
		"and which fields its documents have.", t.listIndexes)
	addTool(s, t, "search", "Search an index", "Find the documents of an index that answer a question best, with "+
		"the part of each text that matches. Mode vectors is the default if the service has a model, otherwise "+
		"keywords. A condition is SQL over the fields, such as year >= 2020 AND lang = 'en'. A list of values "+
		"meets what one of them meets (tags = 'a'), and a dot leads into objects (author.name). With max_tokens "+
		"fewer documents and shorter texts are shown. Like and unlike go with mode vectors.", t.searchIndex)
	addTool(s, t, "get", "Read documents", "Read documents by their ids: all their fields, long texts in pieces.",
		t.getDocuments)
	addTool(s, t, "similar", "Find similar documents", "Find the documents that are most like a given one.",
		t.findSimilar)
	addTool(s, t, "explain", "Explain a score", "Tell which words of a document match which words of a question, "+
		"and where the document left the search if it was not found.", t.explainScore)
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name:        "document",
		Title:       "A document of an index",
		URITemplate: "plaid://{index}/{id}{?passage,start}",
		MIMEType:    mediaJSON,
		Description: "The fields of a document, as JSON, or of each of its passages. Both names are " +
			"percent-encoded. Of a long document the beginning is read; _next is then the URI to go on with.",
	}, t.readResource)
	return &Server{s}
}

// containPanics is middleware that turns a panic of a call into an error: calls run in goroutines of the
// library, where a panic would end the process. It also cancels calls whose client has left, and gives
// every error a code.
func containPanics(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (_ sdk.Result, err error) {
		defer func() {
			if fault := recover(); fault != nil {
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
					Message: fmt.Sprintf("internal error in %s: %v", method, fault)}
			}
		}()
		if requestCtx, ok := ctx.Value(requestKey{}).(context.Context); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(requestCtx, cancel)()
		}
		result, err := next(ctx, method, r)
		if known := (*jsonrpc.Error)(nil); err != nil && !errors.As(err, &known) {
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return result, err
	}
}

// toolFunc answers a call of a tool. header is that of the agent's request by HTTP, or nil if it came over a
// pipe.
type toolFunc[In, Out any] func(ctx context.Context, header http.Header, in *In) (Out, error)

// addTool adds a tool that changes nothing.
func addTool[In, Out any](s *sdk.Server, t tools, name, title, doc string, answer toolFunc[In, Out]) {
	openWorld := false
	tool := &sdk.Tool{
		Name:        name,
		Title:       title,
		Description: doc,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &openWorld},
	}
	sdk.AddTool(s, tool, func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		header := headerFrom(r.GetExtra())
		out, err := answer(ctx, header, &in)
		if err != nil {
			return nil, out, t.suggestIndexes(ctx, header, r.Params.Arguments, err)
		}
		// The library would write < as \u003c, which is six bytes for an agent to read.
		text, err := jsontext.MarshalUnescaped(out)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}, out, err
	})
}

// headerFrom returns the header of the agent's request, or nil if it came over a pipe.
func headerFrom(extra *sdk.RequestExtra) http.Header {
	if extra == nil {
		return nil
	}
	return extra.Header
}
