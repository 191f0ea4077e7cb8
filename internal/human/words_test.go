package human_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/human"
)

func TestWords(t *testing.T) {
	s := human.WordsOf("Wo ist der Größte, is it 2024 or né?")
	require.Equal(t, human.Words{"ist": true, "der": true, "größte": true, "2024": true}, s)
	text := "…der GRÖSSTE? Der größte! xder2024 \xff2024"
	type place struct {
		at   int
		word string
	}
	var found []place
	for at, word := range s.In(text) {
		require.Equal(t, word, strings.ToLower(text[at:at+len(word)]))
		found = append(found, place{at, word})
	}
	require.Equal(t, []string{"der", "der", "größte", "2024"}, func() (w []string) {
		for _, f := range found {
			w = append(w, f.word)
		}
		return w
	}())
	require.Equal(t, 3, s.Count(text))
	require.Zero(t, human.WordsOf("").Count(text))
	for at := range s.In(text) { // may be left
		require.Equal(t, 3, at)
		break
	}
}
