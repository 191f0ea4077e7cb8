//go:build unix && cgo

package main

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// memory is an area that calls may use, before one that may not be touched: so large that no
// array which begins in the first ends after the second.
type memory struct {
	area []byte
	next int
}

const (
	areaBytes  = 1 << 18
	nothing    = 1 << 44
	arrayBytes = 1 << 13
)

func newMemory(tb testing.TB) *memory {
	all, err := unix.MmapPtr(-1, 0, nil, nothing, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		tb.Skipf("no room of %d bytes of addresses: %v", nothing, err)
	}
	tb.Cleanup(func() { require.NoError(tb, unix.MunmapPtr(all, nothing)) })
	area := unsafe.Slice((*byte)(all), areaBytes)
	require.NoError(tb, unix.Mprotect(area, unix.PROT_READ|unix.PROT_WRITE))
	return &memory{area: area}
}

// array is the next array, with values of its own.
func (m *memory) array() unsafe.Pointer {
	p := m.area[m.next:]
	m.next += arrayBytes
	for i := 0; i < arrayBytes; i += 4 {
		binary.LittleEndian.PutUint32(p[i:], math.Float32bits(float32(i%97)-48))
	}
	return unsafe.Pointer(&p[0])
}

// integers is the next array, of small numbers that do not fall.
func (m *memory) integers(step int) unsafe.Pointer {
	p := m.area[m.next:]
	m.next += arrayBytes
	for i := 0; i < arrayBytes; i += 4 {
		binary.LittleEndian.PutUint32(p[i:], uint32(min(i/4*step, 8)))
	}
	return unsafe.Pointer(&p[0])
}

// input is the bytes of a fuzz test, read from the front.
type input []byte

func (b *input) next() int {
	if len(*b) == 0 {
		return 0
	}
	v := (*b)[0]
	*b = (*b)[1:]
	return int(v)
}

// small is a usual size, and odd one that no call has.
func (b *input) small() int64 { return int64(b.next() % 5) }
func (b *input) odd() int64 {
	list := []int64{
		-1, 0, 1, 2, 3, 5, 8, 9, 33, 1000, 1 << 20, 1<<32 + 1, 1 << 44, 1<<44 + 1, 1 << 62, math.MinInt64, math.MaxInt64,
	}
	return list[b.next()%len(list)]
}

// batch is a batch that may be right.
func (b *input) batch(m *memory) (s cBatch) {
	s.data, s._type, s.dim = m.array(), 1+cInt(b.small()), 1+cInt(b.small())
	s.items, s.longest = cInt(b.small()), cInt(b.small())
	s.stride = s.longest + cInt(b.small()%2)
	s.rows = s.items*s.stride + cInt(b.small()%2)
	if s._type >= 4 && b.next()%2 == 0 {
		setPointer(&s.scales, m.array())
	}
	switch b.next() % 4 {
	case 1:
		setPointer(&s.lengths, m.integers(b.next()%2))
	case 2:
		setPointer(&s.mask, m.array())
		s.mask_stride = s.longest + cInt(b.small())
	case 3:
		setPointer(&s.offsets, m.integers(b.next()%3))
		s.longest, s.rows = s.longest+2, s.rows+8
	}
	return s
}

// spoil writes odd numbers, or odd pointers, over some words of a struct.
func (b *input) spoil(m *memory, p unsafe.Pointer, size uintptr) {
	words := unsafe.Slice((*uintptr)(p), size/8)
	for range b.next() % 3 {
		i := b.next() % len(words)
		switch b.next() % 4 {
		case 0:
			words[i] = uintptr(unsafe.Pointer(&m.area[b.next()*8%areaBytes]))
		case 1:
			words[i] += uintptr(b.next() % 9)
		default:
			words[i] = uintptr(b.odd())
		}
	}
}

// FuzzCalls makes calls that may be right and spoils some of their fields: each gives an
// error or a result, and none that says it is the library's fault.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{})
	for kind := range 5 {
		for variant := range 8 {
			seed := []byte{byte(kind)}
			for i := range 40 {
				seed = append(seed, byte(i*i*7+variant*13))
			}
			f.Add(seed)
		}
	}
	m := newMemory(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := input(data)
		m.next = 0
		var e cError
		kind := b.next() % 5
		q, d := b.batch(m), b.batch(m)
		d.dim = q.dim
		pairs := cPairs{kind: cInt(b.small() % 3)}
		switch pairs.kind {
		case 1:
			pairs.count = cInt(b.small())
		case 2:
			pairs.count = cInt(b.small())
			setPointer(&pairs.queries, m.integers(0))
			setPointer(&pairs.docs, m.integers(1))
		}
		place := cPlace{device: -1, threads: cInt(b.small() % 3)}
		argmax := m.integers(0)
		switch kind {
		case 0:
			c := cScore{place: place, q: q, d: d, pairs: pairs, normalize: cInt(b.small() % 2)}
			setPointer(&c.scores, m.array())
			setPointer(&c.argmax, argmax)
			b.spoil(m, unsafe.Pointer(&c), unsafe.Sizeof(c))
			c.place.device = -1
			judge(t, &e, goScore(&c, nil, &e))
		case 1:
			c := cGradient{place: place, q: q, d: d, pairs: pairs}
			c.dq_type, c.dd_type = 1+cInt(b.small()%3), 1+cInt(b.small()%3)
			setPointer(&c.argmax, argmax)
			c.dq, c.dd = m.array(), m.array()
			b.spoil(m, unsafe.Pointer(&c), unsafe.Sizeof(c))
			c.place.device = -1
			judge(t, &e, goGradients(&c, nil, &e))
		case 2:
			c := cChamfer{place: place, q: q, d: d, pairs: pairs, metric: cInt(b.small() % 2)}
			setPointer(&c.distances, m.array())
			b.spoil(m, unsafe.Pointer(&c), unsafe.Sizeof(c))
			c.place.device = -1
			judge(t, &e, goChamfer(&c, nil, &e))
		case 3:
			c := cChamferGradient{place: place, q: q, d: d, pairs: pairs, dq_type: 1, dd_type: 2}
			setPointer(&c.nearest_q, argmax)
			setPointer(&c.nearest_d, argmax)
			c.dq, c.dd = m.array(), m.array()
			b.spoil(m, unsafe.Pointer(&c), unsafe.Sizeof(c))
			c.place.device = -1
			judge(t, &e, goChamferGradients(&c, nil, &e))
		case 4:
			c := cHead{place: place, q: q, d: d, pairs: pairs, head: m.array(), head_type: 1 + cInt(b.small()%3)}
			setPointer(&c.scores, m.array())
			b.spoil(m, unsafe.Pointer(&c), unsafe.Sizeof(c))
			c.place.device = -1
			judge(t, &e, goHead(&c, nil, &e))
		}
	})
}

// judge looks at a code and its message.
func judge(t *testing.T, e *cError, code cCode) {
	t.Helper()
	text := message(e)
	require.Equal(t, code != 0, text != "", text)
	require.Contains(t, []cCode{0, 1, 2}, code, text)
	if code != 0 {
		require.Equal(t, cInt(code), e.code)
		require.False(t, strings.Contains(text, "goroutine "), text)
	}
}
