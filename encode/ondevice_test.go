package encode

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/native/nativetest"
	"github.com/plaid-ir/plaid/vectors"
)

// Of texts that go into a spool or a build a device gives halves, of what is kept alone, with
// the bits that a spool makes of float32. Where whole numbers are wanted, or are put together
// first, it gives those.
func TestHalvesOfDevices(t *testing.T) {
	d := &nativetest.Device{Tokens: 700}
	docs := append(load(t, "scifact-sample").docs[:12:12], Text{ID: "empty"}, Text{ID: "dots", Text: ". , !"}, Text{ID: "last", Text: "cells, divide!"})
	open := func(o Options) *Encoder { return open(t, nano(t), &o) }
	onProcessor, onDevice := open(Options{Threads: 2}), open(Options{Threads: 2, On: d})
	spooled := func(e *Encoder, o *SpoolOptions) (all []vectors.Document, vectors int64) {
		s, r, err := Spool(t.Context(), e, Texts(docs...), "", o)
		require.NoError(t, err)
		defer s.Close()
		for doc, err := range s.Docs(t.Context(), 0, s.Len()) {
			require.NoError(t, err)
			doc.Tokens = slices.Clone(doc.Tokens)
			all = append(all, doc)
		}
		return all, r.Vectors
	}
	left := func() [2]int64 { return [2]int64{d.Floats.Swap(0), d.Halves.Swap(0)} }
	want, kept := spooled(onProcessor, nil)
	got, _ := spooled(onDevice, nil)
	require.Equal(t, want, got)
	require.Equal(t, [2]int64{0, kept}, left())

	c, err := NewCollection(t.Context(), onDevice, again(docs))
	require.NoError(t, err)
	i := 0
	for doc, err := range c.Docs(t.Context(), 0, c.Len()) {
		require.NoError(t, err)
		require.Equal(t, want[i].ID, doc.ID)
		require.Equal(t, append([]float32{}, want[i].Tokens...), append([]float32{}, doc.Tokens...))
		i++
	}
	require.Equal(t, [2]int64{0, kept}, left())

	for name, x := range map[string]struct {
		o     Options
		spool *SpoolOptions
	}{"whole numbers": {Options{}, &SpoolOptions{Float32: true}}, "pooled": {Options{Pool: 2}, nil}} {
		x.o.Threads = 2
		want, _ := spooled(open(x.o), x.spool)
		x.o.On = d
		got, _ := spooled(open(x.o), x.spool)
		require.Equal(t, want, got, name)
		n := left()
		require.Zero(t, n[1], name)
		require.Greater(t, n[0], kept, name)
	}
	_, err = onDevice.Query(t.Context(), "do cells divide?")
	require.NoError(t, err)
	for _, err := range onDevice.Documents(t.Context(), Texts(docs...)) {
		require.NoError(t, err)
	}
	require.Zero(t, left()[1])
}
