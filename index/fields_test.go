package index

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// yearly are documents with a year each.
func yearly(prefix string, n int) []vectors.Document {
	docs := make([]vectors.Document, n)
	for i := range docs {
		docs[i] = vectors.Document{
			ID: fmt.Sprint(prefix, i), Tokens: corpusTokens(1+i%3, 4),
			Payload: fmt.Appendf(nil, `{"year": %d, "title": "%s %d"}`, 1990+i%30, longText, i),
		}
	}
	return docs
}

func changeState(t tb, ix *Index, fn func(*storage.Generation, *storage.State) error) {
	t.Helper()
	s := taken(t, ix)
	defer s.Close()
	require.NoError(t, ix.afterChange(ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(s.Generation())
		if err != nil {
			return err
		}
		state := s.State()
		if err := fn(g, &state); err != nil {
			return err
		}
		return g.PutState(state)
	})))
}

// Changes of single documents leave few runs.
func TestRunsStayFew(t *testing.T) {
	path := newPath(t)
	build(t, path, 4, yearly("d", 20), nil)
	ix := writing(t, path)
	for i := range 60 {
		if i%3 == 0 {
			_, _, err := ix.SetPayload(context.Background(), map[string][]byte{fmt.Sprint("d", i/3): []byte(`{"year": 2}`)})
			require.NoError(t, err)
		} else {
			add(t, ix, 4, vectors.Document{ID: fmt.Sprint("e", i), Tokens: corpusTokens(1, 4), Payload: []byte(`{"year": 1}`)})
		}
		s := taken(t, ix)
		runs := s.State().FieldRuns
		for j := 1; j < len(runs); j++ {
			require.Greater(t, runs[j-1].Docs, 2*runs[j].Docs, "%+v", runs)
		}
		require.LessOrEqual(t, len(runs), 1+bits.Len32(s.State().Docs))
		require.NoError(t, s.Verify(context.Background()))
		require.NoError(t, s.Close())
	}
	s := taken(t, ix)
	defer s.Close()
	docs, err := s.Select(t.Context(), where(t, "year <= 2"))
	require.NoError(t, err)
	require.EqualValues(t, 60, docs.GetCardinality())
}

// What conditions need of an index is made once between two changes.
func TestSelectorIsKeptInThePicture(t *testing.T) {
	path := newPath(t)
	build(t, path, 4, yearly("d", 20), nil)
	ix := writing(t, path)
	selector := func() *metadata.Selector {
		t.Helper()
		s := taken(t, ix)
		defer s.Close()
		_, err := s.Select(context.Background(), where(t, "year = 1990"))
		require.NoError(t, err)
		m, err := s.state.selector()
		require.NoError(t, err)
		return m
	}
	first := selector()
	require.Same(t, first, selector())
	add(t, ix, 4, yearly("e", 1)...)
	require.NotSame(t, first, selector())
}

// Conditions take true for 1, and a text for the array that it looks like; runs know better.
func TestVerifyFindsWrongForms(t *testing.T) {
	docs := yearly("d", 3)
	payloads := []string{`{"a": true, "b": "[1]"}`, `{"a": 1, "b": "[1]"}`, `{"a": true, "b": [1]}`}
	for i := range docs {
		docs[i].Payload = []byte(payloads[i])
	}
	path := newPath(t)
	build(t, path, 4, docs, nil)
	ix := writing(t, path)
	for ordinal, damaged := range []string{`{"a": 1, "b": "[1]"}`, `{"a": true, "b": "[1]"}`, `{"a": true, "b": "[1]"}`} {
		put := func(payload string) {
			changeState(t, ix, func(g *storage.Generation, _ *storage.State) error {
				return g.PutPayload(uint32(ordinal), []byte(payload))
			})
		}
		put(damaged)
		require.ErrorContains(t, ix.Verify(context.Background()), "field "+[]string{"a", "a", "b"}[ordinal]+" does not follow from the payloads")
		put(payloads[ordinal])
		require.NoError(t, ix.Verify(context.Background()))
	}
}

func TestVerifyFindsWrongRuns(t *testing.T) {
	ctx := context.Background()
	docs := yearly("d", 10)
	for name, damage := range map[string]func(g *storage.Generation, s *storage.State) error{
		"does not follow from the payloads": func(g *storage.Generation, s *storage.State) error { // and the run is none the wiser
			return g.PutPayload(3, []byte(`{"year": 3, "title": ""}`))
		},
		"has not the 3 values": func(g *storage.Generation, s *storage.State) error {
			return g.PutField(0, []byte("more"), nil)
		},
		"field run 0 is missing": func(g *storage.Generation, s *storage.State) error { return g.DeleteFieldRun(0) },
		"malformed field data": func(g *storage.Generation, s *storage.State) error {
			return g.PutField(0, []byte("fyear"), []byte("x"))
		},
	} {
		path := newPath(t)
		build(t, path, 4, docs, nil)
		ix := writing(t, path)
		require.NoError(t, ix.Verify(ctx))
		changeState(t, ix, damage)
		err := ix.Verify(ctx)
		require.ErrorIs(t, err, storage.ErrCorrupt, name)
		if name != "field run 0 is missing" { // storage sees it first
			require.ErrorContains(t, err, name)
		}
		_, err = ix.BackupTo(ctx, path+".copy", nil)
		require.ErrorIs(t, err, storage.ErrCorrupt, name)
		require.NoFileExists(t, path+".copy")
		_, err = ix.Backup(ctx, io.Discard, nil)
		require.ErrorIs(t, err, storage.ErrCorrupt, name)
		if name == "malformed field data" || name == "field run 0 is missing" {
			s, err := ix.Snapshot()
			require.NoError(t, err, "what is derived is not needed to search")
			_, err = s.Select(ctx, where(t, "year = 1990"))
			require.ErrorIs(t, err, storage.ErrCorrupt)
			require.ErrorContains(t, err, name)
			require.NoError(t, s.Close())
		}
	}
}

// A document that no run covers is a fault, and so is a run that the state does not name.
func TestDocumentsWithoutRun(t *testing.T) {
	path := newPath(t)
	build(t, path, 4, yearly("d", 10), nil)
	ix := writing(t, path)
	changeState(t, ix, func(_ *storage.Generation, s *storage.State) error {
		s.FieldRuns = nil
		return nil
	})
	s := taken(t, ix)
	defer s.Close()
	_, err := s.Select(context.Background(), where(t, "year = 1990"))
	require.ErrorIs(t, err, storage.ErrCorrupt)
	require.ErrorContains(t, err, "10 documents are in no run")
	require.ErrorContains(t, s.Verify(context.Background()), "field run 0 is not one of the state")
}

// A failed addition leaves no run.
func TestStagedRunsAreSwept(t *testing.T) {
	small(t)
	path := newPath(t)
	docs := yearly("d", 10)
	build(t, path, 4, docs, nil)
	ix := writing(t, path)
	before := digestOfIndex(t, ix)
	src := &fakeSource{dim: 4, docs: yearly("e", 60), visit: func(i int) error {
		if i == 59 {
			return fmt.Errorf("the source ends")
		}
		return nil
	}}
	_, err := ix.Add(context.Background(), src, &AddOptions{Memory: 32 << 20})
	require.ErrorContains(t, err, "the source ends")
	require.Equal(t, before, digestOfIndex(t, ix))
	s := taken(t, ix)
	require.Greater(t, len(s.State().FieldRuns), 1, "a build of little memory makes several")
	requireIndex(t, s, docs)
	require.NoError(t, s.Close())
}

// What has got another payload is remembered for a while, by the number of changes.
func TestPayloadsChanged(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	build(t, path, 4, yearly("d", 10), nil)
	ix := writing(t, path)
	set := func(ids ...string) {
		payloads := map[string][]byte{}
		for _, id := range ids {
			payloads[id] = []byte(`{"year": 1}`)
		}
		_, _, err := ix.SetPayload(ctx, payloads)
		require.NoError(t, err)
	}
	changed := func(since uint64) ([]uint32, bool) {
		s := taken(t, ix)
		defer s.Close()
		docs, known := s.PayloadsChanged(since)
		if !known {
			return nil, false
		}
		return docs.ToArray(), true
	}
	set("d3", "d1")
	set("d1", "d7")
	docs, known := changed(0)
	require.True(t, known)
	require.Equal(t, []uint32{1, 3, 7}, docs)
	docs, known = changed(1)
	require.True(t, known)
	require.Equal(t, []uint32{1, 7}, docs)
	docs, known = changed(2)
	require.True(t, known)
	require.Empty(t, docs)
	_, known = changed(3)
	require.False(t, known, "it has not been yet")
	for range maxLoggedChanges {
		ix.payloadLog.add(ix.payloadLog.changes[len(ix.payloadLog.changes)-1].updates+1, []uint32{0})
	}
	require.Len(t, ix.payloadLog.changes, maxLoggedChanges)
	require.EqualValues(t, maxLoggedChanges, ix.payloadLog.docs)
	require.NoError(t, ix.Close())
	ix = writing(t, path)
	set("d2")
	_, known = changed(0)
	require.False(t, known, "another handle made the changes before")
	docs, known = changed(2)
	require.True(t, known)
	require.Equal(t, []uint32{2}, docs)
}
