package human

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words are the words of a question: runs of letters and digits, in lower case, and in scripts that
// are [UsesPairs] each two consecutive characters. They serve to find the best part of a text to show.
type Words map[string]bool

// QuestionWords returns the words of a question that have at least three characters, and so carry
// meaning.
func QuestionWords(question string) Words {
	s := Words{}
	pairEnd := 0 // where the last pair ended
	for offset, word := range textWords(question) {
		first, _ := utf8.DecodeRuneInString(word)
		// A character alone counts if no pair ends with it.
		if single := firstCharLen(word) == len(word); UsesPairs(first) && (!single || offset >= pairEnd) {
			s[word] = true
			pairEnd = offset + len(word)
		} else if !UsesPairs(first) && utf8.RuneCountInString(word) > 2 {
			s[strings.ToLower(word)] = true
		}
	}
	return s
}

// textWords yields the words of a text with their byte offsets. In scripts that are [UsesPairs] it
// yields the two characters that begin at each character, and the last one alone.
func textWords(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for offset := 0; offset < len(text); {
			r, size := utf8.DecodeRuneInString(text[offset:])
			end := offset + size
			switch {
			case UsesPairs(r):
				next := offset + firstCharLen(text[offset:])
				if end = next; next < len(text) {
					if r, _ := utf8.DecodeRuneInString(text[next:]); UsesPairs(r) {
						end += firstCharLen(text[next:])
					}
				}
				size = next - offset
			case isSeparator(r):
				offset = end
				continue
			default:
				endsWord := func(r rune) bool { return isSeparator(r) || UsesPairs(r) }
				if n := strings.IndexFunc(text[offset:], endsWord); n >= 0 {
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

// firstCharLen returns the number of bytes of the first character of a text, including its marks.
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

// Count returns how many different words of s a text has.
func (s Words) Count(text string) int {
	found := Words{}
	for _, word := range s.Find(text) {
		found[word] = true
	}
	return len(found)
}

// Find yields the byte offsets of the words in a text, in order.
func (s Words) Find(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for offset, word := range textWords(text) {
			word = strings.ToLower(word)
			if first := word[:firstCharLen(word)]; !s[word] && s[first] { // a question of a single character
				word = first
			}
			if s[word] && !yield(offset, word) {
				return
			}
		}
	}
}

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
