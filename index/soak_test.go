package index_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

var soakChanges = flag.Int("soak", 0, "how many changes each writer of TestSoak makes; some dozens without")

const (
	soakDim     = 8
	soakWriters = 2
	soakReaders = 3
	soakIDs     = 500 // of each writer
	// After a compaction the file may be soakFactor times as large as the values
	// in it, and soakSlack larger, which is pages that begin.
	soakFactor = 1.5
	soakSlack  = 128 << 10
	// The heap after collection may grow by this, by soakOrdinal bytes for each
	// ordinal that was given out (lengths are kept for deleted documents too), and by
	// soakPending bytes for each page that a held snapshot keeps from being used again.
	soakHeap    = 4 << 20
	soakOrdinal = 16
	soakPending = 100
)

// soakDoc is a document as a function of its id and version.
func soakDoc(id string, version int) vectors.Document {
	rng := rand.New(rand.NewPCG(uint64(version), uint64(len(id))<<32+uint64(id[0])<<16+uint64(id[1])<<8+uint64(id[len(id)-1])))
	v := make([]float32, (1+rng.IntN(6))*soakDim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return vectors.Document{ID: id, Tokens: v, Payload: fmt.Appendf(nil, `{"id":%q,"version":%d}`, id, version)}
}

// soakWriter changes documents of its own, and remembers what the sum of them
// was after each change.
type soakWriter struct {
	prefix         string
	docs           map[string]int // versions
	sums           [1 << 12]atomic.Uint64
	begun, acked   atomic.Int64 // changes
	added, deleted int64
}

// soak is a soak at work.
type soak struct {
	t       *testing.T
	ix      *index.Index
	engine  *search.Engine
	writers []*soakWriter
	seed    maphash.Seed
	queries []search.Query
	gate    sync.RWMutex // held for writing while the steward measures
	stop    atomic.Bool
	checks  atomic.Int64
	backups atomic.Int64
	failed  atomic.Bool
}

func (s *soak) fail(format string, args ...any) {
	s.t.Errorf(format, args...)
	s.failed.Store(true)
	s.stop.Store(true)
}

// sum is that of a document, to be added up.
func (s *soak) sum(id string, version int) uint64 {
	return maphash.String(s.seed, fmt.Sprint(id, " ", version))
}

func (w *soakWriter) state(s *soak) (sum uint64) {
	for id, v := range w.docs {
		sum += s.sum(id, v)
	}
	return sum
}

func (s *soak) write(ctx context.Context, w *soakWriter, rng *rand.Rand) error {
	change := w.begun.Load() + 1
	n := 1 + rng.IntN(5)
	ids := map[string]bool{}
	for range n {
		ids[fmt.Sprintf("%s%d", w.prefix, rng.IntN(soakIDs))] = true
	}
	remove := rng.IntN(4) == 0
	var docs []vectors.Document
	var names []string
	for id := range ids {
		_, there := w.docs[id]
		switch {
		case remove && there:
			delete(w.docs, id)
			names = append(names, id)
		case !remove:
			w.docs[id] = int(change)
			docs = append(docs, soakDoc(id, int(change)))
		}
	}
	w.sums[change%int64(len(w.sums))].Store(w.state(s))
	w.begun.Store(change)
	if remove {
		got, missing, err := s.ix.Delete(ctx, names)
		if err == nil && (got.Documents != len(names) || len(missing) > 0) {
			err = fmt.Errorf("%d of %d deleted", got, len(names))
		}
		if err != nil {
			return err
		}
		w.deleted += int64(len(names))
	} else {
		src, err := vectors.FromDocuments(soakDim, docs)
		if err != nil {
			return err
		}
		if _, err := s.ix.Add(ctx, src, &index.AddOptions{Replace: true, Threads: 1}); err != nil {
			return err
		}
		w.added += int64(len(docs))
		again := map[string][]byte{} // payloads that grow, of the same version
		for _, d := range docs[:rng.IntN(len(docs)+1)] {
			again[d.ID] = fmt.Appendf(bytes.TrimSuffix(d.Payload, []byte("}")), `,"again":%d}`, change)
		}
		if _, _, err := s.ix.SetPayload(ctx, again); err != nil {
			return err
		}
	}
	w.acked.Store(change)
	return nil
}

// check takes a snapshot and holds it against what the writers have done.
func (s *soak) check(ctx context.Context, rng *rand.Rand) error {
	var from, to [soakWriters]int64
	for i, w := range s.writers {
		from[i] = w.acked.Load()
	}
	snap, err := s.ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	for i, w := range s.writers {
		to[i] = w.begun.Load()
	}
	if err := s.matches(snap, from, to); err != nil {
		return err
	}
	s.checks.Add(1)
	return s.searches(ctx, snap, s.queries[rng.IntN(len(s.queries))])
}

// matches compares a snapshot with what each writer had done after one of these
// changes.
func (s *soak) matches(snap *index.Snapshot, from, to [soakWriters]int64) error {
	sums, err := s.content(snap)
	if err != nil {
		return err
	}
	for i, w := range s.writers {
		if to[i]-from[i] > int64(len(w.sums))/2 {
			continue // this reader slept for thousands of changes
		}
		ok := false
		for change := from[i]; change <= to[i]; change++ {
			ok = ok || w.sums[change%int64(len(w.sums))].Load() == sums[i]
		}
		if !ok {
			return fmt.Errorf("documents of writer %s are as after none of its changes %d to %d", w.prefix, from[i], to[i])
		}
	}
	return nil
}

// content compares each document of a snapshot with the model's of that version.
func (s *soak) content(snap *index.Snapshot) (sums [soakWriters]uint64, err error) {
	var docs []vectors.Document
	for ordinal := range snap.State().Docs {
		if !snap.Live(ordinal) {
			continue
		}
		p, err := snap.Payload(ordinal)
		if err != nil {
			return sums, err
		}
		var id string
		var version int
		if _, err := fmt.Sscanf(string(p), `{"id":%q,"version":%d`, &id, &version); err != nil || id != snap.ID(ordinal) {
			return sums, fmt.Errorf("payload %q of %s: %w", p, snap.ID(ordinal), err)
		}
		d := soakDoc(id, version)
		d.Payload = p
		docs = append(docs, d)
		for i, w := range s.writers {
			if strings.HasPrefix(id, w.prefix) {
				sums[i] += s.sum(id, version)
			}
		}
	}
	return sums, index.Differs(snap, docs)
}

// searches compares exhaustive search, and pruned search with full budgets,
// with the float64 scores of the decoded vectors.
func (s *soak) searches(ctx context.Context, snap *index.Snapshot, q search.Query) error {
	want := map[string]float64{}
	for ordinal := range snap.State().Docs {
		if !snap.Live(ordinal) {
			continue
		}
		v, err := snap.Vectors(ordinal)
		if err != nil {
			return err
		}
		want[snap.ID(ordinal)] = maxSim(q.Vectors, v)
	}
	k := min(10, len(want))
	best := make([]float64, 0, len(want))
	for _, score := range want {
		best = append(best, score)
	}
	slices.Sort(best)
	slices.Reverse(best)
	all := snap.Header().Centroids
	for _, o := range []search.Options{
		{K: 10, Mode: search.Exhaustive},
		{K: 10, Probes: all, Approx: len(want) + 1, Exact: len(want) + 1},
	} {
		r, err := searchAt(ctx, snap, []search.Query{q}, o)
		if err != nil {
			return err
		}
		if len(r[0].Hits) != k {
			return fmt.Errorf("%d hits of %d documents", len(r[0].Hits), len(want))
		}
		for i, hit := range r[0].Hits {
			score, ok := want[hit.ID]
			if !ok || math.Abs(score-float64(hit.Score)) > 1e-3 || math.Abs(best[i]-score) > 2e-3 {
				return fmt.Errorf("hit %d is %s with %g; its score is %g (there: %v), the best at that place %g", i, hit.ID, hit.Score, score, ok, best[i])
			}
		}
	}
	// The engine that all share sees a state of its own.
	r, err := s.engine.Search(ctx, q, search.Options{K: 5, Payload: true})
	if err != nil {
		return err
	}
	for i, hit := range r.Hits {
		if !bytes.Contains(hit.Payload, fmt.Appendf(nil, "%q", hit.ID)) || i > 0 && hit.Score > r.Hits[i-1].Score {
			return fmt.Errorf("hit %d: %s, %g, %s", i, hit.ID, hit.Score, hit.Payload)
		}
	}
	return nil
}

func maxSim(query, doc []float32) float64 {
	sum := 0.0
	for i := 0; i < len(query); i += soakDim {
		best := math.Inf(-1)
		for j := 0; j < len(doc); j += soakDim {
			dot := 0.0
			for d := range soakDim {
				dot += float64(query[i+d]) * float64(doc[j+d])
			}
			best = max(best, dot)
		}
		sum += best
	}
	return sum
}

// changes counts those of all writers.
func (s *soak) changes() (n int) {
	for _, w := range s.writers {
		n += int(w.acked.Load())
	}
	return n
}

// after waits until there are so many changes, or the soak ends.
func (s *soak) after(changes int) {
	for s.changes() < changes && !s.stop.Load() {
		time.Sleep(time.Millisecond)
	}
}

// hold keeps a snapshot while so many changes are made, over compactions too.
func (s *soak) hold(ctx context.Context, changes int) error {
	snap, err := s.ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	before, err := s.content(snap)
	if err != nil {
		return err
	}
	s.after(s.changes() + changes)
	after, err := s.content(snap)
	if err == nil && before != after {
		err = errors.New("other documents than before")
	}
	if err == nil {
		err = snap.Verify(ctx)
	}
	return err
}

// backUp makes a copy of the index as it is, to a file or a stream, or brings the last one
// up to date, and checks it like a snapshot.
func (s *soak) backUp(ctx context.Context, rng *rand.Rand) error {
	path := s.ix.Path() + ".copy"
	var from, to [soakWriters]int64
	for i, w := range s.writers {
		from[i] = w.acked.Load()
	}
	o := &index.BackupOptions{Incremental: rng.IntN(3) > 0, Check: index.Checks(rng.IntN(3))}
	if rng.IntN(4) == 0 {
		var stream bytes.Buffer
		_, err := s.ix.Backup(ctx, &stream, o)
		if err = errors.Join(err, os.WriteFile(path, stream.Bytes(), 0o600)); err != nil {
			return err
		}
	} else if _, err := s.ix.BackupTo(ctx, path, o); err != nil {
		return err
	}
	for i, w := range s.writers {
		to[i] = w.begun.Load()
	}
	ix, err := index.Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	err = errors.Join(s.matches(snap, from, to), snap.Verify(ctx), snap.Close(), ix.Close())
	s.backups.Add(1)
	return err
}

// Writers, readers, held snapshots, backups and compaction at the same time, for as many
// changes as -soak says: what is read is right throughout, and neither memory nor
// goroutines nor descriptors nor the file grow.
func TestSoak(t *testing.T) {
	each := cmp.Or(*soakChanges, effort.Cases(40, 400))
	ctx := context.Background()
	s := &soak{t: t, seed: maphash.MakeSeed()}
	path := filepath.Join(testenv.RAMDir(t), "soak.plaid")
	first := []vectors.Document{}
	for i := range soakWriters {
		w := &soakWriter{prefix: string(rune('a' + i)), docs: map[string]int{}}
		for j := range soakIDs / 2 {
			id := fmt.Sprintf("%s%d", w.prefix, j)
			w.docs[id] = 0
			first = append(first, soakDoc(id, 0))
		}
		w.sums[0].Store(w.state(s))
		s.writers = append(s.writers, w)
	}
	src, err := vectors.FromDocuments(soakDim, first)
	require.NoError(t, err)
	_, err = index.Build(ctx, path, src, &index.BuildOptions{Centroids: 32, Nbits: 2})
	require.NoError(t, err)
	for i := range 8 {
		q := soakDoc(fmt.Sprint("query", i), 1).Tokens
		codec.Normalize(q, soakDim)
		s.queries = append(s.queries, search.Query{Vectors: q})
	}
	s.ix, err = index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	s.engine, err = search.New(ctx, s.ix, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.engine.Close()) }()

	var wg sync.WaitGroup
	work := func(seed uint64, step func(rng *rand.Rand) error) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 8))
			for once := true; once || !s.stop.Load(); once = false {
				s.gate.RLock()
				err := step(rng)
				s.gate.RUnlock()
				if err != nil {
					s.fail("%v", err)
				}
				time.Sleep(2 * time.Millisecond) // for the others
			}
		})
	}
	for i, w := range s.writers {
		work(uint64(i), func(rng *rand.Rand) error {
			if int(w.acked.Load()) == each {
				return nil
			}
			return s.write(ctx, w, rng)
		})
	}
	for i := range soakReaders {
		work(100+uint64(i), func(rng *rand.Rand) error { return s.check(ctx, rng) })
	}
	work(200, func(rng *rand.Rand) error { return s.backUp(ctx, rng) })
	total := soakWriters * each
	wg.Go(func() {
		for !s.stop.Load() {
			if err := s.hold(ctx, total/5); err != nil {
				s.fail("held snapshot: %v", err)
			}
		}
	})
	s.steward(ctx, total)
	s.stop.Store(true)
	wg.Wait()
	if s.failed.Load() {
		t.FailNow()
	}
	s.finish(ctx, path)
}

// finish compares the last state, and makes sure that all is given back.
func (s *soak) finish(ctx context.Context, path string) {
	t := s.t
	rng := rand.New(rand.NewPCG(1, 1))
	require.NoError(t, s.check(ctx, rng))
	size, err := s.compact(ctx)
	require.NoError(t, err)
	in, err := s.ix.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, in.Pages.Snapshots, "a view is left open")
	require.NoError(t, s.ix.Close())
	added, deleted := int64(0), int64(0)
	for _, w := range s.writers {
		added += w.added
		deleted += w.deleted
	}
	t.Logf("%d changes (%d documents added or replaced, %d deleted), %d snapshots checked and searched, %d backups; %d documents in %d KiB, %.2f of their content",
		s.changes(), added, deleted, s.checks.Load(), s.backups.Load(), in.Docs, size>>10, float64(size)/float64(in.Sizes.Total()))
	require.Positive(t, s.changes())
	require.Positive(t, s.checks.Load())
	require.Positive(t, s.backups.Load())
	s.ix, err = index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, s.engine.Close())
	s.engine, err = search.New(ctx, s.ix, nil)
	require.NoError(t, err)
	require.NoError(t, s.check(ctx, rng))
	require.NoError(t, s.ix.Close())
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, e := range entries {
			name, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
			require.NotContains(t, name, path, "a descriptor is left open")
		}
	}
}
