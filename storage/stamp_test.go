package storage

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stamps tell states and files apart, and are the same as long as nothing changes.
func TestStamps(t *testing.T) {
	path := writeTestIndex(t)
	stamp := func() Stamp {
		f, err := Open(context.Background(), path, Options{})
		require.NoError(t, err)
		defer f.Close()
		v, err := f.View()
		require.NoError(t, err)
		defer v.Close()
		s, err := v.Stamp()
		require.NoError(t, err)
		return s
	}
	first := stamp()
	require.Equal(t, first, stamp())
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err)
	v, err := f.View()
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutNote("x", 1) }))
	older, err := v.Stamp()
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	second := stamp()
	require.NotEqual(t, first, second)
	require.NotEqual(t, older, second, "a view from before a change")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".copy", data, 0o666))
	require.NoError(t, os.Rename(path+".copy", path))
	require.NotEqual(t, second, stamp(), "a copy")
}

// The sums are those of the payloads, all of them, however many.
func TestPayloadSums(t *testing.T) {
	path := writeTestIndex(t)
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err)
	defer f.Close()
	want := map[uint32]PayloadSum{0: SumPayload(0, []byte(testDocs[0].payload)), 2: SumPayload(2, []byte(testDocs[2].payload))}
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		if err != nil {
			return err
		}
		var docs []testDoc
		for i := range uint32(2*sumsAtOnce + 3) {
			d := testDoc{id: fmt.Sprint("more", i)}
			if ordinal := s.Docs + i; i%5 != 4 {
				d.payload = fmt.Sprintf("payload %d", i/2)
				want[ordinal] = SumPayload(ordinal, []byte(d.payload))
				require.NotZero(t, want[ordinal])
			}
			docs = append(docs, d)
		}
		return putDocs(g, s, docs)
	}))
	v, err := f.View()
	require.NoError(t, err)
	defer v.Close()
	got := map[uint32]PayloadSum{}
	last := -1
	require.NoError(t, v.PayloadSums(context.Background(), 0, func(o uint32, s PayloadSum) error {
		require.Greater(t, int(o), last)
		last = int(o)
		got[o] = s
		return nil
	}))
	require.Equal(t, want, got)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, v.PayloadSums(ctx, 0, func(uint32, PayloadSum) error { return nil }), context.Canceled)
}
