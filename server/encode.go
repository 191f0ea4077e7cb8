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

// encodeOut has the vectors in one of two forms, which the header X-Embeddings-Format chooses.
type encodeOut struct {
	Embeddings []rowsJSON `json:"embeddings,omitzero" doc:"[texts][tokens][dimension]"`
	Base64     []string   `json:"embeddings_b64,omitzero" doc:"of little-endian float32, row after row, for each text"`
	Shapes     [][2]int   `json:"shapes,omitzero" doc:"tokens and dimension of each text"`
	Texts      int        `json:"num_texts"`
	cutOut

	in   *encodeIn
	role encode.Role
}

// cutOut counts the texts, and their tokens, that have no vectors because the model does not read so far.
type cutOut struct {
	Truncated int   `json:"truncated" doc:"texts that are longer than the model reads"`
	Dropped   int64 `json:"dropped_tokens" doc:"tokens at their ends that have no vectors"`
}

// appendTruncationNote appends a note that query i was cut, if it was.
func (q *request) appendTruncationNote(i int, notes []string) []string {
	dropped := q.droppedByQuery[i]
	e, _ := q.server.encoder()
	if dropped == 0 || e == nil {
		return notes
	}
	c := e.Config()
	return append(notes, fmt.Sprintf("the query was cut at %s; its last %s took no part",
		c.QueryLimit("--query-length"), plural(dropped, "token")))
}

// modelCodes are the additional codes of routes that take texts.
var modelCodes = []Code{CodeModelNotLoaded, CodeModelLoading, CodeModel}

const (
	headerFormat = "X-Embeddings-Format"
	formatBase64 = "base64"
)

func encodeRoutes() []route {
	const tag = "encode"
	fails := modelCodes
	return []route{
		typedRoute(route{
			method:         "POST",
			pattern:        "/encode",
			operationID:    "encode",
			tag:            tag,
			permission:     Read,
			group:          groupSearch,
			codes:          fails,
			answersTensors: true,
			summary:        "Turn texts into token vectors",
			example:        `{"texts": ["how long do cats sleep?"], "input_type": "query"}`,
			params: []param{{headerFormat, "header", "base64: answer with embeddings_b64 and shapes",
				object{"type": "string"}}},
		}, encodeTexts),
		typedRoute(route{
			method:         "POST",
			pattern:        "/v1/embeddings",
			operationID:    "embeddings",
			tag:            tag,
			permission:     Read,
			group:          groupSearch,
			codes:          fails,
			answersTensors: true,
			summary:        "The same, with the request and answer of OpenAI's and PyLate's services",
			doc: "Texts are documents unless is_query is true. Each has a matrix: a list of numbers for " +
				"each token, or with encoding_format base64 one list of all, and its shape.",
			example: `{"input": ["how long do cats sleep?"], "is_query": true}`,
		}, encodeEmbeddings),
		typedRoute(route{
			method:      "GET",
			pattern:     "/v1/models",
			operationID: "models",
			tag:         tag,
			permission:  Read,
			group:       groupLookup,
			summary:     "The model of the service, as OpenAI's clients ask for it",
		}, listModels),
	}
}

// encode turns texts into matrices; those of documents may be empty. Their memory counts for the body.
func (q *request) encode(role encode.Role, place placeName, texts []string, factor *int) ([]Matrix, error) {
	const maxCapacity = 1 << 16 // before the texts are checked and memory is reserved
	matrices := make([]Matrix, 0, min(len(texts), maxCapacity))
	err := q.encodeEach(role, place, texts, factor, func(m Matrix, _ []encode.Token) error {
		const header = 64 // bytes of a Matrix, rounded up
		if err := q.body.reserve(int64(4*len(m.Data) + header)); err != nil {
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

// encodeEach calls yield with the matrix of each text, in order, and with the tokens of a query if the
// encoder returns them. The matrix is valid until yield returns. The vectors of documents are pooled by
// factor, unless it is nil.
func (q *request) encodeEach(
	role encode.Role, place placeName, texts []string, factor *int, yield func(Matrix, []encode.Token) error,
) error {
	// Check the model and the texts.
	e, missing := q.server.encoder()
	if missing != nil {
		return missing
	}
	if len(texts) == 0 {
		return badRequest("there are no texts")
	}
	if factor != nil {
		if err := checkPoolFactor(*factor); err != nil {
			return err
		}
	}
	longest := 0
	for i, text := range texts {
		if text == "" && role == encode.Query {
			return badRequest("%s is empty", place(i)).withPlace(wherePlace(role, i))
		}
		if p := q.checkTextLength(text, place, i); p != nil {
			return p.withPlace(wherePlace(role, i))
		}
		if !utf8.ValidString(text) {
			return badRequest("%s is not UTF-8", place(i)).withPlace(wherePlace(role, i))
		}
		longest = max(longest, len(text))
	}

	// Encode.
	done, err := q.reserveTokenMemory(q.memory, longest*min(len(texts), parallel.Processors()))
	if err != nil {
		return err
	}
	defer done()
	ctx, end := q.startStage("encode")
	began, count := time.Now(), 0
	var yieldErr error // the error of yield, or of a query without tokens
	var report encode.Report
	err = encodeAll(ctx, e, role, texts, factor, &report, func(m Matrix, x *encode.Embedding) error {
		var tokens []encode.Token
		if x != nil {
			tokens = x.Tokens
			if x.Dropped > 0 {
				if q.droppedByQuery == nil {
					q.droppedByQuery = map[int]int{}
				}
				q.droppedByQuery[count] = x.Dropped
			}
		}
		if m.Tokens == 0 && role == encode.Query {
			yieldErr = badRequest("%s has no token that is kept", place(count)).withPlace(wherePlace(role, count))
		} else {
			yieldErr = yield(m, tokens)
		}
		count++
		return yieldErr
	})
	end(err)

	// Tell errors of the request from errors of the model.
	var text *encode.TextError
	switch {
	case err == nil && count == len(texts):
		q.server.metrics.encoded.WithLabelValues(role.String()).Observe(time.Since(began).Seconds())
		q.countTruncated(role, e, &report)
		if report.Unknown > 0 {
			q.server.log.LogAttrs(q.ctx, slog.LevelWarn, "texts are mostly unknown to the model: vectors hardly "+
				"find them",
				slog.String("request_id", q.w.Header().Get(headerRequestID)), slog.String("path", q.URL.Path),
				slog.Int("texts", report.Unknown))
		}
		return nil
	case yieldErr != nil:
		return yieldErr
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, tokenizer.ErrText) && errors.As(err, &text) && text.Row >= 0:
		return badRequest("%s: %w", place(text.Row), text.Err).withPlace(wherePlace(role, text.Row))
	case err == nil:
		err = fmt.Errorf("the encoder gave %d matrices for %d texts", count, len(texts))
	}
	return problem(CodeModel, "the model failed: the log of the service has it under this request id").withCause(err)
}

// tokenizerBytes is about how many bytes of memory a tokenizer needs for each byte of a text: its
// normalized forms, its tokens, and their positions in the text.
const tokenizerBytes = 96

// reserveTokenMemory reserves memory to tokenize texts of a size in bytes; done releases it. It leaves a
// third of the reservation's remaining bytes for the vectors, which are computed while the tokens are in
// memory. So two requests that together need more memory than there is do not run at the same time.
func (q *request) reserveTokenMemory(from *reservation, textBytes int) (done func(), err error) {
	size := min(tokenizerBytes*int64(textBytes), from.remaining()-from.remaining()/3)
	if err := from.reserve(q.ctx, size); err != nil {
		return nil, err
	}
	return func() { from.release(size) }, nil
}

// countTruncated counts texts that were cut, for the answer and the metrics. It logs documents, because
// searches do not find the rest of them.
func (q *request) countTruncated(role encode.Role, e Encoder, r *encode.Report) {
	if r.Truncated == 0 {
		return
	}
	q.server.metrics.truncated.WithLabelValues(role.String()).Add(float64(r.Truncated))
	q.truncation.Truncated += r.Truncated
	q.truncation.Dropped += r.Dropped
	if role != encode.Document {
		return
	}
	q.server.log.LogAttrs(q.ctx, slog.LevelWarn, "texts were cut: the model does not read all of them",
		slog.String("request_id", q.w.Header().Get(headerRequestID)),
		slog.String("path", q.URL.Path), slog.Int("texts", r.Truncated), slog.Int64("dropped_tokens", r.Dropped),
		slog.Int("length", e.Config().Document.Length))
}

// documentModel returns the model of the service in the form in which indexes record it, or nil if the
// service has no model. An index with the vectors of another model refuses those of this one.
func (s *Server) documentModel() *storage.Model {
	e, _ := s.encoder()
	if e == nil {
		return nil
	}
	if m, ok := e.(ModelEncoder); ok {
		return m.Model()
	}
	c := e.Config()
	return &storage.Model{Name: cmp.Or(c.Name, c.Dir), Fingerprint: c.Fingerprint, Precision: c.Precision}
}

// queryModel is documentModel for queries, which may also search the vectors of a similar model.
func (s *Server) queryModel() *storage.Model {
	m := s.documentModel()
	if m == nil {
		return nil
	}
	e, _ := s.encoder()
	forQueries := *m
	forQueries.NearFingerprint = e.Config().Near
	return &forQueries
}

// wherePlace returns the place of text i in a request.
func wherePlace(role encode.Role, i int) Where {
	if role == encode.Query {
		return Where{Query: &i}
	}
	return Where{Document: &i}
}

// placeName returns the path of text i in the body, for errors.
type placeName func(i int) string

// inField is for a single text, which is the value of a field.
func inField(field string) placeName { return func(int) string { return field } }

// inList is for texts in a list.
func inList(field string) placeName {
	return func(i int) string { return fmt.Sprintf("%s[%d]", field, i) }
}

// checkTextLength returns a problem if text i is too long.
func (q *request) checkTextLength(text string, place placeName, i int) *Problem {
	if limit := q.server.options.Limits.Text; int64(len(text)) > limit {
		return problem(CodeTooLarge, "%s has %d bytes; the limit is %d (max-body)", place(i), len(text), limit)
	}
	return nil
}

// queryBatch is how many queries are encoded at a time.
const queryBatch = 64

// encodeAll calls yield with the matrix of each text, until yield fails, and counts truncated texts in the
// report. Only queries have an Embedding.
func encodeAll(
	ctx context.Context, e Encoder, role encode.Role, texts []string, factor *int, r *encode.Report,
	yield func(Matrix, *encode.Embedding) error,
) error {
	matrix := func(v []float32) Matrix { return Matrix{Tokens: len(v) / e.Dim(), Dim: e.Dim(), Data: v} }

	// Queries come in batches.
	if role == encode.Query {
		for batch := range slices.Chunk(texts, queryBatch) {
			embeddings, err := e.Queries(ctx, batch)
			if err != nil {
				return err
			}
			for _, x := range embeddings {
				if x.Dropped > 0 {
					r.Truncated++
					r.Dropped += int64(x.Dropped)
				}
				if err := yield(matrix(x.Vectors), &x); err != nil {
					return err
				}
			}
		}
		return nil
	}

	// Documents are a stream.
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
		if err := yield(m, nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// writeAnswer implements customAnswer.
func (out encodeOut) writeAnswer(q *request) error {
	factor := out.in.PoolFactor
	if out.role == encode.Query {
		factor = nil // clients may send it: it is for documents only
	}
	if q.acceptsTensors() {
		matrices, _, err := q.encodeMatrices(out.role, inList("texts"), out.in.Texts, factor)
		if err != nil {
			return err
		}
		e, _ := q.server.encoder()
		return q.sendTensors(encodeOut{Texts: len(matrices), cutOut: q.truncation}, matrices, e.Dim())
	}
	head, write := `{"embeddings":[`, appendRows
	encoded := q.Header.Get(headerFormat) == formatBase64
	if encoded {
		head, write = `{"embeddings_b64":[`, appendBase64
	}
	var shapes []byte
	return q.streamVectors(out.role, inList("texts"), out.in.Texts, factor, head,
		func(w *answerStream, _ int, m Matrix) error {
			if encoded {
				shapes = fmt.Appendf(shapes, ",[%d,%d]", m.Tokens, m.Dim)
			}
			return w.appendVectors(m, write)
		}, func(w *answerStream, n int) {
			if encoded {
				w.pending = append(append(w.pending, `],"shapes":[`...), shapes[1:]...) // without the first comma
			}
			w.pending = fmt.Appendf(w.pending, `],"num_texts":%d,"truncated":%d,"dropped_tokens":%d}`, n,
				q.truncation.Truncated,
				q.truncation.Dropped)
		})
}

// streamVectors answers with a JSON list of the vectors of texts, which it sends while later ones are
// encoded. head is the JSON before the list; writeVectors writes the vectors of text n, and writeTail the JSON
// behind the list of n texts.
func (q *request) streamVectors(role encode.Role, place placeName, texts []string, factor *int, head string,
	writeVectors func(w *answerStream, n int, m Matrix) error, writeTail func(w *answerStream, n int)) error {
	w, err := q.newStream()
	if err != nil {
		return err
	}
	w.pending = append(w.pending, head...)
	n := 0
	err = q.encodeEach(role, place, texts, factor, func(m Matrix, _ []encode.Token) error {
		if n > 0 {
			w.pending = append(w.pending, ',')
		}
		if err := writeVectors(w, n, m); err != nil {
			return err
		}
		n++
		return w.flushIfFull()
	})
	if err != nil {
		return err
	}
	writeTail(w, n)
	return w.finish()
}

// encodeTexts answers POST /encode: encodeOut encodes when it is written.
func encodeTexts(_ *request, in *encodeIn) (encodeOut, error) {
	for _, role := range []encode.Role{encode.Query, encode.Document} {
		if in.InputType == role.String() {
			return encodeOut{in: in, role: role}, nil
		}
	}
	return encodeOut{}, badRequest("input_type is %q; want query or document", in.InputType)
}
