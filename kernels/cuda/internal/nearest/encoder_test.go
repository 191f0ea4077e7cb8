package nearest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/vectors"
)

// scaleRows is the kernel, on the arrays of plaid.cuh.
func scaleRows(f *drivertest.Fake, l *driver.Launch) {
	p := (*scaleParams)(l.Args)
	n, dim := int(p.n), int(p.dim)
	if p.rows > 32 || l.Grid.X*p.rows < p.n || int(l.Shared) < 4*dim*int(p.rows|1) {
		panic("the launch does not fit its rows")
	}
	numbers := drivertest.Slice[uint32](f, p.numbers, n)
	row := make([]float32, dim)
	for i := range n {
		from := i
		if numbers != nil {
			from = int(numbers[i])
		}
		if p.half != 0 {
			for j, h := range drivertest.Slice[uint16](f, p.in+driver.Ptr(2*from*dim), dim) {
				row[j] = kernels.F16ToF32(h)
			}
		} else {
			copy(row, drivertest.Slice[float32](f, p.in+driver.Ptr(4*from*dim), dim))
		}
		by := 1.0
		if square := codec.SquaredNorm(row); p.unit != 0 && square > 0 {
			by = 1 / math.Sqrt(square)
		}
		if p.unit != 0 {
			codec.Normalize(row, dim)
		}
		if p.by != 0 {
			drivertest.Slice[float64](f, p.by+driver.Ptr(8*i), 1)[0] = by
		}
		if p.squares != 0 {
			drivertest.Slice[float64](f, p.squares+driver.Ptr(8*i), 1)[0] = codec.SquaredNorm(row)
		}
		if p.x != 0 {
			copy(drivertest.Slice[float32](f, p.x+driver.Ptr(4*i*dim), dim), row)
		}
	}
}

// encodeTokens is the kernel: package codec says what it computes. It sees to it that
// the launch has a thread and memory for each row.
func encodeTokens(f *drivertest.Fake, l *driver.Launch) {
	p := (*encodeParams)(l.Args)
	n, k, dim, rb := int(p.n), int(p.k), int(p.dim), int(p.rowBytes)
	if rows := p.rows; rows > 32 || rows&(rows-1) != 0 || l.Grid.X*rows < p.n || (l.Grid.X-1)*rows >= p.n ||
		int(l.Shared) < 13*dim*int(rows|1)+4*dim || l.Block.X != 288 {
		panic("the launch does not fit its rows")
	}
	centroids := drivertest.Slice[float32](f, p.centroids, k*dim)
	q, err := codec.New(kernels.Codec{
		Centroids: kernels.Centroids{K: k, Dim: dim, Type: kernels.F32, Data: runtime.Bytes(centroids)},
		Codebook:  kernels.Codebook{Nbits: int(p.nbits), Step: p.step}, FactorMax: p.factorMax,
		DimScale:      drivertest.Slice[float32](f, p.dimScale, dim*given(p.dimScale)),
		CentroidScale: drivertest.Slice[float32](f, p.centroidScale, k*given(p.centroidScale)),
	})
	if err != nil {
		panic(err)
	}
	cpu, _ := kernels.Select("")
	codes := drivertest.Slice[uint32](f, p.codes, n)
	for i, code := range codes {
		if int(code) >= k {
			continue
		}
		var b codec.Block
		row := drivertest.Slice[float32](f, p.x+driver.Ptr(4*i*dim), dim)
		if err := q.Encode(ctx, &b, row, 1, cpu); err != nil {
			panic(err)
		}
		copy(drivertest.Slice[byte](f, p.residuals+driver.Ptr(i*rb), rb), b.Residuals)
		drivertest.Slice[uint16](f, p.factors+driver.Ptr(2*i), 1)[0] = binary.LittleEndian.Uint16(b.Factors)
		off := b.SumSq
		if b.Clamped > 0 {
			off = math.Copysign(off, -1)
		}
		drivertest.Slice[float64](f, p.errors+driver.Ptr(8*i), 1)[0] = off
	}
}

func given(p driver.Ptr) int { return min(int(p), 1) }

// sample is a codec of uniform levels and vectors for it, some of zeros, some far from
// every centroid, with a largest factor that some exceed.
func sample(rng *rand.Rand, dim, nbits, k, n int) (*codec.Quantizer, []float32) {
	centroids := kerneltest.UnitVectors(rng, k, dim)
	data := make([]byte, 0, 2*len(centroids))
	for _, v := range centroids {
		data = binary.LittleEndian.AppendUint16(data, kernels.BF16FromF32(v))
	}
	scales := func(n int) (s []float32) {
		for range n * rng.IntN(2) {
			s = append(s, float32(math.Exp(rng.NormFloat64()/2)))
		}
		return s
	}
	q, err := codec.New(kernels.Codec{
		Centroids: kernels.Centroids{K: k, Dim: dim, Type: kernels.BF16, Data: data},
		Codebook:  kernels.Codebook{Nbits: nbits, Step: float32(1.5 / math.Sqrt(float64(dim)) / float64(int(1)<<nbits))},
		DimScale:  scales(dim), CentroidScale: scales(k), FactorMax: []float32{0.7, 1.5, 8}[rng.IntN(3)],
	})
	if err != nil {
		panic(err)
	}
	x := make([]float32, n*dim)
	for i := range n {
		row, c, sign := x[i*dim:(i+1)*dim], centroids[rng.IntN(k)*dim:], float32(1)
		noise := math.Exp(rng.NormFloat64()-1) / math.Sqrt(float64(dim))
		switch rng.IntN(10) {
		case 0:
			continue
		case 1:
			sign = -1
		case 2:
			noise = 0
		}
		length := float32(math.Exp(rng.NormFloat64()))
		for j := range row {
			row[j] = length * (sign*c[j] + float32(noise*rng.NormFloat64()))
		}
	}
	return q, x
}

// requireSameTokens demands of a device the bits of the processor.
func requireSameTokens(t *testing.T, d *runtime.Device, rng *rand.Rand, dim, nbits, k, n int) {
	t.Helper()
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	q, x := sample(rng, dim, nbits, k, n)
	for _, unit := range []bool{false, true} {
		e, err := q.NewEncoder(ctx, 0, cpu, unit)
		require.NoError(t, err)
		var want codec.Block
		require.NoError(t, e.Encode(ctx, &want, append([]float32(nil), x...)))
		e.Close()
		e, err = q.NewEncoder(ctx, 0, NewBuilder(d, cpu), unit)
		require.NoError(t, err)
		var got codec.Block
		require.NoError(t, e.Encode(ctx, &got, append([]float32(nil), x...)))
		e.Close()
		require.Equal(t, want.Codes, got.Codes, "dimension %d, %d bits, K %d, unit %v", dim, nbits, k, unit)
		require.Equal(t, want.Factors, got.Factors, "dimension %d, %d bits, K %d, unit %v", dim, nbits, k, unit)
		require.Equal(t, want.Residuals, got.Residuals, "dimension %d, %d bits, K %d, unit %v", dim, nbits, k, unit)
		require.Equal(t, want.SumSq, got.SumSq)
		require.Equal(t, [3]int{want.Tokens, want.Clamped, want.Zero}, [3]int{got.Tokens, got.Clamped, got.Zero})
	}
}

// What is encoded on a device has the bits of the processor, whichever kernels are
// launched, and wherever the vectors are cut.
func TestTokensOnDevice(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels()))
	rng := rand.New(rand.NewPCG(1, 8))
	for _, dim := range []int{1, 16, 100, 128, 200} {
		requireSameTokens(t, d, rng, dim, []int{1, 2, 4, 8}[rng.IntN(4)], 40, 150)
	}
	requireSameTokens(t, d, rng, 2, 2, 3, maxRows+5)
}

// building is a device for builds alone.
type building struct {
	kernels.Device
	dev *runtime.Device
}

func (b building) Info() kernels.DeviceInfo                    { return b.dev.Info() }
func (b building) Builder(cpu kernels.Backend) kernels.Builder { return NewBuilder(b.dev, cpu) }

// requireSameIndex demands that an index that is built on a device has the content, training included, of one from the processor.
func requireSameIndex(t *testing.T, d *runtime.Device, dim, docs, length int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(dim)))
	topics := kerneltest.UnitVectors(rng, 50, dim)
	var all []vectors.Document
	for i := range docs {
		tokens := kerneltest.UnitVectors(rng, rng.IntN(2*length), dim)
		for j := 0; j < len(tokens); j += dim {
			for k, v := range topics[rng.IntN(50)*dim:][:dim] {
				tokens[j+k] = kernels.F16ToF32(kernels.F16FromF32(0.7*tokens[j+k] + v))
			}
		}
		if i%37 == 0 {
			clear(tokens[:min(dim, len(tokens))]) // padding
		}
		all = append(all, vectors.Document{ID: strconv.Itoa(i), Tokens: tokens})
	}
	src, err := vectors.FromDocuments(dim, all)
	require.NoError(t, err)
	content := func(device kernels.Device) (*index.Contents, index.BuildReport) {
		path := filepath.Join(t.TempDir(), "x.plaid")
		built, err := index.Build(ctx, path, src, &index.BuildOptions{Device: device})
		require.NoError(t, err)
		ix, err := index.Open(ctx, path, nil)
		require.NoError(t, err)
		defer ix.Close()
		snap, err := ix.Snapshot()
		require.NoError(t, err)
		defer snap.Close()
		c, err := snap.Contents(ctx, 1)
		require.NoError(t, err)
		return c, *built
	}
	want, wantBuilt := content(nil)
	got, built := content(building{dev: d})
	require.Equal(t, want, got)
	wantBuilt.Seconds, built.Seconds = struct{ Sample, Train, Encode float64 }{}, struct{ Sample, Train, Encode float64 }{}
	require.Equal(t, wantBuilt, built)
	require.Positive(t, built.Zero)
}

func TestSameIndexOnDevice(t *testing.T) {
	requireSameIndex(t, runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels())), 32, 300, 10)
}

// Calls of several goroutines share launches, and each has its own rows.
func TestTokensOfSeveralCalls(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels()))
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	q, x := sample(rand.New(rand.NewPCG(3, 8)), 32, 2, 20, 400)
	var whole codec.Block
	require.NoError(t, q.Encode(ctx, &whole, x, 1, cpu))
	e, release, err := NewBuilder(d, cpu).(kernels.EncoderPreparer).PrepareEncoder(ctx, q.Kernel(), q.Centroids(), false)
	require.NoError(t, err)
	defer release()
	var wg sync.WaitGroup
	for lo := 0; lo < 400; lo += 40 {
		wg.Go(func() {
			got := kernels.EncodedTokens{
				Codes: make([]uint32, 40), Residuals: make([]byte, 40*q.RowBytes()), Factors: make([]int16, 40), Errors: make([]float64, 40),
			}
			if err := e.EncodeTokens(ctx, got, x[lo*32:(lo+40)*32]); err != nil {
				t.Error(err)
			}
			if string(got.Residuals) != string(whole.Residuals[lo*q.RowBytes():(lo+40)*q.RowBytes()]) ||
				string(runtime.Bytes(got.Factors)) != string(whole.Factors[2*lo:2*(lo+40)]) {
				t.Errorf("rows from %d on are another's", lo)
			}
		})
	}
	wg.Wait()
}

// Rows that the device cannot encode are the processor's.
func TestTokensBeyondHalfPrecision(t *testing.T) {
	fakes := fakeKernels()
	fakes["nearest_exact"] = func(f *drivertest.Fake, l *driver.Launch) {
		nearestRows(f, l)
		p := (*nearestParams)(l.Args)
		for i, code := range drivertest.Slice[uint32](f, p.codes, int(p.n)) {
			if code%3 == 1 {
				drivertest.Slice[uint32](f, p.codes, int(p.n))[i] = math.MaxUint32
			}
		}
	}
	d := runtimetest.OpenFake(t, runtimetest.Fake(fakes))
	requireSameTokens(t, d, rand.New(rand.NewPCG(4, 8)), 64, 2, 30, 200)
}

func TestEveryCallOfAnEncoderFailsInTurn(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	q, x := sample(rand.New(rand.NewPCG(5, 8)), 64, 2, 30, 20)
	failInTurn(t, 15, func(d *runtime.Device) error {
		e, err := q.NewEncoder(ctx, 1, NewBuilder(d, cpu), true)
		if err != nil {
			return err
		}
		defer e.Close()
		var b codec.Block
		return e.Encode(ctx, &b, x)
	})
}

// Rows and memory of a block fit every device, whatever the dimension.
func TestBlocksOfRowsFit(t *testing.T) {
	for dim := 1; dim <= kernels.MaxDim; dim++ {
		rows, pitch := blockRows(dim)
		require.LessOrEqual(t, 13*dim*pitch+4*dim+3500, 99<<10, "dimension %d", dim)
		require.Positive(t, rows)
	}
	require.EqualValues(t, 96, unsafe.Sizeof(encodeParams{}))
}

// A codec that a device cannot encode with is not asked of it.
func TestOtherCodecsStayWithTheProcessor(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels()))
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	flat, err := codec.NewFlat(8)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(6, 8))
	centroids := make([]float32, 16)
	for i := range centroids {
		centroids[i] = float32(rng.IntN(3) - 1)
	}
	table, _, err := codec.FromTable(centroids, kernels.F16, 8, 1, nil, []float32{-0.1, 0.2})
	require.NoError(t, err)
	x := kerneltest.UnitVectors(rng, 30, 8)
	for _, q := range []*codec.Quantizer{flat, table} {
		var want, got codec.Block
		require.NoError(t, q.Encode(ctx, &want, x, 1, cpu))
		require.NoError(t, q.Encode(ctx, &got, x, 1, NewBuilder(d, cpu)))
		require.Equal(t, want.Residuals, got.Residuals)
		require.Equal(t, want.Factors, got.Factors)
	}
}
