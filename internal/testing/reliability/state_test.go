//go:build linux && (amd64 || arm64)

package reliability

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// content is what an index holds: by id a hash of payload and decoded vectors.
type content map[string]uint64

// state of an index; nil: there is none.
type state struct {
	docs     content
	defaults bool // search parameters are stored
}

func (s *state) equal(o *state) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.defaults == o.defaults && maps.Equal(s.docs, o.docs)
}

func (s *state) String() string {
	if s == nil {
		return "no index"
	}
	return fmt.Sprintf("%d documents, defaults %v", len(s.docs), s.defaults)
}

// differs names what distinguishes two states.
func (s *state) differs(o *state) string {
	if s == nil || o == nil {
		return fmt.Sprintf("%v instead of %v", s, o)
	}
	var ids []string
	for id := range s.docs {
		if o.docs[id] != s.docs[id] {
			ids = append(ids, id)
		}
	}
	for id := range o.docs {
		if _, ok := s.docs[id]; !ok {
			ids = append(ids, "no "+id)
		}
	}
	slices.Sort(ids)
	return fmt.Sprintf("%v instead of %v: %v", s, o, ids[:min(len(ids), 8)])
}

// lockTimeout bridges the moment in which a process that is just being started
// still has a descriptor of this one, and the lock with it.
const lockTimeout = time.Minute

// readState opens an index as a reader does.
func readState(path string) (*state, error) {
	ix, err := index.Open(context.Background(), path, &index.Options{LockTimeout: lockTimeout})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished) {
		return nil, nil
	}
	if info, serr := os.Stat(path); serr == nil && info.Size() == 0 && errors.Is(err, storage.ErrNotIndex) {
		return nil, nil // made, and not a byte written
	}
	if err != nil {
		return nil, err
	}
	s, err := stateOf(ix)
	return s, errors.Join(err, ix.Close())
}

// stateOf looks at every byte of an index, and in more than one way.
func stateOf(ix *index.Index) (*state, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	s, err := stateAt(snap)
	return s, errors.Join(err, snap.Close())
}

func stateAt(snap *index.Snapshot) (*state, error) {
	ctx := context.Background()
	if err := snap.Verify(ctx); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	s := &state{docs: content{}}
	found := 0
	for o := range snap.State().Docs {
		if !snap.Live(o) {
			continue
		}
		id := snap.ID(o)
		if at, ok, err := snap.Ordinal(id); err != nil || !ok || at != o {
			return nil, fmt.Errorf("document %q of %d is found at %d, %v: %w", id, o, at, ok, err)
		}
		payload, err := snap.Payload(o)
		if err != nil {
			return nil, err
		}
		v, err := snap.Vectors(o)
		if err != nil {
			return nil, err
		}
		if _, twice := s.docs[id]; twice {
			return nil, fmt.Errorf("document %q is there twice", id)
		}
		s.docs[id] = sum(payload, v)
		if len(v) > 0 {
			found++
		}
	}
	if len(s.docs) != snap.Len() {
		return nil, fmt.Errorf("%d live documents, %d are counted", len(s.docs), snap.Len())
	}
	if found > 0 {
		engine, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
		if err != nil {
			return nil, err
		}
		r, err := engine.Search(ctx, search.Query{Vectors: document("0", 0, snap.Dim()).Tokens},
			search.Options{K: found + 10, Mode: search.Exhaustive})
		if err = errors.Join(err, engine.Close()); err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
		if len(r.Hits) != found {
			return nil, fmt.Errorf("a search finds %d of %d documents", len(r.Hits), found)
		}
	}
	d, err := snap.Defaults()
	s.defaults = d != nil
	return s, err
}

func sum(payload []byte, v []float32) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(payload)
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

// goesOn changes an index that a fault has gone over: what is left of the
// fault must go with the first opening, and every kind of change must work.
func goesOn(path string, want *state) error {
	ctx := context.Background()
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true, LockTimeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("opening for writing: %w", err)
	}
	defer ix.Close()
	if left := beside(path); len(left) > 0 {
		return fmt.Errorf("files are left: %v", left)
	}
	taken, err := room(ix)
	if err != nil {
		return err
	}
	expect := func(what string, want *state) error {
		got, err := stateOf(ix)
		if err != nil {
			return fmt.Errorf("after %s: %w", what, err)
		}
		if !got.equal(want) {
			return fmt.Errorf("after %s: %v, want %v", what, got, want)
		}
		return nil
	}
	if err := expect("opening for writing", want); err != nil {
		return err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	dim := snap.Dim()
	if err := snap.Close(); err != nil {
		return err
	}
	more := document("further0", 1, dim)
	if _, err := ix.Add(ctx, source(dim, []vectors.Document{more}), &index.AddOptions{Threads: 1}); err != nil {
		return fmt.Errorf("a further addition: %w", err)
	}
	got, err := stateOf(ix)
	if err != nil {
		return fmt.Errorf("after a further addition: %w", err)
	}
	if len(got.docs) != len(want.docs)+1 {
		return fmt.Errorf("after a further addition: %v, want one more than %v", got, want)
	}
	if n, missing, err := ix.Delete(ctx, []string{more.ID}); err != nil || n.Documents != 1 {
		return fmt.Errorf("a further deletion: %d, %v missing: %w", n, missing, err)
	}
	if err := expect("a further deletion", want); err != nil {
		return err
	}
	if err := ix.Compact(ctx, nil); err != nil {
		return fmt.Errorf("a further compaction: %w", err)
	}
	if err := expect("a further compaction", want); err != nil {
		return err
	}
	if needed, err := room(ix); err != nil || needed != taken {
		return fmt.Errorf("ids and payloads took %v bytes, after a compaction %v: %w", taken, needed, err)
	}
	return nil
}

// room is what ids and payloads take. Compaction brings live documents along
// only, so that it is the same before unless something was left.
func room(ix *index.Index) (r [2]int64, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return r, err
	}
	defer snap.Close()
	_, sizes, err := snap.Inspect(context.Background())
	return [2]int64{sizes.IDs, sizes.Payload}, err
}

// beside lists the files next to an index that bear its name.
func beside(path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if name != filepath.Base(path) && strings.Contains(name, filepath.Base(path)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// document follows from id, version and dimension. Some have no tokens, some no
// payload.
func document(id string, version, dim int) vectors.Document {
	h := fnv.New64a()
	fmt.Fprint(h, id, "/", version)
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(dim)))
	n := rng.IntN(9)
	if strings.HasSuffix(id, "0") {
		n = max(n, 2)
	}
	d := vectors.Document{ID: id}
	for range n {
		center := rand.New(rand.NewPCG(rng.Uint64N(10), uint64(dim)))
		for range dim {
			d.Tokens = append(d.Tokens, float32(center.NormFloat64()+0.4*rng.NormFloat64()))
		}
	}
	if rng.IntN(4) > 0 {
		d.Payload = fmt.Appendf(nil, `{"v":%d,"fill":%q}`, version, strings.Repeat("x", rng.IntN(200)))
	}
	return d
}

// documents with the numbers from first on.
func documents(first, n, version, dim int) []vectors.Document {
	var docs []vectors.Document
	for i := range n {
		docs = append(docs, document(fmt.Sprint("d", first+i), version, dim))
	}
	return docs
}

func source(dim int, docs []vectors.Document) vectors.Source {
	src, err := vectors.FromDocuments(dim, docs)
	if err != nil {
		panic(err)
	}
	return src
}

func writeDocuments(path string, docs []vectors.Document, dim int) error {
	return os.WriteFile(path, searchtest.Lines(dim, docs...), 0o666)
}
