//go:build !race

package tokenizer

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Once buffers have grown, a text costs one allocation: that of its ids.
func TestAllocations(t *testing.T) {
	f := loadFixtures(t)
	for _, v := range f.variants[len(f.variants)-3:] {
		tok, err := Parse(f.file(t, v))
		require.NoError(t, err)
		line := strings.Repeat("the index of the collection ", 20)
		got := testing.AllocsPerRun(100, func() {
			if _, err := tok.EncodeIDs(nil, line); err != nil {
				t.Fatal(err)
			}
		})
		require.LessOrEqual(t, got, 2.0, string(v["name"]))
	}
}

// A long text takes what its tokens and their places need, and not the several times as much that
// buffers take which grow a byte at a time.
func TestAllocationsOfLongTexts(t *testing.T) {
	f := loadFixtures(t)
	text := strings.Repeat("!", 1<<18)
	most := map[string]uint64{`"wordpiece"`: 150, `"bpe"`: 240, `"unigram"`: 350} // bytes for each of the text
	for _, v := range f.variants[len(f.variants)-3:] {
		tok, err := Parse(f.file(t, v))
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = tok.Encode(text)
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		name := string(v["name"])
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/uint64(len(text)), most[name], name)
	}
}
