package transformer

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

// listed is a device that notes the batches that it is given.
type listed struct {
	kernels.Device
	name    string
	full    error
	batches []int
	begun   chan struct{}
	going   chan struct{}
	closed  bool
}

func (d *listed) Info() kernels.DeviceInfo { return kernels.DeviceInfo{Name: d.name} }

func (d *listed) Transformer(context.Context, Config, *Weights, Options) (Model, error) {
	if d.full != nil {
		return nil, d.full
	}
	return d, nil
}

func (d *listed) About() About { return About{Device: d.Info(), Dim: 16} }
func (d *listed) Close() error { d.closed = true; return nil }

func (d *listed) Encode(_ context.Context, _ []float32, b Batch) error {
	d.batches = append(d.batches, len(b.IDs))
	if d.begun != nil {
		d.begun <- struct{}{}
		<-d.going
	}
	return nil
}

func (d *listed) EncodeHalves(ctx context.Context, _ []byte, b Batch, _ []int32) error {
	return d.Encode(ctx, nil, b)
}

// What is kept is some of the ids, in order, with room for halves of their vectors.
func TestKept(t *testing.T) {
	b := &Batch{IDs: make([]int32, 5)}
	require.NoError(t, b.CheckKept([]int32{0, 1, 4}, 3*2*16, 16))
	require.NoError(t, b.CheckKept(nil, 0, 16))
	for name, kept := range map[string][]int32{"not ascending": {1, 0, 4}, "twice": {1, 1, 4}, "beyond": {0, 1, 5}, "negative": {-1, 0, 1}, "fewer": {0, 1}} {
		require.ErrorIs(t, b.CheckKept(kept, 3*2*16, 16), ErrBatch, name)
	}
}

// A model on several devices gives a batch to the one with the least to do, and is on all
// of them or on none.
func TestSeveralDevices(t *testing.T) {
	c := Config{Hidden: 16, Heads: 1, KeyHeads: 1, HeadSize: 16, Intermediate: 16, MaxPositions: 8, LearnedPositions: true, Activation: GELU}
	good := c
	norm := Norm{Gamma: make([]float32, 16)}
	w := &Weights{Words: make([]float32, 32), Positions: make([]float32, 8*16), Norm: norm}
	a := &listed{name: "a:0", begun: make(chan struct{}), going: make(chan struct{})}
	b := &listed{name: "b:0"}
	m, err := OnDevice(t.Context(), kernels.CombineDevices(a, b), c, w, Options{})
	require.NoError(t, err)
	require.Equal(t, "a:0,b:0", m.About().Device.Name)
	done := make(chan error)
	go func() { done <- m.Encode(t.Context(), nil, Batch{IDs: make([]int32, 5)}) }()
	<-a.begun
	require.NoError(t, m.Encode(t.Context(), nil, Batch{IDs: make([]int32, 3)}))
	require.NoError(t, m.EncodeHalves(t.Context(), nil, Batch{IDs: make([]int32, 3)}, nil))
	close(a.going)
	require.NoError(t, <-done)
	require.Equal(t, []int{5}, a.batches)
	require.Equal(t, []int{3, 3}, b.batches)
	require.NoError(t, m.Close())
	require.True(t, a.closed && b.closed)

	a.closed, b.full = false, errors.New("full")
	_, err = OnDevice(t.Context(), kernels.CombineDevices(a, b), c, w, Options{})
	require.ErrorIs(t, err, b.full)
	require.True(t, a.closed)
	c.KeyHeads = 3
	_, err = OnDevice(t.Context(), a, c, w, Options{})
	require.ErrorIs(t, err, ErrConfig)
	_, err = OnDevice(t.Context(), struct{ kernels.Device }{a}, good, w, Options{})
	require.ErrorIs(t, err, kernels.ErrUnavailable)
}

// TestSincos: to more digits than a table has, as far as texts reach.
func TestSincos(t *testing.T) {
	for x := 0.0; x < 9000; x += 0.317 {
		sin, cos := sincos(x)
		wantSin, wantCos := math.Sincos(x)
		require.InDelta(t, wantSin, sin, 1e-11)
		require.InDelta(t, wantCos, cos, 1e-11)
	}
}
