package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
)

// picture is what a shard has to be.
type picture struct {
	docs map[string]pictured
	next uint64 // number
	most *uint64
}

type pictured struct {
	number   uint64
	n        int
	metadata string // JSON, with its keys in order
}

func (p *picture) update(docs []collection.DocumentInput, replace bool) (r collection.Receipt, err error) {
	for _, d := range docs {
		if _, there := p.docs[d.ID]; there && !replace {
			return r, index.ErrDuplicateID
		}
	}
	for _, d := range docs {
		id := cmp.Or(d.ID, fmt.Sprint(p.next))
		was, there := p.docs[id]
		now := pictured{number: p.next, n: -1}
		if d.Metadata == nil && d.KeepMetadata && there {
			now.n, now.metadata = was.n, was.metadata
		} else if d.Metadata != nil {
			_, _ = fmt.Sscanf(string(d.Metadata), `{"n":%d}`, &now.n)
			now.metadata = string(d.Metadata)
		}
		if there {
			r.Replaced++
		}
		p.docs[id] = now
		r.Numbers, r.IDs = append(r.Numbers, p.next), append(r.IDs, id)
		p.next++
	}
	if p.most != nil {
		r.Evicted = p.evict()
	}
	return r, nil
}

func (p *picture) evict() (n int) {
	for uint64(len(p.docs)) > *p.most {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(p.docs)), func(a, b string) int {
			return cmp.Compare(p.docs[a].number, p.docs[b].number)
		})
		delete(p.docs, oldest)
		n++
	}
	return n
}

// model is some replicas of a shard, and what they have to be.
type model struct {
	t        *testing.T
	rng      *rand.Rand
	store    *memory.Store
	dirs     [3]string
	replicas [3]*Replica
	picture  picture
	last     uint64 // newest entry that was acknowledged
	counts   map[string]int
	ids      int
}

func (m *model) shard() Shard {
	s := shardOf(flat)
	s.Config.MaxDocuments = m.picture.most
	return s
}

func (m *model) any() *Replica { return m.replicas[m.rng.IntN(len(m.replicas))] }

// send does a change by any replica, and again by any while its outcome is unknown.
func (m *model) send(do func(r *Replica, b Batch) (uint64, error)) error {
	m.ids++
	b := Batch{ID: fmt.Sprint("batch", m.ids), After: m.last}
	for {
		entry, err := do(m.any(), b)
		if errors.Is(err, storage.ErrOutcomeUnknown) {
			m.counts["unknown"]++
			b.Sent = true
			continue
		}
		m.last = max(m.last, entry)
		if err == nil && b.Sent {
			m.counts["found out"]++
		}
		return err
	}
}

func (m *model) update() {
	var docs []collection.DocumentInput
	used := map[string]bool{}
	for range 1 + m.rng.IntN(4) {
		id := fmt.Sprint("d", m.rng.IntN(40))
		if m.rng.IntN(4) == 0 {
			id = ""
		}
		if used[id] && id != "" {
			continue
		}
		used[id] = true
		d := randomDoc(m.rng, id)
		if m.rng.IntN(4) == 0 {
			d.Metadata, d.KeepMetadata = nil, id != ""
		}
		docs = append(docs, d)
	}
	replace := m.rng.IntN(3) > 0
	var got collection.Receipt
	err := m.send(func(r *Replica, b Batch) (entry uint64, err error) {
		got, entry, err = r.Update(m.t.Context(), b, docs, collection.UpdateOptions{Replace: replace})
		return entry, err
	})
	want, wantErr := m.picture.update(docs, replace)
	if wantErr != nil {
		require.ErrorIs(m.t, err, wantErr)
		m.counts["refused"]++
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, want.Numbers, got.Numbers)
	require.Equal(m.t, want.IDs, got.IDs)
	require.Equal(m.t, want.Replaced, got.Replaced)
	require.Equal(m.t, want.Evicted, got.Evicted)
}

// chosen is a selection, and the ids of what it selects.
func (m *model) chosen() (s collection.Selection, ids []string) {
	if m.rng.IntN(2) == 0 {
		s.IDs = []string{fmt.Sprint("d", m.rng.IntN(40)), fmt.Sprint("d", m.rng.IntN(40))}
		for id := range m.picture.docs {
			if slices.Contains(s.IDs, id) {
				ids = append(ids, id)
			}
		}
		return s, ids
	}
	n := m.rng.IntN(10)
	expr, err := condition.Parse("n = ?")
	require.NoError(m.t, err)
	where, err := expr.Bind(n)
	require.NoError(m.t, err)
	s.Where = where
	for id, d := range m.picture.docs {
		if d.n == n {
			ids = append(ids, id)
		}
	}
	return s, ids
}

func (m *model) delete() {
	s, ids := m.chosen()
	var got index.Affected
	err := m.send(func(r *Replica, b Batch) (entry uint64, err error) {
		got, entry, err = r.Delete(m.t.Context(), b, s)
		return entry, err
	})
	if errors.Is(err, condition.ErrUnknownField) {
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, len(ids), got.Documents)
	for _, id := range ids {
		delete(m.picture.docs, id)
	}
}

func (m *model) set() {
	s, ids := m.chosen()
	n := m.rng.IntN(10)
	var got index.Affected
	err := m.send(func(r *Replica, b Batch) (entry uint64, err error) {
		got, entry, err = r.UpdateMetadata(m.t.Context(), b, s, map[string]json.RawMessage{"n": fmt.Append(nil, n)})
		return entry, err
	})
	if errors.Is(err, condition.ErrUnknownField) {
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, len(ids), got.Documents)
	for _, id := range ids {
		d := m.picture.docs[id]
		d.n, d.metadata = n, fmt.Sprintf(`{"n":%d}`, n)
		m.picture.docs[id] = d
	}
}

// restart ends a replica, and does something to its cache.
func (m *model) restart() {
	i := m.rng.IntN(len(m.replicas))
	if m.rng.IntN(2) == 0 { // as it was when its process was killed
		killed := m.t.TempDir()
		err := os.CopyFS(killed, os.DirFS(m.dirs[i]))
		require.True(m.t, err == nil || errors.Is(err, fs.ErrNotExist), err)
		m.dirs[i] = killed
		m.counts["killed"]++
	}
	require.NoError(m.t, m.replicas[i].Close(m.t.Context()))
	file := filepath.Join(m.dirs[i], "notes.x1", "0000-00000001", indexFile)
	switch m.rng.IntN(6) {
	case 0:
		require.NoError(m.t, os.RemoveAll(m.dirs[i]))
	case 1:
		_ = os.Truncate(file, 5000)
		m.counts["damaged"]++
	case 2:
		_ = os.WriteFile(file, []byte("no index"), 0o666)
		m.counts["damaged"]++
	}
	m.open(i)
}

// open opens a replica; the last one has another backend than the others.
func (m *model) open(i int) {
	backend := ""
	if i == 2 {
		backend = "generic"
	}
	m.replicas[i] = openWith(m.t, m.store, m.dirs[i], m.shard(), backend)
}

// cut puts a checkpoint, and removes the entries that it and the one before it have when the grace is over (I4).
func (m *model) cut() {
	r := m.any()
	require.NoError(m.t, r.Checkpoint(m.t.Context()))
	all, err := r.journal.Checkpoints(m.t.Context(), 1)
	require.NoError(m.t, err)
	if len(all) < 2 {
		return
	}
	m.store.AdvanceClock(2 * time.Hour)
	n, err := r.journal.Cut(m.t.Context(), all[len(all)-2].Number)
	require.NoError(m.t, err)
	m.counts["cut"] += n
}

// check compares all replicas with the picture, and with each other to the bit.
func (m *model) check() {
	want := map[string]string{}
	for id, d := range m.picture.docs {
		want[id] = strings.TrimSpace(fmt.Sprintf("%d %s", d.number, d.metadata))
	}
	var first *index.Contents
	for _, r := range m.replicas {
		c, docs := content(m.t, r, m.last)
		for id := range docs {
			docs[id] = strings.TrimSpace(docs[id])
		}
		require.Equal(m.t, want, docs)
		if first == nil {
			first = c
		}
		require.Equal(m.t, first, c)
	}
}

// Random changes by several replicas of a shard do what a brute-force picture does, and all replicas
// have the same bits: while answers of the store are lost, replicas end and lose their caches, and
// the log is cut.
func TestModel(t *testing.T) {
	defer func(d time.Duration) { appendTimeout = d }(appendTimeout)
	appendTimeout = 45 * time.Millisecond // less than the log waits before it asks again
	rounds := 3
	if effort.Long() {
		rounds = 30
	}
	counts := map[string]int{}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			m := &model{t: t, rng: rand.New(rand.NewPCG(uint64(round), 5)), store: memory.New(), counts: counts}
			m.picture.docs = map[string]pictured{}
			if round%3 > 0 {
				most := uint64(1 + 14*(round%3-1)) // an update may have more
				m.picture.most = &most
			}
			lose, lost := rand.New(rand.NewPCG(uint64(round), 6)), 0
			m.store.SetHook(func(_ context.Context, op, name string) (before, after error) {
				if op != "put" || !strings.Contains(name, "/log/") {
					return nil, nil
				}
				if lost++; lost < 3 { // not so often that evicting is given up
					switch lose.IntN(20) {
					case 0:
						return errors.New("no connection"), nil
					case 1:
						return nil, errors.New("no answer")
					}
				}
				lost = 0
				return nil, nil
			})
			for i := range m.replicas {
				m.dirs[i] = t.TempDir()
				m.open(i)
			}
			for i := range 120 {
				switch m.rng.IntN(12) {
				default:
					m.update()
				case 0, 1:
					m.delete()
				case 2, 3:
					m.set()
				case 4:
					m.restart()
				case 5:
					m.cut()
				}
				if i%10 == 9 {
					m.check()
				}
			}
			m.check()
			for _, r := range m.replicas {
				require.NoError(t, r.Verify(t.Context()))
				require.NoError(t, r.Close(context.Background()))
			}
		})
	}
	t.Log(counts)
	for _, what := range []string{"unknown", "found out", "refused", "killed", "damaged", "cut"} {
		require.NotZero(t, counts[what], what)
	}
}
