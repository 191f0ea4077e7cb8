package human_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/human"
)

func TestWords(t *testing.T) {
	s := human.QuestionWords("Wo ist der Größte, is it 2024 or né?")
	require.Equal(t, human.Words{"ist": true, "der": true, "größte": true, "2024": true}, s)
	text := "…der GRÖSSTE? Der größte! xder2024 \xff2024"
	type place struct {
		at   int
		word string
	}
	var found []place
	for at, word := range s.Find(text) {
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
	require.Zero(t, human.QuestionWords("").Count(text))
	for at := range s.Find(text) { // may be left
		require.Equal(t, 3, at)
		break
	}
}

// Of scripts without blanks, and of Korean, each two characters in a row are looked for.
func TestPairs(t *testing.T) {
	require.Equal(t, human.Words{"東京": true, "京の": true, "の天": true, "天気": true, "茶": true, "ที่นี่": true},
		human.QuestionWords("東京の天気 is 茶 ที่นี่?"))
	s := human.QuestionWords("東京? お茶 서울에서")
	type place struct {
		at   int
		word string
	}
	var found []place
	for at, word := range s.Find("x京都東京都、서울 お茶") {
		found = append(found, place{at, word})
	}
	require.Equal(t, []place{{7, "東京"}, {19, "서울"}, {26, "お茶"}}, found)
	require.Equal(t, 1, human.QuestionWords("茶").Count("お茶を"), "one character is found anywhere")
	for text, paired := range map[string]bool{"東": true, "ー": true, "ｰ": true, "한": true, "ไ": true, "𠮷": true, "ང": false, "a": false, "д": false, "हि": false, "、": false, "។": false, "။": false, "๏": false, "ក": true, "က": true} {
		require.Equal(t, paired, human.UsesPairs([]rune(text)[0]), text)
	}
	require.True(t, human.HasNoBlanks('ང'))
	require.False(t, human.HasNoBlanks('한'))
}
