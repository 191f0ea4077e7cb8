package condition

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func literals(t *testing.T, value string) (all []Literal) {
	there, err := NewDocument([]byte(`{"a": `+value+`}`), "", 0).Literals("a", func(l Literal) error {
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
	require.Equal(t, []Literal{{}, plain(intValue(1)), {Value: intValue(1), Form: Boolean}, {Value: textValue(`["x,]"]`), Form: Nested}, plain(textValue("}"))},
		literals(t, ` [null , 1.0,true,[ "x,]"] ,"}" ] `))
	there, err := NewDocument([]byte(`{"b": 1}`), "", 0).Literals("a", nil)
	require.NoError(t, err)
	require.False(t, there)
}

func TestParseField(t *testing.T) {
	for text, want := range map[string]Field{
		"lang": "lang", " Author . Name": "author.name", `"publication date"."in"`: `"publication date"."in"`, "a.in": `a."in"`, "_id": "_id", `"a"`: "a",
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
