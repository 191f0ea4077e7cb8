//go:build amd64 && !purego

package avx512

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// maxLevels is MaxLevels in plain Go.
func maxLevels(best [][32]float32, ranges [][2]uint32, query []byte, nbits, parts int, scores []float32, codes []byte, codeBytes, rowBytes int,
	residuals, factors []byte, scales []float32, stride, n int, mid, unit *[32]float32, words [][8]uint64, step *[32]float32) {
	quads := (rowBytes + 3) / 4
	for i, r := range ranges {
		for t := int(r[0]); t < int(r[1]); t++ {
			code := int(binary.LittleEndian.Uint16(codes[2*t*codeBytes/2:]))
			a := float32(1)
			if scales != nil {
				a = scales[code]
			}
			factor := float32(int16(binary.LittleEndian.Uint16(factors[2*t:])))
			for s := range n {
				var sum int32
				for p, b := range residuals[t*rowBytes : (t+1)*rowBytes] {
					for f := range 8 / nbits {
						at := ((f*quads+p/4)*parts*32+s)*4 + p%4
						q := int32(int8(query[at]))
						if parts == 2 {
							q = q<<8 + int32(int8(query[at+128]))
						}
						sum += q * int32(b>>(f*nbits)&(1<<nbits-1))
					}
				}
				v := float32(mid[s] + float32(unit[s]*float32(sum)))
				var score float32
				if words != nil {
					score = float32(step[s] * float32(int32(words[code][s/4]>>(s%4*16)&0xffff)-32768))
				} else {
					score = scores[code*stride+s]
				}
				v = float32(factor * (score + float32(a*v)))
				best[i][s] = max(best[i][s], v)
			}
		}
	}
}

func TestMaxLevels(t *testing.T) {
	if !Supported() {
		t.Skip("no VNNI")
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 200 {
		nbits, parts := 1<<(i%4), 1+i/4%2
		rowBytes := []int{1, 2, 3, 5, 16, 31, 32, 33, 64, 100}[rng.IntN(10)]
		n, k, codeBytes := 1+rng.IntN(32), 1+rng.IntN(50), 2+2*rng.IntN(2)
		stride := (n + 7) &^ 7
		t.Run(fmt.Sprintf("%d/bits=%d/parts=%d/bytes=%d/n=%d", i, nbits, parts, rowBytes, n), func(t *testing.T) {
			var ranges [][2]uint32
			tokens := 0
			for range 5 {
				l := []int{0, 1, 2, 3, 4, 5, 8, 13}[rng.IntN(8)]
				ranges = append(ranges, [2]uint32{uint32(tokens), uint32(tokens + l)})
				tokens += l
			}
			query := fenced.Slice[byte](t, 8/nbits*((rowBytes+3)/4)*parts*128)
			for j := range query {
				query[j] = byte(rng.Uint32())
			}
			for f := range 8 / nbits { // bytes beyond a residual have no weight
				for p := rowBytes; p < (rowBytes+3)&^3; p++ {
					for s := range 32 * parts {
						query[(f*((rowBytes+3)/4)+p/4)*parts*128+s*4+p%4] = 0
					}
				}
			}
			residuals, factors, codes := fenced.Slice[byte](t, tokens*rowBytes), fenced.Slice[byte](t, 2*tokens), fenced.Slice[byte](t, codeBytes*tokens)
			for j := range residuals {
				residuals[j] = byte(rng.Uint32())
			}
			for j := range factors {
				factors[j] = byte(rng.Uint32())
			}
			for j := range tokens {
				codes[j*codeBytes] = byte(rng.IntN(k))
			}
			scores := fenced.Slice[float32](t, k*stride)
			for j := range scores {
				scores[j] = rng.Float32()*2 - 1
			}
			var scales []float32
			if rng.IntN(2) == 0 {
				scales = fenced.Slice[float32](t, k)
				for j := range scales {
					scales[j] = rng.Float32()
				}
			}
			var mid, unit, step [32]float32
			for s := range mid {
				mid[s], unit[s], step[s] = rng.Float32()-0.5, rng.Float32()*1e-4, rng.Float32()*1e-4
			}
			var words [][8]uint64
			if rng.IntN(2) == 0 {
				words, scores = fenced.Slice[[8]uint64](t, k), nil
				for j := range words {
					for w := range words[j] {
						words[j][w] = rng.Uint64()
					}
				}
			}
			want, got := make([][32]float32, len(ranges)), make([][32]float32, len(ranges))
			for j := range want {
				for s := range want[j] {
					want[j][s] = float32(math.Inf(-1))
				}
			}
			copy(got, want)
			maxLevels(want, ranges, query, nbits, parts, scores, codes, codeBytes, rowBytes, residuals, factors, scales, stride, n, &mid, &unit, words, &step)
			MaxLevels(got, ranges, query, make([]byte, 8/nbits*(4*rowBytes+64)), nbits, parts, scores, codes, codeBytes, rowBytes,
				residuals, factors, scales, stride, n, &mid, &unit, words, &step)
			for j := range want {
				require.Equal(t, want[j][:n], got[j][:n])
			}
		})
	}
}
