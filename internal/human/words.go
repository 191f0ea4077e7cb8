package human

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words are those of a question: runs of letters and digits, in lower case. They are found in texts, for
// those who show the best part of a text.
type Words map[string]bool

// WordsOf are the words of a question that are long enough to tell something: three characters.
func WordsOf(question string) Words {
	s := Words{}
	for word := range strings.FieldsFuncSeq(strings.ToLower(question), notOfWord) {
		if utf8.RuneCountInString(word) > 2 {
			s[word] = true
		}
	}
	return s
}

// Count is how many different words a text has.
func (s Words) Count(text string) int {
	found := Words{}
	for _, word := range s.In(text) {
		found[word] = true
	}
	return len(found)
}

// In gives the places of the words in a text, as bytes, in order.
func (s Words) In(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for at := 0; at < len(text); {
			size := strings.IndexFunc(text[at:], notOfWord)
			if size < 0 {
				size = len(text) - at
			}
			if size == 0 {
				_, n := utf8.DecodeRuneInString(text[at:])
				at += n
				continue
			}
			if word := strings.ToLower(text[at : at+size]); s[word] && !yield(at, word) {
				return
			}
			at += size
		}
	}
}

func notOfWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
