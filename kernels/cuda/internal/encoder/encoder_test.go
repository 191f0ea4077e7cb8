package encoder

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// TestAgainstProcessor: models of all families, with sizes that are no whole tiles and
// heads of every kind, ragged texts and such that are attended to in part, on devices with
// wide tiles and without, against the processor's float32.
func TestAgainstProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := append(kinds(), families()[5:8]...) // TestGolden and TestAnyForm have others
	switch {
	case effort.Brief():
		all = all[:1]
	case effort.Long():
		all = append(kinds(), families()...)
	}
	for i, k := range all {
		w := k.weights(3)
		b := batchOf(textOf(r, 1), textOf(r, 64), nil, textOf(r, 7), textOf(r, longest), textOf(r, 65), nil)
		for i := range b.Texts() {
			n := b.Length(i)
			b.Attended = append(b.Attended, attendedOf(i, n))
		}
		want := onProcessor(t, k.config, w, b)
		for _, hopper := range []bool{false, true} {
			if !effort.Long() && hopper != (i%2 == 1) {
				continue
			}
			m := openModel(t, k.config, w, transformer.Options{}, hopper)
			lowest := least(t, want, encodeOn(t, m, b), m.About().Dim)
			t.Logf("%s, wide tiles %v: lowest cosine 1 − %.2g", k.name, hopper, 1-lowest)
			require.Greater(t, lowest, 0.9998, k.name)
			require.Equal(t, hopper, slices.ContainsFunc(keys(m.count), func(s string) bool { return len(s) > 5 && s[:5] == "gemm_" }))
			require.Equal(t, transformer.F16, m.About().Precision)
		}
	}
}

func keys(m map[string]int) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

// TestWidest: the largest rows that the kernels take.
func TestWidest(t *testing.T) {
	if !effort.Long() {
		t.Skip("long: what is wider is refused, as TestWhatCannotBe says")
	}
	all := append(wideRows(), kinds()[0], kinds()[3])
	for i := range all[3:] {
		c := &all[3+i].config
		c.Hidden, c.Heads, c.KeyHeads, c.HeadSize, c.Intermediate = narrowColumns, 16, 16, 64, 64
	}
	for _, k := range all {
		w := k.weights(21)
		b := batchOf(textOf(rand.New(rand.NewPCG(21, 22)), 5))
		m := openModel(t, k.config, w, transformer.Options{}, true)
		require.Greater(t, least(t, onProcessor(t, k.config, w, b), encodeOn(t, m, b), m.About().Dim), 0.9998, k.name)
	}
}

// TestNormsFillTheDevice: two blocks a multiprocessor go through the rows of a large batch;
// a small one has no block without rows.
func TestNormsFillTheDevice(t *testing.T) {
	k := kinds()[0]
	all, grids := fakeKernels(), map[uint32]uint32{} // by rows
	all["encoder_norm"] = func(f *drivertest.Fake, l *driver.Launch) {
		grids[(*encoderNormParams)(l.Args).rows] = l.Grid.X
		fakeNorm(false, false)(f, l)
	}
	f := runtimetest.Fake(all)
	f.Devices[0].Multiprocessors = 16
	m, err := New(t.Context(), runtimetest.OpenFake(t, f), k.config, k.weights(23), transformer.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	for _, b := range []transformer.Batch{batchOf(make([]int32, 9)), batchOf(make([]int32, 150), make([]int32, 150))} {
		encodeOn(t, m, b)
	}
	require.Equal(t, map[uint32]uint32{32: 4, 300: 32}, grids)
}

// TestSameBits: whatever the company, the order, and how few tokens a pass may have.
func TestSameBits(t *testing.T) {
	all := []kind{kinds()[1], kinds()[4], families()[10]}
	if effort.Long() {
		all = append(all, families()...)
	}
	for _, k := range all {
		w := k.weights(5)
		w.Layers, k.config.Layers = w.Layers[:2], k.config.Layers[:2]
		large := openModel(t, k.config, w, transformer.Options{}, true)
		small := openModel(t, k.config, w, transformer.Options{Tokens: 200}, false)
		require.Equal(t, 200, small.About().Tokens)
		r := rand.New(rand.NewPCG(5, 6))
		texts := make([][]int32, 9)
		alone := make([][]float32, len(texts))
		for i := range texts {
			texts[i] = textOf(r, []int{0, 1, 5, 32, 33, 64, 65, 100, longest}[i])
			alone[i] = encodeOn(t, small, batchOf(texts[i]))
		}
		for range effort.Cases(6, 100) {
			m := []*opened{large, small}[r.IntN(2)]
			var batch [][]int32
			want := []float32{}
			for range 1 + r.IntN(6) {
				i := r.IntN(len(texts))
				batch, want = append(batch, texts[i]), append(want, alone[i]...)
			}
			require.Equal(t, want, encodeOn(t, m, batchOf(batch...)))
		}
	}
}

// TestCallsShareTheDevice: many at once, of which some end before they are answered.
func TestCallsShareTheDevice(t *testing.T) {
	k := kinds()[0]
	m := openModel(t, k.config, k.weights(7), transformer.Options{Tokens: longest}, false)
	r := rand.New(rand.NewPCG(7, 8))
	var texts [][]int32
	var want [][]float32
	for range 12 {
		texts = append(texts, textOf(r, 1+r.IntN(longest)))
		want = append(want, encodeOn(t, m, batchOf(texts[len(texts)-1])))
	}
	var all sync.WaitGroup
	for i, x := range texts {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%4 == 3 {
				cancel()
			}
			got := make([]float32, len(want[i]))
			err := m.Encode(ctx, got, batchOf(x))
			if i%4 == 3 {
				require.ErrorIs(t, err, context.Canceled)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want[i], got)
		})
	}
	all.Wait()
}

// TestGraphs: a small pass is launched one by one at first, then as a graph, and has the
// same bits; one of the same size class needs no further graph.
func TestGraphs(t *testing.T) {
	k := kinds()[3]
	m := openModel(t, k.config, k.weights(9), transformer.Options{}, true)
	r := rand.New(rand.NewPCG(9, 10))
	query := textOf(r, 32)
	first := encodeOn(t, m, batchOf(query))
	require.Zero(t, m.dev.Live().Graphs)
	for range 3 {
		require.Equal(t, first, encodeOn(t, m, batchOf(query)))
		require.Equal(t, 1, m.dev.Live().Graphs)
	}
	other := textOf(r, 20) // the same class: filled up with a text that is nobody's
	a, b := encodeOn(t, m, batchOf(other)), encodeOn(t, m, batchOf(other, query))
	require.Equal(t, a, b[:len(a)])
	require.Equal(t, first, b[len(a):])
	encodeOn(t, m, batchOf(other))
	require.Equal(t, 2, m.dev.Live().Graphs)

	// A driver that makes no graphs is given launches.
	m = openModel(t, k.config, k.weights(9), transformer.Options{}, true)
	m.fake.Fail = func(op string) driver.Result {
		if op == "cuGraphInstantiate" {
			return driver.InvalidValue
		}
		return driver.Success
	}
	for range 3 {
		require.Equal(t, first, encodeOn(t, m, batchOf(query)))
	}
	m.fake.Fail = nil
	require.Zero(t, m.dev.Live().Graphs)
}

// TestWhatCannotBe: batches that are none, and models that a device does not run.
func TestWhatCannotBe(t *testing.T) {
	k := kinds()[0]
	w := k.weights(11)
	m := openModel(t, k.config, w, transformer.Options{}, false)
	dim := m.About().Dim
	for name, b := range map[string]transformer.Batch{
		"an id beyond the vocabulary": batchOf([]int32{1, words}),
		"a negative id":               batchOf([]int32{-1}),
		"a text that is too long":     batchOf(make([]int32, longest+1)),
		"nothing attended to":         {IDs: []int32{1}, Offsets: []int{0, 1}, Attended: []int{0}},
		"offsets of others":           {IDs: []int32{1}, Offsets: []int{0, 2}},
	} {
		err := m.Encode(t.Context(), make([]float32, len(b.IDs)*dim), b)
		require.ErrorIs(t, err, transformer.ErrBatch, name)
	}
	require.ErrorIs(t, m.Encode(t.Context(), make([]float32, dim+1), batchOf([]int32{1})), transformer.ErrBatch)
	require.NoError(t, m.Encode(t.Context(), nil, batchOf(nil, nil)))
	few := openModel(t, k.config, w, transformer.Options{Tokens: 100}, false)
	err := few.Encode(t.Context(), make([]float32, 101*dim), batchOf(make([]int32, 101)))
	require.ErrorIs(t, err, transformer.ErrBatch)

	for _, wrong := range []struct {
		hidden, embedding, size int
		says                    string
	}{
		{64, 0, 272, "heads of 272 dimensions; on a device they have up to 256"},
		{maxColumns + 16, 0, 64, "a hidden size of 2576; on a device there are rows of up to 2560 values"},
		{64, maxColumns + 16, 64, "a hidden size of 2576; on a device there are rows of up to 2560 values"},
	} {
		c := k.config
		c.Hidden, c.Embedding, c.Heads, c.KeyHeads, c.HeadSize = wrong.hidden, wrong.embedding, 1, 1, wrong.size
		_, err = New(t.Context(), m.dev, c, random(&c, words, 1), transformer.Options{})
		require.ErrorIs(t, err, transformer.ErrConfig)
		require.ErrorContains(t, err, wrong.says)
	}

	w.Layers[1].Up.Weight[3] = 70000
	_, err = New(t.Context(), m.dev, k.config, w, transformer.Options{})
	require.ErrorIs(t, err, transformer.ErrWeights)
	require.ErrorContains(t, err, "layer 1 up has 70000")
}

// openNotFinite opens a model that makes no finite vectors of texts with the id 7, and gives
// a text without it.
func openNotFinite(t *testing.T, seed uint64) (m *opened, good []int32) {
	k := kinds()[3]
	w := k.weights(seed)
	k.config.Epsilon = 0
	for j := range k.config.Hidden { // without variance, nothing is its norm
		w.Words[7*k.config.Hidden+j] = 1
	}
	good = textOf(rand.New(rand.NewPCG(seed, 14)), 40)
	for i := range good {
		good[i] = good[i]%7 + 8
	}
	return openModel(t, k.config, w, transformer.Options{}, false), good
}

// TestNotFinite: the text of such a token fails, others in its company do not.
func TestNotFinite(t *testing.T) {
	m, good := openNotFinite(t, 13)
	want := encodeOn(t, m, batchOf(good))
	var requests []*request
	for i := range 5 {
		text := slices.Clone(good)
		if i == 1 || i == 3 {
			text[30] = 7
		}
		b := batchOf(text)
		requests = append(requests, &request{model: m.model, batch: &b, dst: make([]float32, len(want))})
	}
	var errs []error
	for i := range requests { // each by itself, then all in one pass
		errs = append(errs, m.Encode(t.Context(), make([]float32, len(want)), *requests[i].batch))
	}
	err := doAll(t, m, requests)
	require.ErrorIs(t, err, transformer.ErrNotFinite)
	for i, x := range requests {
		require.Equal(t, errs[i] != nil, x.failed, i)
		require.Equal(t, i == 1 || i == 3, x.failed, i)
		if !x.failed {
			require.Equal(t, want, x.dst, i)
		}
	}
	require.ErrorContains(t, errs[1], "token ")
}

// TestMemory: as many tokens as there is room for, and an error that says what is missing.
func TestMemory(t *testing.T) {
	k := kinds()[0]
	w := k.weights(15)
	m := openModel(t, k.config, w, transformer.Options{}, false)
	a := m.About()
	require.Equal(t, defaultTokens, a.Tokens)
	require.Equal(t, a.Weights+a.Batches, m.weights.Bytes+m.workspace.Bytes)
	limit := a.Weights + a.Batches/4
	tight := openModel(t, k.config, w, transformer.Options{Memory: limit}, false)
	b := tight.About()
	require.Less(t, b.Tokens, a.Tokens)
	require.LessOrEqual(t, b.Weights+b.Batches, limit)
	require.Greater(t, 3*(b.Weights+b.Batches), limit)

	_, err := New(t.Context(), m.dev, k.config, w, transformer.Options{Memory: a.Weights})
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.ErrorContains(t, err, "bytes of weights and ")
}

// TestEveryCallOfTheDriverMayFail: nothing is left, and the error says what failed.
func TestEveryCallOfTheDriverMayFail(t *testing.T) {
	k := kinds()[1]
	w := k.weights(17)
	w.Layers, k.config.Layers = w.Layers[:1], k.config.Layers[:1]
	r := rand.New(rand.NewPCG(17, 18))
	b := batchOf(textOf(r, 150), textOf(r, 100), textOf(r, 90))
	for _, op := range []string{"cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuMemGetInfo", "cuStreamSynchronize"} {
		f := runtimetest.Fake(fakeKernels())
		d := runtimetest.OpenFake(t, f)
		after := runtimetest.FailAt(f, op)
		_, err := New(t.Context(), d, k.config, w, transformer.Options{})
		after()
		require.ErrorIs(t, err, driver.ErrOutOfMemory, op)
		require.Zero(t, d.Live().Allocations, op)
		require.Zero(t, d.Live().HostAllocations, op)
	}
	m := openModel(t, k.config, w, transformer.Options{Tokens: longest}, false)
	m.graphsUnsupported = true // what fails while one is made is tried again without
	want := encodeOn(t, m, b)
	for _, op := range []string{"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel", "cuEventRecord", "cuEventSynchronize", "cuStreamWaitEvent"} {
		after := runtimetest.FailAt(m.fake, op)
		err := m.Encode(t.Context(), make([]float32, len(want)), b)
		left := after()
		require.ErrorIs(t, err, driver.ErrOutOfMemory, op)
		require.Contains(t, left, "cuStreamSynchronize", op) // the device is waited for
		require.Equal(t, want, encodeOn(t, m, b), op)
		kept := []int32{3, 200}
		after = runtimetest.FailAt(m.fake, op)
		require.ErrorIs(t, m.EncodeHalves(t.Context(), make([]byte, 4*m.About().Dim), b, kept), driver.ErrOutOfMemory, op)
		after()
	}
	m.fake.Fail = func(op string) driver.Result {
		if op == "cuLaunchKernel" {
			return driver.IllegalAddress
		}
		return driver.Success
	}
	err := m.Encode(t.Context(), make([]float32, len(want)), b)
	require.ErrorIs(t, err, driver.ErrDeviceLost)
	m.fake.Fail = nil
	require.ErrorIs(t, m.Encode(t.Context(), make([]float32, len(want)), b), driver.ErrDeviceLost)
}

// TestClose: of the model, of the device below it, twice, and with a context that ended.
func TestClose(t *testing.T) {
	k := kinds()[0]
	w := k.weights(19)
	m := openModel(t, k.config, w, transformer.Options{}, false)
	b, dst := batchOf([]int32{1, 2}), make([]float32, 2*m.About().Dim)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.ErrorContains(t, m.Encode(ended, dst, b), "enough")
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Encode(t.Context(), dst, b), kernels.ErrDeviceClosed)
	require.Zero(t, m.dev.Live().Bytes)

	m = openModel(t, k.config, w, transformer.Options{}, false)
	require.NoError(t, m.dev.Close())
	require.ErrorIs(t, m.Encode(t.Context(), dst, b), kernels.ErrDeviceClosed)
	require.NoError(t, m.Close())

	f := runtimetest.Fake(fakeKernels())
	d := runtimetest.OpenFake(t, f)
	_, err := New(ended, d, k.config, w, transformer.Options{})
	require.Error(t, err)
	require.Zero(t, d.Live().Bytes)
}

// TestLayout: every value of a matrix has a place of its own within its tiles.
func TestLayout(t *testing.T) {
	seen := map[int]bool{}
	for r := range 128 {
		for c := range 192 {
			at := tiledOffset(r, c, 192)
			require.False(t, seen[at] || at%2 != 0 || at >= 2*128*192)
			seen[at] = true
		}
	}
	second, row := interleaved(16*3 + 8 + 5)
	require.True(t, second)
	require.Equal(t, 8*3+5, row)
	_, ok := halfFromFloat(65520)
	require.False(t, ok)
	_, ok = halfFromFloat(float32(math.Inf(1)))
	require.False(t, ok)
}
