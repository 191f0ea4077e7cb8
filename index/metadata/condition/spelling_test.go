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

// What is wrong with a condition says how it is written.
func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		`title = "cell"`:                "a value is needed, and text stands in single quotes: 'cell', at character 9",
		`title = cell`:                  "text stands in single quotes: 'cell'",
		`title IN ("it's")`:             "text stands in single quotes: 'it''s'",
		`'title' = 'cell'`:              "a field is needed; the name of one stands in double quotes, or in none",
		`title LIKE 'a' ESCAPE`:         "a value is needed",
		`title = 'a' ESCAPE '!'`:        "AND, OR or the end is needed",
		`title === 'a'`:                 "a value is needed",
		`title LIKE 'a' ESCAPE '' `:     "ESCAPE is one character",
		`title LIKE 'a' ESCAPE '!!'`:    "ESCAPE is one character, and not \"!!\"",
		`title LIKE 'a' ESCAPE 10`:      "ESCAPE is one character",
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
