package dense

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// gpuInPlace is the first GPU; see runtimetest.OpenGPU.
func gpuInPlace(t testing.TB) *inPlace {
	b := New(runtimetest.OpenGPU(t))
	api, err := driver.Load()
	require.NoError(t, err)
	infos, err := driver.Devices(api)
	require.NoError(t, err)
	d, err := NewDevice(api, infos[0], os.DirFS("../../module"))
	require.NoError(t, err)
	return besideBackend(t, d, b)
}

func TestGPUInPlaceSuite(t *testing.T) {
	x := gpuInPlace(t)
	for x.shift = range 2 {
		t.Run(fmt.Sprintf("shift=%d", x.shift), func(t *testing.T) {
			maxsimtest.Run(t, x,
				maxsimtest.Options{Brief: x.shift == 1})
		})
	}
}

func TestGPUInPlaceInPieces(t *testing.T) {
	x := gpuInPlace(t)
	x.d.limits = callLimits{docs: 60_000, part: 10_000, segment: 16}
	maxsimtest.Run(t, x, maxsimtest.Options{MaxDim: 300})
}

func TestGPUInPlaceCapture(t *testing.T) { checkCapture(t, gpuInPlace(t)) }

func TestGPUInPlaceHead(t *testing.T) { checkHeads(t, gpuInPlace(t)) }

// Every kernel of sm_90a by the shapes that it is chosen for, with documents that end before, at
// and after the end of a tile, packed, with lengths, and with masks that have holes.
func TestGPUInPlaceKernels(t *testing.T) {
	x := gpuInPlace(t)
	docs := []int{0, 1, 63, 64, 65, 16, 17, 129, 5, 200}
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16, maxsim.I8, maxsim.E4M3} {
		for _, dim := range []int{20, 32, 64, 96, 128, 256} {
			rng := maxsimtest.Rand(uint64(dim))
			for i, queries := range [][]int{{32}, {7}, {64, 1}, {128}, {32, 5, 0, 70, 16, 17},
				{20, 20, 20, 20, 20, 20, 20, 20, 20, 20}} {
				masked := []float64{0, 0.5}[i/2%2]
				q := maxsimtest.Side{Type: kind, Lengths: queries, Padded: i%2 == 0, Masked: masked, Unit: dim == 128}.Batch(rng,
					dim)
				d := maxsimtest.Side{Type: kind, Lengths: docs, Padded: i%3 == 0 || masked > 0, Masked: masked,
					Unit: dim == 128}.Batch(rng, dim)
				c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: i%2 == dim/32%2})
				maxsimtest.Check(t, x, c, maxsimtest.Options{})
				c.Argmax = nil
				maxsimtest.Check(t, x, c, maxsimtest.Options{})
				list := make([]int32, 4*len(queries))
				for i := range list {
					list[i] = int32(rng.IntN(len(docs)))
				}
				maxsimtest.Check(t, x, maxsimtest.NewCall(q, d, maxsim.Candidates(4, list), maxsim.Terms{}), maxsimtest.Options{})
				if t.Failed() {
					t.Fatalf("%s, d %d, queries %v", kind, dim, queries)
				}
			}
		}
	}
}

// BenchmarkGPUInPlace times the shapes of docs/dense.md, with nothing in the cache: the work of a
// call on the device, and what the host needs for it. Forms: padded, with lengths (all
// of them full), with a mask with holes, packed.
func BenchmarkGPUInPlace(b *testing.B) {
	x := gpuInPlace(b)
	all := append([]forwardRow{{maxsim.F16, 128, equal(1, 32), equal(100, 300)},
		{maxsim.F16, 128, equal(1, 32), equal(1, 100_000)}}, forwardRows()...)
	slices.SortStableFunc(all, func(a, b forwardRow) int { return int(a.kind)*10000 + a.dim - int(b.kind)*10000 - b.dim })
	var data, scales, lengths, mask, offsets, scores, argmax, workspace driver.Mem
	last := [2]int{}
	alloc := func(m *driver.Mem, bytes int) error {
		if m.Bytes >= int64(bytes) {
			return nil
		}
		_ = x.d.rt.Driver.Free(*m)
		var err error
		*m, err = x.d.rt.Driver.Alloc(int64(bytes))
		return err
	}
	put := func(m *driver.Mem, bytes []byte) {
		require.NoError(b, alloc(m, len(bytes)))
		require.NoError(b, x.d.rt.Driver.ToDevice(m.Ptr, bytes, x.stream))
	}
	require.NoError(b, x.d.onStream(uint64(x.stream.Handle()), func() error {
		for _, c := range all {
			if at := [2]int{int(c.kind), c.dim}; at != last {
				last = at
				const rows = 1 << 16
				few := randomBatch(c.kind, c.dim, equal(1, rows))
				size := rows * c.dim * c.kind.Size()
				n := (3_000_000/rows + 2) * rows
				require.NoError(b, alloc(&data, n*c.dim*c.kind.Size()))
				require.NoError(b, alloc(&scales, 4*n))
				for i := range n / rows {
					require.NoError(b, x.d.rt.Driver.ToDevice(data.At(int64(i*size)), elementBytes(&few.Tokens), x.stream))
					if few.Tokens.Scales != nil {
						require.NoError(b, x.d.rt.Driver.ToDevice(scales.At(int64(i*4*rows)), runtime.Bytes(few.Tokens.Scales), x.stream))
					}
				}
				require.NoError(b, x.d.rt.Driver.Sync(x.stream))
			}
			longest := slices.Max(c.d)
			q := Batch{Data: uint64(data.Ptr), Type: c.kind, Dim: c.dim, Items: len(c.q), Rows: total(c.q), Stride: c.q[0],
				Longest: c.q[0]}
			d := Batch{Data: uint64(data.Ptr), Type: c.kind, Dim: c.dim, Items: len(c.d), Rows: total(c.d), Stride: longest,
				Longest: longest}
			if c.kind == maxsim.I8 || c.kind == maxsim.E4M3 {
				q.Scales, d.Scales = uint64(scales.Ptr), uint64(scales.Ptr)
			}
			put(&offsets, int32s(append([]int{0}, sums(c.d)...)))
			put(&lengths, int32s(equal(len(c.d), longest)))
			holes := make([]byte, len(c.d)*longest)
			for i := range holes {
				holes[i] = byte(i % 7)
			}
			put(&mask, holes)
			require.NoError(b, alloc(&scores, 4*len(c.q)*len(c.d)))
			require.NoError(b, alloc(&argmax, 4*len(c.q)*len(c.d)*c.q[0]))
			line := fmt.Sprintf("%s d%d %dx%d,%dx%d:", c.kind, c.dim, len(c.q), c.q[0], len(c.d), longest)
			ragged := total(c.d) != len(c.d)*c.d[0]
			for _, form := range []string{"padded", "lengths", "mask", "packed", "argmax"} {
				if ragged != (form == "packed") && (ragged || c.kind != maxsim.F16 && form != "padded") {
					continue
				}
				call := &ScoreCall{Q: q, D: d, Scores: uint64(scores.Ptr), Place: Place{Stream: uint64(x.stream.Handle())}}
				switch form {
				case "lengths":
					call.D.Lengths = uint64(lengths.Ptr)
				case "mask":
					call.D.Mask, call.D.MaskStride = uint64(mask.Ptr), longest
				case "packed":
					call.D.Offsets = uint64(offsets.Ptr)
				case "argmax":
					call.Argmax = uint64(argmax.Ptr)
				}
				var bytes int64
				require.NoError(b, x.unlocked(func() (err error) { bytes, err = x.d.ScoreWorkspace(call); return err }))
				require.NoError(b, alloc(&workspace, int(bytes)))
				call.Place.Workspace, call.Place.WorkspaceBytes = uint64(workspace.Ptr), bytes
				score := func() error { return x.unlocked(func() error { return x.d.Score(call) }) }
				begin := time.Now()
				require.NoError(b, score())
				first := time.Since(begin)
				x.d.rt.Stream = x.stream
				time.Sleep(100 * time.Millisecond) // a device that is warm is slower
				ms := timed(b, x.d.rt, score)
				line += fmt.Sprintf(" %s %.4f ms (first %d us, %.1f MiB", form, ms, first.Microseconds(), float64(bytes)/(1<<20))
				if ms < 0.03 { // more would warm the device for what follows
					var host []time.Duration
					for range 20 {
						require.NoError(b, x.d.rt.Driver.Sync(x.stream))
						begin := time.Now()
						for range 10 {
							require.NoError(b, score())
						}
						host = append(host, time.Since(begin)/10)
					}
					slices.Sort(host)
					line += fmt.Sprintf(", host %.1f us", host[10].Seconds()*1e6)
				}
				line += ")"
			}
			b.Log(line)
		}
		for _, m := range []driver.Mem{data, scales, lengths, mask, offsets, scores, argmax, workspace} {
			_ = x.d.rt.Driver.Free(m)
		}
		return nil
	}))
}

// BenchmarkGPUInPlaceHead times heads, with nothing in the cache.
func BenchmarkGPUInPlaceHead(b *testing.B) {
	x := gpuInPlace(b)
	for _, c := range []struct {
		kind                      maxsim.Type
		hidden, dim, nq, nd, rows int
		masked                    bool // a mask without holes
	}{
		{maxsim.F16, 768, 128, 1, 1000, 300, false}, {maxsim.F16, 768, 128, 1, 32, 1024, false},
		{maxsim.F16, 384, 96, 1, 1000, 300, false}, {maxsim.F16, 1024, 128, 1, 1000, 300, false},
		{maxsim.F16, 768, 128, 16, 1000, 300, false}, {maxsim.F32, 768, 128, 1, 1000, 300, false},
		{maxsim.F16, 768, 128, 1, 1000, 300, true}, {maxsim.F16, 768, 128, 1, 32, 1024, true},
	} {
		few := randomBatch(c.kind, c.hidden, equal(1, 4096)).Tokens
		require.NoError(b, x.with(func(dc *driver.Context, s driver.Stream) error {
			n := c.nd*c.rows + 4096
			data := x.alloc(n * c.hidden * c.kind.Size())
			for at := 0; at+4096 <= n; at += 4096 {
				require.NoError(b, dc.ToDevice(data.Add(int64(at*c.hidden*c.kind.Size())), elementBytes(&few), s))
			}
			q := randomBatch(maxsim.F16, c.dim, equal(c.nq, 32)).Tokens
			call := &HeadCall{
				Q: Batch{Data: x.bytes(elementBytes(&q), 0), Type: maxsim.F16, Dim: c.dim, Items: c.nq, Rows: 32 * c.nq,
					Stride: 32, Longest: 32},
				D: Batch{Data: uint64(data), Type: c.kind, Dim: c.hidden, Items: c.nd, Rows: c.nd * c.rows,
					Stride: c.rows, Longest: c.rows},
				Normalize: true, Head: uint64(data), HeadType: c.kind, Scores: uint64(x.alloc(4 * c.nq * c.nd)),
				Place: Place{Stream: uint64(s.Handle())},
			}
			if c.masked {
				call.D.Mask, call.D.MaskStride = x.bytes(slices.Repeat([]byte{1}, c.nd*c.rows), 0), c.rows
			}
			var bytes int64
			require.NoError(b, x.unlocked(func() (err error) { bytes, err = x.d.ScoreHeadWorkspace(call); return err }))
			call.Place.Workspace, call.Place.WorkspaceBytes = uint64(x.alloc(int(bytes))), bytes
			x.d.rt.Stream = s
			ms := timed(b, x.d.rt, func() error { return x.unlocked(func() error { return x.d.ScoreHead(call) }) })
			b.Logf("%s %d -> %d: %d x 32, %d x %d, mask %t: %.4f ms, %.1f MiB", c.kind, c.hidden, c.dim, c.nq, c.nd, c.rows,
				c.masked, ms, float64(bytes)/(1<<20))
			return nil
		}))
	}
}

// sums are the sums of the first lengths.
func sums(l []int) []int {
	s, sum := make([]int, len(l)), 0
	for i, n := range l {
		sum += n
		s[i] = sum
	}
	return s
}
