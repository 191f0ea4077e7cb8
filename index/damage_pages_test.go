package index_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// damagedPages visits copies of a file in which one page is not what it was: each page in one
// way of so many at least.
func damagedPages(data []byte, one int, visit func(data []byte, what string)) {
	size := os.Getpagesize()
	rng := rand.New(rand.NewPCG(3, 3))
	for f, fill := range []struct {
		name string
		with func(page []byte)
	}{
		{"zeroed", func(p []byte) { clear(p) }},
		{"filled with 0xff", func(p []byte) {
			for i := range p {
				p[i] = 0xff
			}
		}},
		{"random", func(p []byte) {
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
		}},
		{"random but for its head", func(p []byte) {
			for i := 16; i < len(p); i++ {
				p[i] = byte(rng.Uint32())
			}
		}},
	} {
		for at := 0; at < len(data); at += size {
			if (f+at/size)%one != 0 {
				continue
			}
			bad := slices.Clone(data)
			fill.with(bad[at : at+size])
			if !bytes.Equal(bad, data) {
				visit(bad, fmt.Sprintf("page %d %s", at/size, fill.name))
			}
		}
	}
}

// swappedPages visits copies in which two pages have changed places, as they
// are, and with their numbers made right. Only one in so many is visited.
func swappedPages(data []byte, one int, visit func(data []byte, what string)) {
	size := os.Getpagesize()
	page := func(b []byte, i int) []byte { return b[i*size : (i+1)*size] }
	n := 0
	for a := range len(data) / size {
		for b := range a {
			if n++; n%one != 0 || bytes.Equal(page(data, a), page(data, b)) {
				continue
			}
			bad := slices.Clone(data)
			copy(page(bad, a), page(data, b))
			copy(page(bad, b), page(data, a))
			visit(slices.Clone(bad), fmt.Sprintf("pages %d and %d swapped", a, b))
			binary.NativeEndian.PutUint64(page(bad, a), uint64(a))
			binary.NativeEndian.PutUint64(page(bad, b), uint64(b))
			visit(bad, fmt.Sprintf("pages %d and %d swapped, their numbers right", a, b))
		}
	}
}

// stalePages visits copies of a file in which the write of one page was lost:
// it is as in a version before.
func stalePages(data, before []byte, visit func(data []byte, what string)) {
	size := os.Getpagesize()
	for at := 2 * size; at < len(data); at += size {
		old := make([]byte, size)
		if at < len(before) {
			copy(old, before[at:])
		}
		if bytes.Equal(old, data[at:at+size]) {
			continue
		}
		bad := slices.Clone(data)
		copy(bad[at:], old)
		visit(bad, fmt.Sprintf("write of page %d lost", at/size))
	}
}

func TestDamagedPages(t *testing.T) {
	sp := newSpecimen(t, damageDocs())
	var n tally
	damagedPages(sp.data, effort.Cases(3, 1), func(data []byte, what string) { sp.try(t, &n, data, what) })
	t.Log(&n)
	require.Greater(t, n.refused+n.found, n.cases/8)
}

// damageDocs is how many documents an index to be damaged page by page has.
func damageDocs() int {
	return effort.Cases(40, 160)
}

func TestSwappedPages(t *testing.T) {
	sp := newSpecimen(t, damageDocs())
	var n tally
	one := effort.Cases(29, 4)
	if *everyByte {
		one = 1
	}
	swappedPages(sp.data, one, func(data []byte, what string) {
		var but []string
		if strings.HasSuffix(what, "right") { // as after a write that was lost: see TestLostWrites
			but = append(but, "defaults", "sizes")
		}
		sp.try(t, &n, data, what, but...)
	})
	t.Log(&n)
	require.Greater(t, n.refused+n.found, n.cases/8)
}

func TestZeroedSectors(t *testing.T) {
	sp := newSpecimen(t, damageDocs())
	var n tally
	for at := 0; at < len(sp.data); at += 512 * effort.Cases(5, 1) {
		data := slices.Clone(sp.data)
		clear(data[at : at+512])
		if !bytes.Equal(data, sp.data) {
			sp.try(t, &n, data, fmt.Sprintf("sector at byte %d zeroed", at))
		}
	}
	t.Log(&n)
	require.Greater(t, n.refused+n.found, n.cases/8)
}

func TestCutFiles(t *testing.T) {
	sp := newSpecimen(t, 40)
	var n tally
	size := os.Getpagesize()
	for page := 0; page < len(sp.data); page += size * effort.Cases(3, 1) {
		for _, d := range []int{-1, 0, 1, 512} {
			if at := page + d; at >= 0 && at < len(sp.data) {
				what := fmt.Sprintf("cut at byte %d", at)
				sp.try(t, &n, sp.data[:at], what)
				if ix, err := index.Open(t.Context(), sp.path, &index.Options{Write: true}); err != nil {
					index.RequireTyped(t, err, what)
					require.ErrorContains(t, err, sp.path)
				} else { // a file may be longer than what belongs to it
					require.NoError(t, ix.Close())
				}
			}
		}
	}
	t.Log(&n)
	require.Positive(t, n.refused)
}

// A write that was acknowledged by the disk and lost leaves a page of an earlier
// commit, which is sound by itself. Stored search parameters may go unnoticed
// with it: they are no part of the content, and only speed and recall hang on
// them. So may the number of bytes that lists take, which is read off the pages;
// verification finds that a list is another one. The runs of fields from before a merge
// say the same of all live documents; then nothing but the digest is another.
func TestLostWrites(t *testing.T) {
	sp := newSpecimen(t, damageDocs())
	var n tally
	back := effort.Cases(1, 3)
	for v := 1; v < len(sp.versions); v++ {
		sp.use(t, sp.versions[v])
		for b := 1; b <= min(back, v); b++ {
			stalePages(sp.versions[v], sp.versions[v-b], func(data []byte, what string) {
				sp.try(t, &n, data, fmt.Sprintf("version %d, %d back: %s", v, b, what), "defaults", "sizes", "digest")
			})
		}
	}
	t.Log(&n)
	require.Positive(t, n.refused+n.found)
}
