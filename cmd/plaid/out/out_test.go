package out

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNumbers(t *testing.T) {
	require.Equal(t, "0", Count(0))
	require.Equal(t, "999", Count(999))
	require.Equal(t, "1,234,567", Count(1234567))
	require.Equal(t, "1 token", Plural(1, "token"))
	require.Equal(t, "0 tokens", Plural(0, "token"))
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
	require.Equal(t, "0.2500", Fixed(0.25))
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
	require.Equal(t, strings.Repeat("é", 39)+"…", ID(strings.Repeat("é", 41)))
	require.Equal(t, strings.Repeat("é", 59)+"…", Path(strings.Repeat("é", 61)))
	require.Equal(t, "a b c", Field("a\tb\nc"))
	require.Equal(t, "a\n\tb", Escaped("a\n\tb"), "lines stay lines")
	require.Equal(t, `\x1b[31m\u202e\xff`, Escaped("\x1b[31m\u202e\xff"))
	require.Equal(t, `"a\nb"`, Quoted("a\nb"))
	require.Equal(t, `"`+strings.Repeat("é", 40)+`"… (100 bytes)`, Quoted(strings.Repeat("é", 50)))
}

func TestTyped(t *testing.T) {
	line, err := Typed("a", struct {
		B string `json:"b"`
	}{"<"})
	require.NoError(t, err)
	require.Equal(t, `{"type":"a","b":"<"}`+"\n", string(line))
	line, err = Typed("a", struct{}{})
	require.NoError(t, err)
	require.Equal(t, `{"type":"a"}`+"\n", string(line))
	_, err = Typed("a", []int{1})
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
