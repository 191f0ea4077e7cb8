package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// encodeIn asks for the vectors of texts.
type encodeIn struct {
	Texts      []string `json:"texts"`
	InputType  string   `json:"input_type" enum:"query,document"`
	PoolFactor *int     `json:"pool_factor,omitempty" doc:"of documents: one vector for so many similar ones"`
}

// encodeOut has one of the two forms of vectors, as X-Embeddings-Format asks.
type encodeOut struct {
	Embeddings []rowsJSON `json:"embeddings,omitzero" doc:"[texts][tokens][dimension]"`
	Base64     []string   `json:"embeddings_b64,omitzero" doc:"of little-endian float32, row after row, for each text"`
	Shapes     [][2]int   `json:"shapes,omitzero" doc:"tokens and dimension of each text"`
	Texts      int        `json:"num_texts"`
	cutOut

	ask  *encodeIn
	role encode.Role
}

// cutOut says how much of texts has no vectors because the model does not read all of it.
type cutOut struct {
	Truncated int   `json:"truncated" doc:"texts that are longer than the model reads"`
	Dropped   int64 `json:"dropped_tokens" doc:"tokens at their ends that have no vectors"`
}

// noteCut says in notes that query i was cut, if it was.
func (q *request) noteCut(i int, notes []string) []string {
	n := q.cutOf[i]
	e, _ := q.s.encoder()
	if n == 0 || e == nil {
		return notes
	}
	c := e.Config()
	return append(notes, fmt.Sprintf("the query was cut at %s; its last %s took no part", c.QueryLimit("--query-length"), plural(n, "token")))
}

// modelCodes are those of routes that take texts.
var modelCodes = []Code{CodeModelNotLoaded, CodeModelLoading, CodeModel}

const (
	headerFormat = "X-Embeddings-Format"
	formatBase64 = "base64"
)

func encodeRoutes() []route {
	const tag = "encode"
	fails := modelCodes
	return []route{
		typed(route{method: "POST", pattern: "/encode", id: "encode", tag: tag, need: Read, group: searching,
			fails: fails, tensorsOut: true,
			summary: "Turn texts into token vectors", example: `{"texts": ["how long do cats sleep?"], "input_type": "query"}`,
			params: []param{{headerFormat, "header", "base64: answer with embeddings_b64 and shapes", object{"type": "string"}}}}, encodeTexts),
		typed(route{method: "POST", pattern: "/v1/embeddings", id: "embeddings", tag: tag, need: Read, group: searching,
			fails: fails, tensorsOut: true,
			summary: "The same, with the request and answer of OpenAI's and PyLate's services",
			doc:     "Texts are documents unless is_query is true. Each has a matrix: a list of numbers for each token, or with encoding_format base64 one list of all, and its shape.",
			example: `{"input": ["how long do cats sleep?"], "is_query": true}`}, embeddings),
		typed(route{method: "GET", pattern: "/v1/models", id: "models", tag: tag, need: Read, group: looking,
			summary: "The model of the service, as OpenAI's clients ask for it"}, models),
	}
}

// encode turns texts into matrices; those of documents may be empty. They are counted with the
// body, which they are made of.
func (q *request) encode(role encode.Role, place textPlace, texts []string, factor *int) ([]Matrix, error) {
	matrices := make([]Matrix, 0, min(len(texts), 1<<16))
	err := q.encodeEach(role, place, texts, factor, func(m Matrix, _ []encode.Token) error {
		const head = 64
		if err := q.body.hold(int64(4*len(m.Data) + head)); err != nil {
			return err
		}
		m.Data = append([]float32(nil), m.Data...)
		matrices = append(matrices, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return matrices, nil
}

// encodeEach gives the matrix of each text to use, in their order, and the tokens of a
// query where they are known. The matrix is valid until use returns.
func (q *request) encodeEach(role encode.Role, place textPlace, texts []string, factor *int, use func(Matrix, []encode.Token) error) error {
	e, none := q.s.encoder()
	if none != nil {
		return none
	}
	if len(texts) == 0 {
		return bad("there are no texts")
	}
	if factor != nil {
		if err := checkPoolFactor(*factor); err != nil {
			return err
		}
	}
	longest := 0
	for i, text := range texts {
		if text == "" && role == encode.Query {
			return bad("%s is empty", place(i)).at(whereOf(role, i))
		}
		if p := q.checkLength(text, place, i); p != nil {
			return p.at(whereOf(role, i))
		}
		if !utf8.ValidString(text) {
			return bad("%s is not UTF-8", place(i)).at(whereOf(role, i))
		}
		longest = max(longest, len(text))
	}
	done, err := q.takeTokenMemory(q.memory, longest*min(len(texts), parallel.Processors()))
	if err != nil {
		return err
	}
	defer done()
	ctx, end := q.span("encode")
	began, n := time.Now(), 0
	var used error // what use returned
	var report encode.Report
	err = encodeAll(ctx, e, role, texts, factor, &report, func(m Matrix, x *encode.Embedding) error {
		var tokens []encode.Token
		if x != nil {
			tokens = x.Tokens
			if x.Dropped > 0 {
				if q.cutOf == nil {
					q.cutOf = map[int]int{}
				}
				q.cutOf[n] = x.Dropped
			}
		}
		if m.Tokens == 0 && role == encode.Query {
			used = bad("%s has no token that is kept", place(n)).at(whereOf(role, n))
		} else {
			used = use(m, tokens)
		}
		n++
		return used
	})
	end(err)
	var text *encode.TextError
	switch {
	case err == nil && n == len(texts):
		q.s.metrics.encoded.WithLabelValues(role.String()).Observe(time.Since(began).Seconds())
		q.countCut(role, e, &report)
		if report.Unknown > 0 {
			q.s.log.LogAttrs(q.ctx, slog.LevelWarn, "texts are mostly unknown to the model: vectors hardly find them", slog.String("request_id", q.w.Header().Get(headerRequestID)),
				slog.String("path", q.URL.Path), slog.Int("texts", report.Unknown))
		}
		return nil
	case used != nil:
		return used
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, tokenizer.ErrText) && errors.As(err, &text) && text.Row >= 0:
		return bad("%s: %w", place(text.Row), text.Err).at(whereOf(role, text.Row))
	case err == nil:
		err = fmt.Errorf("the encoder gave %d matrices for %d texts", n, len(texts))
	}
	return problem(CodeModel, "the model failed: the log of the service has it under this request id").because(err)
}

// tokenMemory is about how many bytes a tokenizer takes for each byte of a text: its normalized
// forms, its tokens, and where in the text they are.
const tokenMemory = 96

// takeTokenMemory takes the memory to make tokens of that many bytes of texts; done gives it back.
// It leaves a third of the account for the vectors, which are made while the tokens are there. Two
// requests that together need more than there is do not run at the same time.
func (q *request) takeTokenMemory(from *account, bytes int) (done func(), err error) {
	n := min(tokenMemory*int64(bytes), from.most()-from.most()/3)
	if err := from.take(q.ctx, n); err != nil {
		return nil, err
	}
	return func() { from.give(n) }, nil
}

// countCut notes texts that were cut, for the answer. Documents are logged, because searches do not
// find the rest of them.
func (q *request) countCut(role encode.Role, e Encoder, r *encode.Report) {
	if r.Truncated == 0 {
		return
	}
	q.s.metrics.cut.WithLabelValues(role.String()).Add(float64(r.Truncated))
	q.cut.Truncated += r.Truncated
	q.cut.Dropped += r.Dropped
	if role != encode.Document {
		return
	}
	q.s.log.LogAttrs(q.ctx, slog.LevelWarn, "texts were cut: the model does not read all of them",
		slog.String("request_id", q.w.Header().Get(headerRequestID)),
		slog.String("path", q.URL.Path), slog.Int("texts", r.Truncated), slog.Int64("dropped_tokens", r.Dropped),
		slog.Int("length", e.Config().Document.Length))
}

// madeBy is the model of the service, as indexes know it: those that were made by
// another one refuse its vectors.
func (s *Server) madeBy() *storage.Model {
	e, _ := s.encoder()
	if e == nil {
		return nil
	}
	if m, ok := e.(Maker); ok {
		return m.Model()
	}
	c := e.Config()
	return &storage.Model{Name: cmp.Or(c.Name, c.Dir), Fingerprint: c.Fingerprint, Precision: c.Precision}
}

// askedBy is madeBy of queries, which may be for what a model near it has made.
func (s *Server) askedBy() *storage.Model {
	m := s.madeBy()
	if m == nil {
		return nil
	}
	e, _ := s.encoder()
	asking := *m
	asking.Near = e.Config().Near
	return &asking
}

func whereOf(role encode.Role, i int) Where {
	if role == encode.Query {
		return Where{Query: &i}
	}
	return Where{Document: &i}
}

// textPlace names text i of those that are encoded by its place in the body.
type textPlace func(i int) string

// inField is the place of the only text, which is the value of a field.
func inField(field string) textPlace { return func(int) string { return field } }

// inList is the place of texts that are a list.
func inList(field string) textPlace {
	return func(i int) string { return fmt.Sprintf("%s[%d]", field, i) }
}

// checkLength refuses text i if it is longer than texts may be.
func (q *request) checkLength(text string, place textPlace, i int) *Problem {
	if most := q.s.o.Limits.Text; int64(len(text)) > most {
		return problem(CodeTooLarge, "%s has %d bytes; %d are the most (max-body)", place(i), len(text), most)
	}
	return nil
}

// queriesAtOnce is how many queries are encoded before the first of them is used.
const queriesAtOnce = 64

// encodeAll passes the matrices of texts to use, until that fails, and counts in the report those
// that are cut.
func encodeAll(ctx context.Context, e Encoder, role encode.Role, texts []string, factor *int, r *encode.Report,
	use func(Matrix, *encode.Embedding) error) error {
	matrix := func(v []float32) Matrix { return Matrix{Tokens: len(v) / e.Dim(), Dim: e.Dim(), Data: v} }
	if role == encode.Query {
		for some := range slices.Chunk(texts, queriesAtOnce) {
			all, err := e.Queries(ctx, some)
			if err != nil {
				return err
			}
			for _, x := range all {
				if x.Dropped > 0 {
					r.Truncated++
					r.Dropped += int64(x.Dropped)
				}
				if err := use(matrix(x.Vectors), &x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var source iter.Seq2[encode.Text, error] = func(yield func(encode.Text, error) bool) {
		for _, text := range texts {
			if !yield(encode.Text{Text: text}, nil) {
				return
			}
		}
	}
	var p pool.Pooler
	var pooled []float32
	for d, err := range e.DocumentsReport(ctx, source, r) {
		if err != nil {
			return err
		}
		m := matrix(d.Tokens)
		if factor != nil && *factor > 1 {
			pooled = p.Pool(pooled[:0], m.Data, m.Dim, *factor)
			m = matrix(pooled)
		}
		if err := use(m, nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// answerTo implements answerer.
func (out encodeOut) answerTo(q *request) error {
	factor := out.ask.PoolFactor
	if out.role == encode.Query {
		factor = nil // clients may send it: it is for documents only
	}
	if q.wantsTensors() {
		all, _, err := q.encodeTensors(out.role, inList("texts"), out.ask.Texts, factor)
		if err != nil {
			return err
		}
		e, _ := q.s.encoder()
		return q.sendTensors(encodeOut{Texts: len(all), cutOut: q.cut}, all, e.Dim())
	}
	head, write := `{"embeddings":[`, appendRows
	encoded := q.Header.Get(headerFormat) == formatBase64
	if encoded {
		head, write = `{"embeddings_b64":[`, appendBase64
	}
	var shapes []byte
	return q.sendVectors(out.role, inList("texts"), out.ask.Texts, factor, head, func(w *stream, _ int, m Matrix) error {
		if encoded {
			shapes = fmt.Appendf(shapes, ",[%d,%d]", m.Tokens, m.Dim)
		}
		return w.vectors(m, write)
	}, func(w *stream, n int) {
		if encoded {
			w.text = append(append(w.text, `],"shapes":[`...), shapes[1:]...)
		}
		w.text = fmt.Appendf(w.text, `],"num_texts":%d,"truncated":%d,"dropped_tokens":%d}`, n, q.cut.Truncated,
			q.cut.Dropped)
	})
}

// sendVectors answers with a list of the vectors of texts, which are sent while the others are
// encoded. item writes those of one text, and tail what stands behind the list.
func (q *request) sendVectors(role encode.Role, place textPlace, texts []string, factor *int, head string,
	item func(w *stream, n int, m Matrix) error, tail func(w *stream, n int)) error {
	w, err := q.stream()
	if err != nil {
		return err
	}
	w.text = append(w.text, head...)
	n := 0
	err = q.encodeEach(role, place, texts, factor, func(m Matrix, _ []encode.Token) error {
		if n > 0 {
			w.text = append(w.text, ',')
		}
		if err := item(w, n, m); err != nil {
			return err
		}
		n++
		return w.pass()
	})
	if err != nil {
		return err
	}
	tail(w, n)
	return w.end()
}

func encodeTexts(_ *request, in *encodeIn) (encodeOut, error) {
	for _, role := range []encode.Role{encode.Query, encode.Document} {
		if in.InputType == role.String() {
			return encodeOut{ask: in, role: role}, nil
		}
	}
	return encodeOut{}, bad("input_type is %q; there is query and document", in.InputType)
}
