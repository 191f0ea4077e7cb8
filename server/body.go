package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// requestBody is the body of a request. Its length, its memory, and the time in which a client may send
// nothing are limited.
type requestBody struct {
	io.ReadCloser
	request     *request
	control     *http.ResponseController
	reservation reservation // the memory that the decoded body takes
	pace        transferPace
	ended       bool
	digest      hash.Hash // of the body as it was sent, or nil if no digest is needed
	deadline    time.Time // of the request; zero means none
}

// Read implements io.Reader. It ends at the earlier one of two deadlines: that of the pace, which is the
// client's fault, and that of the request.
func (b *requestBody) Read(p []byte) (int, error) {
	began := b.pace.now()
	end, byPace := began.Add(b.pace.remainingIdle), true
	if !b.deadline.IsZero() && b.deadline.Before(end) {
		end, byPace = b.deadline, false
	}
	_ = b.control.SetReadDeadline(end) // not every server has deadlines
	n, err := b.ReadCloser.Read(p)
	if b.digest != nil {
		b.digest.Write(p[:n])
	}
	late := !b.pace.keepsUp(n, began) || errors.Is(err, os.ErrDeadlineExceeded)
	if late && byPace && err != io.EOF {
		return n, b.request.server.slowBodyProblem()
	}
	if err == io.EOF {
		// net/http now reads on, to notice that the client leaves: that read has no limit.
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// reserve reserves memory for the body before it is allocated, and waits while other requests hold it.
// All of it is released when the request has ended.
func (b *requestBody) reserve(size int64) error {
	if err := b.request.ctx.Err(); err != nil {
		return err
	}
	if limit := b.request.server.options.Limits.Decoded; b.reservation.bytes+size > limit {
		return problem(CodeTooLarge,
			"the body takes more than %d bytes of memory when it is read (max-memory): send less at a time", limit)
	}
	return b.reservation.reserve(b.request.ctx, size)
}

// lingerTime is how long the unread rest of a body may still arrive after the answer was sent: a
// client whose connection is cut while it sends may not see its answer.
const lingerTime = time.Second

// stopReading prepares an answer that does not wait for the body: the connection ends soon after it.
// Otherwise net/http would first read up to 256 KiB of the body, for as long as the client likes.
func (b *requestBody) stopReading(h http.Header) {
	if b.ended || b.request.ContentLength == 0 {
		return
	}
	if b.request.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	_ = b.control.SetReadDeadline(time.Now().Add(lingerTime))
}

// readBody returns the whole body. It must be called before the request has a slot, so that a slow
// client keeps no other request waiting.
func (q *request) readBody() ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			// The buffer grows to four times its size only when it is full: a client that announces
			// a large body, and sends none, takes little memory.
			grown := max(4*cap(text), initialCapacity)
			if length := q.ContentLength; length >= 0 {
				grown = min(grown, int(length)+1) // 1: for the read that returns io.EOF
			}
			if err := q.body.reserve(int64(grown - cap(text))); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, grown), text...)
		}
		n, err := q.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
	}
}

// initialCapacity is the size in bytes of the first buffer for a body.
const initialCapacity = 64 << 10

// decodeJSON decodes JSON into a pointer. Its values are checked, and their memory is reserved, before
// they are allocated. Unknown fields are errors, since most are misspelt; "Prefer: handling=lenient"
// ignores them, for clients of later versions.
func (q *request) decodeJSON(text []byte, into any) error {
	text = jsontext.TrimByteOrderMark(text)
	if err := q.body.reserve(int64(len(text))); err != nil { // texts and metadata are copied
		return err
	}
	if err := jsontext.Check(text, jsontext.Options{Vectors: true, Charge: q.body.reserve}); err != nil {
		return bodyError(err)
	}
	if !q.ignoresUnknownFields(into) {
		if err := checkFields(text, reflect.TypeOf(into)); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		hint, err := q.routeHint(err), bodyError(err)
		var p *Problem
		if hint != "" && errors.As(err, &p) {
			p.Message += "; " + hint
		}
		return err
	}
	return nil
}

// encodingSuffix ends the patterns of routes that take texts in place of vectors.
const encodingSuffix = "_with_encoding"

// routeHint returns a hint for a body that has texts on the route of vectors, or vectors on that of
// texts: it names the other route. "" means that the error is another one.
func (q *request) routeHint(err error) string {
	var shape *json.UnmarshalTypeError
	if !errors.As(err, &shape) {
		return ""
	}
	field, _, _ := strings.Cut(userField(shape.Field), ".")
	if field != "queries" && field != "documents" && field != "query" {
		return ""
	}
	vectors, forTexts := strings.CutSuffix(q.route.pattern, encodingSuffix)
	switch {
	case forTexts && (shape.Value == "object" || shape.Value == "array"):
		return fmt.Sprintf("vectors go to %s %s", q.route.method, vectors)
	case !forTexts && shape.Value == "string" && q.server.router.hasRoute(q.route.method, vectors+encodingSuffix):
		return fmt.Sprintf("texts go to %s %s%s", q.route.method, vectors, encodingSuffix)
	}
	return ""
}

// ignoresUnknownFields reports whether unknown fields of the body are ignored.
func (q *request) ignoresUnknownFields(in any) bool {
	return q.prefers("handling=lenient") || allowsUnknownFields(in) && !q.prefers("handling=strict")
}

// allowsUnknownFields reports whether the body is one that other services take too, with more fields.
func allowsUnknownFields(in any) bool {
	_, marked := in.(interface{ fieldsOfOthers() })
	return marked
}

// bodyError turns an error of reading or decoding a JSON body into one that the client understands.
// Errors of the transport are returned as they are.
func bodyError(err error) error {
	var text *jsontext.Error
	var shape *json.UnmarshalTypeError
	switch {
	case errors.As(err, &text) && text.Syntax:
		return badRequest("the body is not JSON: byte %d: %s", text.Offset, text.What)
	case errors.As(err, &text):
		p := badRequest("the body: %w", err)
		if text.Path != "" {
			p = badRequest("%w", err)
			if w, ok := whereInBody(text.Path); ok {
				p = p.withPlace(w)
			}
		}
		return p
	case errors.As(err, &shape) && shape.Field != "":
		return badRequest("%s: %s is in the place of %s", userField(shape.Field), withArticle(shape.Value),
			withArticle(jsonKind(shape)))
	case errors.As(err, &shape):
		return badRequest("the body is %s; want an object", withArticle(shape.Value))
	case isTransportError(err):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("the body is not JSON: it ends too early")
	}
	return badRequest("the body is not what the route takes: %v", err)
}

// embeddedStructs are structs that are embedded in bodies: encoding/json has their names in its errors,
// and clients do not know them.
var embeddedStructs = []string{"searchFields", "restriction", "vectorsJSON", "conditionIn", "windowIn", "keepIn"}

// userField returns the path of a field as clients know it, from the one in an error of encoding/json.
func userField(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "."),
		func(part string) bool { return slices.Contains(embeddedStructs, part) })
	return strings.Join(parts, ".")
}

var listItem = regexp.MustCompile(`^(documents|metadata|queries|text_query|texts)\[(\d+)\]`)

// whereInBody returns the document or query that a path leads into; ok is false if it leads elsewhere.
func whereInBody(path string) (w Where, ok bool) {
	m := listItem.FindStringSubmatch(path)
	if m == nil {
		return w, false
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return w, false
	}
	if m[1] == "queries" || m[1] == "text_query" {
		w.Query = &n
	} else {
		w.Document = &n
	}
	return w, true
}

// withArticle puts "a" or "an" before a noun.
func withArticle(noun string) string {
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// jsonKind returns the word of JSON for the type of Go that a value does not fit.
func jsonKind(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "whole number"
	case strings.HasPrefix(kind, "float"):
		return "number"
	case kind == "slice":
		return "list"
	case kind == "struct" || kind == "map":
		return "object"
	default:
		return kind
	}
}

// isTransportError reports whether an error is about receiving a body, and not about its content.
func isTransportError(err error) bool {
	var large *http.MaxBytesError
	var p *Problem
	var timeout interface{ Timeout() bool }
	if errors.As(err, &large) || errors.As(err, &p) || errors.Is(err, context.Canceled) {
		return true
	}
	return errors.As(err, &timeout) && timeout.Timeout()
}

// parametersJSON holds values for the "?" of a condition as they were written: as float64 two whole
// numbers above 2⁵³ could become the same, and 7 would no longer be the text "7". A list or an object
// is compared as its text, and takes no more memory than that.
type parametersJSON []json.RawMessage

// jsonField is a field of a JSON object that is decoded into a struct, or written from one.
type jsonField struct {
	reflect.StructField
	name    string // in JSON
	options string // the rest of its tag, such as "omitempty"
	owner   string // the name of the struct that declares it
}

// bodyShape says which fields checkFields has to look into.
type bodyShape struct {
	fields       []jsonField // of an object
	isObjectList bool        // a list whose elements have fields
}

var bodyShapes sync.Map // from reflect.Type to *bodyShape

// bodyShapeOf returns the shape of a type, which is cached.
func bodyShapeOf(t reflect.Type) *bodyShape {
	if s, ok := bodyShapes.Load(t); ok {
		return s.(*bodyShape)
	}
	s := &bodyShape{fields: jsonFields(t), isObjectList: t.Kind() == reflect.Slice && fieldPaths(t, "") != nil}
	bodyShapes.Store(t, s)
	return s
}

// jsonFields returns the fields of the JSON object of a struct type, including those of embedded
// structs. It returns none for other types.
func jsonFields(t reflect.Type) (fields []jsonField) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields = append(fields, jsonFields(f.Type)...)
		case f.IsExported() && name != "-":
			fields = append(fields, jsonField{f, cmp.Or(name, f.Name), options, t.Name()})
		}
	}
	return fields
}

// fieldPaths returns the paths of all fields that a body of a type may have, each behind prefix.
func fieldPaths(t reflect.Type, prefix string) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			prefix = strings.TrimSuffix(prefix, ".") + "[]."
		}
		t = t.Elem()
	}
	for _, f := range jsonFields(t) {
		paths = append(append(paths, prefix+f.name), fieldPaths(f.Type, prefix+f.name+".")...)
	}
	return paths
}

// checkFields refuses a body with a field that the route does not know: most are misspelt, or in the
// wrong place. text must be valid JSON.
func checkFields(text []byte, t reflect.Type) error {
	w := fieldChecker{scanner{text: text}, t}
	return w.checkValue(t, "")
}

// fieldChecker compares the fields of a JSON text with those of a type.
type fieldChecker struct {
	scanner
	body reflect.Type // the type of the whole body
}

// checkValue checks the next value, which will be decoded into t. path leads to it and ends in a dot.
func (w *fieldChecker) checkValue(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	shape := bodyShapeOf(t)
	fields := shape.fields
	switch c := w.peekByte(); {
	case c == '{' && fields != nil:
		var seen uint64 // a bit for each of fields: of two with one name, encoding/json drops the first silently
		return w.visitMembers(func(name string) error {
			i := slices.IndexFunc(fields, func(f jsonField) bool { return strings.EqualFold(f.name, name) })
			if i < 0 {
				return w.unknownFieldProblem(fields, path, name)
			}
			if seen&(1<<i) != 0 {
				return badRequest("field %.80q is there twice: leave out one", path+fields[i].name)
			}
			seen |= 1 << i
			return w.checkValue(fields[i].Type, path+fields[i].name+".")
		})
	case c == '[' && shape.isObjectList:
		w.offset++
		for n := 0; !w.endList(); n++ {
			if err := w.checkValue(t.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), n)); err != nil {
				return err
			}
		}
	default:
		w.skipValue()
	}
	return nil
}

// namesElsewhere maps names of fields in other search services to the fields that do the same here.
var namesElsewhere = map[string]string{
	"k": "top_k", "topk": "top_k", "top": "top_k", "limit": "top_k",
	"size": "top_k", "count": "top_k", "n": "top_k", "num_results": "top_k",
	"filter": "filter_condition", "where": "filter_condition", "condition": "filter_condition",
	"from": "offset", "skip": "offset",
	"score_threshold": "min_score", "threshold": "min_score",
	"text": "queries", "question": "queries", "q": "queries", "vector": "queries",
}

// unknownFieldProblem is the answer to a field that is not known. It names the field that was probably
// meant: a similar name in the same place, the same name in another place, or that field's name here.
func (w *fieldChecker) unknownFieldProblem(fields []jsonField, path, name string) error {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	paths := fieldPaths(w.body, "")
	hasName := func(f string) bool { return strings.EqualFold(f[strings.LastIndexByte(f, '.')+1:], name) }
	sameName := slices.IndexFunc(paths, hasName)
	nameHere := namesElsewhere[strings.ToLower(name)]
	sameMeaning := max(slices.Index(paths, nameHere), slices.Index(paths, "params."+nameHere))
	inQuery := strings.HasPrefix(path, "queries[")
	near := human.Nearest(name, names)
	meant := ""
	switch {
	case near != "":
		meant = path + near
	case sameName >= 0:
		meant = paths[sameName]
	case sameMeaning >= 0 && !inQuery:
		meant = paths[sameMeaning]
	}
	var p *Problem
	switch {
	case meant != "":
		p = badRequest("unknown field %.80q: did you mean %q?", path+name, meant)
	case inQuery && strings.HasPrefix(name, "embeddings"):
		p = badRequest("unknown field %.80q: queries are texts here; vectors go to the route without %s",
			path+name, encodingSuffix)
	default:
		p = badRequest("unknown field %.80q: known here are %s",
			path+name, strings.Join(human.ByDistance(name, names), ", "))
	}
	if where, ok := whereInBody(path); ok {
		p = p.withPlace(where)
	}
	return p
}
