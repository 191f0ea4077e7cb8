// Package searchtest builds small indexes of clustered documents for tests.
package searchtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// Maker draws clustered documents and queries.
type Maker struct {
	Rand   *rand.Rand
	dim    int
	topics [][]float32
}

// New returns a maker of vectors of a dimension around some topics.
func New(seed uint64, dim, topics int) *Maker {
	m := &Maker{Rand: rand.New(rand.NewPCG(seed, uint64(dim))), dim: dim}
	for range topics {
		m.topics = append(m.topics, m.Vector(nil, 1))
	}
	return m
}

// Vector returns a unit vector near center, or a random one if center is nil.
func (m *Maker) Vector(center []float32, noise float64) []float32 {
	v := make([]float32, m.dim)
	var sum float64
	for j := range v {
		x := noise * m.Rand.NormFloat64() / math.Sqrt(float64(m.dim))
		if center != nil {
			x += float64(center[j])
		}
		v[j] = float32(x)
		sum += x * x
	}
	for j := range v {
		v[j] /= float32(math.Sqrt(sum))
	}
	return v
}

// Tokens returns n vectors around a few topics.
func (m *Maker) Tokens(n int) []float32 {
	var out []float32
	mainTopic, secondTopic := m.Rand.IntN(len(m.topics)), m.Rand.IntN(len(m.topics))
	for range n {
		topic := mainTopic
		switch m.Rand.IntN(4) {
		case 0:
			topic = secondTopic
		case 1:
			topic = m.Rand.IntN(len(m.topics))
		}
		out = append(out, m.Vector(m.topics[topic], 0.6)...)
	}
	return out
}

// Docs returns n documents with the ids prefix0, prefix1 …: some are empty, some have one token,
// and some are copies of the document before.
func (m *Maker) Docs(prefix string, n, tokens int) []vectors.Document {
	docs := make([]vectors.Document, n)
	for i := range docs {
		d := &docs[i]
		d.ID = fmt.Sprintf("%s%d", prefix, i)
		switch {
		case i%17 == 5:
		case i%13 == 3:
			d.Tokens = m.Tokens(1)
		case i%11 == 7:
			d.Tokens = docs[i-1].Tokens
		default:
			d.Tokens = m.Tokens(1 + m.Rand.IntN(2*tokens))
		}
		d.Payload = []byte(`{"n":` + fmt.Sprint(i) + `}`)
	}
	return docs
}

// Source returns a source of documents in memory.
func Source(t testing.TB, dim int, docs []vectors.Document) vectors.Source {
	t.Helper()
	src, err := vectors.FromDocuments(dim, docs)
	require.NoError(t, err)
	return src
}

// Lines returns documents of a dimension as lines of JSON.
func Lines(dim int, docs ...vectors.Document) []byte {
	var lines []byte
	for _, d := range docs {
		line := map[string]any{}
		if len(d.Payload) > 0 {
			if err := json.Unmarshal(d.Payload, &line); err != nil {
				panic(err)
			}
		}
		line["id"], line["vectors"] = d.ID, slices.AppendSeq([][]float32{}, slices.Chunk(d.Tokens, dim))
		text, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		lines = append(append(lines, text...), '\n')
	}
	return lines
}

// Build builds an index and opens it for changes, until the test ends.
func Build(t testing.TB, dim int, docs []vectors.Document, o *index.BuildOptions) *index.Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.plaid")
	_, err := index.Build(context.Background(), path, Source(t, dim, docs), o)
	require.NoError(t, err)
	return Open(t, path)
}

// Open opens an index for changes, until the test ends.
func Open(t testing.TB, path string) *index.Index {
	t.Helper()
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

// Snapshot returns a snapshot of the index, until the test ends.
func Snapshot(t testing.TB, ix *index.Index) *index.Snapshot {
	t.Helper()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, snap.Close()) })
	return snap
}

// Load reads a collection into memory.
func Load(t testing.TB, files vectors.Files) []vectors.Document {
	t.Helper()
	src, err := vectors.Open(context.Background(), files)
	require.NoError(t, err)
	defer src.Close()
	var docs []vectors.Document
	for d, err := range src.Docs(context.Background(), 0, src.Len()) {
		require.NoError(t, err)
		docs = append(docs, vectors.Document{ID: d.ID, Tokens: append([]float32(nil), d.Tokens...)})
	}
	return docs
}

// Table reads tab-separated columns, without the header if there is one.
func Table(t testing.TB, path string, header bool) [][]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var rows [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		if header {
			header = false
			continue
		}
		rows = append(rows, strings.Split(s.Text(), "\t"))
	}
	return rows
}
