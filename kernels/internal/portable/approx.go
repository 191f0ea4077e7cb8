package portable

import "encoding/binary"

// MaxBytes raises the bytes of best[i] to those of rows[code] over the tokens of
// ranges[i].
func MaxBytes(best []row4, ranges [][2]uint32, rows []row4, codes []byte, codeBytes int) {
	for i, r := range ranges {
		lo, hi := int(r[0])*codeBytes, int(r[1])*codeBytes
		if codeBytes == 2 {
			maxRows16(&best[i], rows, codes[lo:hi])
		} else {
			maxRows32(&best[i], rows, codes[lo:hi])
		}
	}
}

func maxRows16(best *row4, rows []row4, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 2; codes = codes[2:] {
		r := &rows[binary.LittleEndian.Uint16(codes)]
		m0, m1 = max8(m0, r[0]), max8(m1, r[1])
		m2, m3 = max8(m2, r[2]), max8(m3, r[3])
	}
	*best = row4{m0, m1, m2, m3}
}

func maxRows32(best *row4, rows []row4, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 4; codes = codes[4:] {
		r := &rows[binary.LittleEndian.Uint32(codes)]
		m0, m1 = max8(m0, r[0]), max8(m1, r[1])
		m2, m3 = max8(m2, r[2]), max8(m3, r[3])
	}
	*best = row4{m0, m1, m2, m3}
}
