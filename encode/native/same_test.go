package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// mixed returns texts of many lengths, empty ones among them, and of how many
// tokens each attends to.
func mixed(rng *rand.Rand, vocab int, lengths ...int) (texts [][]int32, attended []int) {
	for _, n := range lengths {
		x := make([]int32, n)
		for i := range x {
			x[i] = rng.Int32N(int32(vocab))
		}
		texts = append(texts, x)
		attended = append(attended, n-rng.IntN(min(n, 8)+1)*min(1, n/9))
	}
	return texts, attended
}

func requireSame(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Fail(t, "other bits", "%s: value %d is %v, not %v", fmt.Sprintf(format, args...), i, got[i], want[i])
		}
	}
}

// TestSameBits: every tier gives the bits of plain Go, and a text those that it
// has alone, in any company and order, on one goroutine or many.
func TestSameBits(t *testing.T) {
	for name, k := range sameModels() {
		for _, p := range []Precision{F32, Int8} {
			t.Run(fmt.Sprintf("%s, %v", name, p), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 4))
				c := &k.config
				c.Layers = c.Layers[:effort.Cases(2, 3)] // with global and with local attention
				w := k.weights(Dense{In: c.Hidden, Out: 40, Linear: Linear{Weight: tensor("head", 0.25, 0, 40, c.Hidden)}})
				lengths := []int{5, 0, 1, 33, 170, 8, 64, 49, 3}
				if effort.Long() {
					lengths = append(lengths, 600, 331, 16)
				}
				texts, attended := mixed(rng, 90, lengths...)
				attended[4], attended[6] = 2, 20 // last tokens reach none of these in a window
				b := batchOf(texts...)
				b.Attended = attended
				want := encode(t, newModel(t, *c, w, Options{Tier: "generic", Precision: p}), b)
				for _, tier := range Tiers()[1:] {
					m := newModel(t, *c, w, Options{Tier: tier, Precision: p})
					requireSame(t, want, encode(t, m, b), "%s", tier)
					var group sync.WaitGroup
					for range effort.Cases(2, 3) {
						order := rng.Perm(len(texts))
						group.Go(func() { requireCompany(t, m, texts, attended, order, want) })
					}
					group.Wait()
					for i, x := range texts {
						alone := batchOf(x)
						alone.Attended = attended[i : i+1]
						requireSame(t, want[b.Offsets[i]*m.dim:b.Offsets[i+1]*m.dim], encode(t, m, alone), "%s, text %d alone", tier, i)
					}
				}
			})
		}
	}
}

// requireCompany encodes texts in another order, in batches of two sizes.
func requireCompany(t *testing.T, m *Model, texts [][]int32, attended, order []int, want []float32) {
	offsets := []int{0}
	for _, x := range texts {
		offsets = append(offsets, offsets[len(offsets)-1]+len(x))
	}
	for _, size := range []int{len(order), 2} {
		for part := range slices.Chunk(order, size) {
			var these [][]int32
			var lengths []int
			for _, i := range part {
				these, lengths = append(these, texts[i]), append(lengths, attended[i])
			}
			b := batchOf(these...)
			b.Attended = lengths
			dst := make([]float32, len(b.IDs)*m.dim)
			if err := m.Encode(context.Background(), dst, b); err != nil {
				t.Error(err)
				return
			}
			for k, i := range part {
				x, y := want[offsets[i]*m.dim:offsets[i+1]*m.dim], dst[b.Offsets[k]*m.dim:b.Offsets[k+1]*m.dim]
				for j := range x {
					if math.Float32bits(x[j]) != math.Float32bits(y[j]) {
						t.Errorf("%s: text %d in batches of %d: value %d is %v, not %v", m.Tier(), i, size, j, y[j], x[j])
						return
					}
				}
			}
		}
	}
}

// TestBitsOfRecord: the bits are those of other architectures, too.
func TestBitsOfRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	texts, _ := mixed(rng, 50, 9, 64, 30)
	check := func(name string, c Config, w *Weights, precision Precision, want uint64) {
		h := fnv.New64a()
		for _, v := range encode(t, newModel(t, c, w, Options{Precision: precision}), batchOf(texts...)) {
			binary.Write(h, binary.LittleEndian, v)
		}
		require.Equal(t, want, h.Sum64(), "%s, %v: %#x", name, precision, h.Sum64())
	}
	for _, r := range []struct {
		modern    bool
		precision Precision
		want      uint64
	}{
		{false, F32, 0xa6640b965b47533a}, {false, Int8, 0xf7d8a0a4ace2ab65},
		{true, F32, 0x470a90bc4a0c89f}, {true, Int8, 0x55941645f8b060b3},
	} {
		c, w := tiny(r.modern)
		check(fmt.Sprintf("modern %v", r.modern), c, w, r.precision, r.want)
	}
	models := sameModels()
	for _, r := range []struct {
		name      string
		f32, int8 uint64
	}{
		{"eurobert", 0xb9b2eb3a6dd6f30c, 0xfcf8c2a20857da6b},
		{"electra", 0x1c1d3e3a8d2b9230, 0x5c6de54ff2c06dd6},
		{"mpnet", 0xae0187048095bae7, 0xc858a26125df2c94},
		{"gemma", 0x2346bf47d0aad34c, 0xc4d6b4ac6a6c01f7},
		{"gemma, causal", 0xedbe03e2ca91bd33, 0xcc1dbbd735539d49},
		{"lfm2", 0xd3ae3e1ca5803caa, 0xa1763f6110ca09b1},
		{"lfm2.5", 0x2a9a9aa7e1fa954, 0xaabf61ff0cf4873d},
		{"no family", 0xf2fffc99cf33431d, 0xacf180b4877069eb},
	} {
		m := models[r.name]
		check(r.name, m.config, m.weights(), F32, r.f32)
		check(r.name, m.config, m.weights(), Int8, r.int8)
	}
}

func TestBadBatch(t *testing.T) {
	c, w := tiny(true)
	m := newModel(t, c, w, Options{})
	ids := func(n int) []int32 { return make([]int32, n) }
	for name, b := range map[string]engine.Batch{
		"no offsets":     {IDs: ids(3)},
		"offsets short":  {IDs: ids(3), Offsets: []int{0, 2}},
		"first offset":   {IDs: ids(3), Offsets: []int{1, 3}},
		"backwards":      {IDs: ids(3), Offsets: []int{0, 5, 3}},
		"too long":       {IDs: ids(65), Offsets: []int{0, 65}},
		"unknown id":     {IDs: []int32{0, 50}, Offsets: []int{0, 2}},
		"negative id":    {IDs: []int32{0, -1}, Offsets: []int{0, 2}},
		"attends none":   {IDs: ids(3), Offsets: []int{0, 3}, Attended: []int{0}},
		"attends more":   {IDs: ids(3), Offsets: []int{0, 3}, Attended: []int{4}},
		"attended count": {IDs: ids(3), Offsets: []int{0, 3}, Attended: []int{1, 1}},
	} {
		err := m.Encode(t.Context(), make([]float32, len(b.IDs)*m.Dim()), b)
		require.ErrorIs(t, err, engine.ErrBatch, name)
	}
	require.ErrorIs(t, m.Encode(t.Context(), make([]float32, 7), batchOf(ids(3))), engine.ErrBatch)
	require.NoError(t, m.Encode(t.Context(), nil, batchOf()))
	require.NoError(t, m.Encode(t.Context(), nil, batchOf(nil, nil)))
}

func TestCancelled(t *testing.T) {
	c, w := tiny(false)
	m := newModel(t, c, w, Options{})
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	b := batchOf(make([]int32, 5))
	require.ErrorIs(t, m.Encode(ctx, make([]float32, 5*m.Dim()), b), stop)
}

func TestBadModel(t *testing.T) {
	change := func(modern bool, edit func(*Config, *Weights)) error {
		c, w := tiny(modern)
		edit(&c, w)
		_, err := New(c, w, Options{})
		return err
	}
	require.NoError(t, change(false, func(*Config, *Weights) {}))
	for name, edit := range map[string]func(c *Config, w *Weights){
		"norm":         func(c *Config, _ *Weights) { c.Norm = 5 },
		"heads":        func(c *Config, _ *Weights) { c.KeyHeads = 3 },
		"head size":    func(c *Config, _ *Weights) { c.HeadSize = 24 },
		"intermediate": func(c *Config, _ *Weights) { c.Intermediate = 40 },
		"positions":    func(c *Config, _ *Weights) { c.MaxPositions = 0 },
		"window":       func(c *Config, _ *Weights) { c.Layers[1].Before = -2 },
		"theta":        func(c *Config, _ *Weights) { c.Layers[1].Theta = .5 },
		"epsilon":      func(c *Config, _ *Weights) { c.Epsilon = float32(math.NaN()) },
		"activation":   func(_ *Config, w *Weights) { w.Heads[0].Activation = 9 },
	} {
		require.ErrorIs(t, change(true, edit), ErrConfig, name)
	}
	for name, edit := range map[string]func(c *Config, w *Weights){
		"words":         func(_ *Config, w *Weights) { w.Words = w.Words[1:] },
		"no words":      func(_ *Config, w *Weights) { w.Words = nil },
		"positions":     func(c *Config, _ *Weights) { c.PositionOffset = 3 },
		"types":         func(_ *Config, w *Weights) { w.Types = w.Types[:5] },
		"missing norm":  func(_ *Config, w *Weights) { w.Layers[0].AttentionNorm = Norm{} },
		"query":         func(_ *Config, w *Weights) { w.Layers[2].Query.Weight = w.Heads[0].Weight },
		"bias":          func(_ *Config, w *Weights) { w.Layers[2].Up.Bias = w.Layers[2].Down.Bias },
		"not finite":    func(_ *Config, w *Weights) { w.Layers[1].Down.Weight[7] = float32(math.Inf(1)) },
		"head sizes":    func(_ *Config, w *Weights) { w.Heads = w.Heads[1:] },
		"head weight":   func(_ *Config, w *Weights) { w.Heads[2].Out = 41 },
		"rms with beta": func(c *Config, _ *Weights) { c.Norm = transformer.RMSNorm },
		"head residual": func(_ *Config, w *Weights) { w.Heads[1].Residual = true },
	} {
		require.ErrorIs(t, change(false, edit), ErrWeights, name)
	}
	require.ErrorIs(t, change(true, func(_ *Config, w *Weights) { w.Layers[1].AttentionNorm = Norm{} }), ErrWeights)
	c, w := tiny(false)
	_, err := New(c, w, Options{Tier: "mmx"})
	require.ErrorIs(t, err, kernels.ErrUnavailable)
	_, err = New(c, w, Options{Precision: 7})
	require.ErrorIs(t, err, ErrConfig)
	t.Setenv(kernels.EnvCPU, "sse")
	_, err = New(c, w, Options{})
	require.ErrorIs(t, err, kernels.ErrUnavailable)
}

// TestNotFinite: weights so large that vectors overflow are an error that says where.
func TestNotFinite(t *testing.T) {
	c, w := tiny(false)
	for i := range w.Heads[2].Weight {
		w.Heads[2].Weight[i] = math.MaxFloat32
	}
	m := newModel(t, c, w, Options{})
	err := m.Encode(t.Context(), make([]float32, 3*m.Dim()), batchOf(make([]int32, 3)))
	require.ErrorIs(t, err, engine.ErrNotFinite)
	require.ErrorContains(t, err, "token 0")
}

// TestAfterNotFinite: nothing of a batch that failed is left in the memory of
// the next one.
func TestAfterNotFinite(t *testing.T) {
	for _, modern := range []bool{false, true} {
		c, w := tiny(modern)
		for j := range c.Hidden {
			w.Words[c.Hidden+j] = math.MaxFloat32
		}
		rng := rand.New(rand.NewPCG(7, 7))
		texts, _ := mixed(rng, 50, 13, 30, 5)
		bad := slices.Repeat([]int32{1}, 60)
		for i, x := range texts {
			for j, id := range x {
				texts[i][j] = max(id, 2)
			}
		}
		for _, p := range []Precision{F32, Int8} {
			m := newModel(t, c, w, Options{Precision: p})
			want := encode(t, m, batchOf(texts...))
			sc := new(scratch)
			m.pool.New = func() any { return sc } // whether the pool keeps it or not
			for range 2 {
				require.ErrorIs(t, m.Encode(t.Context(), make([]float32, 60*m.Dim()), batchOf(bad)), engine.ErrNotFinite)
				requireSame(t, want, encode(t, m, batchOf(texts...)), "modern %v, %v", modern, p)
			}
		}
	}
}
