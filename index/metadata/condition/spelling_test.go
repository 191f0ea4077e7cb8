package condition_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// The two spellings of Unicode find each other, in both directions, and NOT leaves out both.
func TestSpellings(t *testing.T) {
	nfc, nfd := norm.NFC.String("Mémoire café.md"), norm.NFD.String("Mémoire café.md")
	require.NotEqual(t, nfc, nfd)
	for _, stored := range []string{nfc, nfd} {
		payload, err := json.Marshal(map[string]any{"path": stored, "n": 1})
		require.NoError(t, err)
		d := new(condition.Evaluation).Document(payload, stored, 0)
		for _, asked := range []string{nfc, nfd} {
			half := asked[len("Mémoire "):]
			for text, want := range map[string]bool{
				"path = ?": true, "path != ?": false, "path IN ('x', ?)": true, "path NOT IN (?)": false, "_id = ?": true,
				"path LIKE ?": true, "path NOT LIKE ?": false, "path LIKE ? ESCAPE '!'": true, "n = 1 AND (path = 'x' OR path == ?)": true,
			} {
				e, err := condition.Parse(text)
				require.NoError(t, err)
				c, err := e.Bind(asked)
				require.NoError(t, err)
				require.Equal(t, want, c.Match(d), "%s: %q of %q", text, asked, stored)
			}
			c, err := condition.Parse("path LIKE ?")
			require.NoError(t, err)
			like, err := c.Bind("%" + half)
			require.NoError(t, err)
			require.True(t, like.Match(d))
			other, err := c.Bind("%cafe.md")
			require.NoError(t, err)
			require.False(t, other.Match(d), "without its accent it is another word")
		}
	}
}

// The character of ESCAPE is one of the pattern as it is written, and not of another spelling.
func TestEscapedSpellings(t *testing.T) {
	like := func(stored, pattern, escape string) bool {
		payload, err := json.Marshal(map[string]string{"x": stored})
		require.NoError(t, err)
		e, err := condition.Parse("x LIKE ? ESCAPE ?")
		require.NoError(t, err)
		c, err := e.Bind(pattern, escape)
		require.NoError(t, err)
		return c.Match(new(condition.Evaluation).Document(payload, "", 0))
	}
	for _, x := range []struct {
		stored, pattern, escape string
		want                    bool
	}{
		{"\u00e9x", "\u00e9%", "e", true}, {"\u0301x", "\u00e9%", "e", false},
		{"\u2260%", "\u2260=%", "=", true}, {"\u0338%", "\u2260=%", "=", false}, {"\u2260x", "\u2260=%", "=", false},
		{"caf\u00e9%", "cafe\u0301!%", "!", true}, {"cafe\u0301%", "caf\u00e9!%", "!", true},
		{"caf\u00e9%", "cafe\u0301\u0436%", "\u0436", true}, {"caf\u00e9x", "cafe\u0301\u0436%", "\u0436", false},
	} {
		require.Equal(t, x.want, like(x.stored, x.pattern, x.escape), "%q LIKE %q ESCAPE %q", x.stored, x.pattern, x.escape)
	}
}

// What is wrong with a condition says how it is written.
func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		`title = "cell"`:                "a value is needed, and text stands in single quotes: 'cell', at character 9",
		`title = cell`:                  "text stands in single quotes: 'cell'",
		`title IN ("it's")`:             "text stands in single quotes: 'it''s'",
		`'title' = 'cell'`:              "a field is needed, and comes before the value (tags = 'a' is true of a list with 'a'); its name is in double quotes, or in none",
		`title LIKE 'a' ESCAPE`:         "a value is needed",
		`title = 'a' ESCAPE '!'`:        "AND, OR or the end is needed",
		`title === 'a'`:                 "a value is needed",
		`title LIKE 'a' ESCAPE '' `:     "ESCAPE is one character",
		`title LIKE 'a' ESCAPE '!!'`:    "ESCAPE is one character, and not \"!!\"",
		`title LIKE 'a' ESCAPE 10`:      "ESCAPE is one character",
		`title LIKE NULL ESCAPE '!!'`:   "ESCAPE is one character",
		`title LIKE 'a' ESCAPE "x"`:     "text stands in single quotes: 'x'",
		`title LIKE 'a' ESCAPE '!' and`: "a field is needed",
	} {
		e, err := condition.Parse(text)
		if err == nil {
			_, err = e.Bind()
		}
		require.ErrorContains(t, err, want, text)
	}
	e, err := condition.Parse("escape = 1 OR a.escape LIKE 'x' escape '!'") // a field may be called so
	require.NoError(t, err)
	require.Equal(t, []condition.Field{"escape", "a.escape"}, e.Fields())
	_, err = condition.ParsePlaceholders("a LIKE ? ESCAPE '!'")
	require.ErrorContains(t, err, "? is needed")
}
