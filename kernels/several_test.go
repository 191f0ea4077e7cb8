package kernels_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
)

// memory is a corpus of one chunk, cut in several.
type memory struct {
	codec  *kernels.Codec
	chunks []*kernels.Chunk
	firsts []uint32
	live   []uint64
}

func newMemory(cs *kerneltest.Case, cuts ...int) *memory {
	m := &memory{codec: cs.Codec, live: make([]uint64, (cs.Chunk.Docs()+63)/64)}
	ch, row := cs.Chunk, cs.Codec.RowBytes()
	cuts = append(cuts, ch.Docs())
	from := 0
	for _, to := range cuts {
		lo, hi := int(ch.Offsets[from]), int(ch.Offsets[to])
		c := &kernels.Chunk{
			CodeBytes: ch.CodeBytes, Codes: ch.Codes[lo*ch.CodeBytes : hi*ch.CodeBytes],
			Factors: ch.Factors[2*lo : 2*hi], Residuals: ch.Residuals[lo*row : hi*row],
		}
		for d := from; d <= to; d++ {
			c.Offsets = append(c.Offsets, ch.Offsets[d]-ch.Offsets[from])
			if d < to && ch.Offsets[d] < ch.Offsets[d+1] {
				m.live[d/64] |= 1 << (d % 64)
			}
		}
		m.chunks, m.firsts = append(m.chunks, c), append(m.firsts, uint32(from))
		from = to
	}
	return m
}

func (m *memory) Codec() *kernels.Codec              { return m.codec }
func (m *memory) Lineage() uint64                    { return 1 }
func (m *memory) Chunks() int                        { return len(m.chunks) }
func (m *memory) ChunkDocs(i int) (uint32, []uint32) { return m.firsts[i], m.chunks[i].Offsets }
func (m *memory) Load(i int) (*kernels.Chunk, error) { return m.chunks[i], nil }
func (m *memory) Guard(read func() error) error      { return read() }
func (m *memory) LiveSet() ([]uint64, int)           { return m.live, len(m.live) }

func lengths(rng *rand.Rand, n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = rng.IntN(4)
	}
	return l
}

// Several devices find what one finds.
func TestSeveralDevicesFindWhatOneFinds(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 1))
		docs := rapid.SampledFrom([]int{1, 255, 256, 257, 700, 1500}).Draw(t, "docs")
		cs := kerneltest.New(kerneltest.Config{Dim: 16, K: 8, CodeBytes: 2, Lengths: lengths(rng, docs), Seed: seed})
		c := newMemory(cs, rng.IntN(docs+1))
		for range docs / 5 {
			d := rng.IntN(docs)
			c.live[d/64] &^= 1 << (d % 64)
		}
		var parts []kernels.Device
		for range rapid.IntRange(2, 4).Draw(t, "devices") {
			parts = append(parts, &kerneltest.Device{})
		}
		several := kernels.CombineDevices(parts...)
		one, err := (&kerneltest.Device{}).Attach(ctx, c, kernels.AttachOptions{})
		require.NoError(t, err)
		all, err := several.Attach(ctx, c, kernels.AttachOptions{})
		require.NoError(t, err)
		require.True(t, all.Plan().Resident)
		var qs []kernels.DeviceQuery
		for range rapid.IntRange(1, 5).Draw(t, "queries") {
			q := kernels.DeviceQuery{Vectors: cs.Query(3), K: rapid.SampledFrom([]int{1, 10, 2000}).Draw(t, "k")}
			switch rng.IntN(3) {
			case 0:
				q.Allowed = make([]uint64, len(c.live))
				for i := range q.Allowed {
					q.Allowed[i] = c.live[i] & rng.Uint64()
				}
			case 1:
				q.Docs = []uint32{}
				for d := range docs {
					if rng.IntN(7) == 0 {
						q.Docs = append(q.Docs, uint32(d))
					}
				}
			}
			qs = append(qs, q)
		}
		want, err := one.Search(ctx, c, qs)
		require.NoError(t, err)
		got, err := all.Search(ctx, c, qs)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, append([]uint32{}, want[i].Docs...), append([]uint32{}, got[i].Docs...), "query %d", i)
			require.Equal(t, append([]float32{}, want[i].Scores...), append([]float32{}, got[i].Scores...), "query %d", i)
			require.EqualValues(t, 1, got[i].Stats.Searches)
		}
		require.NoError(t, all.Close())
		require.NoError(t, several.Close())
	})
}

// The error of one device is that of the search, and what it brings upon the
// others does not hide it.
func TestOneOfSeveralDevicesFails(t *testing.T) {
	ctx := context.Background()
	cs := kerneltest.New(kerneltest.Config{Dim: 16, K: 8, CodeBytes: 2, Lengths: lengths(rand.New(rand.NewPCG(1, 1)), 900)})
	c := newMemory(cs)
	broken := errors.New("broken")
	bad := &kerneltest.Device{}
	d := kernels.CombineDevices(&kerneltest.Device{}, bad)
	a, err := d.Attach(ctx, c, kernels.AttachOptions{})
	require.NoError(t, err)
	none, err := a.Search(ctx, c, nil)
	require.NoError(t, err)
	require.Empty(t, none)
	bad.FailWith = func() error { return broken }
	_, err = a.Search(ctx, c, []kernels.DeviceQuery{{Vectors: cs.Query(2), K: 3}, {Vectors: cs.Query(2), K: 3}})
	require.ErrorIs(t, err, broken)
	_, err = d.Attach(ctx, c, kernels.AttachOptions{})
	require.ErrorIs(t, err, broken)
	require.NoError(t, a.Close())
}

// numbered is a kind of device, of which two are there.
type numbered struct{ opened, closed *[]int }

type numberedDevice struct {
	kerneltest.Device
	kind   numbered
	number int
}

func (d *numberedDevice) Info() kernels.DeviceInfo {
	return kernels.DeviceInfo{Name: fmt.Sprintf("numbered:%d", d.number), Model: "oracle", Memory: 10, Multiprocessors: 1}
}
func (d *numberedDevice) Close() error { *d.kind.closed = append(*d.kind.closed, d.number); return nil }

func (numbered) Kind() string { return "numbered" }
func (n numbered) Devices() ([]kernels.DeviceInfo, error) {
	return []kernels.DeviceInfo{{Name: "numbered:0"}, {Name: "numbered:1"}}, nil
}
func (n numbered) Open(_ context.Context, ordinal int) (kernels.Device, error) {
	if ordinal > 1 {
		return nil, errors.New("there are two")
	}
	*n.opened = append(*n.opened, ordinal)
	return &numberedDevice{kind: n, number: ordinal}, nil
}

func TestNamesOfSeveralDevices(t *testing.T) {
	ctx := context.Background()
	var opened, closed []int
	kernels.RegisterDevices(numbered{&opened, &closed})
	for name, want := range map[string]string{
		"numbered:1": "numbered:1", "numbered:0,numbered:1": "numbered:0,numbered:1", "numbered:all": "numbered:0,numbered:1",
		"numbered:1,numbered:0": "numbered:1,numbered:0",
	} {
		opened, closed = nil, nil
		d, _, err := kernels.OpenDevice(ctx, name)
		require.NoError(t, err, name)
		require.Equal(t, want, d.Info().Name)
		require.EqualValues(t, 10*len(opened), d.Info().Memory)
		require.NoError(t, d.Close())
		require.ElementsMatch(t, opened, closed)
	}
	for _, name := range []string{
		"numbered:0,numbered:2", "numbered:0,numbered:0", "numbered:0,", ",", "nothing:all", "numbered:0,cpu", "numbered:all,numbered:1", "numbered:0,nothing:0",
	} {
		opened, closed = nil, nil
		_, _, err := kernels.OpenDevice(ctx, name)
		require.ErrorIs(t, err, kernels.ErrUnavailable, name)
		require.ElementsMatch(t, opened, closed, "%s: what was opened is closed", name)
	}
}
