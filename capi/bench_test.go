//go:build cgo

package main

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// BenchmarkSmallCall measures the cost of a call without its products and the way from C.
func BenchmarkSmallCall(b *testing.B) {
	x, scores := make([]float32, 4), make([]float32, 1)
	c := cScore{place: cPlace{device: -1, threads: 1}}
	c.q = cBatch{data: unsafe.Pointer(&x[0]), _type: 1, dim: 4, items: 1, rows: 1, stride: 1, longest: 1}
	c.d = c.q
	setPointer(&c.scores, unsafe.Pointer(&scores[0]))
	var e cError
	require.Zero(b, goScore(&c, nil, &e), message(&e))
	b.Run("checks", func(b *testing.B) {
		var bytes cInt
		b.ReportAllocs()
		for b.Loop() {
			goScore(&c, &bytes, &e)
		}
	})
	b.Run("score", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			goScore(&c, nil, &e)
		}
	})
}

func setPointer[T any](dst **T, p unsafe.Pointer) { *dst = (*T)(p) }

// message is the text of an error.
func message(e *cError) string {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&e.message)), len(e.message))
	s, _, _ := strings.Cut(string(text), "\x00")
	return s
}
