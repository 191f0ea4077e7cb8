package index

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestMain(m *testing.M) {
	effort.Rapid(15, 100)
	testenv.Main(m)
}

// tb is testing.TB or *rapid.T.
type tb interface {
	require.TestingT
	Helper()
}

// requireFiles counts the files of a folder. Those that were replaced while they were open
// have a name on Windows until they are closed.
func requireFiles(t tb, dir string, n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return runtime.GOOS == "windows" && strings.HasSuffix(e.Name(), ".gone.tmp")
	})
	require.Len(t, entries, n)
}

// startChild runs this binary as the process of that name, for a test to kill.
func startChild(t *testing.T, name string, env ...string) (
	cmd *exec.Cmd, in io.Writer, out io.Reader, stderr *strings.Builder,
) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd, stderr = exec.Command(self), &strings.Builder{}
	cmd.Env = append(os.Environ(), append(env, testenv.ChildVariable+"="+name)...)
	cmd.Stderr = stderr
	in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, in, out, stderr
}

// small makes many chunks and transactions of little data.
func small(t *testing.T) {
	chunk, stage, fields := chunkBytes, transactionBytes, maxRunBytes
	chunkBytes, transactionBytes, maxRunBytes = 300, 500, 5000
	t.Cleanup(func() { chunkBytes, transactionBytes, maxRunBytes = chunk, stage, fields })
}

// clustered makes n vectors near one of ten directions that depend on dim only.
func clustered(rng *rand.Rand, n, dim int) []float32 {
	x := make([]float32, 0, n*dim)
	for range n {
		center := rand.New(rand.NewPCG(rng.Uint64N(10), uint64(dim)))
		for range dim {
			x = append(x, float32(center.NormFloat64()+0.4*rng.NormFloat64()))
		}
	}
	return x
}

// corpus makes documents with ids d0, d1, …, some of them empty, two thirds of
// them with payload.
func corpus(n, maxRows, dim int, seed uint64) []vectors.Document {
	rng := rand.New(rand.NewPCG(seed, 1))
	docs := make([]vectors.Document, n)
	for i := range docs {
		docs[i] = vectors.Document{ID: fmt.Sprintf("d%d", i), Tokens: clustered(rng, rng.IntN(maxRows+1), dim)}
		if i%3 != 0 {
			docs[i].Payload = fmt.Appendf(nil, `{"id":"d%d","text":"%x"}`, i, rng.Uint64())
		}
	}
	return docs
}

func fromDocs(t tb, dim int, docs []vectors.Document) vectors.Source {
	t.Helper()
	src, err := vectors.FromDocuments(dim, docs)
	require.NoError(t, err)
	return src
}

// fakeSource checks nothing, unlike those of package vectors, and may lie.
type fakeSource struct {
	dim   int
	docs  []vectors.Document
	said  int // documents, where it is not the truth
	rows  func(i int) int
	id    func(i int) string
	visit func(i int) error // before a document is given out
}

func (s *fakeSource) Dim() int     { return s.dim }
func (s *fakeSource) Close() error { return nil }
func (s *fakeSource) Len() int {
	if s.said > 0 {
		return s.said
	}
	return len(s.docs)
}

func (s *fakeSource) Rows(i int) int {
	if s.rows != nil {
		return s.rows(i)
	}
	return len(s.docs[min(i, len(s.docs)-1)].Tokens) / s.dim
}

func (s *fakeSource) ID(i int) string {
	if s.id != nil {
		return s.id(i)
	}
	return s.docs[min(i, len(s.docs)-1)].ID
}

func (s *fakeSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to && i < len(s.docs); i++ {
			var err error
			if s.visit != nil {
				err = s.visit(i)
			}
			if !yield(s.docs[i], err) || err != nil {
				return
			}
		}
	}
}

func build(t tb, path string, dim int, docs []vectors.Document, o *BuildOptions) *BuildReport {
	t.Helper()
	r, err := Build(context.Background(), path, fromDocs(t, dim, docs), o)
	require.NoError(t, err)
	return r
}

func newPath(t *testing.T) string { return filepath.Join(testenv.RAMDir(t), "test.plaid") }

// reading opens for the length of fn.
func reading(t tb, path string, fn func(s *Snapshot)) {
	t.Helper()
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	s := taken(t, ix)
	fn(s)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
}

func digestOf(t tb, path string) (digest string) {
	t.Helper()
	reading(t, path, func(s *Snapshot) { digest = snapshotDigest(t, s) })
	return digest
}

func snapshotDigest(t tb, s *Snapshot) string {
	d, _, err := s.Inspect(context.Background())
	require.NoError(t, err)
	return d
}

// differs says how a snapshot differs from the documents that it should have,
// in their order: ids, payloads, and byte by byte what encoding the vectors
// with the codec of the index gives; nil if it does not.
func differs(s *Snapshot, want []vectors.Document) error {
	if s.Len() != len(want) {
		return fmt.Errorf("%d live documents, want %d", s.Len(), len(want))
	}
	set, count := s.LiveSet()
	c := s.Quantizer()
	next := 0
	for ordinal := range s.State().Docs {
		inSet := set[ordinal/64]>>(ordinal%64)&1 == 1
		if !s.Live(ordinal) {
			if inSet {
				return fmt.Errorf("deleted document %d is in the live set", ordinal)
			}
			continue
		}
		if next == len(want) {
			return fmt.Errorf("document %d is one too many", ordinal)
		}
		w := want[next]
		next++
		if inSet != (len(w.Tokens) > 0) {
			return fmt.Errorf("document %q of %d values is in the live set: %v", w.ID, len(w.Tokens), inSet)
		}
		if inSet {
			count--
		}
		if id := s.ID(ordinal); id != w.ID {
			return fmt.Errorf("document %d is %q, want %q", ordinal, id, w.ID)
		}
		if o, ok, err := s.Ordinal(w.ID); err != nil || !ok || o != ordinal {
			return fmt.Errorf("%q leads to %d, %v, %v; want %d", w.ID, o, ok, err, ordinal)
		}
		p, err := s.Payload(ordinal)
		if err != nil || !bytes.Equal(p, w.Payload) || s.HasPayload(ordinal) != (len(w.Payload) > 0) {
			return fmt.Errorf("payload of %q is %q, %v; want %q", w.ID, p, err, w.Payload)
		}
		if err := differsDoc(s, c, ordinal, w); err != nil {
			return fmt.Errorf("document %q: %w", w.ID, err)
		}
	}
	if next != len(want) || count != 0 {
		return fmt.Errorf("%d documents of %d, live set off by %d", next, len(want), count)
	}
	return differsSums(s)
}

// differsSums says where the sums of payloads are not those of the payloads of live documents.
func differsSums(s *Snapshot) error {
	with := liveDocs(s.fileSnapshot)
	for it := with.Clone().Iterator(); it.HasNext(); {
		if ordinal := it.Next(); !s.HasPayload(ordinal) {
			with.Remove(ordinal)
		}
	}
	err := s.VisitPayloadChecksums(context.Background(), 0, func(ordinal uint32, sum storage.PayloadChecksum) error {
		p, err := s.Payload(ordinal)
		if err == nil && (!with.CheckedRemove(ordinal) || sum != storage.ChecksumPayload(ordinal, p)) {
			err = fmt.Errorf("sum of the payload of document %d", ordinal)
		}
		return err
	})
	if err == nil && !with.IsEmpty() {
		err = fmt.Errorf("payloads without a sum: %v", with)
	}
	return err
}

func differsDoc(s *Snapshot, c *codec.Quantizer, ordinal uint32, w vectors.Document) error {
	x := append([]float32(nil), w.Tokens...)
	if s.Header().Normalize {
		codec.Normalize(x, c.Dim)
	}
	var b codec.Block
	if err := c.Encode(context.Background(), &b, x, 1, s.ix.backend); err != nil {
		return err
	}
	chunk, doc, _ := s.Locate(ordinal)
	ch, err := s.Chunk(chunk, storage.All)
	if err != nil {
		return err
	}
	lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
	cb, rb := c.CodeBytes(), c.RowBytes()
	switch {
	case hi-lo != b.Tokens:
		return fmt.Errorf("%d tokens, want %d", hi-lo, b.Tokens)
	case !bytes.Equal(ch.Codes[lo*cb:hi*cb], b.Codes):
		return fmt.Errorf("codes %x, want %x", ch.Codes[lo*cb:hi*cb], b.Codes)
	case !bytes.Equal(ch.Residuals[lo*rb:hi*rb], b.Residuals):
		return fmt.Errorf("residuals %x, want %x", ch.Residuals[lo*rb:hi*rb], b.Residuals)
	case !bytes.Equal(ch.Factors[2*lo:2*hi], b.Factors):
		return fmt.Errorf("factors %x, want %x", ch.Factors[2*lo:2*hi], b.Factors)
	}
	return nil
}

// requireIndex checks content and soundness.
func requireIndex(t tb, s *Snapshot, want []vectors.Document) {
	t.Helper()
	require.NoError(t, differs(s, want))
	require.NoError(t, s.Verify(context.Background()))
}

func requireFile(t tb, path string, want []vectors.Document) {
	t.Helper()
	reading(t, path, func(s *Snapshot) { requireIndex(t, s, want) })
}

// decodedError is the root mean square of ‖x − v̂‖ over all tokens, and the
// smallest cosine.
func decodedError(t tb, s *Snapshot, docs []vectors.Document) (rmse, worst float64) {
	dim := s.Dim()
	sum, n := 0.0, 0
	worst = 1
	for _, d := range docs {
		ordinal, ok, err := s.Ordinal(d.ID)
		require.NoError(t, err)
		require.True(t, ok)
		v, err := s.Vectors(ordinal)
		require.NoError(t, err)
		x := append([]float32(nil), d.Tokens...)
		codec.Normalize(x, dim)
		require.Len(t, v, len(x))
		for lo := 0; lo < len(x); lo += dim {
			dot := 0.0
			for j := lo; j < lo+dim; j++ {
				dot += float64(x[j]) * float64(v[j])
				sum += float64(x[j]-v[j]) * float64(x[j]-v[j])
			}
			worst = min(worst, dot)
			n++
		}
	}
	return math.Sqrt(sum / float64(n)), worst
}
