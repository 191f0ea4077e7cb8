// Package roofline measures what bounds inner loops on this processor, for
// benchmarks to compare with: reading by one core, products of bytes, and
// multiply-adds of float32.
package roofline

import (
	"bytes"
	"slices"
	"time"
)

// Read is how many bytes a second one core reads in order from a buffer of this
// size, a multiple of 512, at best.
func Read(size int) float64 {
	x := bytes.Repeat([]byte{1}, size)
	return float64(size) / shortestTime(func() {
		if supported() {
			load(x)
		} else if bytes.IndexByte(x, 2) >= 0 { // assembly of the standard library: loads and comparisons
			panic("not there")
		}
	})
}

// Products is how many products of bytes a second one core adds up with
// VPDPBUSD, at best; 0 where the processor has no such instruction.
func Products() float64 {
	if !supported() {
		return 0
	}
	const rounds = 1 << 14
	return rounds * roundProducts / shortestTime(func() { dots(rounds) })
}

// FMAs is how many float32 operations a second one core does in fused
// multiply-adds, at best, with registers of at most so many lanes; an addition
// and a multiplication are two. It is 0 where it is not known.
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

// shortestTime is the shortest of many times, in seconds.
func shortestTime(f func()) float64 {
	var times []time.Duration
	for range 100 {
		start := time.Now()
		f()
		times = append(times, time.Since(start))
	}
	return max(slices.Min(times), 1).Seconds()
}

// roundProducts is 16 instructions of 64 products.
const roundProducts = 16 * 64
