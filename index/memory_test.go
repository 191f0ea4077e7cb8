//go:build linux

package index

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

func init() {
	testenv.Children["memory"] = memoryChild
	testenv.Children["payload memory"] = payloadMemoryChild
}

// madeUp is a source whose vectors exist only while they are read.
type madeUp struct {
	docs, rows, dim int
	payload         int
	dirs            [][]float32
}

func newMadeUp(docs, rows, dim, payload int) *madeUp {
	s := &madeUp{docs: docs, rows: rows, dim: dim, payload: payload}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 64 {
		d := make([]float32, dim)
		for j := range d {
			d[j] = float32(rng.NormFloat64())
		}
		s.dirs = append(s.dirs, d)
	}
	return s
}

func (s *madeUp) Dim() int        { return s.dim }
func (s *madeUp) Len() int        { return s.docs }
func (s *madeUp) Rows(int) int    { return s.rows }
func (s *madeUp) ID(i int) string { return "doc" + strconv.Itoa(i) }
func (s *madeUp) Close() error    { return nil }

func (s *madeUp) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		x := make([]float32, s.rows*s.dim)
		payload := make([]byte, s.payload)
		for i := from; i < to; i++ {
			pcg := rand.NewPCG(uint64(i), 2)
			for t := range s.rows {
				dir := s.dirs[pcg.Uint64()%64]
				for j := range s.dim {
					x[t*s.dim+j] = dir[j] + float32(int32(pcg.Uint64()))/(1<<31)
				}
			}
			for j := range payload {
				payload[j] = byte(i + j)
			}
			if len(payload) > 0 {
				payload[0] = 0 // it is no object
			}
			if !yield(vectors.Document{ID: s.ID(i), Tokens: x, Payload: payload}, ctx.Err()) {
				return
			}
		}
	}
}

const memoryBudget = 64 << 20

// measured runs a build within memoryBudget and says what it took: the most
// memory before and after, of which the mapped file is a part.
func measured(src vectors.Source, o *BuildOptions) error {
	debug.SetMemoryLimit(memoryBudget)
	path := os.Getenv("PLAID_TEST_PATH")
	before, err := procStatus("VmHWM")
	if err != nil {
		return err
	}
	o.Memory = memoryBudget
	if _, err := Build(context.Background(), path, src, o); err != nil {
		return err
	}
	after, err := procStatus("VmHWM")
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Println(before, after, info.Size())
	return nil
}

func memoryChild() error {
	docs := 2000
	if effort.Long() {
		docs = 4000
	}
	return measured(newMadeUp(docs, 100, 128, 0), &BuildOptions{Centroids: 256, Iterations: 2})
}

func payloadMemoryChild() error {
	docs := 15_000
	if effort.Long() {
		docs = 40_000
	}
	return measured(newMadeUp(docs, 1, 8, 10_000), &BuildOptions{Centroids: 256, Iterations: 2})
}

// A build keeps to its budget. What the process holds may be up to 1.6 times
// that, since the runtime returns memory late and pages of the mapped file
// count, above what a process of this binary holds before it begins (10 to 20
// MiB: program text, runtime, libraries).
func TestMemoryOfABuild(t *testing.T) {
	if !effort.Long() {
		t.Skip("builds indexes of 200,000 tokens and of 150 MB payload")
	}
	for _, name := range []string{"memory", "payload memory"} {
		t.Run(name, func(t *testing.T) {
			var before, after, size int64
			out := child(t, name, "PLAID_TEST_PATH="+filepath.Join(t.TempDir(), "big.plaid"))
			_, err := fmt.Sscan(out, &before, &after, &size)
			require.NoError(t, err, out)
			t.Logf("%.1f MiB before, %.1f MiB at most, index %.1f MiB", mib(before), mib(after), mib(size))
			require.Less(t, before, int64(32<<20))
			require.Less(t, after-before, int64(memoryBudget*8/5))
		})
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// Postings beyond a share of the budget end a segment: here, of a build.
func TestBuildOfSeveralSegments(t *testing.T) {
	docs := effort.Cases(9_000, 200_000)
	segment, share := minSegmentBytes, segmentBudgetShare
	t.Cleanup(func() { minSegmentBytes, segmentBudgetShare = segment, share })
	minSegmentBytes, segmentBudgetShare = segment*int64(docs)/900_000, 1<<40
	path := newPath(t)
	_, err := Build(context.Background(), path, newMadeUp(docs, 1, 2, 0), &BuildOptions{Memory: 32 << 20, Centroids: 16, Iterations: 1, Nbits: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	s := taken(t, ix)
	require.Equal(t, 2, s.Segments())
	require.Equal(t, docs, s.Len())
	require.NoError(t, s.Verify(context.Background()))
	require.NoError(t, s.Close())
	_, _, err = ix.Delete(context.Background(), []string{"doc0", fmt.Sprint("doc", docs-1)})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(context.Background(), nil))
	s = taken(t, ix)
	require.NoError(t, s.Verify(context.Background()))
	require.Equal(t, docs-2, s.Len())
	require.NoError(t, s.Close())
}
