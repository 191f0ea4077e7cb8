// Package roofline measures the upper bounds of inner loops on this processor, for
// benchmarks to compare with: the read bandwidth of one core, products of bytes, and
// multiply-adds of float32.
package roofline

import (
	"bytes"
	"slices"
	"time"
)

// Read returns the largest number of bytes that one core reads sequentially in a second, from a
// buffer of this size, a multiple of 512.
func Read(size int) float64 {
	x := bytes.Repeat([]byte{1}, size)
	return float64(size) / shortestTime(func() {
		if supported() {
			load(x)
		} else if bytes.IndexByte(x, 2) >= 0 { // the standard library's assembly: loads and comparisons
			panic("found a byte that the buffer does not have")
		}
	})
}

// Products returns the largest number of products of bytes that one core adds up in a second
// with VPDPBUSD, or 0 if the processor has no such instruction.
func Products() float64 {
	if !supported() {
		return 0
	}
	const rounds = 1 << 14
	return rounds * roundProducts / shortestTime(func() { byteDots(rounds) })
}

// FMAs returns the largest number of float32 operations that one core computes in a second in
// fused multiply-adds, with registers of at most maxLanes lanes. A multiply-add counts as two
// operations. It is 0 on processors for which this package has no loop.
func FMAs(maxLanes int) float64 {
	const rounds = 1 << 14
	switch {
	case min(maxLanes, widestFMA()) >= 16:
		return rounds * 16 * 16 * 2 / shortestTime(func() { fmas512(rounds) })
	case min(maxLanes, widestFMA()) >= 8:
		return rounds * 12 * 8 * 2 / shortestTime(func() { fmas256(rounds) })
	}
	return 0
}

// shortestTime returns the shortest time of many calls of f, in seconds.
func shortestTime(f func()) float64 {
	var times []time.Duration
	for range 100 {
		start := time.Now()
		f()
		times = append(times, time.Since(start))
	}
	return max(slices.Min(times), 1).Seconds()
}

// roundProducts is the number of products of a round of byteDots: 16 instructions of 64.
const roundProducts = 16 * 64
