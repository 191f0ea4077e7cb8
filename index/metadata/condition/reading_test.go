package condition

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
)

// A payload of many megabytes is no longer read once the context has ended, whatever it is
// made of, and however little of it a condition names.
func TestLongPayloadsEndWithTheirContext(t *testing.T) {
	const size = 1 << 20
	repeated := func(s string) string { return strings.Repeat(s, size/len(s)) }
	var members strings.Builder
	for i := 0; members.Len() < size; i++ {
		fmt.Fprintf(&members, `"k%d": %d, `, i, i)
	}
	for name, payload := range map[string]string{
		"text":    `{"a": "` + repeated("x") + `"}`,
		"escapes": `{"a": "` + repeated(`\ud83d\ude00\"`) + `"}`,
		"array":   `{"a": [` + repeated("[1, 2], ") + `0]}`,
		"nested":  `{"a": ` + strings.Repeat(`{"b": `, 5000) + `"` + repeated("y") + `"` + strings.Repeat("}", 5001),
		"members": `{` + members.String() + `"a": 1}`,
		"other":   `{"a": 1, "b": "` + repeated("z") + `"}`,
		"no JSON": `{"a": "` + repeated("x"),
	} {
		read := map[string]func(d *Document){
			"value":    func(d *Document) { d.Value("a") },
			"fields":   func(d *Document) { d.Fields(4, func(Field, Value, Form) bool { return true }) },
			"literals": func(d *Document) { _, _ = d.Literals("a", func(Literal) error { return nil }) },
		}
		c := bindText(t, "a = 1")
		for what, fn := range read {
			ctx := countdown.New(math.MaxInt)
			e := NewEvaluation(ctx)
			fn(e.Document([]byte(payload), "", 0))
			require.NoError(t, e.Err())
			looks := math.MaxInt - ctx.Left()
			require.GreaterOrEqual(t, looks, size/readStep, "%s: %s", name, what)
			for left := 0; left < looks; left += 1 + looks/7 {
				ctx := countdown.New(left)
				e := NewEvaluation(ctx)
				fn(e.Document([]byte(payload), "", 0))
				require.ErrorIs(t, e.Err(), context.Canceled, "%s: %s", name, what)
				require.Equal(t, -1, ctx.Left(), "it is asked no more once it has ended")
			}
		}
		ctx := countdown.New(3)
		e := NewEvaluation(ctx)
		_, err := e.Match(c, e.Document([]byte(payload), "", 0))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, -1, ctx.Left())
	}
}

// What is read in steps is what encoding/json reads at once.
func FuzzReading(f *testing.F) {
	for _, s := range []string{`{"a": [1, "x\"y", {"b" : null}], "é\n": "\ud83d\ude00\ud800\u00e9\\u0041"}`, "\"\xff\xe2\x82\xac\xe2\x82 \\ud83d\xff\"", `"\ud83d\\ud83d\ude00"`, ` [ ] `, `"   "`, `"\u00e9é\u0020"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer func(was int) { readStep = was }(readStep)
		raw = bytes.TrimSpace(raw)
		for _, readStep = range []int{1, 4, 100} {
			e := NewEvaluation(context.Background())
			if ok := valid(e, raw); ok != json.Valid(raw) {
				t.Fatalf("%q: valid %v", raw, ok)
			} else if !ok {
				return
			}
			if end := valueEnd(e, raw, 0); end != len(raw) {
				t.Fatalf("%q ends at %d", raw, end)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, raw); err != nil || !bytes.Equal(want.Bytes(), compact(e, raw)) {
				t.Fatalf("%q is %q without white space, not %q", raw, want.Bytes(), compact(e, raw))
			}
			if raw[0] == '"' {
				var text string
				if err := json.Unmarshal(raw, &text); err != nil || unquote(e, raw) != text || !utf8.ValidString(text) {
					t.Fatalf("%q stands for %q, not %q", raw, text, unquote(e, raw))
				}
			}
		}
	})
}
