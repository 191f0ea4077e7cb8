package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels"
)

func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nbits := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits")
		buckets := rapid.SliceOfN(rapid.Uint8Max(uint8(1<<nbits-1)), 0, 70).Draw(t, "buckets")
		n := kernels.RowBytes(len(buckets), nbits)
		packed := make([]byte, n+1)
		for i := range packed {
			packed[i] = 0xa5 // what was there before must not matter
		}
		pack(packed, buckets, nbits)
		if packed[n] != 0xa5 {
			t.Fatal("wrote past the row")
		}
		for j, b := range buckets {
			bit := j * nbits
			if got := packed[bit/8] >> (bit % 8) & uint8(1<<nbits-1); got != b {
				t.Fatalf("field %d is %d, want %d", j, got, b)
			}
		}
		if used := len(buckets) * nbits % 8; used != 0 && packed[n-1]>>used != 0 {
			t.Fatalf("padding of %08b is not zero", packed[n-1])
		}
		back := make([]uint8, len(buckets))
		unpack(back, packed[:n], nbits)
		for j := range back {
			if back[j] != buckets[j] {
				t.Fatalf("field %d came back as %d, want %d", j, back[j], buckets[j])
			}
		}
	})
}

func TestPackOrder(t *testing.T) {
	dst := make([]byte, 2)
	pack(dst, []uint8{1, 2, 3, 0, 2}, 2)
	require.Equal(t, []byte{0b00_11_10_01, 0b10}, dst)
	pack(dst, []uint8{0xff, 0xff, 0xff}, 4) // only the low bits of a number count
	require.Equal(t, []byte{0xff, 0x0f}, dst)
}

// unpack reads len(dst) fields of nbits from packed, the inverse of [pack].
func unpack(dst []uint8, packed []byte, nbits int) {
	if nbits == 8 {
		copy(dst, packed[:len(dst)])
		return
	}
	per := 8 / nbits
	mask := uint8(1<<nbits - 1)
	for j := 0; j < len(dst); j += per {
		p := packed[j/per]
		for i := range dst[j:min(j+per, len(dst))] {
			dst[j+i] = p & mask
			p >>= nbits
		}
	}
}
