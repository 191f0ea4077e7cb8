package files

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Lines shorter and longer than the buffer are what splitting all of the text gives.
func TestLineReader(t *testing.T) {
	const limit = 150_000
	rapid.Check(t, func(rt *rapid.T) {
		var text []byte
		if rapid.Bool().Draw(rt, "mark") {
			text = append(text, "\ufeff"...)
		}
		for range rapid.IntRange(0, 5).Draw(rt, "lines") {
			n := rapid.SampledFrom([]int{0, 1, 7, 65_534, 65_535, 65_536, 65_537, 131_071, 131_072, limit - 1, limit, limit + 1}).Draw(rt, "length")
			text = append(text, bytes.Repeat([]byte{'x'}, n)...)
			text = append(text, rapid.SampledFrom([]string{"\n", "\r\n", "\r\r\n", "\r", ""}).Draw(rt, "end")...)
		}
		lines, offset := NewLineReader(bytes.NewReader(text), limit), int64(0)
		for n, raw := range bytes.SplitAfter(text, []byte("\n")) {
			got, at, err := lines.Next()
			if len(raw) == 0 { // after the last end
				require.Equal(rt, io.EOF, err)
				return
			}
			start := offset
			offset += int64(len(raw))
			want := bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
			if n == 0 && bytes.HasPrefix(want, []byte("\ufeff")) {
				want, start = want[3:], 3
			}
			require.Equal(rt, n+1, lines.Number)
			if len(want) > limit {
				require.ErrorIs(rt, err, ErrLongLine)
				return
			}
			require.NoError(rt, err)
			require.True(rt, bytes.Equal(want, got), "line %d", n+1)
			require.Equal(rt, start, at)
		}
		_, _, err := lines.Next()
		require.Equal(rt, io.EOF, err)
	})
}
