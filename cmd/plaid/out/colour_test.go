package out

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWrapped(t *testing.T) {
	const b, e = MarkBegin, MarkEnd
	red := func(s string) string { return "\x1b[1;31m" + s + "\x1b[0m" }
	for _, c := range []struct {
		text         string
		width, lines int
		on           bool
		want         []string
	}{
		{"", 10, 2, false, nil},
		{"one two three", 20, 1, false, []string{"one two three"}},
		{"one two three", 8, 1, false, []string{"one two…"}},
		{"one two three four", 9, 2, false, []string{"one two", "three fo…"}},
		{"one two three four", 10, 3, false, []string{"one two", "three four"}},
		{"abcdefgh ij", 5, 3, false, []string{"abcde", "fgh", "ij"}},
		{"a " + b + "cat" + e + " sat", 20, 1, false, []string{"a [cat] sat"}},
		{"a " + b + "cat" + e + " sat", 9, 1, true, []string{"a " + red("cat") + " sat"}},
		{"a " + b + "cat" + e + " sat", 9, 1, false, []string{"a [cat] …"}},
		{"a " + b + "cattle" + e, 5, 1, true, []string{"a " + red("ca…")}},
		{b + "one two" + e, 3, 2, true, []string{red("one"), red("two")}},
	} {
		require.Equal(t, c.want, Colours{On: c.on}.Wrapped(c.text, c.width, c.lines), "%q", c.text)
	}
	require.Equal(t, "a\ufffdb\ufffd\tc", Clean("a\x01b\x1b\tc"))
	require.Equal(t, "x", Colours{}.Bold("x"))
	require.Equal(t, "\x1b[1mx\x1b[0m", Colours{On: true}.Bold("x"))
	require.Empty(t, Colours{On: true}.Dim(""))
}

// Lines are as wide as is asked for at most, and what is not cut off is all there.
func TestWrappedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab é "))).Draw(t, "text")
		width, lines := rapid.IntRange(2, 12).Draw(t, "width"), rapid.IntRange(1, 4).Draw(t, "lines")
		all := Colours{}.Wrapped(text, width, lines)
		require.LessOrEqual(t, len(all), lines)
		for _, l := range all {
			require.LessOrEqual(t, utf8.RuneCountInString(l), width, "%q", all)
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := strings.Join(all, ""); !strings.HasSuffix(got, "…") {
			require.Equal(t, squeeze(text), squeeze(got))
		} else {
			require.True(t, strings.HasPrefix(squeeze(text), squeeze(strings.TrimSuffix(got, "…"))), "%q", all)
		}
	})
}
