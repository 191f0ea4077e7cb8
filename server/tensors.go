package server

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/vectors"
)

// Vectors by the thousand come as a safetensors file, which neither side has to spell
// out: these tensors, in any order.
const (
	tensorVectors = "vectors" // F16, BF16, F32 or F64, [tokens, dim]: of all documents or queries, one after another
	tensorLengths = "lengths" // integers, [documents]: how many vectors each has
	tensorRequest = "request" // U8: the JSON that the route takes otherwise, without the vectors; may be left out
)

const tensorsDoc = "A safetensors file with the tensors vectors (F16, BF16, F32 or F64, [tokens, dim]: those of all documents or queries, one after another), " +
	"lengths (integers: how many vectors each has), and request (U8: the JSON body without the vectors; may be left out)."

// vectorTaker is a body whose vectors may come as tensors.
type vectorTaker interface{ takeVectors(all []Matrix) error }

// takeVectors implements vectorTaker.
func (in *updateIn) takeVectors(all []Matrix) error {
	if in.Documents != nil {
		return bad("documents are in the request, and as tensors too")
	}
	in.Documents = make([]documentIn, len(all))
	for i, m := range all {
		in.Documents[i].Embeddings = rowsJSON{given: true, m: m}
	}
	return nil
}

// takeVectors implements vectorTaker: the request may say for each query what holds
// for it alone.
func (in *searchIn) takeVectors(all []Matrix) error {
	if in.Queries == nil {
		in.Queries = make([]queryIn, len(all))
	}
	if len(in.Queries) != len(all) {
		return bad("there are %d queries in the request and %d as tensors: want one for each", len(in.Queries), len(all))
	}
	for i, m := range all {
		if in.Queries[i].Embeddings.given || in.Queries[i].Base64.given {
			return bad("query %d has vectors in the request, and as a tensor too", i).at(Where{Query: &i})
		}
		in.Queries[i].Embeddings = rowsJSON{given: true, m: m}
	}
	return nil
}

// isTensors tells whether a request says that its body is one of tensors.
func isTensors(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == mediaBytes
}

// decodeTensors reads the body as a safetensors file.
func (q *request) decodeTensors(body []byte, into vectorTaker) error {
	file, err := vectors.NewSafetensors(bytes.NewReader(body), int64(len(body)), "tensors")
	if err != nil {
		return bad("%w", err)
	}
	request, all, err := readTensors(file, q.body.hold)
	if isTransport(err) {
		return err
	} else if err != nil {
		return bad("%w", err)
	}
	if !q.wants("handling=lenient") {
		for _, name := range file.Names() {
			if name != tensorVectors && name != tensorLengths && name != tensorRequest {
				return bad("tensors: %.80q is not known", name)
			}
		}
	}
	if request != nil {
		if err := q.decodeJSON(request, into); err != nil {
			return err
		}
	}
	return into.takeVectors(all)
}

// readTensors reads the tensors of a body; request is nil without that one.
func readTensors(file *vectors.Safetensors, hold func(bytes int64) error) (request []byte, all []Matrix, err error) {
	if slices.Contains(file.Names(), tensorRequest) {
		a, err := file.Array(tensorRequest)
		if err != nil {
			return nil, nil, err
		}
		request = make([]byte, a.Len())
		if err := a.Bytes(request, 0); err != nil {
			return nil, nil, err
		}
	}
	v, err := file.Array(tensorVectors)
	if err != nil {
		return nil, nil, err
	}
	l, err := file.Array(tensorLengths)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(v.Shape) != 2 || v.Shape[1] < 1:
		return nil, nil, fmt.Errorf("tensors: %s has the shape %v; want [tokens, dimension]", tensorVectors, v.Shape)
	case !strings.Contains(v.Dtype, "f"):
		return nil, nil, fmt.Errorf("tensors: %s has the type %s; want F16, BF16, F32 or F64", tensorVectors, v.Dtype)
	case len(l.Shape) != 1:
		return nil, nil, fmt.Errorf("tensors: %s has the shape %v; want one axis", tensorLengths, l.Shape)
	case l.Len() > v.Shape[0]: // before memory is taken for so many
		return nil, nil, fmt.Errorf("tensors: there are %d %s and %d vectors: some have no vectors", l.Len(), tensorLengths, v.Shape[0])
	}
	const each = 512 // bytes for a document or query, and what is made of it
	if err := hold(4*int64(v.Len()) + each*int64(l.Len())); err != nil {
		return nil, nil, err
	}
	lengths := make([]int64, l.Len())
	if err := l.Ints(lengths, 0); err != nil {
		return nil, nil, err
	}
	data := make([]float32, v.Len())
	if err := v.Float32s(data, 0); err != nil {
		return nil, nil, err
	}
	all = make([]Matrix, len(lengths))
	rest, dim := int64(v.Shape[0]), v.Shape[1]
	for i, n := range lengths {
		if n < 0 || n > rest {
			return nil, nil, fmt.Errorf("tensors: number %d of %s is %d, and %d vectors are left", i, tensorLengths, n, rest)
		}
		size := int(n) * dim
		all[i] = Matrix{Tokens: int(n), Dim: dim, Data: data[:size:size]}
		data, rest = data[size:], rest-n
	}
	if rest > 0 {
		return nil, nil, fmt.Errorf("tensors: %s are %d short of the %d vectors", tensorLengths, rest, v.Shape[0])
	}
	return request, all, nil
}
