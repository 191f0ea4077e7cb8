package server

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Matrix has the vectors of one query or document, a row for each token. In JSON it is
//
//	{"embeddings": [[float, …], …]}
//	{"embeddings_b64": "…", "shape": [tokens, dim]}
//
// where embeddings_b64 is base64 (standard alphabet, padded) of little-endian float32, row after row. If
// both are there, base64 wins.
type Matrix struct {
	Tokens, Dim int
	Data        []float32 // [Tokens, Dim]
}

// vectorsJSON has the fields of an object that has vectors.
type vectorsJSON struct {
	Embeddings rowsJSON   `json:"embeddings,omitzero" doc:"a list of numbers for each token"`
	Base64     floatsJSON `json:"embeddings_b64,omitzero"`
	Shape      []int      `json:"shape,omitempty" doc:"of embeddings_b64: tokens and dimension"`
}

// matrixError is an error of vectors.
type matrixError struct {
	token int // the row; −1 means that the error is not about a single row
	err   error
}

func (e *matrixError) Error() string {
	if e.token < 0 {
		return e.err.Error()
	}
	return fmt.Sprintf("token %d: %v", e.token, e.err)
}

func (e *matrixError) Unwrap() error { return e.err }

// toMatrix returns the vectors. There must be at least one.
func (v *vectorsJSON) toMatrix() (Matrix, error) {
	return matrixFromJSON(v.Embeddings, v.Base64, v.Shape, "embeddings")
}

// toDocument is toMatrix for a document that is stored, which may have no vectors.
func (v *vectorsJSON) toDocument() (Matrix, error) {
	m, err := v.toMatrix()
	if errors.Is(err, errNoVectors) {
		return Matrix{Dim: m.Dim}, nil
	}
	return m, err
}

var errNoVectors = errors.New("there are no vectors")

// matrixFromJSON returns the matrix of the form that is present. The fields of the two forms are called
// name, and name_b64 with shape.
func matrixFromJSON(rows rowsJSON, encoded floatsJSON, shape []int, name string) (Matrix, error) {
	fail := func(format string, args ...any) (Matrix, error) {
		return Matrix{}, &matrixError{-1, fmt.Errorf(format, args...)}
	}
	m := rows.matrix
	switch {
	case encoded.present:
		if encoded.err != nil {
			return fail("%s_b64: %w", name, encoded.err)
		}
		if len(shape) != 2 || shape[0] < 0 || shape[1] < 1 {
			return fail("%s_b64 needs a shape of two numbers, [tokens, dimension]; it is %v", name, shape)
		}
		if n := uint64(len(encoded.data)); uint64(shape[0]) > n || uint64(shape[0])*uint64(shape[1])*4 != n {
			return fail("%s_b64 has %d bytes; shape %v needs 4 a value", name, n, shape)
		}
		m = Matrix{Tokens: shape[0], Dim: shape[1], Data: make([]float32, len(encoded.data)/4)}
		for i := range m.Data {
			m.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(encoded.data[4*i:]))
		}
	case !rows.present:
		return fail("%s is missing", name)
	case rows.err != nil:
		if e := (*matrixError)(nil); errors.As(rows.err, &e) && e.token < 0 {
			return fail("%s: %w", name, e.err)
		}
		return Matrix{}, rows.err
	}
	if m.Tokens == 0 {
		return Matrix{Dim: m.Dim}, &matrixError{-1, errNoVectors}
	}
	return m, m.checkFinite()
}

// checkFinite returns a matrixError for the first value that is not finite.
func (m *Matrix) checkFinite() error {
	if floats.Finite(m.Data) {
		return nil
	}
	for i, x := range m.Data {
		if x-x != 0 { // infinite, or NaN
			return notFiniteError(i, m.Dim, x)
		}
	}
	return nil
}

// notFiniteError is the error of value i of a matrix with a dimension.
func notFiniteError(i, dim int, x float32) error {
	return &matrixError{i / dim, fmt.Errorf("component %d is %v: want finite numbers", i%dim, x)}
}

// rowsJSON is a list of lists of numbers. It keeps its error, since only the caller knows the document that
// it belongs to.
type rowsJSON struct {
	present bool
	matrix  Matrix
	err     error
}

// MarshalJSON writes the rows.
func (r rowsJSON) MarshalJSON() ([]byte, error) { return appendRows(nil, r.matrix), nil }

// UnmarshalJSON reads a list of lists of numbers. It is several times as fast as encoding/json, because most
// bytes that the service reads are vectors.
func (r *rowsJSON) UnmarshalJSON(text []byte) error {
	*r = rowsJSON{}
	if string(text) != "null" {
		r.present, r.err = true, r.parse(&scanner{text: text})
	}
	return nil
}

// parse reads the rows. The first row sets the dimension.
func (r *rowsJSON) parse(s *scanner) error {
	if !s.openList() {
		return &matrixError{-1, errors.New("want a list of lists of numbers")}
	}
	for !s.endList() {
		token := r.matrix.Tokens
		if !s.openList() {
			return &matrixError{token, errors.New("want a list of numbers")}
		}
		begin := len(r.matrix.Data)
		for !s.endList() {
			x, err := s.parseNumber()
			if err != nil {
				return &matrixError{token, fmt.Errorf("component %d: %w", len(r.matrix.Data)-begin, err)}
			}
			r.matrix.Data = append(r.matrix.Data, x)
		}
		switch n := len(r.matrix.Data) - begin; {
		case n == 0:
			return &matrixError{token, errors.New("the vector is empty")}
		case token == 0:
			r.matrix.Dim = n
			// Guess the number of all values, as if all rows were as long as the first one in the text.
			if guess := len(s.text) / max(s.offset, 1) * n; guess > cap(r.matrix.Data) {
				r.matrix.Data = append(make([]float32, 0, guess+n), r.matrix.Data...)
			}
		case n != r.matrix.Dim:
			return &matrixError{token, fmt.Errorf("the vector has %d numbers, the one before %d", n, r.matrix.Dim)}
		}
		r.matrix.Tokens++
	}
	return nil
}

// floatsJSON is a string of base64. It keeps its error, like rowsJSON.
type floatsJSON struct {
	present bool
	data    []byte
	err     error
}

// UnmarshalJSON reads a string.
func (f *floatsJSON) UnmarshalJSON(text []byte) error {
	*f = floatsJSON{}
	if string(text) == "null" {
		return nil
	}
	f.present = true
	if len(text) < 2 || text[0] != '"' {
		f.err = errors.New("want a string of base64")
		return nil
	}
	inner := text[1 : len(text)-1]
	if bytes.IndexByte(inner, '\\') >= 0 { // base64 may come with \/
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		inner = []byte(s)
	}
	f.data = make([]byte, base64.StdEncoding.DecodedLen(len(inner)))
	n, err := base64.StdEncoding.Strict().Decode(f.data, inner)
	f.data, f.err = f.data[:n], err
	if err == nil && bytes.ContainsAny(inner, "\r\n") {
		f.err = errors.New("line breaks in base64")
	}
	return nil
}

// base64FromMatrix returns a matrix as base64 of little-endian float32.
func base64FromMatrix(m Matrix) string {
	raw := make([]byte, 0, 4*len(m.Data))
	for _, x := range m.Data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// appendBase64 appends a matrix as a JSON string of base64.
func appendBase64(b []byte, m Matrix) []byte {
	return append(append(append(b, '"'), base64FromMatrix(m)...), '"')
}

// appendRows appends a matrix as a list of lists of numbers, each with as many digits as its float32 needs.
func appendRows(b []byte, m Matrix) []byte {
	b = append(b, '[')
	for t := range m.Tokens {
		if t > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for i, x := range m.Data[t*m.Dim : (t+1)*m.Dim] {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}
