package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// Code is the machine-readable name of an error. It is that of next-plaid, if that service has the error.
type Code string

// The codes; codeTable has the status of each.
const (
	CodeIndexNotFound    Code = "INDEX_NOT_FOUND"
	CodeIndexNotDeclared Code = "INDEX_NOT_DECLARED"
	CodeIndexExists      Code = "INDEX_ALREADY_EXISTS"
	CodeBadRequest       Code = "BAD_REQUEST"
	CodeDimension        Code = "DIMENSION_MISMATCH"
	CodeModelNotLoaded   Code = "MODEL_NOT_LOADED"
	CodeModel            Code = "MODEL_ERROR"
	CodeModelLoading     Code = "MODEL_LOADING"
	CodeBusy             Code = "SERVICE_UNAVAILABLE"
	CodeRateLimited      Code = "RATE_LIMITED"
	CodeInternal         Code = "INTERNAL_ERROR"
	CodeDocumentNotFound Code = "DOCUMENT_NOT_FOUND"
	CodeImageNotFound    Code = "IMAGE_NOT_FOUND"
	CodeUnauthorized     Code = "UNAUTHORIZED"
	CodeForbidden        Code = "FORBIDDEN"
	CodeNoRoute          Code = "NO_SUCH_ROUTE"
	CodeMethod           Code = "METHOD_NOT_ALLOWED"
	CodeTimeout          Code = "TIMEOUT"
	CodeTooLarge         Code = "PAYLOAD_TOO_LARGE"
	CodeMediaType        Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeCorrupt          Code = "INDEX_CORRUPT"
	CodeOutcomeUnknown   Code = "OUTCOME_UNKNOWN"
	CodeNotSupported     Code = "NOT_SUPPORTED"
	CodeDiskFull         Code = "DISK_FULL"
	CodeTooManyIndexes   Code = "TOO_MANY_INDEXES"
)

// codeTable has the status of each code, and a title that does not vary.
var codeTable = []struct {
	code   Code
	status int
	title  string
}{
	{CodeIndexNotFound, http.StatusNotFound, "There is no such index, or it has no documents yet"},
	{CodeIndexNotDeclared, http.StatusNotFound, "The index has to be declared before documents are added"},
	{CodeDocumentNotFound, http.StatusNotFound, "There is no such document"},
	{CodeImageNotFound, http.StatusNotFound, "The document has no picture that the service can send"},
	{CodeIndexExists, http.StatusConflict, "There is an index of this name"},
	{CodeBadRequest, http.StatusBadRequest, "The request is not valid"},
	{CodeDimension, http.StatusBadRequest, "The vectors have another dimension than the index"},
	{CodeModelNotLoaded, http.StatusBadRequest, "The service has no model to encode texts with"},
	{CodeModel, http.StatusInternalServerError, "The model failed"},
	{CodeModelLoading, http.StatusServiceUnavailable, "The model is being loaded"},
	{CodeBusy, http.StatusServiceUnavailable, "The service cannot take the request now"},
	{CodeRateLimited, http.StatusTooManyRequests, "The client sends requests too fast"},
	{CodeInternal, http.StatusInternalServerError, "The service failed"},
	{CodeUnauthorized, http.StatusUnauthorized, "A bearer token is needed"},
	{CodeForbidden, http.StatusForbidden, "The bearer token, or the name in the request's header Host, does not " +
		"allow this"},
	{CodeTooManyIndexes, http.StatusForbidden, "There may be no more indexes: delete one first"},
	{CodeNoRoute, http.StatusNotFound, "There is no such route"},
	{CodeMethod, http.StatusMethodNotAllowed, "The route has no such method"},
	{CodeTimeout, http.StatusRequestTimeout, "The request took too long"},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, "The body is too large"},
	{CodeMediaType, http.StatusUnsupportedMediaType, "The body has another media type than the route takes"},
	{CodeCorrupt, http.StatusInternalServerError, "The index is damaged"},
	{CodeOutcomeUnknown, http.StatusInternalServerError, "It is not known whether the change was made"},
	{CodeDiskFull, http.StatusInsufficientStorage, "The disk of the service is full"},
	{CodeNotSupported, http.StatusBadRequest, "This service does not do that"},
}

// statusAndTitle returns a code's row of codeTable.
func (c Code) statusAndTitle() (status int, title string) {
	for _, row := range codeTable {
		if row.code == c {
			return row.status, row.title
		}
	}
	return http.StatusInternalServerError, "The service failed"
}

// Problem is an error of the service and the body of its answer: problem details (RFC 9457), with the
// additional code and message that clients of next-plaid read.
type Problem struct {
	Type    string `json:"type" doc:"where the code is described, relative to the service"`
	Title   string `json:"title" doc:"what the code means; does not vary"`
	Status  int    `json:"status" doc:"the status of the response"`
	Detail  string `json:"detail" doc:"what happened; the same as message"`
	Code    Code   `json:"code" doc:"machine-readable name of the error"`
	Message string `json:"message" doc:"what happened"`
	// Details is the place in the request, or nil if it is not known.
	Details *Where `json:"details,omitempty" doc:"where in the request"`
	// RetryAfter is the header Retry-After, in seconds.
	RetryAfter int    `json:"retry_after_seconds,omitempty" doc:"when to try again"`
	RequestID  string `json:"request_id,omitempty" doc:"the X-Request-ID of the response, which the log names too"`

	err   error    // what happened, for the log
	allow []string // methods that the path has
}

// Where is the place in a request that an error is about. Numbers are from 0.
type Where struct {
	Document *int   `json:"document,omitempty" doc:"place in documents"`
	Query    *int   `json:"query,omitempty" doc:"place in queries"`
	Token    *int   `json:"token,omitempty" doc:"row of the vectors"`
	ID       string `json:"id,omitempty" doc:"_id of the document"`
	Position *int   `json:"position,omitempty" doc:"byte of the condition"`
}

// Error implements error.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Message }

// Unwrap returns the cause, or nil if the problem has no other error as its cause.
func (p *Problem) Unwrap() error { return p.err }

// NewProblem returns an error that a [collection.Catalog] can return to set its code and message in the
// answer. The cause is for the log, and may be nil. after, if not 0, is when clients shall try again.
func NewProblem(c Code, message string, after time.Duration, cause error) *Problem {
	p := (&Problem{Code: c, Message: message}).withCause(cause)
	if after > 0 {
		p.withRetryAfter(after)
	}
	return p
}

// problem returns a Problem. The argument of a %w in the format is its cause.
func problem(c Code, format string, args ...any) *Problem {
	err := fmt.Errorf(format, args...)
	return &Problem{Code: c, Message: err.Error(), err: errors.Unwrap(err)}
}

// badRequest returns a problem with [CodeBadRequest].
func badRequest(format string, args ...any) *Problem { return problem(CodeBadRequest, format, args...) }

// withPlace sets the place in the request that the problem is about.
func (p *Problem) withPlace(w Where) *Problem {
	p.Details = &w
	return p
}

// withCause sets the error that the log gets.
func (p *Problem) withCause(err error) *Problem {
	p.err = err
	return p
}

// withRetryAfter sets when the client shall try again, in whole seconds.
func (p *Problem) withRetryAfter(d time.Duration) *Problem {
	p.RetryAfter = max(1, int((d+time.Second-1)/time.Second))
	return p
}

// problemFromError turns any error into a Problem. An error that says nothing about the request becomes
// an internal error: its text goes to the log and not to the client.
func problemFromError(ctx context.Context, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		c := *p // handlers may share one
		return &c
	}
	if p := problemFromCollection(err); p != nil {
		return p
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem(CodeTooLarge, "the body has more than %d bytes: send less at a time", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(CodeTimeout, "the body did not come in time")
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem(CodeTimeout, "the request took too long; nothing was changed by it")
	case errors.Is(err, context.Canceled):
		return problem(CodeBusy, "the request was given up").withRetryAfter(time.Second)
	}
	return problem(CodeInternal, "internal error: the log of the service has it under this request id").withCause(err)
}

// messageProblem is a problem that is also an error of JSON-RPC. Its id is null, since the message that
// it answers was not parsed.
type messageProblem struct {
	*Problem
	Version string      `json:"jsonrpc"`
	ID      *string     `json:"id"`
	Error   messageCode `json:"error"`
}

type messageCode struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Codes of JSON-RPC.
const (
	invalidMessage = -32600
	internalError  = -32603
)

// writeProblem answers with a problem. With jsonRPC it is also an error of JSON-RPC.
func writeProblem(w http.ResponseWriter, p *Problem, jsonRPC bool) {
	status, title := p.Code.statusAndTitle()
	p.Status, p.Title, p.Type, p.Detail = status, title, "/openapi.json#/x-problems/"+string(p.Code), p.Message
	p.RequestID = w.Header().Get(headerRequestID)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	var content any = p
	if jsonRPC {
		m := messageProblem{Problem: p, Version: "2.0", Error: messageCode{invalidMessage, p.Message}}
		if status >= http.StatusInternalServerError {
			m.Error.Code = internalError
		}
		content = m
	}
	body, err := json.Marshal(content)
	if err != nil { // strings, numbers: cannot happen
		body = []byte(`{"code":"INTERNAL_ERROR","message":"internal error"}`)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// problemFromCollection turns an error of a collection, or of a package below it, into a Problem. It returns
// nil if the error says nothing about the request.
func problemFromCollection(err error) *Problem {
	kind := errkind.Of(err)
	if row, ok := wholeRequestProblems[kind]; ok { // even if a QueryError names one query
		return row.problem(err)
	}
	if query, ok := errors.AsType[*search.QueryError](err); ok { // it wraps one of the others
		p := problemFromCollection(query.Err)
		if p == nil {
			return nil
		}
		if p.Details == nil {
			p.Details = &Where{}
		}
		p.Details.Query = &query.Index
		p.Message = fmt.Sprintf("query %d: %s", query.Index, p.Message)
		return p
	}
	if busy, ok := errors.AsType[*collection.BusyError](err); ok && kind == errkind.QueueFull {
		// Its text names no index: clients take a 503 with "model" in it for another error.
		return problem(CodeBusy, "too much waits to be written: %d documents, %d bytes", busy.Documents, busy.Bytes).
			withRetryAfter(busy.RetryAfter)
	}
	row, ok := kindProblems[kind]
	if !ok {
		return nil
	}
	p := row.problem(err)
	p.Details = whereFromError(err, kind)
	return p
}

// kindProblem describes the answer to errors of a kind.
type kindProblem struct {
	code    Code
	message string        // "" means the error's own text
	prefix  string        // before the error's own text
	seeLog  bool          // the message ends by pointing to the log, which has the error
	retry   time.Duration // 0 means that trying again does not help
}

// problem returns the answer to an error of the kind.
func (row kindProblem) problem(err error) *Problem {
	var p *Problem
	switch {
	case row.message == "":
		p = problem(row.code, row.prefix+"%w", err)
	case row.seeLog:
		p = problem(row.code, "%s: the log of the service has it under this request id", row.message).withCause(err)
	default:
		p = problem(row.code, "%s", row.message).withCause(err)
	}
	if row.retry > 0 {
		p.withRetryAfter(row.retry)
	}
	return p
}

// wholeRequestProblems are the answers to errors that are about the whole request, even if a QueryError wraps their
// cause.
var wholeRequestProblems = map[errkind.Kind]kindProblem{
	errkind.PartlyDone:  {code: CodeOutcomeUnknown},
	errkind.Unreachable: {code: CodeBusy, retry: time.Second},
}

// kindProblems are the answers to all other errors.
var kindProblems = map[errkind.Kind]kindProblem{
	errkind.BadTextQuery:     {code: CodeBadRequest, prefix: "text_query: "},
	errkind.BadDimension:     {code: CodeDimension},
	errkind.BadRequest:       {code: CodeBadRequest},
	errkind.TooLarge:         {code: CodeTooLarge},
	errkind.NotSupported:     {code: CodeNotSupported},
	errkind.Exists:           {code: CodeIndexExists},
	errkind.DocumentNotFound: {code: CodeDocumentNotFound},
	errkind.NotFound:         {code: CodeIndexNotFound, message: "index not found"},
	errkind.Empty: {
		code:    CodeIndexNotFound,
		message: "index not found: it is declared and has no documents yet",
	},
	errkind.DiskFull: {
		code:    CodeDiskFull,
		message: "the disk of the service is full: nothing was changed",
		retry:   diskRetry,
	},
	errkind.NoAddressSpace: {
		code: CodeBusy,
		message: "there is no address space for the index to grow: nothing was changed; " +
			"the service has too many indexes",
		retry: diskRetry,
	},
	errkind.Reopened: {
		code:    CodeBusy,
		message: "the disk failed, and the file was opened again; try again",
		retry:   time.Second,
	},
	errkind.Closed: {
		code:    CodeBusy,
		message: "the index was closed meanwhile; try again",
		retry:   time.Second,
	},
	errkind.Locked: {
		code:    CodeBusy,
		message: "another process is changing the index; try again",
		retry:   time.Second,
	},
	errkind.Closing: {code: CodeBusy, message: "the service is ending", retry: time.Second},
	errkind.OutcomeUnknown: {
		code: CodeOutcomeUnknown,
		message: "the disk, or the object store, failed at the last step: " +
			"the change was made or was not; look before you repeat it",
		seeLog: true,
	},
	errkind.Damaged: {code: CodeCorrupt, message: "the index is damaged", seeLog: true},
}

// whereFromError returns the place in the request that an error is about, or nil if it names none.
func whereFromError(err error, kind errkind.Kind) *Where {
	switch kind {
	case errkind.BadTextQuery:
		if syntax, ok := errors.AsType[*keywords.SyntaxError](err); ok {
			return &Where{Position: &syntax.Offset}
		}
	case errkind.BadRequest, errkind.BadDimension:
		if doc, ok := errors.AsType[*collection.DocumentError](err); ok {
			w := &Where{Document: &doc.Document, ID: doc.ID}
			if doc.Token >= 0 {
				w.Token = &doc.Token
			}
			return w
		}
		if where, ok := errors.AsType[*condition.Error](err); ok {
			return &Where{Position: &where.Offset}
		}
	}
	return nil
}

// diskRetry is when a client may try again after the disk was full.
const diskRetry = 10 * time.Second
