package out

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	require.Equal(t, "0", Count(0))
	require.Equal(t, "999", Count(999))
	require.Equal(t, "1,234,567", Count(1234567))
	require.Equal(t, "1 token", Plural(1, "token"))
	require.Equal(t, "0 tokens", Plural(0, "token"))
	require.Equal(t, "1 document", Documents(1, 0))
	require.Equal(t, "1,000 documents in 2,000 passages", Documents(1000, 2000))
	require.Equal(t, "1 passage", Documents(0, 1), "of a document that stays")
	require.Equal(t, "1,000 documents", Ordinals(1000, false))
	require.Equal(t, "1 document or passage", Ordinals(1, true))
	require.Equal(t, "2,000 tokens", Plural(uint64(2000), "token"))
	require.Equal(t, "1 judged query has", Plural(1, "judged query has", "judged queries have"))
	require.Equal(t, "2 judged queries have", Plural(2, "judged query has", "judged queries have"))
	require.Equal(t, "1 query", Queries(1))
	require.Equal(t, "1,000 queries", Queries(1000))
	require.Equal(t, "1023 B", Bytes(1023))
	require.Equal(t, "1 GiB", Bytes(1<<30))
	require.Equal(t, "2.5 KiB", Bytes(2560))
	require.Equal(t, "2048 TiB", Bytes(2<<50))
	require.Equal(t, "950", Rate(950))
	require.Equal(t, "12.3k", Rate(12345))
	require.Equal(t, "4.5M", Rate(4.5e6))
	require.Equal(t, "0.2500", FourDecimals(0.25))
	require.InDelta(t, 1.5, Milliseconds(1500*time.Microsecond), 0)
	for s, want := range map[float64]string{90.4: "1m30s", 2.34: "2.3s", 0.01234: "12.3ms", 0.0000042: "4µs"} {
		require.Equal(t, want, Seconds(s))
	}
	for _, x := range []float64{0, 1, 1.0 / 3, 0.7542018831477091, 1e-300, math.Nextafter(1, 0)} {
		back, err := strconv.ParseFloat(Float(x), 64)
		require.NoError(t, err)
		require.Equal(t, x, back)
	}
}

func TestTexts(t *testing.T) {
	require.Equal(t, "a b …", Printable("a\n\tb cdef", 5))
	require.Equal(t, "\ufffd[31mred", Printable("\x1b[31mred", 20), "escapes do not reach the terminal")
	require.Equal(t, strings.Repeat("é", 39)+"…", TableID(strings.Repeat("é", 41)))
	require.Equal(t, strings.Repeat("é", 59)+"…", TablePath(strings.Repeat("é", 61)))
	require.Equal(t, "a b c", TabField("a\tb\nc"))
	require.Equal(t, "a\n\tb", Escaped("a\n\tb"), "lines stay lines")
	require.Equal(t, `\x1b[31m\u202e\xff`, Escaped("\x1b[31m\u202e\xff"))
	require.Equal(t, `"a\nb"`, Quoted("a\nb"))
	require.Equal(t, `"`+strings.Repeat("é", 40)+`"… (100 bytes)`, Quoted(strings.Repeat("é", 50)))
}

func TestTyped(t *testing.T) {
	line, err := TypedJSONLine("a", struct {
		B string `json:"b"`
	}{"<"})
	require.NoError(t, err)
	require.Equal(t, `{"type":"a","b":"<"}`+"\n", string(line))
	line, err = TypedJSONLine("a", struct{}{})
	require.NoError(t, err)
	require.Equal(t, `{"type":"a"}`+"\n", string(line))
	_, err = TypedJSONLine("a", []int{1})
	require.Error(t, err)
}

func TestSnippet(t *testing.T) {
	for payload, want := range map[string]string{
		`{"title": "T", "text": "text"}`: "T: text", `{"title": "", "text": "text"}`: "text",
		`{"n": 1}`: `{"n": 1}`, `{"title": 1}`: `{"title": 1}`, "no JSON": "no JSON",
	} {
		require.Equal(t, want, Snippet([]byte(payload)))
	}
}

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
		require.Equal(t, c.want, Colours{On: c.on}.Wrap(c.text, c.width, c.lines), "%q", c.text)
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
		all := Colours{}.Wrap(text, width, lines)
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

func TestTable(t *testing.T) {
	var b bytes.Buffer
	table := Table{LeftColumns: 1}
	table.Line("é", "10", "a")
	table.Line("long", "2")
	table.Remark("and more")
	table.Line("", "", "")
	table.Print(&b)
	require.Equal(t, "é     10  a\nlong   2  and more\n           \n", b.String())
}

// A table is what text/tabwriter makes of the same cells, where all columns are
// lined up to one side.
func TestTableAgainstTabwriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 4).Draw(t, "columns")
		text := rapid.StringMatching(`[a-zé… ]{0,6}`)
		right := rapid.Bool().Draw(t, "right")
		table, flags := Table{LeftColumns: columns}, uint(0)
		if right {
			table, flags = Table{Indent: 2}, tabwriter.AlignRight
		}
		var want, got bytes.Buffer
		w := tabwriter.NewWriter(&want, 0, 0, 2, ' ', flags)
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			cells := rapid.SliceOfN(text, columns, columns).Draw(t, "cells")
			remark := rapid.StringMatching(`([a-z][a-z ]{0,9})?`).Draw(t, "remark")
			table.Line(cells...)
			table.Remark(remark)
			line := strings.Join(cells, "\t") + "\t"
			switch {
			case right && remark != "":
				line += "  " + remark
			case !right && remark == "": // the last cell is filled up, but for the gap
				line += "-"
				table.Remark("-")
			case !right:
				line += remark
			}
			fmt.Fprintln(w, line)
		}
		require.NoError(t, w.Flush())
		table.Print(&got)
		require.Equal(t, want.String(), got.String())
	})
}
