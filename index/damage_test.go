package index_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var everyByte = flag.Bool("every-byte", false, "damage tests: flip a bit of every byte, and swap every two pages")

const specimenDim = 8

// specimen is an index to be damaged, and what it shows while it is whole.
type specimen struct {
	data     []byte
	versions [][]byte // the file after each commit, the last one included
	ids      []string // of all documents that are live
	gone     []string // that are not there
	queries  []search.Query
	whole    look
	path     string // of the damaged copy
}

// newSpecimen makes an index that has seen everything: another generation, many
// chunks, several segments, ids on more than one page, deleted documents, holes,
// scales, payloads, stored defaults, free pages.
func newSpecimen(t *testing.T, docs int) *specimen {
	index.Small(t)
	ctx := context.Background()
	sp := &specimen{path: filepath.Join(testenv.RAMDir(t), "damaged.plaid")}
	path := filepath.Join(testenv.RAMDir(t), "specimen.plaid")
	src := func(d []vectors.Document) vectors.Source {
		s, err := vectors.FromDocuments(specimenDim, d)
		require.NoError(t, err)
		return s
	}
	all := index.Corpus(docs, 6, specimenDim, 1)
	for i := range all { // long enough for pages of their own
		all[i].ID = fmt.Sprintf("document-%05d", i)
	}
	built := docs * 3 / 4
	_, err := index.Build(ctx, path, src(index.Corpus(20, 6, specimenDim, 9)), &index.BuildOptions{Centroids: 10, Threads: 1})
	require.NoError(t, err)
	_, err = index.Build(ctx, path, src(all[:built]), &index.BuildOptions{Nbits: 4, Centroids: 20, Threads: 1, Force: true})
	require.NoError(t, err)
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	step := func(err error) {
		t.Helper()
		require.NoError(t, err)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		sp.versions = append(sp.versions, data)
	}
	add := func(from, to int, replace bool) {
		_, err := ix.Add(ctx, src(all[from:to]), &index.AddOptions{Threads: 1, Replace: replace})
		step(err)
	}
	remove := func(ids ...int) {
		var names []string
		for _, i := range ids {
			names = append(names, all[i].ID)
		}
		sp.gone = append(sp.gone, names...)
		_, _, err := ix.Delete(ctx, names)
		step(err)
	}
	remove(3, 4)
	step(ix.Compact(ctx, nil))
	add(built, built+docs/8, false)
	remove(7, built+1)
	add(10, 13, true)
	step(ix.SetDefaults(&storage.Defaults{Docs: 1, Tokens: 1, Time: time.Unix(1e9, 0).UTC(), Classes: []storage.DefaultClass{{K: 10, Probes: 8, Exact: 60}}}))
	add(built+docs/8, docs, false)
	remove(20)
	require.NoError(t, ix.Close())
	for i, d := range all {
		if !slices.Contains(sp.gone, d.ID) {
			sp.ids = append(sp.ids, d.ID)
		}
		sp.gone = append(sp.gone, fmt.Sprintf("document-%05d-", i))
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for range 3 {
		v := make([]float32, 3*specimenDim)
		for j := range v {
			v[j] = float32(rng.NormFloat64())
		}
		sp.queries = append(sp.queries, search.Query{Vectors: v})
	}
	sp.use(t, sp.versions[len(sp.versions)-1])
	return sp
}

// use makes another version of the file the one to be damaged.
func (sp *specimen) use(t *testing.T, data []byte) {
	sp.data = data
	require.NoError(t, os.WriteFile(sp.path, data, 0o600))
	sp.whole = sp.look()
	for name, r := range sp.whole.results() {
		require.NoError(t, r.err, name)
	}
}

// result is a fingerprint of what a user is shown, or the error.
type result struct {
	sum uint64
	err error
}

// look is all that a user can see of a file.
type look struct {
	open, verify                     error
	digest                           result
	read, pruned, exhaustive, filter result
	lookup                           []result // of each id
	defaults, info, sizes            result
}

func (l *look) results() map[string]result {
	all := map[string]result{
		"open": {err: l.open}, "verify": {err: l.verify}, "digest": l.digest, "reading all": l.read, "pruned search": l.pruned,
		"exhaustive search": l.exhaustive, "filtered search": l.filter, "defaults": l.defaults,
		"info": l.info, "sizes": l.sizes,
	}
	for i, r := range l.lookup {
		all[fmt.Sprintf("look-up %d", i)] = r
	}
	return all
}

func fingerprint(fn func(show func(...any)) error) result {
	h := fnv.New64a()
	err := fn(func(x ...any) { fmt.Fprintln(h, x...) })
	if err != nil {
		return result{err: err}
	}
	return result{sum: h.Sum64()}
}

func (sp *specimen) look() (l look) {
	ctx := context.Background()
	ix, err := index.Open(context.Background(), sp.path, nil)
	if err != nil {
		l.open = err
		return l
	}
	defer ix.Close()
	s, err := ix.Snapshot()
	if err != nil {
		l.open = err
		return l
	}
	defer s.Close()
	for _, id := range sp.ids {
		l.lookup = append(l.lookup, fingerprint(func(show func(...any)) error {
			ordinal, ok, err := s.Ordinal(id)
			show(id, ordinal, ok)
			return err
		}))
	}
	for _, id := range sp.gone {
		l.lookup = append(l.lookup, fingerprint(func(show func(...any)) error {
			_, ok, err := s.Ordinal(id)
			show(id, ok)
			return err
		}))
	}
	run := func(o search.Options) result {
		return fingerprint(func(show func(...any)) error {
			rs, err := searchAt(ctx, s, sp.queries, o)
			for _, r := range rs {
				for _, hit := range r.Hits {
					show(hit.ID, hit.Ordinal, hit.Score, string(hit.Payload))
				}
			}
			return err
		})
	}
	l.pruned = run(search.Options{K: 10, Payload: true, Probes: 4, Exact: 30})
	l.exhaustive = run(search.Options{K: 1000, Mode: search.Exhaustive, Payload: true})
	l.filter = run(search.Options{K: 1000, Filter: &search.Filter{IDs: append(sp.ids, sp.gone...), AllowMissing: true}})
	l.read = fingerprint(func(show func(...any)) error { return readEach(s, show) })
	l.defaults = fingerprint(func(show func(...any)) error {
		d, err := s.Defaults()
		if d != nil {
			show(*d)
		}
		return err
	})
	l.info = fingerprint(func(show func(...any)) error {
		in, err := s.Info(ctx)
		if err != nil {
			l.sizes.err = err
			return err
		}
		l.sizes = fingerprint(func(show func(...any)) error { show(in.Sizes, in.BytesPerToken); return nil })
		in.Path, in.Pages = "", storage.Pages{}
		in.Digest, in.Defaults, in.Sizes, in.BytesPerToken = "", nil, storage.Sizes{}, 0 // looked at by themselves
		text, err := json.Marshal(in)
		show(string(text))
		return err
	})
	l.digest = fingerprint(func(show func(...any)) error {
		d, _, err := s.Inspect(ctx)
		show(d)
		return err
	})
	l.verify = s.Verify(ctx)
	return l
}

func readEach(s *index.Snapshot, show func(...any)) (err error) {
	defer storage.Guard(s.Path(), &err)()
	set, count := s.LiveSet()
	show(set, count, s.Len())
	for ordinal := range s.State().Docs {
		if !s.Live(ordinal) {
			continue
		}
		p, err := s.Payload(ordinal)
		if err != nil {
			return err
		}
		v, err := s.Vectors(ordinal)
		if err != nil {
			return err
		}
		show(ordinal, s.ID(ordinal), s.HasPayload(ordinal), string(p), v)
	}
	return s.VisitPayloadChecksums(context.Background(), 0, func(ordinal uint32, sum storage.PayloadChecksum) error {
		show(ordinal, sum)
		return nil
	})
}

// tally counts what became of damaged files.
type tally struct{ cases, refused, found, harmless int }

func (n *tally) String() string {
	return fmt.Sprintf("%d cases: %d refused at open, %d found by verification, %d harmless", n.cases, n.refused, n.found, n.harmless)
}

// fate is what becomes of a damaged file.
type fate int

const (
	refused fate = iota
	found
	harmless
)

// try looks at a damaged file. Whatever is shown must be right or an error that
// says what is wrong; and where verification finds nothing, nothing may differ.
// but names what may be lost unnoticed nevertheless.
func (sp *specimen) try(t *testing.T, n *tally, data []byte, what string, but ...string) fate {
	t.Helper()
	require.NoError(t, os.WriteFile(sp.path, data, 0o600))
	done := make(chan look, 1)
	go func() { done <- sp.look() }()
	var l look
	select {
	case l = <-done:
	case <-time.After(10 * time.Minute):
		require.Fail(t, "a damaged file hangs", what)
	}
	n.cases++
	if l.open != nil {
		index.RequireTyped(t, l.open, what)
		n.refused++
		return refused
	}
	whole := sp.whole.results()
	var differ []string
	for name, r := range l.results() {
		switch {
		case r.err != nil:
			index.RequireTyped(t, r.err, what+": "+name)
			if !slices.Contains(but, name) {
				differ = append(differ, fmt.Sprintf("%s: %v", name, r.err))
			}
		case slices.Contains(but, name):
		case r != whole[name]:
			differ = append(differ, name)
			if name != "digest" {
				require.Error(t, r.err, "%s: %s shows something else without an error (verification: %v)", what, name, l.verify)
			}
		}
	}
	if l.verify != nil {
		n.found++
		return found
	}
	require.Empty(t, differ, "%s: verification passes over it", what)
	n.harmless++
	return harmless
}

// element is one of a page of the tree.
type element struct {
	at, key, size int      // of its head, and of its key
	value, end    int      // of its value, which leaves have
	bucket        bool     // the value is one
	path          []string // the buckets that lead to it
}

// newerMeta is where the meta page is that counts.
func newerMeta(data []byte) int {
	ne, page := binary.NativeEndian, os.Getpagesize()
	if ne.Uint64(data[page+64:]) > ne.Uint64(data[64:]) {
		return page
	}
	return 0
}

// walkPages visits the pages of the tree, also those of buckets that lie within a value, and
// after each its elements.
func walkPages(data []byte, page func(at int, within bool), visit func(element)) {
	ne := binary.NativeEndian
	var walk func(at int, within bool, path []string)
	walk = func(at int, within bool, path []string) {
		page(at, within)
		for i := range int(ne.Uint16(data[at+10:])) {
			e := element{at: at + 16 + 16*i, path: path}
			if ne.Uint16(data[at+8:]) == 1 {
				e.key, e.size = e.at+int(ne.Uint32(data[e.at:])), int(ne.Uint32(data[e.at+4:]))
				visit(e)
				walk(int(ne.Uint64(data[e.at+8:]))*os.Getpagesize(), false, path)
				continue
			}
			e.key, e.size = e.at+int(ne.Uint32(data[e.at+4:])), int(ne.Uint32(data[e.at+8:]))
			e.value, e.bucket = e.key+e.size, data[e.at]&1 == 1
			e.end = e.value + int(ne.Uint32(data[e.at+12:]))
			visit(e)
			if !e.bucket {
				continue
			}
			inner := append(path[:len(path):len(path)], string(data[e.key:e.value]))
			if root := ne.Uint64(data[e.value:]); root != 0 {
				walk(int(root)*os.Getpagesize(), false, inner)
			} else {
				walk(e.value+16, true, inner)
			}
		}
	}
	walk(int(ne.Uint64(data[newerMeta(data)+32:]))*os.Getpagesize(), false, nil)
}

// marks are what is known of each byte of a file.
type marks []bool

func (m marks) set(from, n int, to bool) {
	for i := from; i < from+n; i++ {
		m[i] = to
	}
}

// bytesInUse tells which bytes of an index file mean something: those of the
// meta pages, and of pages in use the heads and elements with their keys and
// values. Free pages, tails of pages, and gaps do not.
func bytesInUse(data []byte) marks {
	ne, page := binary.NativeEndian, os.Getpagesize()
	used := make(marks, len(data))
	used.set(16, 64, true)
	used.set(page+16, 64, true)
	walkPages(data, func(at int, within bool) {
		if within {
			used.set(at+8, 4, true) // kind and count
		} else {
			used.set(at, 16, true)
		}
	}, func(e element) {
		used.set(e.at, 16, true)
		used.set(e.key, max(e.size, e.end-e.key), true)
		if e.bucket {
			used.set(e.value+8, 8, false) // a sequence, which nothing uses
			used.set(e.value+16, e.end-e.value-16, false)
		}
	})
	list := int(ne.Uint64(data[newerMeta(data)+48:])) * page
	used.set(list, 16+8*int(ne.Uint16(data[list+10:])), true)
	return used
}

// bytesOfKeys tells which bytes are keys in use, or say how long they are and where.
func bytesOfKeys(data []byte) marks {
	keys := make(marks, len(data))
	walkPages(data, func(at int, _ bool) { keys.set(at+8, 8, true) }, func(e element) {
		keys.set(e.at, 16, true)
		keys.set(e.key, e.size, true)
	})
	return keys
}

// namesIn are the bytes of the names in the frame, in generations and their codecs, and
// of the numbers of chunks.
func namesIn(data []byte) (at []int) {
	walkPages(data, func(int, bool) {}, func(e element) {
		n := len(e.path)
		if e.end > 0 && (n < 2 || n == 2 && (e.path[1] == "codec" || e.path[1] == "chunks")) {
			for b := e.key; b < e.value; b++ {
				at = append(at, b)
			}
		}
	})
	return at
}

// One bit of a byte is changed, of byte after byte.
func TestFlippedBits(t *testing.T) {
	if effort.Brief() {
		t.Skip("long, and of one goroutine")
	}
	sp := newSpecimen(t, 160)
	used := bytesInUse(sp.data)
	more, err := vectors.FromDocuments(specimenDim, index.Corpus(4, 6, specimenDim, 8))
	require.NoError(t, err)
	step, less := effort.Cases(499, 53), 7 // of bytes that mean nothing, fewer are tried
	if *everyByte {
		step = 1
	}
	var live, dead tally
	unmoved := map[string]int{}
	for at := 0; at < len(sp.data); at += step {
		if !used[at] && at/step%less != 0 {
			continue
		}
		data := slices.Clone(sp.data)
		data[at] ^= 1 << (at / step % 8)
		what := fmt.Sprintf("byte %d of page %d, %#x → %#x", at%os.Getpagesize(), at/os.Getpagesize(), sp.data[at], data[at])
		if !used[at] {
			require.Equal(t, harmless, sp.try(t, &dead, data, what+", which means nothing"))
		} else if sp.try(t, &live, data, what) == harmless {
			unmoved[what]++
		}
		if live.cases%4 == 0 { // who writes to it must fail or not, but not fall over
			if ix, err := index.Open(t.Context(), sp.path, &index.Options{Write: true}); err == nil {
				_, _, _ = ix.Delete(t.Context(), sp.ids[:2])
				_, _ = ix.Add(t.Context(), more, nil)
				_ = ix.Compact(t.Context(), nil)
				_ = ix.Close()
			}
		}
	}
	t.Logf("%d bytes, %d documents", len(sp.data), len(sp.ids))
	t.Logf("bytes that mean something: %v", &live)
	t.Logf("bytes of free pages and ends of pages: %v", &dead)
	require.Positive(t, live.cases)
	require.Positive(t, dead.cases)
	require.Less(t, live.harmless, live.cases/20, "%v", unmoved)
}

// searchAt searches a snapshot on one thread.
func searchAt(ctx context.Context, s *index.Snapshot, qs []search.Query, o search.Options) ([]search.Result, error) {
	e, err := search.NewAt(ctx, s, &search.EngineOptions{Threads: 1})
	if err != nil {
		return nil, err
	}
	results, err := e.SearchBatch(ctx, qs, o)
	return results, errors.Join(err, e.Close())
}
