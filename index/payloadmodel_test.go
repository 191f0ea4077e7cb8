package index

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var payloadSteps = flag.Int("payload-steps", 0, "how many changes TestPayloadModel makes; some hundred without")

// payloadModel is an index and what it should show: the payload of each document, by id,
// nil where it has none. Readers beside look at every picture that there is.
type payloadModel struct {
	rng     *rand.Rand
	dir     string
	ix      *Index
	want    map[string][]byte
	next    int // of ids
	mirror  string
	shown   sync.Map // Snapshot.Version → digest, as readers saw it
	readers atomic.Pointer[Index]
}

const payloadDim = 4

// digest stands for all ids and payloads, by whatever way they are read.
func (m *payloadModel) digest(want map[string][]byte) uint64 {
	h := fnv.New64a()
	for _, id := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(h, "%q %t %q\n", id, want[id] != nil, want[id])
	}
	return h.Sum64()
}

// read reads the payloads of a snapshot in all ways.
func (m *payloadModel) read(s *Snapshot) (map[string][]byte, error) {
	got := map[string][]byte{}
	with := roaring.New()
	for ordinal := range s.State().Docs {
		p, err := s.Payload(ordinal)
		if err != nil {
			return nil, err
		}
		if (p != nil) != s.HasPayload(ordinal) {
			return nil, fmt.Errorf("document %d: payload %q, and HasPayload says %t", ordinal, p, s.HasPayload(ordinal))
		}
		if p != nil {
			with.Add(ordinal)
		}
		if !s.Live(ordinal) {
			if p != nil {
				return nil, fmt.Errorf("payload of the deleted document %d", ordinal)
			}
			continue
		}
		id := s.ID(ordinal)
		if found, ok, err := s.Ordinal(id); err != nil || !ok || found != ordinal {
			return nil, fmt.Errorf("%q leads to %d, %t, %w; not to %d", id, found, ok, err, ordinal)
		}
		got[id] = p
	}
	err := s.PayloadSums(context.Background(), 0, func(ordinal uint32, sum storage.PayloadSum) error {
		p, err := s.Payload(ordinal)
		if err == nil && (!with.CheckedRemove(ordinal) || sum != storage.SumPayload(ordinal, p)) {
			err = fmt.Errorf("sum of the payload of document %d", ordinal)
		}
		return err
	})
	if err == nil && !with.IsEmpty() {
		err = fmt.Errorf("payloads without a sum: %v", with)
	}
	return got, err
}

// look compares what a snapshot of an index shows with the model.
func (m *payloadModel) look(t *testing.T, ix *Index, verify bool) {
	t.Helper()
	s, err := ix.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	got, err := m.read(s)
	require.NoError(t, err)
	require.Equal(t, m.want, got)
	if verify {
		require.NoError(t, s.Verify(context.Background()))
	}
	if seen, ok := m.shown.Load(s.Version()); ok && ix == m.ix {
		require.Equal(t, m.digest(m.want), seen, "a reader saw something else")
	}
}

func (m *payloadModel) readBeside(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := m.readers.Load().Snapshot()
		if errors.Is(err, storage.ErrClosed) {
			continue // it is opened again
		} else if err != nil {
			return err
		}
		got, err := m.read(s)
		if err == nil {
			sum := m.digest(got)
			if was, seen := m.shown.LoadOrStore(s.Version(), sum); seen && was != sum {
				err = fmt.Errorf("picture %d shows two things", s.Version())
			}
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	return nil
}

// payload is one of several kinds, mostly an object.
func (m *payloadModel) payload() []byte {
	switch n := m.rng.IntN(10); n {
	case 0:
		return nil
	case 1:
		return []byte("null")
	default:
		return fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, m.rng.IntN(5), strings.Repeat("x", m.rng.IntN(1+40*n)))
	}
}

func (m *payloadModel) some(most int) []string {
	ids := slices.Sorted(maps.Keys(m.want))
	m.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(len(ids), m.rng.IntN(most+1))]
}

func (m *payloadModel) source(t *testing.T, ids []string, payloads map[string][]byte) vectors.Source {
	docs := make([]vectors.Document, len(ids))
	for i, id := range ids {
		docs[i] = vectors.Document{ID: id, Tokens: clustered(m.rng, m.rng.IntN(4), payloadDim), Payload: payloads[id]}
	}
	return fromDocs(t, payloadDim, docs)
}

// change does one random change to both.
func (m *payloadModel) change(t *testing.T) {
	ctx := context.Background()
	switch kind := m.rng.IntN(100); {
	case kind < 20 && len(m.want) < 60: // new documents, some in the place of others
		o, fresh := &AddOptions{Threads: 1, Replace: true, KeepPayload: m.rng.IntN(2) == 0}, map[string][]byte{}
		for range 1 + m.rng.IntN(8) {
			fresh[fmt.Sprint("d", m.next)] = m.payload()
			m.next++
		}
		for _, id := range m.some(3) {
			fresh[id] = m.payload()
		}
		for _, id := range m.some(2) {
			if _, ok := fresh[id]; !ok {
				o.Delete = append(o.Delete, id)
			}
		}
		_, err := m.ix.Add(ctx, m.source(t, slices.Sorted(maps.Keys(fresh)), fresh), o)
		require.NoError(t, err)
		for _, id := range o.Delete {
			delete(m.want, id)
		}
		for id, p := range fresh {
			if old := m.want[id]; p == nil && o.KeepPayload {
				p = old
			}
			m.want[id] = p
		}
	case kind < 55: // first payloads, others, removals
		set := map[string][]byte{}
		for _, id := range m.some(10) {
			set[id] = m.payload()
		}
		n, missing, err := m.ix.SetPayload(ctx, set)
		require.NoError(t, err)
		require.Empty(t, missing)
		require.Len(t, set, n)
		maps.Copy(m.want, set)
	case kind < 65: // fields, also of documents without payload
		ids := m.some(6)
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			if string(m.want[id]) == "null" {
				return // no object
			}
		}
		text, fields := "_id IN ('"+strings.Join(ids, "', '")+"')", condition.Fields{"n": json.RawMessage("7")}
		n, err := m.ix.UpdatePayload(ctx, where(t, text), fields)
		require.NoError(t, err)
		require.Equal(t, len(ids), n)
		for _, id := range ids {
			m.want[id], err = fields.Merge(m.want[id])
			require.NoError(t, err)
		}
	case kind < 80:
		gone := m.some(5)
		_, missing, err := m.ix.Delete(ctx, gone)
		require.NoError(t, err)
		require.Empty(t, missing)
		for _, id := range gone {
			delete(m.want, id)
		}
	case kind < 84:
		require.NoError(t, m.ix.Compact(ctx, nil))
	case kind < 87:
		if len(m.want) > 0 { // with tokens or without
			_, err := m.ix.Retrain(ctx, &RetrainOptions{Threads: 1, Centroids: 4})
			if err != nil {
				require.ErrorIs(t, err, ErrNoTokens)
			}
		}
	case kind < 92: // a copy, and one that is brought up to date
		path := filepath.Join(m.dir, fmt.Sprint("copy", m.next))
		m.next++
		for _, o := range []struct {
			path        string
			incremental bool
		}{{path, false}, {m.mirror, true}} {
			_, err := m.ix.BackupTo(ctx, o.path, &BackupOptions{Incremental: o.incremental})
			require.NoError(t, err)
			copied, err := Open(ctx, o.path, nil)
			require.NoError(t, err)
			m.look(t, copied, false)
			require.NoError(t, copied.Close())
		}
		require.NoError(t, os.Remove(path))
	default: // readers keep what they hold
		require.NoError(t, m.ix.Close())
		m.open(t)
	}
}

func (m *payloadModel) open(t *testing.T) {
	var err error
	m.ix, err = Open(context.Background(), filepath.Join(m.dir, "model.plaid"), &Options{Write: true, LockTimeout: 10e9})
	require.NoError(t, err)
	m.readers.Store(m.ix)
}

// Random changes of payloads and documents, compared with a picture after each, while
// readers compare what they see with what each state should show.
func TestPayloadModel(t *testing.T) {
	small(t)
	steps := 300
	if !effort.Long() {
		steps = 80
	}
	if *payloadSteps > 0 {
		steps = *payloadSteps
	}
	m := &payloadModel{rng: rand.New(rand.NewPCG(22, uint64(steps))), dir: testenv.RAMDir(t), want: map[string][]byte{}}
	m.mirror = filepath.Join(m.dir, "mirror.plaid")
	for range 12 {
		m.want[fmt.Sprint("d", m.next)] = m.payload()
		m.next++
	}
	ids := slices.Sorted(maps.Keys(m.want))
	docs := make([]vectors.Document, len(ids))
	for i, id := range ids {
		docs[i] = vectors.Document{ID: id, Tokens: clustered(m.rng, 1+i%3, payloadDim), Payload: m.want[id]}
	}
	build(t, filepath.Join(m.dir, "model.plaid"), payloadDim, docs, &BuildOptions{Centroids: 4, Threads: 1})
	m.open(t)
	ctx, stop := context.WithCancel(context.Background())
	failed := make(chan error, 2)
	for range cap(failed) {
		go func() { failed <- m.readBeside(ctx) }()
	}
	m.look(t, m.ix, true)
	for step := range steps {
		m.change(t)
		m.look(t, m.ix, step%10 == 0)
	}
	stop()
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
	m.look(t, m.ix, true)
	require.NoError(t, m.ix.Close())
}

// What a payload costs that comes or goes: what it takes itself, whatever else is in
// the index.

// pagesWritten is how many bytes of pages differ between two states of a file.
func pagesWritten(before, after []byte) (written int) {
	page := os.Getpagesize()
	for at := 0; at < len(after); at += page {
		end := min(at+page, len(after))
		if end > len(before) || !bytes.Equal(before[at:end], after[at:end]) {
			written += end - at
		}
	}
	return written
}

func TestFirstPayloadsWriteNoChunks(t *testing.T) {
	effort.SkipBrief(t, "one goroutine, many tokens")
	ctx := context.Background()
	const dim, tokens = 128, 100
	docs := effort.Cases(400, 1500)
	path := filepath.Join(testenv.RAMDir(t), "large.plaid")
	rng := rand.New(rand.NewPCG(1, 1))
	src := &fakeSource{dim: dim, docs: make([]vectors.Document, docs)}
	for i := range src.docs {
		src.docs[i] = vectors.Document{ID: fmt.Sprint(i), Tokens: make([]float32, tokens*dim)}
		for j := range src.docs[i].Tokens {
			src.docs[i].Tokens[j] = rng.Float32() - 0.5
		}
	}
	_, err := Build(ctx, path, src, &BuildOptions{Nbits: 8, Centroids: 4, SampleDocs: 10, Iterations: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	step := func(payload []byte, every int) int {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(before), docs*tokens*dim, "two chunks of 4 MiB at least: at 8 bits a component is a byte")
		payloads := map[string][]byte{}
		for i := range 8 {
			payloads[fmt.Sprint(every*i)] = payload
		}
		n, _, err := ix.SetPayload(ctx, payloads)
		require.NoError(t, err)
		require.Equal(t, 8, n)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		return pagesWritten(before, after)
	}
	first := step([]byte(`{"title":"first"}`), docs/8) // in all of its chunks
	gone := step(nil, docs/8)
	t.Logf("eight first payloads: %d bytes of pages, eight that go: %d", first, gone)
	require.Less(t, first, 200<<10)
	require.Less(t, gone, 200<<10)
	require.NoError(t, ix.Verify(ctx))
}

// firstPayloads gives each document of an index, of one token each, its first payload,
// or takes it away.
func firstPayloads(tb testing.TB, ix *Index, docs int, payload []byte) {
	payloads := make(map[string][]byte, docs)
	for i := range docs {
		payloads[fmt.Sprint(i)] = payload
	}
	n, _, err := ix.SetPayload(context.Background(), payloads)
	require.NoError(tb, err)
	require.Equal(tb, docs, n)
}

func oneTokenDocuments(tb testing.TB, dir string, docs int) *Index {
	src := &fakeSource{dim: 4, docs: make([]vectors.Document, docs)}
	for i := range src.docs {
		src.docs[i] = vectors.Document{ID: fmt.Sprint(i), Tokens: []float32{1, float32(i % 7), 0, 1}}
	}
	path := filepath.Join(dir, fmt.Sprintf("%d.plaid", docs))
	_, err := Build(context.Background(), path, src, &BuildOptions{Nbits: 1, Centroids: 2, SampleDocs: 10, Iterations: 1, Force: true})
	require.NoError(tb, err)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(tb, err)
	return ix
}

// Of the documents of one chunk; the work is counted by the bytes of memory that it
// takes. It was quadratic once, by a copy of the chunk's table a document.
func TestFirstPayloadsTakeLinearWork(t *testing.T) {
	dir := testenv.RAMDir(t)
	work := func(docs int) (came, went uint64) {

		ix := oneTokenDocuments(t, dir, docs)
		defer ix.Close()
		var m [3]runtime.MemStats
		runtime.ReadMemStats(&m[0])
		firstPayloads(t, ix, docs, []byte(`{"a":1}`))
		runtime.ReadMemStats(&m[1])
		firstPayloads(t, ix, docs, nil)
		runtime.ReadMemStats(&m[2])
		return m[1].TotalAlloc - m[0].TotalAlloc, m[2].TotalAlloc - m[1].TotalAlloc
	}
	few, fewGone := work(1000)
	many, manyGone := work(16000)
	t.Logf("bytes for 1,000 documents %d and %d, for 16,000 %d and %d", few, fewGone, many, manyGone)
	require.Less(t, many, 32*few)
	require.Less(t, manyGone, 32*fewGone)
}

func BenchmarkFirstPayloads(b *testing.B) {
	for _, docs := range []int{10_000, 20_000, 40_000, 1_000_000} {
		b.Run(fmt.Sprint(docs), func(b *testing.B) {
			dir := b.TempDir()
			for range b.N {
				b.StopTimer()
				ix := oneTokenDocuments(b, dir, docs)
				b.StartTimer()
				firstPayloads(b, ix, docs, []byte(`{"a":1}`))
				b.StopTimer()
				require.NoError(b, ix.Close())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*docs), "ns/doc")
		})
	}
}
