package keywords

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	testenv.Main(m)
}

var ramDir = testenv.RAMDir

// documents makes documents with ids from first on, which differ in their payloads; nil is
// none.
func documents(t require.TestingT, first int, payloads ...[]byte) vectors.Source {
	docs := make([]vectors.Document, len(payloads))
	for i, p := range payloads {
		docs[i] = vectors.Document{ID: fmt.Sprintf("d%d", first+i), Tokens: []float32{1, float32(i%7) / 7}, Payload: p}
	}
	src, err := vectors.FromDocuments(2, docs)
	require.NoError(t, err)
	return src
}

func texts(s ...string) [][]byte {
	b := make([][]byte, len(s))
	for i := range s {
		b[i] = []byte(s[i])
	}
	return b
}

// build makes an index of payloads and opens it for writing.
func build(t testing.TB, path string, payloads ...[]byte) *index.Index {
	_, err := index.Build(context.Background(), path, documents(t, 0, payloads...), &index.BuildOptions{Centroids: 1, Iterations: 1, Force: true, Threads: 1})
	require.NoError(t, err)
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

func openSnapshot(t require.TestingT, ix *index.Index) *index.Snapshot {
	s, err := ix.Snapshot()
	require.NoError(t, err)
	return s
}

func syncWith(t require.TestingT, kw *Index, ix *index.Index) {
	s := openSnapshot(t, ix)
	defer s.Close()
	require.NoError(t, kw.Sync(context.Background(), s))
}

func open(t testing.TB, path string, o *Options) *Index {
	kw, err := Open(context.Background(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kw.Close()) })
	return kw
}

// made is an index of payloads with its keywords.
func made(t testing.TB, s Settings, payloads ...[]byte) (*Index, *index.Index) {
	path := filepath.Join(testenv.RAMDir(t), "docs.plaid")
	ix := build(t, path, payloads...)
	kw := open(t, Path(path), &Options{Settings: &s, Write: true})
	syncWith(t, kw, ix)
	return kw, ix
}

func search1(t require.TestingT, kw *Index, q Query) []ScoredDocument {
	if q.K == 0 {
		q.K = 1000
	}
	hits, err := kw.Search(context.Background(), q)
	require.NoError(t, err)
	return hits
}

func ordinals(hits []ScoredDocument) []uint32 {
	o := []uint32{}
	for _, h := range hits {
		o = append(o, h.Ordinal)
	}
	return o
}

// readAll reads every list of the file with its positions.
func readAll(tx *bolt.Tx, p *snapshot) error {
	for _, g := range p.segments {
		source, err := newSegmentSource(tx, g.ID, g.segment)
		for err == nil && source.current() != nil {
			if _, err = source.postings(nil); err == nil {
				err = source.advance()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
