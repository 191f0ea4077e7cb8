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
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

func literals(t *testing.T, value string) (all []Literal) {
	there, err := new(Evaluation).Document([]byte(`{"a": `+value+`}`), "", 0).Literals("a", func(l Literal) error {
		all = append(all, l)
		return nil
	})
	require.NoError(t, err)
	require.True(t, there)
	return all
}

// Literals are in one order, in which each is above all before it, and go to JSON and back.
func TestLiterals(t *testing.T) {
	var last *Literal
	for _, value := range []string{
		`-1e999`, `-1e300`, `-2.5`, `-1`, `0`, `false`, `1`, `true`, `1.5`, `9007199254740992`, `9007199254740993`, `9223372036854775807`, `9223372036854775808`, `1e300`, `1e999`,
		`""`, `"1"`, `"["`, `"[1]"`, `[[1]]`, `"[]"`, `[[]]`, `"a"`, `"{}"`, `{}`, `"é"`,
	} {
		all := literals(t, value)
		require.Len(t, all, 1, value)
		l := all[0]
		if last != nil {
			require.Positive(t, l.Compare(*last), value)
			require.Negative(t, last.Compare(l), value)
		}
		require.Zero(t, l.Compare(l))
		b, err := json.Marshal([]Literal{l})
		require.NoError(t, err)
		require.Equal(t, all, literals(t, string(b)))
		last = &l
	}
	for _, alike := range [][2]string{{`1`, `1.0`}, {`-0.0`, `0`}, {`1e3`, `1000`}, {`"\u0061"`, `"a"`}, {`{"b": 1}`, `{"b":1}`}, {`9007199254740992`, `9007199254740992.0`}} {
		require.Equal(t, literals(t, alike[0]), literals(t, alike[1]))
	}
	require.Empty(t, literals(t, ` [ ] `))
	require.Equal(t, []Literal{{}}, literals(t, `null`))
	require.Equal(t, []Literal{{}, plainLiteral(intValue(1)), {Value: intValue(1), Form: Boolean}, {Value: textValue(`["x,]"]`), Form: Nested}, plainLiteral(textValue("}"))},
		literals(t, ` [null , 1.0,true,[ "x,]"] ,"}" ] `))
	there, err := new(Evaluation).Document([]byte(`{"b": 1}`), "", 0).Literals("a", nil)
	require.NoError(t, err)
	require.False(t, there)
}

func TestParseField(t *testing.T) {
	for text, want := range map[string]Field{
		"lang": "lang", " Author . Name": "author.name", `"publication date"."in"`: `"publication date"."in"`, "a.in": `a."in"`, "_id": "_id", `"a"`: "a",
		`"a.b c".d`: `a."b c".d`, `"author.name"`: "author.name", `"..x"`: `""."".x`,
	} {
		f, err := ParseField(text)
		require.NoError(t, err)
		require.Equal(t, want, f)
	}
	for text, says := range map[string]string{"": "at its end", "a b": "character 3", "in": "double quotes", "a.": "at its end", "a = 1": "the end of the field", "'a'": "character 1", "\xff": "UTF-8"} {
		_, err := ParseField(text)
		require.ErrorIs(t, err, ErrSyntax, text)
		require.ErrorContains(t, err, says)
	}
}

// A payload of many megabytes is no longer read once the context has ended, whatever it is
// made of, and however little of it a condition names.
func TestLongPayloadsEndWithTheirContext(t *testing.T) {
	size := effort.Cases(1<<18, 1<<20)
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
		read := map[string]func(d *Record){
			"value":    func(d *Record) { d.Value("a") },
			"fields":   func(d *Record) { d.Fields(4, func(Field, Value, Form) bool { return true }) },
			"literals": func(d *Record) { _, _ = d.Literals("a", func(Literal) error { return nil }) },
		}
		c := bindText(t, "a = 1")
		for what, fn := range read {
			ctx := countdown.New(math.MaxInt)
			e := NewEvaluation(ctx)
			fn(e.Document([]byte(payload), "", 0))
			require.NoError(t, e.Err())
			looks := math.MaxInt - ctx.Remaining()
			require.GreaterOrEqual(t, looks, size/checkInterval, "%s: %s", name, what)
			for left := 0; left < looks; left += 1 + looks/effort.Cases(3, 7) {
				ctx := countdown.New(left)
				e := NewEvaluation(ctx)
				fn(e.Document([]byte(payload), "", 0))
				require.ErrorIs(t, e.Err(), context.Canceled, "%s: %s", name, what)
				require.Equal(t, -1, ctx.Remaining(), "it is asked no more once it has ended")
			}
		}
		ctx := countdown.New(3)
		e := NewEvaluation(ctx)
		_, err := e.Match(c, e.Document([]byte(payload), "", 0))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, -1, ctx.Remaining())
	}
}

// What is read in steps is what encoding/json reads at once.
func FuzzReading(f *testing.F) {
	for _, s := range []string{`{"a": [1, "x\"y", {"b" : null}], "é\n": "\ud83d\ude00\ud800\u00e9\\u0041"}`, "\"\xff\xe2\x82\xac\xe2\x82 \\ud83d\xff\"", `"\ud83d\\ud83d\ude00"`, ` [ ] `, `"   "`, `"\u00e9é\u0020"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer func(was int) { checkInterval = was }(checkInterval)
		raw = bytes.TrimSpace(raw)
		for _, checkInterval = range []int{1, 4, 100} {
			e := NewEvaluation(context.Background())
			if ok := isValidJSON(e, raw); ok != json.Valid(raw) {
				t.Fatalf("%q: valid %v", raw, ok)
			} else if !ok {
				return
			}
			if end := valueEnd(e, raw, 0); end != len(raw) {
				t.Fatalf("%q ends at %d", raw, end)
			}
			var want bytes.Buffer
			got := compactJSON(e, raw)
			if err := json.Compact(&want, raw); err != nil || bytes.IndexByte(raw, '\\') < 0 && !bytes.Equal(want.Bytes(), got) {
				t.Fatalf("%q is %q without white space, not %q", raw, want.Bytes(), got)
			}
			require.Equal(t, decodedJSON(t, raw), decodedJSON(t, got), "%q", got)
			require.Equal(t, got, compactJSON(e, got))
			if len(want.Bytes()) < len(got) {
				t.Fatalf("%q is longer than %q", got, want.Bytes())
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

func decodedJSON(t *testing.T, raw []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}
