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
	pairEnd := 0 // the last pair
	for offset, word := range textWords(question) {
		first, _ := utf8.DecodeRuneInString(word)
		if single := firstCharLen(word) == len(word); Paired(first) && (!single || offset >= pairEnd) {
			s[word] = true
			pairEnd = offset + len(word)
		} else if !Paired(first) && utf8.RuneCountInString(word) > 2 {
			s[strings.ToLower(word)] = true
		}
	}
	return s
}

// textWords gives the words of a text with their places, as bytes: of scripts that are [Paired] the two
// characters that begin at each, and the last one alone.
func textWords(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for offset := 0; offset < len(text); {
			r, size := utf8.DecodeRuneInString(text[offset:])
			end := offset + size
			switch {
			case Paired(r):
				next := offset + firstCharLen(text[offset:])
				if end = next; next < len(text) {
					if r, _ := utf8.DecodeRuneInString(text[next:]); Paired(r) {
						end += firstCharLen(text[next:])
					}
				}
				size = next - offset
			case isSeparator(r):
				offset = end
				continue
			default:
				if n := strings.IndexFunc(text[offset:], func(r rune) bool { return isSeparator(r) || Paired(r) }); n >= 0 {
					end = offset + n
				} else {
					end = len(text)
				}
				size = end - offset
			}
			if !yield(offset, text[offset:end]) {
				return
			}
			offset += size
		}
	}
}

// firstCharLen is how many bytes the first character of a text has, with its marks.
func firstCharLen(text string) int {
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
		for offset, word := range textWords(text) {
			word = strings.ToLower(word)
			if first := word[:firstCharLen(word)]; !s[word] && s[first] { // as a question of one character
				word = first
			}
			if s[word] && !yield(offset, word) {
				return
			}
		}
	}
}

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
