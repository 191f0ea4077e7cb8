package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Every byte of every small file of a data folder, changed: the collection that it is of is
// damaged and takes nothing, and the other one goes on. (Of index files, the same is
// tested in package index.)
func TestFlippedSmallFiles(t *testing.T) {
	dir := testenv.RAMDir(t)
	most := uint64(900)
	s := openStore(t, dir, nil)
	for _, name := range []string{"good", "bad"} {
		require.NoError(t, update(declare(t, s, name, collection.Config{MaxDocuments: &most, Tokenizer: collection.TokenizerTrigram}), collection.UpdateOptions{}, randomDoc("a", 1))().err)
	}
	require.NoError(t, s.Close(t.Context()))
	var small []string
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() != indexFile && info.Size() > 0 && !strings.HasPrefix(path, filepath.Join(dir, "good")) {
			small = append(small, path)
		}
		return err
	}))
	require.Equal(t, []string{filepath.Join(dir, "bad", configFile)}, small)
	for _, path := range small {
		sound, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := range sound {
			for _, mask := range []byte{1, 0x20, 0x80} {
				flipped := append([]byte(nil), sound...)
				flipped[i] ^= mask
				require.NoError(t, os.WriteFile(path, flipped, 0o666))
				_, err := readConfig(path)
				require.ErrorIs(t, err, storage.ErrCorrupt, "byte %d, %#x: %s", i, mask, flipped)
				require.ErrorContains(t, err, path)
				if i%16 != 0 || mask != 1 { // opening a store takes its time
					continue
				}
				s, err := Open(t.Context(), dir, nil)
				require.NoError(t, err)
				bad, err := s.Get("bad")
				require.NoError(t, err)
				require.ErrorIs(t, bad.Err(), collection.ErrDamaged)
				require.ErrorIs(t, update(bad, collection.UpdateOptions{}, randomDoc("b", 1))().err, storage.ErrCorrupt)
				_, err = bad.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
				require.ErrorIs(t, err, collection.ErrDamaged)
				_, err = bad.SetMaxDocuments(t.Context(), nil)
				require.ErrorIs(t, err, collection.ErrDamaged)
				good, err := s.Get("good")
				require.NoError(t, err)
				require.NoError(t, update(good, collection.UpdateOptions{Replace: true}, randomDoc("b", uint64(i)))().err)
				require.NoError(t, s.Close(t.Context()))
			}
		}
		require.NoError(t, os.WriteFile(path, sound, 0o666))
	}
}

// The oldest documents go in the transaction of those that come for them, so that a stop
// at any moment leaves no more than may stay; and what is too much goes when the store is
// opened.
func TestEvictionIsPartOfTheUpdate(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	most := uint64(5)
	c := declare(t, s, "docs", collection.Config{MaxDocuments: &most})
	state := func() (version uint64, ids []string) {
		v, err := c.Snapshot(t.Context())
		require.NoError(t, err)
		defer v.Close()
		for _, ordinal := range all(t, v) {
			ids = append(ids, v.snap.ID(ordinal))
		}
		return v.snap.Version(), ids
	}
	put := func(ids ...string) collection.Receipt {
		var docs []collection.DocumentInput
		for _, id := range ids {
			docs = append(docs, randomDoc(id, 1))
		}
		r := update(c, collection.UpdateOptions{Replace: true}, docs...)()
		require.NoError(t, r.err)
		return r.receipt
	}
	put("a", "b", "c", "d", "e")
	for _, step := range []struct {
		put, want string
		evicted   int
	}{
		{"f g", "c d e f g", 2},
		{"c h", "e f g c h", 1}, // c is replaced, and is a new document
		{"f", "e g c h f", 0},
		{"i j k l m", "i j k l m", 5},
	} {
		before, _ := state()
		r := put(strings.Fields(step.put)...)
		after, ids := state()
		require.Equal(t, step.want, strings.Join(ids, " "))
		require.Equal(t, step.evicted, r.Evicted, step.put)
		require.Equal(t, before+1, after, "one transaction")
	}
	require.Equal(t, 2+5, put("n", "o", "p", "q", "r", "s", "t").Evicted) // more than may stay by themselves
	_, ids := state()
	require.Equal(t, "p q r s t", strings.Join(ids, " "))

	most = 3
	_, err := c.SetMaxDocuments(t.Context(), &most)
	require.NoError(t, err)
	_, ids = state()
	require.Len(t, ids, 5, "until the next update")
	require.NoError(t, s.Close(t.Context()))
	s = openStore(t, dir, nil)
	c, err = s.Get("docs")
	require.NoError(t, err)
	_, ids = state()
	require.Equal(t, "r s t", strings.Join(ids, " "))
}

// null removes a field, whatever the case of its name, and leaves no trace of it.
func TestNullRemovesAField(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	a, b, plain := randomDoc("a", 1), randomDoc("b", 1), randomDoc("plain", 1)
	a.Metadata, b.Metadata, plain.Metadata = []byte(`{"year":2019,"Old":[1],"t":"x"}`), []byte(`{"old":true}`), nil
	require.NoError(t, update(c, collection.UpdateOptions{}, a, b, plain)().err)
	n, err := c.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"a", "b", "plain"}}, map[string]json.RawMessage{"old": []byte(" null "), "new": []byte("1")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 3}, n)
	v := view(t, c)
	for i, want := range []string{`{"year":2019,"t":"x","new":1}`, `{"new":1}`, `{"new":1}`} {
		got, err := v.snap.Payload(uint32(i))
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
	n, err = c.UpdateMetadata(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "new = ?", 1)}, map[string]json.RawMessage{"NEW": []byte("null")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 3}, n)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Metadata) // that of a; the others have none any more
	n, err = c.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"a"}}, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = c.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"a"}}, map[string]json.RawMessage{"x": []byte("{")})
	require.ErrorIs(t, err, collection.ErrMetadata)
}

// A panic in the writer's goroutine fails what was asked for, and nothing else.
func TestPanicsOfTheWriter(t *testing.T) {
	boom := false
	o := Options{Committed: func(*Collection) {
		if boom {
			panic("a fault")
		}
	}, Derive: func(context.Context, string, bool, collection.Config) (Derived, error) { panic("another fault") }}
	s := openStore(t, t.TempDir(), &o)
	c := declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1))().err)
	boom = true // what hears of a change has no part in it
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err)
	require.EqualValues(t, 1, s.Panics())
	boom = false
	r := &request{kind: acting, action: func(context.Context) error { panic("a third fault") }}
	err := c.submit(t.Context(), r)
	require.ErrorIs(t, err, storage.ErrInternal)
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "a third fault")
	_, err = c.Derived(t.Context())
	require.ErrorIs(t, err, storage.ErrInternal)
	_, err = c.Derived(t.Context()) // tried again
	require.ErrorIs(t, err, storage.ErrInternal)
	require.EqualValues(t, 4, s.Panics())
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("c", 1))().err)
	require.True(t, finds(t, c, randomDoc("c", 1)))
}

// A first update that was killed leaves nothing under the name of the index.
func TestFirstBuildIsBeside(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	c := declare(t, s, "docs", collection.Config{})
	seen := make(chan []byte, 1)
	ended := make(chan struct{})
	go func() { // the file, as it is when it is first there
		defer close(seen)
		for {
			if text, err := os.ReadFile(c.indexPath()); err == nil {
				seen <- text
				return
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	var docs []collection.DocumentInput
	for i := range 500 {
		docs = append(docs, randomDoc(fmt.Sprint("d", i), 1))
	}
	require.NoError(t, update(c, collection.UpdateOptions{}, docs...)().err)
	close(ended)
	if text, ok := <-seen; ok {
		path := filepath.Join(t.TempDir(), indexFile)
		require.NoError(t, os.WriteFile(path, text, 0o666))
		ix, err := index.Open(t.Context(), path, nil)
		require.NoError(t, err, "what is under the name of the index is one")
		require.NoError(t, ix.Close())
	}
	entries, err := os.ReadDir(filepath.Join(dir, "docs"))
	require.NoError(t, err)
	for _, e := range entries {
		require.Contains(t, []string{configFile, indexFile}, e.Name())
	}
}

// passagesOf are passages of a document.
func passagesOf(t *testing.T, of string, n int) (docs []collection.DocumentInput) {
	t.Helper()
	for i := range n {
		p := vectors.Passage{ParentID: of, Number: i, Start: i, End: i + 1}
		d := randomDoc(p.ID(), 1)
		var err error
		d.Metadata, err = p.Payload([]byte(`{"word":"owl"}`))
		require.NoError(t, err)
		docs = append(docs, d)
	}
	return docs
}

// A limit counts documents: passages of one are one, and go together. What replaces a document makes
// room by that, and no other one goes for it.
func TestEvictionCountsDocuments(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	most := uint64(2)
	c := declare(t, s, "docs", collection.Config{MaxDocuments: &most})
	put := func(evicted int, want string, docs ...collection.DocumentInput) {
		t.Helper()
		r := update(c, collection.UpdateOptions{Replace: true}, docs...)()
		require.NoError(t, r.err)
		v, err := c.Snapshot(t.Context())
		require.NoError(t, err)
		defer v.Close()
		var ids []string
		for _, ordinal := range all(t, v) {
			ids = append(ids, v.snap.ID(ordinal))
		}
		require.Equal(t, want, strings.Join(ids, " "))
		require.Equal(t, evicted, r.receipt.Evicted)
	}
	put(0, "z", randomDoc("z", 1))
	put(0, "z a#0 a#1 a#2 a#3", passagesOf(t, "a", 4)...)
	put(0, "z a", randomDoc("a", 1))
	put(0, "z a#0 a#1 a#2 a#3", passagesOf(t, "a", 4)...)
	put(0, "z a#0 a#1", passagesOf(t, "a", 2)...)
	put(1, "a#0 a#1 b#0 b#1 b#2 b#3", passagesOf(t, "b", 4)...)
	put(1, "b#0 b#1 b#2 b#3 c", randomDoc("c", 1))
	put(2+2, "f#0 f#1 g", slices.Concat(passagesOf(t, "d", 3), passagesOf(t, "e", 3), passagesOf(t, "f", 2), []collection.DocumentInput{randomDoc("g", 1)})...)

	// More at first than may stay.
	fresh := declare(t, s, "fresh", collection.Config{MaxDocuments: &most})
	r := update(fresh, collection.UpdateOptions{}, slices.Concat(passagesOf(t, "a", 2), passagesOf(t, "b", 3), passagesOf(t, "c", 2))...)()
	require.NoError(t, r.err)
	require.Equal(t, 1, r.receipt.Evicted)
	st, err := fresh.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 5}, []uint64{st.Documents, st.Passages})
}

// A condition deletes the parts that it is true of, and no others with similar ids.
func TestDeletionOfOnePassage(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, passagesOf(t, "notes", 4)...)().err)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("notes#2#0", 1))().err)
	for _, replace := range []bool{false, true} { // a document called as a passage is
		o := collection.UpdateOptions{Replace: replace}
		require.ErrorIs(t, update(c, o, passagesOf(t, "notes#2", 2)...)().err, index.ErrDuplicateID)
		require.ErrorIs(t, update(c, o, randomDoc("notes#2", 1))().err, index.ErrDuplicateID)
	}
	left := func() (ids []string) {
		v := view(t, c)
		for _, ordinal := range all(t, v) {
			ids = append(ids, v.snap.ID(ordinal))
		}
		return ids
	}
	n, err := c.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "_passage.n = 2")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Passages: 1}, n)
	require.Equal(t, []string{"notes#0", "notes#1", "notes#3", "notes#2#0"}, left())

	// Now the name is free: what is called so is a document, and goes alone.
	require.NoError(t, update(c, collection.UpdateOptions{}, passagesOf(t, "other", 2)...)().err)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("notes#2", 2))().err)
	n, err = c.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "version = 2")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 1}, n)
	n, err = c.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "word = 'owl'")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 2, Passages: 5}, n)
	require.Equal(t, []string{"notes#2#0"}, left())
}

// An index in which a name is damaged is damaged. It was taken for one that was never
// built once, and the next document replaced it.
func TestDamagedNameIsNoEmptyCollection(t *testing.T) {
	dir := testenv.RAMDir(t)
	s := openStore(t, dir, nil)
	require.NoError(t, update(declare(t, s, "c", collection.Config{}), collection.UpdateOptions{}, randomDoc("a", 1), randomDoc("b", 2))().err)
	require.NoError(t, s.Close(t.Context()))
	path := filepath.Join(dir, "c", indexFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	names := 0
	for _, name := range []string{"current", "plaid", "header", "state", "chunks"} {
		for bit := range 8 * len(name) {
			data := bytes.Clone(whole)
			for at := 0; ; { // also where pages are free
				next := bytes.Index(data[at:], []byte(name))
				if next < 0 {
					break
				}
				at += next
				data[at+bit/8] ^= 1 << (bit % 8)
				at += len(name)
				names++
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
			s := openStore(t, dir, nil)
			c, err := s.Get("c")
			require.NoError(t, err)
			require.ErrorIs(t, c.Err(), collection.ErrDamaged, "%s, bit %d", name, bit)
			require.ErrorIs(t, c.Err(), storage.ErrCorrupt, "%s, bit %d", name, bit)
			require.ErrorIs(t, update(c, collection.UpdateOptions{}, randomDoc("x", 1))().err, collection.ErrDamaged)
			require.NoError(t, s.Close(t.Context()))
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, after), "%s, bit %d: the file was changed", name, bit)
		}
	}
	require.Positive(t, names)
}
