package codec

import "github.com/plaid-ir/plaid/kernels"

// pack writes bucket numbers as fields of nbits (1, 2, 4 or 8) to the first
// kernels.RowBytes(len(buckets), nbits) bytes of dst: field j at bit j·nbits,
// least significant first; higher bits of a number are dropped and unused bits
// of the last byte are 0.
func pack(dst []byte, buckets []uint8, nbits int) {
	dst = dst[:kernels.RowBytes(len(buckets), nbits)]
	n := len(buckets)
	i := 0
	switch nbits {
	case 8:
		copy(dst, buckets)
		return
	case 4:
		for ; 2*i+2 <= n; i++ {
			b := buckets[2*i : 2*i+2 : 2*i+2]
			dst[i] = b[0]&15 | b[1]<<4
		}
	case 2:
		for ; 4*i+4 <= n; i++ {
			b := buckets[4*i : 4*i+4 : 4*i+4]
			dst[i] = b[0]&3 | b[1]&3<<2 | b[2]&3<<4 | b[3]<<6
		}
	case 1:
		for ; 8*i+8 <= n; i++ {
			b := buckets[8*i : 8*i+8 : 8*i+8]
			dst[i] = b[0]&1 | b[1]&1<<1 | b[2]&1<<2 | b[3]&1<<3 |
				b[4]&1<<4 | b[5]&1<<5 | b[6]&1<<6 | b[7]<<7
		}
	}
	if i < len(dst) { // fields that fill no whole byte
		dst[i] = 0
		for j, b := range buckets[i*(8/nbits):] {
			dst[i] |= b & (1<<nbits - 1) << (j * nbits)
		}
	}
}

// byteTable gives, for each byte, the weights of the fields in it.
func byteTable(weights []float32, nbits int) []float32 {
	per := 8 / nbits
	lut := make([]float32, 0, 256*per)
	for p := range 256 {
		for i := range per {
			lut = append(lut, weights[p>>(i*nbits)&(1<<nbits-1)])
		}
	}
	return lut
}
