package portable

// Bytes writes mul·S + add of n ≤ 32 columns of S, rounded down and limited to
// 0..127, the rest 0.
func Bytes(dst []row4, scores []float32, stride, n int, mul, add *[32]float32) {
	for c := range dst {
		var r row4
		for i, v := range scores[c*stride : c*stride+n] {
			b := int32(float32(v*mul[i&31]) + add[i&31])
			r[i>>3&3] |= uint64(min(max(b, 0), 127)) << (i & 7 * 8)
		}
		dst[c] = r
	}
}

// Words writes mul·S + a·low + bias of n ≤ 32 columns of S, rounded down, in
// 16-bit lanes, the rest 0; a is the entry of scales for the row, or 1.
func Words(dst []row, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32) {
	for c := range dst {
		a := float32(1)
		if scales != nil {
			a = scales[c]
		}
		var r row
		for i, v := range scores[c*stride : c*stride+n] {
			r[i>>2&7] |= uint64(uint16(int32(float32(v*mul[i&31])+float32(a*low[i&31])+bias))) << (i & 3 * 16)
		}
		dst[c] = r
	}
}
