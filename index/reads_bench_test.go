package index

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// Reads of payloads and look-ups of ids by as many goroutines as -cpu says: they wait
// for nothing of each other.
//
//	go test ./index -run xxx -bench BenchmarkReads -cpu 1,2
func BenchmarkReads(b *testing.B) {
	const docs = 100_000
	src := &fakeSource{dim: 4, docs: make([]vectors.Document, docs)}
	for i := range src.docs {
		src.docs[i] = vectors.Document{
			ID: fmt.Sprint("document ", i), Tokens: []float32{1, float32(i % 7), 0, 1}, Payload: fmt.Appendf(nil, `{"n":%d}`, i),
		}
	}
	path := filepath.Join(b.TempDir(), "reads.plaid")
	_, err := Build(b.Context(), path, src, &BuildOptions{Nbits: 1, Centroids: 2, SampleDocs: 10, Iterations: 1})
	require.NoError(b, err)
	ix, err := Open(b.Context(), path, nil)
	require.NoError(b, err)
	defer ix.Close()
	s, err := ix.Snapshot()
	require.NoError(b, err)
	defer s.Close()
	var readers atomic.Uint32
	each := func(b *testing.B, read func(ordinal uint32) error) {
		b.RunParallel(func(pb *testing.PB) {
			ordinal := readers.Add(1) * 7919
			for pb.Next() {
				if err := read(ordinal % docs); err != nil {
					b.Error(err)
				}
				ordinal += 7907
			}
		})
	}
	b.Run("payload", func(b *testing.B) {
		each(b, func(ordinal uint32) error { return second(s.Payload(ordinal)) })
	})
	b.Run("id", func(b *testing.B) {
		each(b, func(ordinal uint32) error {
			_, ok, err := s.Ordinal(src.docs[ordinal].ID)
			if !ok {
				return ErrNotFound
			}
			return err
		})
	})
}
