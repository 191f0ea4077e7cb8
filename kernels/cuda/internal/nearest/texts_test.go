package nearest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/vectors"
)

// wordDevice has a vector for each word and place of a text, and leaves them on the device that
// builds.
type wordDevice struct {
	building
	words   []float32
	encoded atomic.Int64 // vectors
}

func (d *wordDevice) Transformer(
	_ context.Context, _ transformer.Config, w *transformer.Weights, _ transformer.Options,
) (transformer.Model, error) {
	dim := w.Heads[len(w.Heads)-1].Out
	d.words = kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 2)), 5000, dim)
	return &wordModel{d, dim}, nil
}

type wordModel struct {
	*wordDevice
	dim int
}

func (m *wordModel) About() transformer.About {
	return transformer.About{Device: m.Info(), Precision: transformer.F16, Dim: m.dim, Tokens: 500}
}

func (m *wordModel) Encode(_ context.Context, dst []float32, b transformer.Batch) error {
	for i := range b.Texts() {
		for j := b.Offsets[i]; j < b.Offsets[i+1]; j++ {
			word, place := (int(b.IDs[j])*31+7)%5000, (int(b.IDs[j])*17+j-b.Offsets[i])%5000
			for k := range m.dim {
				dst[j*m.dim+k] = m.words[word*m.dim+k] + .3*m.words[place*m.dim+k]
			}
		}
	}
	return nil
}

func (m *wordModel) EncodeHalves(ctx context.Context, dst []byte, b transformer.Batch, kept []int32) error {
	m.encoded.Add(int64(len(kept)))
	return kerneltest.EncodeHalves(ctx, m.Encode, m.dim, dst, b, kept)
}

func (m *wordModel) NewVectors(ctx context.Context) (kernels.ResidentVectors, error) {
	v, err := resident.New(ctx, m.dev, m.dim)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (m *wordModel) EncodeResident(
	ctx context.Context, to kernels.ResidentVectors, first int, b transformer.Batch, kept []int32,
) error {
	halves := make([]byte, 2*len(kept)*m.dim)
	if err := m.EncodeHalves(ctx, halves, b, kept); err != nil {
		return err
	}
	return residenttest.WriteHalves(ctx, m.dev, to.(*resident.Vectors), first, halves)
}

func (*wordModel) Close() error { return nil }

// texts have ids and payloads; one is empty, and one longer than the model reads.
func texts(context.Context) iter.Seq2[encode.Text, error] {
	words := strings.Fields("proteins outside the cell serve as nutrients , and what a bird sings is heard . cells divide often")
	rng := rand.New(rand.NewPCG(9, 9))
	all := make([]encode.Text, 270)
	for i := range all {
		var text []string
		for range 40 + rng.IntN(60) {
			text = append(text, words[rng.IntN(len(words))])
		}
		all[i] = encode.Text{ID: fmt.Sprint("t", i), Text: strings.Join(text, " "), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	all[3].Text = ""
	all[7].Text = strings.Repeat("cells divide ", 400)
	return encode.Texts(all...)
}

// indexOfTexts builds an index of what source makes of an encoder.
func indexOfTexts(
	t *testing.T, on *wordDevice, device kernels.Device, source func(*encode.Encoder) vectors.Source,
) (*index.Contents, index.BuildReport) {
	t.Helper()
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	src := source(e)
	path := filepath.Join(t.TempDir(), "x.plaid")
	// So little memory that the sample is smaller than the collection, which has a round of its own.
	built, err := index.Build(ctx, path, src, &index.BuildOptions{Device: device, Centroids: 60, Memory: 32 << 20})
	require.NoError(t, err)
	require.NoError(t, src.Close())
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	c, err := snap.Contents(ctx, 1)
	require.NoError(t, err)
	built.Seconds = struct{ Sample, Train, Encode float64 }{}
	return c, *built
}

func openWords(t *testing.T, memory int64) (*wordDevice, *drivertest.Fake) {
	f := runtimetest.Fake(fakeKernels())
	f.Memory = memory
	return &wordDevice{building: building{dev: runtimetest.OpenFake(t, f)}}, f
}

// TestIndexOfTextsOnDevice: a device that keeps the vectors of texts builds the index that the
// processor builds of the same vectors; also where it has no room for all of them, or for nothing
// else. Each text is encoded once where there is.
func TestIndexOfTextsOnDevice(t *testing.T) {
	on, _ := openWords(t, 0)
	want, wantBuilt := indexOfTexts(t, on, nil, func(e *encode.Encoder) vectors.Source {
		s, _, err := encode.Spool(ctx, e, texts(ctx), "", nil)
		require.NoError(t, err)
		return s
	})
	require.Less(t, wantBuilt.Train.Vectors, int(wantBuilt.Tokens))
	for _, x := range []struct {
		name       string
		memory     int64
		kept, full bool
	}{{"room", 100 << 20, true, false}, {"for some", 8 << 20, false, false}, {"for nothing else", 100 << 20, true, true}} {
		t.Run(x.name, func(t *testing.T) {
			if x.name != "room" {
				effort.SkipBrief(t, "one way is enough")
			}
			on, fake := openWords(t, x.memory)
			got, built := indexOfTexts(t, on, on, func(e *encode.Encoder) vectors.Source {
				c, err := encode.NewCollection(ctx, e, texts)
				require.NoError(t, err)
				require.Equal(t, x.kept, c.Vectors() != nil)
				fake.Memory = 200 << 20
				if x.full {
					fake.Fail = func(op string) driver.Result {
						if op != "cuMemAlloc" {
							return driver.Success
						}
						fake.Fail = nil
						return driver.OutOfMemory
					}
				}
				return c
			})
			require.Equal(t, want, got)
			require.InEpsilon(t, wantBuilt.RMSE, built.RMSE, 1e-12) // a sum over batches of another size
			built.RMSE = wantBuilt.RMSE
			require.Equal(t, wantBuilt, built)
			made := on.encoded.Load()
			require.Equal(t, x.kept && !x.full, made == built.Tokens, "%d vectors were made for %d tokens", made, built.Tokens)
			require.Zero(t, on.dev.Live().Allocations)
		})
	}
}

// What is wrong with a text, or ends while texts are encoded, leaves nothing on the device.
func TestTextsThatEndLeaveNothing(t *testing.T) {
	on, _ := openWords(t, 100<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on})
	require.NoError(t, err)
	defer e.Close()
	_, err = encode.NewCollection(ctx, e, func(context.Context) iter.Seq2[encode.Text, error] {
		return encode.Texts(encode.Text{ID: "a", Text: "cells"}, encode.Text{ID: "a", Text: "divide"})
	})
	require.ErrorContains(t, err, "has this id too")
	canceled, cancel := context.WithCancel(ctx)
	_, err = encode.NewCollection(canceled, e, func(ctx context.Context) iter.Seq2[encode.Text, error] {
		return func(yield func(encode.Text, error) bool) {
			for i := 0; yield(encode.Text{ID: fmt.Sprint(i), Text: "cells divide"}, nil); i++ {
				if i == 3000 {
					cancel()
				}
			}
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, on.dev.Call(ctx, func(*runtime.Runtime) error { return nil }))
	require.Zero(t, on.dev.Live().Allocations)
}
