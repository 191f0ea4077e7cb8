package server

import (
	"bufio"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/vectors"
)

// The tensors of a safetensors file, in any order. In this form bodies and answers with many vectors need
// no numbers written as text.
const (
	tensorVectors = "vectors" // F16, BF16, F32 or F64, [tokens, dim]: of all documents or queries, one after another
	tensorLengths = "lengths" // integers, [documents]: the number of vectors of each
	tensorQuery   = "query"   // like vectors: of the only query
	tensorRequest = "request" // U8: the JSON body without the vectors; may be left out
	tensorAnswer  = "answer"  // U8: the JSON of an answer without the vectors
)

const mediaTensors = "application/safetensors"

// readAhead is the minimum number of bytes of a body of tensors that are read at a time.
const readAhead = 4 << 10

// maxTensorHeader is the largest header of a body of tensors in bytes.
const maxTensorHeader = 64 << 10

// tensorReceiver is a request whose vectors may come as tensors.
type tensorReceiver interface {
	// tensorNames returns the names of the tensors that have the vectors: all are needed. If streams is
	// true, the vectors are used while they arrive, if they are the last tensor: then the body may be
	// larger than others, and is not kept in memory.
	tensorNames() (names []string, streams bool)
	// setTensors takes the vectors from a body. The JSON request is decoded before, unless they are
	// streamed.
	setTensors(t *tensorBody) error
}

// lenientParam is for routes that take tensors and have no other parameter: from a route with two kinds of
// bodies and no parameter openapi-python-client 0.29.1 generates invalid Python.
var lenientParam = param{headerPrefer, "header",
	"handling=lenient: fields of the body, and tensors, that are not known are no errors", object{"type": "string"}}

// tensorsDoc describes a body that has the named tensors.
func tensorsDoc(names []string) string {
	doc := "A safetensors file with the tensors "
	if slices.Contains(names, tensorQuery) {
		doc += "query (F16, BF16, F32 or F64, [tokens, dim]), "
	}
	if slices.Contains(names, tensorVectors) {
		doc += "lengths (integers: how many vectors each document or query has), " +
			"vectors (F16, BF16, F32 or F64, [tokens, dim]: all of them, one after another), "
	}
	return doc + "and request (U8: the JSON body without the vectors; may be left out)."
}

// isTensors reports whether a Content-Type is the one of tensors.
func isTensors(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == mediaTensors
}

// setVectors sets the vectors of the documents of the request.
func (in *updateIn) setVectors(matrices []Matrix) error {
	if in.Documents != nil {
		return badRequest("documents are in the request, and as tensors too")
	}
	in.Documents = make([]documentIn, len(matrices))
	for i, m := range matrices {
		in.Documents[i].Embeddings = rowsJSON{present: true, matrix: m}
	}
	return nil
}

// listTensors are the tensors with the vectors of a list of documents or queries.
var listTensors = []string{tensorLengths, tensorVectors}

// tensorNames implements tensorReceiver.
func (*updateIn) tensorNames() ([]string, bool) { return listTensors, false }

// setTensors implements tensorReceiver.
func (in *updateIn) setTensors(t *tensorBody) error { return t.yieldMatrices(in.setVectors) }

// tensorNames implements tensorReceiver.
func (*searchIn) tensorNames() ([]string, bool) { return listTensors, false }

// setTensors implements tensorReceiver.
func (in *searchIn) setTensors(t *tensorBody) error {
	return t.yieldMatrices(func(matrices []Matrix) error { return setQueryVectors(&in.Queries, matrices) })
}

// tensorNames implements tensorReceiver.
func (*recallIn) tensorNames() ([]string, bool) { return listTensors, false }

// setTensors implements tensorReceiver.
func (in *recallIn) setTensors(t *tensorBody) error {
	return t.yieldMatrices(func(matrices []Matrix) error { return setQueryVectors(&in.Queries, matrices) })
}

// setQueryVectors sets the vectors of queries. The request may have no queries, or the settings of each.
func setQueryVectors(queries *[]queryIn, matrices []Matrix) error {
	if *queries == nil {
		*queries = make([]queryIn, len(matrices))
	}
	if len(*queries) != len(matrices) {
		return badRequest("there are %d queries in the request and %d as tensors: want one for each", len(*queries),
			len(matrices))
	}
	for i, m := range matrices {
		q := &(*queries)[i]
		if q.Embeddings.present || q.Base64.present {
			return badRequest("query %d has vectors in the request, and as a tensor too", i).withPlace(Where{Query: &i})
		}
		q.Embeddings = rowsJSON{present: true, matrix: m}
	}
	return nil
}

// tensorNames implements tensorReceiver.
func (*explainIn) tensorNames() ([]string, bool) { return []string{tensorQuery}, false }

// setTensors implements tensorReceiver.
func (in *explainIn) setTensors(t *tensorBody) error {
	if in.Query == nil {
		in.Query = &queryIn{}
	}
	queries := []queryIn{*in.Query}
	err := setQueryVectors(&queries, []Matrix{t.query})
	in.Query = &queries[0]
	return err
}

// tensorBody is a body of tensors, which is read from its beginning to its end.
type tensorBody struct {
	incoming *request
	file     *vectors.Safetensors
	unread   []string // tensors that were not read yet, in the order of their bytes
	request  []byte   // JSON, or nil without it
	query    Matrix
	lengths  []int64   // nil until they are read
	vectors  []float32 // nil until they are read
	rows     int       // of vectors
	dim      int       // of vectors
}

// readTensors reads the body as tensors. Vectors that are streamed, and the tensors behind them, stay in it.
func (q *request) readTensors(into tensorReceiver) error {
	names, streams := into.tensorNames()
	t, err := q.openTensors(names)
	if err != nil {
		return tensorError(err)
	}
	if streams {
		if err := tensorError(t.readUpToVectors()); err != nil {
			return err
		}
		return into.setTensors(t)
	}
	if err := tensorError(t.readRest()); err != nil {
		return err
	}
	if err := q.acquireSlot(); err != nil {
		return err
	}
	if err := t.decodeRequest(into); err != nil {
		return err
	}
	return into.setTensors(t)
}

// tensorError turns an error of reading tensors into one of the request, unless the connection is its cause.
func tensorError(err error) error {
	if err == nil || isTransportError(err) {
		return err
	}
	return badRequest("%w", err)
}

// openTensors reads the header of a body, and checks the names, shapes and types of its tensors: it must
// have the wanted ones and no others.
func (q *request) openTensors(wanted []string) (*tensorBody, error) {
	// The header. Each read of the body sets a deadline, so small tensors are read through a buffer.
	if err := q.body.reserve(readAhead); err != nil {
		return nil, err
	}
	file, err := vectors.StreamSafetensors(bufio.NewReaderSize(q.Body, readAhead), q.ContentLength,
		func(header int64) error {
			if header > maxTensorHeader {
				return badRequest("tensors: the header has %d bytes; the limit is %d", header, maxTensorHeader)
			}
			const parsedBytes = 8 // of memory for a byte of the header
			return q.body.reserve(parsedBytes * header)
		}, "tensors")
	if err != nil {
		return nil, err
	}

	// Names.
	t := &tensorBody{incoming: q, file: file}
	for _, name := range file.Stored() {
		if name == tensorRequest || slices.Contains(wanted, name) {
			t.unread = append(t.unread, name)
		} else if !q.prefers("handling=lenient") {
			return nil, fmt.Errorf("tensors: %.80q is not known", name)
		}
	}

	// Shapes and types.
	dims := make(map[string]int, len(wanted))
	for _, name := range wanted {
		a, err := file.Array(name)
		if err != nil {
			return nil, err
		}
		switch {
		case name == tensorLengths:
			if len(a.Shape) != 1 {
				return nil, fmt.Errorf("tensors: %s has the shape %v; want one axis", name, a.Shape)
			}
			if strings.Contains(a.Dtype, "f") {
				return nil, fmt.Errorf("tensors: %s has the type %s; want integers", name, file.Dtype(name))
			}
			continue
		case len(a.Shape) != 2 || a.Shape[1] < 1:
			return nil, fmt.Errorf("tensors: %s has the shape %v; want [tokens, dimension]", name, a.Shape)
		case !strings.Contains(a.Dtype, "f"):
			return nil, fmt.Errorf("tensors: %s has the type %s; want F16, BF16, F32 or F64", name, file.Dtype(name))
		}
		dims[name] = a.Shape[1]
		if name == tensorVectors {
			t.rows, t.dim = a.Shape[0], a.Shape[1]
		}
	}
	if query, ok := dims[tensorQuery]; ok && t.dim > 0 && query != t.dim {
		return nil, problem(CodeDimension, "the documents have dimension %d, the query %d", t.dim, query)
	}
	return t, nil
}

// readRest reads the unread tensors, to the end of the body.
func (t *tensorBody) readRest() error {
	return t.readUntil(func(string) bool { return false })
}

// readUpToVectors reads the tensors before the vectors, if the lengths and the query are among them;
// otherwise all.
func (t *tensorBody) readUpToVectors() error {
	return t.readUntil(func(next string) bool {
		return next == tensorVectors && t.lengths != nil && t.query.Tokens > 0
	})
}

// readUntil reads tensors until stop returns true for the name of the next one, or to the end of the body.
func (t *tensorBody) readUntil(stop func(next string) bool) error {
	for len(t.unread) > 0 {
		name := t.unread[0]
		if stop(name) {
			return nil
		}
		t.unread = t.unread[1:]
		a, err := t.file.Array(name)
		if err != nil {
			return err
		}
		switch name {
		case tensorRequest:
			t.request, err = readValues(t.incoming, a.Len(), 1, a.Bytes)
		case tensorLengths:
			perDocument := int64(512) // bytes of memory for a document or query, and its result
			if t.incoming.route.streamsVectors {
				perDocument = 256 // for the score, as a value and as text
			}
			t.lengths, err = readValues(t.incoming, a.Len(), perDocument, a.Ints)
		case tensorVectors:
			t.vectors, err = readValues(t.incoming, a.Len(), 4, a.Float32s)
		case tensorQuery:
			t.query = Matrix{Tokens: a.Shape[0], Dim: a.Shape[1]}
			if t.query.Data, err = readValues(t.incoming, a.Len(), 4, a.Float32s); err == nil {
				err = checkQueryVectors(&t.query)
			}
		}
		if err != nil {
			return err
		}
	}
	return t.file.Finish()
}

// checkQueryVectors returns an error unless a query has vectors of finite numbers.
func checkQueryVectors(m *Matrix) error {
	err := m.checkFinite()
	if m.Tokens == 0 {
		err = errNoVectors
	}
	if err != nil {
		return queryVectorsProblem(err)
	}
	return nil
}

// queryVectorsProblem is the answer to wrong vectors of a route's only query.
func queryVectorsProblem(err error) *Problem {
	p := documentProblem(0, err)
	p.Message, p.Details.Document = "query: "+strings.TrimPrefix(err.Error(), "query: "), nil
	return p
}

// decodeRequest decodes the JSON request, after all tensors were read.
func (t *tensorBody) decodeRequest(into any) error {
	if t.request == nil {
		return nil
	}
	return t.incoming.decodeJSON(t.request, into)
}

// readValues returns n values, each of size bytes. read fills a slice with the values from an index on.
func readValues[T any](q *request, n int, size int64, read func(into []T, from int) error) ([]T, error) {
	return readIntoSlice(q, []T{}, n, size, read)
}

// readIntoSlice reads n values into a slice, which may have other values and too little capacity. It grows
// to four times its size only when it is full: a client that announces many values, and sends none, takes
// little memory.
func readIntoSlice[T any](q *request, values []T, n int, size int64, read func(into []T, from int) error) ([]T, error) {
	values = values[:0]
	for len(values) < n {
		if len(values) == cap(values) {
			grown := min(max(4*cap(values), int(initialCapacity/size)), n)
			if err := q.body.reserve(size * int64(grown-cap(values))); err != nil {
				return nil, err
			}
			values = append(make([]T, 0, grown), values...)
		}
		from := len(values)
		values = values[:min(cap(values), n)]
		if err := read(values[from:], from); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// rowOffsets returns the first row of each document or query, and finally the number of rows.
func (t *tensorBody) rowOffsets() ([]int, error) {
	offsets := make([]int, 1, len(t.lengths)+1)
	remaining := int64(t.rows)
	for i, n := range t.lengths {
		if n < 0 || n > remaining {
			return nil, badRequest("tensors: number %d of %s is %d, and %d vectors are left", i, tensorLengths, n,
				remaining)
		}
		remaining -= n
		offsets = append(offsets, t.rows-int(remaining))
	}
	if remaining > 0 {
		return nil, badRequest("tensors: %s are %d short of the %d vectors", tensorLengths, remaining, t.rows)
	}
	return offsets, nil
}

// yieldMatrices calls yield with the matrices of all documents or queries.
func (t *tensorBody) yieldMatrices(yield func(matrices []Matrix) error) error {
	offsets, err := t.rowOffsets()
	if err != nil {
		return err
	}
	matrices := make([]Matrix, len(t.lengths))
	for i := range matrices {
		lo, hi := offsets[i]*t.dim, offsets[i+1]*t.dim
		matrices[i] = Matrix{Tokens: int(t.lengths[i]), Dim: t.dim, Data: t.vectors[lo:hi:hi]}
	}
	return yield(matrices)
}
