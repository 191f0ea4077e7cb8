package human

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words are those of a question: runs of letters and digits, in lower case, and of scripts that are
// [Paired] each two characters in a row. They are found in texts, for those who show the best part
// of a text.
type Words map[string]bool

// WordsOf are the words of a question that are long enough to tell something: three characters.
func WordsOf(question string) Words {
	s := Words{}
	after := 0 // the last pair
	for at, word := range words(question) {
		first, _ := utf8.DecodeRuneInString(word)
		if single := character(word) == len(word); Paired(first) && (!single || at >= after) {
			s[word] = true
			after = at + len(word)
		} else if !Paired(first) && utf8.RuneCountInString(word) > 2 {
			s[strings.ToLower(word)] = true
		}
	}
	return s
}

// words gives the words of a text with their places, as bytes: of scripts that are [Paired] the two
// characters that begin at each, and the last one alone.
func words(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for at := 0; at < len(text); {
			r, size := utf8.DecodeRuneInString(text[at:])
			end := at + size
			switch {
			case Paired(r):
				next := at + character(text[at:])
				if end = next; next < len(text) {
					if r, _ := utf8.DecodeRuneInString(text[next:]); Paired(r) {
						end += character(text[next:])
					}
				}
				size = next - at
			case notOfWord(r):
				at = end
				continue
			default:
				if n := strings.IndexFunc(text[at:], func(r rune) bool { return notOfWord(r) || Paired(r) }); n >= 0 {
					end = at + n
				} else {
					end = len(text)
				}
				size = end - at
			}
			if !yield(at, text[at:end]) {
				return
			}
			at += size
		}
	}
}

// character is how many bytes the first character of a text has, with its marks.
func character(text string) int {
	_, n := utf8.DecodeRuneInString(text)
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		if !unicode.IsMark(r) {
			break
		}
		n += size
	}
	return n
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
		for at, word := range words(text) {
			word = strings.ToLower(word)
			if first := word[:character(word)]; !s[word] && s[first] { // as a question of one character
				word = first
			}
			if s[word] && !yield(at, word) {
				return
			}
		}
	}
}

func notOfWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
