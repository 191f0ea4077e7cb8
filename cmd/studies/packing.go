package main

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// packBlock is how many differences share a width.
const packBlock = 128

// packPad is how many bytes may be read behind a list.
const packPad = 8

// packList encodes ascending numbers: how many they are as a varint, and for each block
// its width in bits and the differences less one.
func packList(docs []uint32) []byte {
	dst := binary.AppendUvarint(nil, uint64(len(docs)))
	last := uint32(math.MaxUint32) // one below 0
	for len(docs) > 0 {
		block := docs[:min(packBlock, len(docs))]
		docs = docs[len(block):]
		var all uint32
		prev := last
		for _, d := range block {
			all |= d - prev - 1
			prev = d
		}
		width := bits.Len32(all)
		dst = append(dst, byte(width))
		var word uint64
		have := 0
		for _, d := range block {
			word |= uint64(d-last-1) << have
			last = d
			for have += width; have >= 8; have -= 8 {
				dst = append(dst, byte(word))
				word >>= 8
			}
		}
		if have > 0 {
			dst = append(dst, byte(word))
		}
	}
	return append(dst, make([]byte, packPad)...)
}

var errPacked = errors.New("malformed list")

// unpackList appends the numbers; docs is above all of them.
func unpackList(dst []uint32, p []byte, docs uint32) ([]uint32, error) {
	n, head := binary.Uvarint(p)
	if head <= 0 {
		return dst, errPacked
	}
	p = p[head:]
	last := uint32(math.MaxUint32)
	for n > 0 {
		m := min(int(n), packBlock)
		width := int(p[0])
		size := (m*width + 7) / 8
		if len(p) < 1+size+packPad {
			return dst, errPacked
		}
		block, mask := p[1:], uint64(1)<<width-1
		for bit := 0; bit < m*width; bit += width {
			last += uint32(binary.LittleEndian.Uint64(block[bit/8:])>>(bit%8)&mask) + 1
			dst = append(dst, last)
		}
		if width == 0 {
			for range m {
				last++
				dst = append(dst, last)
			}
		}
		p = p[1+size:]
		n -= uint64(m)
	}
	if last != math.MaxUint32 && last >= docs {
		return dst, errPacked
	}
	return dst, nil
}

// eliasFano is how many bits n numbers below u take: the low bits of each as they are, and
// the high ones in unary.
func eliasFano(n, u int) int {
	low := 0
	if u > n {
		low = bits.Len(uint(u/n)) - 1
	}
	return n*low + n + u>>low + 1
}

// choose is the logarithm to base 2 of how many sets of n numbers below u there are.
func choose(u, n int) float64 {
	gamma := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	return (gamma(u) - gamma(n) - gamma(u-n)) / math.Ln2
}
