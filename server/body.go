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

// requestBody is the body of a request: limited in length, in what is held of it, and in how
// long a client may send nothing.
type requestBody struct {
	io.ReadCloser
	request     *request
	control     *http.ResponseController
	reservation reservation // that it takes
	pace        transferPace
	ended       bool
	digest      hash.Hash // of the body as it was sent; nil if no digest is needed
	deadline    time.Time // no read may last longer; zero: no such limit
}

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
		// From here on the connection is watched for its end, without a limit.
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// reserve counts memory that the body takes, before it does; it waits for what others have.
// All of it is given back when the request has ended.
func (b *requestBody) reserve(n int64) error {
	if err := b.request.ctx.Err(); err != nil {
		return err
	}
	if most := b.request.server.options.Limits.Decoded; b.reservation.bytes+n > most {
		return problem(CodeTooLarge, "the body takes more than %d bytes of memory when it is read (max-memory): send less at a time", most)
	}
	return b.reservation.reserve(b.request.ctx, n)
}

// lingerTime is how long what is left of a body may go on to come when the answer was sent:
// a client that is cut while it sends may not see its answer.
const lingerTime = time.Second

// stopReading is called before an answer that does not wait for the body: the connection ends
// soon after the answer. Left to itself net/http would first read up to 256 KiB of the
// body, for as long as the client likes.
func (b *requestBody) stopReading(h http.Header) {
	if b.ended || b.request.ContentLength == 0 {
		return
	}
	if b.request.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	_ = b.control.SetReadDeadline(time.Now().Add(lingerTime))
}

// readBody is the body. It is read before the request has its turn: a slow client keeps
// nobody waiting but itself.
func (q *request) readBody() ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			// A large body gets its room when a quarter of it has come: who says that there
			// is one, and sends none, takes little.
			room := max(4*cap(text), initialCapacity)
			if n := q.ContentLength; n >= 0 {
				room = min(room, int(n)+1)
			}
			if err := q.body.reserve(int64(room - cap(text))); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, room), text...)
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

// initialCapacity is what a body has room in at first.
const initialCapacity = 64 << 10

// decodeJSON reads JSON. What it holds is checked and counted before it is made. Fields
// that are not known are errors: as a rule they are misspelt. "Prefer: handling=lenient"
// passes them over, for clients of later versions.
func (q *request) decodeJSON(text []byte, into any) error {
	text = jsontext.WithoutMark(text)
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

// encodingSuffix is how the patterns of routes end that take texts for vectors.
const encodingSuffix = "_with_encoding"

// routeHint names the route for texts where vectors are taken, and the other way around.
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

// ignoresUnknownFields tells whether fields that are not known are no errors.
func (q *request) ignoresUnknownFields(in any) bool {
	return q.prefers("handling=lenient") || allowsUnknownFields(in) && !q.prefers("handling=strict")
}

// allowsUnknownFields tells whether a body is one of other services too, which have more fields.
func allowsUnknownFields(in any) bool {
	_, is := in.(interface{ fieldsOfOthers() })
	return is
}

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
		return badRequest("%s: %s is in the place of %s", userField(shape.Field), withArticle(shape.Value), withArticle(jsonKind(shape)))
	case errors.As(err, &shape):
		return badRequest("the body is %s; want an object", withArticle(shape.Value))
	case isTransportError(err):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("the body is not JSON: it ends too early")
	}
	return badRequest("the body is not what the route takes: %v", err)
}

// embeddedStructs are the structs of bodies that clients see no names of.
var embeddedStructs = []string{"searchFields", "restriction", "vectorsJSON", "conditionIn", "windowIn", "keepIn"}

// userField is the name of a field as clients know it.
func userField(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "."), func(part string) bool { return slices.Contains(embeddedStructs, part) })
	return strings.Join(parts, ".")
}

var listItem = regexp.MustCompile(`^(documents|metadata|queries|text_query|texts)\[(\d+)\]`)

// whereInBody is the document or query that a path leads to.
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

// withArticle puts "a" or "an" before what JSON has.
func withArticle(what string) string {
	if what != "" && strings.ContainsRune("aeiou", rune(what[0])) {
		return "an " + what
	}
	return "a " + what
}

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

// isTransportError tells errors of receiving a body from errors of what is in it.
func isTransportError(err error) bool {
	var large *http.MaxBytesError
	var p *Problem
	var timeout interface{ Timeout() bool }
	return errors.As(err, &large) || errors.As(err, &p) || errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.Canceled)
}

// parametersJSON are values for the "?" of a condition, as they were written: as float64 two
// whole numbers above 2⁵³ can be the same, and 7 is not the text "7" any more. A list or an
// object is compared as its text, and takes no more than that.
type parametersJSON []json.RawMessage

// jsonField is a field of an object.
type jsonField struct {
	reflect.StructField
	name, options string // its name, and options, as in the tag
}

// bodyShape is what a value may have: fields, or items with fields.
type bodyShape struct {
	fields []jsonField
	items  bool
}

var bodyShapes sync.Map // of reflect.Type

func bodyShapeOf(t reflect.Type) *bodyShape {
	if s, ok := bodyShapes.Load(t); ok {
		return s.(*bodyShape)
	}
	s := &bodyShape{jsonFields(t), t.Kind() == reflect.Slice && fieldPaths(t, "") != nil}
	bodyShapes.Store(t, s)
	return s
}

// jsonFields are the fields of an object that is decoded into a type, or written of it, with those
// of embedded structs; none for what is no object, or does that itself.
func jsonFields(t reflect.Type) (all []jsonField) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, how, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			all = append(all, jsonFields(f.Type)...)
		case f.IsExported() && name != "-":
			all = append(all, jsonField{f, cmp.Or(name, f.Name), how})
		}
	}
	return all
}

// fieldPaths are the paths of all fields that a body of a type may have.
func fieldPaths(t reflect.Type, before string) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			before = strings.TrimSuffix(before, ".") + "[]."
		}
		t = t.Elem()
	}
	for _, f := range jsonFields(t) {
		paths = append(append(paths, before+f.name), fieldPaths(f.Type, before+f.name+".")...)
	}
	return paths
}

// checkFields refuses a body with a field that the route does not know, which as a rule is
// one that is misspelt or in the wrong place. The text is valid JSON.
func checkFields(text []byte, t reflect.Type) error {
	w := fieldChecker{scanner{text: text}, t}
	return w.checkValue(t, "")
}

type fieldChecker struct {
	scanner
	body reflect.Type
}

// checkValue goes over a value that is decoded into a type.
func (w *fieldChecker) checkValue(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	shape := bodyShapeOf(t)
	fields := shape.fields
	switch c := w.peekByte(); {
	case c == '{' && fields != nil:
		var seen uint64 // a bit for each of fields: a second one would win without a word
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
	case c == '[' && shape.items:
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

// namesElsewhere are fields of searches in other services, with those that do the same here.
var namesElsewhere = map[string]string{
	"k": "top_k", "topk": "top_k", "top": "top_k", "limit": "top_k", "size": "top_k", "count": "top_k", "n": "top_k", "num_results": "top_k",
	"filter": "filter_condition", "where": "filter_condition", "condition": "filter_condition", "from": "offset", "skip": "offset",
	"score_threshold": "min_score", "threshold": "min_score", "text": "queries", "question": "queries", "q": "queries", "vector": "queries",
}

// unknownFieldProblem names the fields that may have been meant: one of the same place with nearly
// that name, or one of that name in another place.
func (w *fieldChecker) unknownFieldProblem(fields []jsonField, path, name string) error {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	var p *Problem
	elsewhere := fieldPaths(w.body, "")
	usual := namesElsewhere[strings.ToLower(name)]
	if near := human.Nearest(name, names); near != "" {
		p = badRequest("unknown field %.80q: did you mean %q?", path+name, path+near)
	} else if i := slices.IndexFunc(elsewhere, func(f string) bool { return strings.EqualFold(f[strings.LastIndexByte(f, '.')+1:], name) }); i >= 0 {
		p = badRequest("unknown field %.80q: did you mean %q?", path+name, elsewhere[i])
	} else if i := max(slices.Index(elsewhere, usual), slices.Index(elsewhere, "params."+usual)); i >= 0 && !strings.HasPrefix(path, "queries[") {
		p = badRequest("unknown field %.80q: did you mean %q?", path+name, elsewhere[i])
	} else if strings.HasPrefix(path, "queries[") && strings.HasPrefix(name, "embeddings") {
		p = badRequest("unknown field %.80q: queries are texts here; vectors go to the route without %s", path+name, encodingSuffix)
	} else {
		p = badRequest("unknown field %.80q: known here are %s", path+name, strings.Join(human.ByDistance(name, names), ", "))
	}
	if where, ok := whereInBody(path); ok {
		p = p.withPlace(where)
	}
	return p
}
