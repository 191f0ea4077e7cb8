package tokenizer

import (
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// scanner is a pattern by which byte-level tokenizers split text.
// Every character is in a match. Regular expressions of Go cannot look ahead,
// as \s+(?!\S) does: it matches white space without the last character before a word.
type scanner struct {
	isGPT2    bool // the pattern of GPT-2: one blank before letters, digits, others; contractions in lower case
	maxDigits int  // the maximum of digits in a match. 0 means any number
}

var gpt2 = &scanner{isGPT2: true}

// The parts of the patterns of Llama 3 and Qwen 2, which differ in the digits between them.
const (
	wordsPattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	othersPattern = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanners are the supported patterns by their regular expressions: of GPT-2, of
// Llama 3 (and, in another spelling, GPT-4) and of Qwen 2.
var scanners = map[string]matcher{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: gpt2,

	wordsPattern + `\p{N}{1,3}` + othersPattern: &scanner{maxDigits: 3},
	wordsPattern + `\p{N}` + othersPattern:      &scanner{maxDigits: 1},
}

// kinds are the kinds of characters. A character has at most one.
const kinds = chars.Letter | chars.Number | chars.Blank

// kindAt returns the kind of the character at i, or 0 for other characters, and its
// length. At the end of the text the length is 0.
func kindAt(text []byte, i int) (chars.Prop, int) {
	if i >= len(text) {
		return 0, 0
	}
	if c := text[i]; c < utf8.RuneSelf {
		switch {
		case (c|0x20)-'a' < 26:
			return chars.Letter, 1
		case c == ' ' || c >= '\t' && c <= '\r':
			return chars.Blank, 1
		case c >= '0' && c <= '9':
			return chars.Number, 1
		}
		return 0, 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return chars.Prop(chars.InfoOf(r)) & kinds, n
}

// runEnd returns the end of the run of characters of kind k at i, or of its first limit characters. A limit
// of 0 means any number.
func runEnd(text []byte, i int, k chars.Prop, limit int) int {
	for n := 0; limit == 0 || n < limit; n++ {
		kind, size := kindAt(text, i)
		if size == 0 || kind != k {
			break
		}
		i += size
	}
	return i
}

func (s *scanner) findMatch(text []byte, from int) (int, int) {
	if from >= len(text) {
		return -1, -1
	}
	return from, s.matchEnd(text, from)
}

// matchEnd returns the end of the match that begins at i. Its cases are the alternatives of the pattern,
// in order.
func (s *scanner) matchEnd(text []byte, i int) int {
	c := text[i]
	if c == '\'' {
		if n := contraction(text[i+1:], !s.isGPT2); n > 0 {
			return i + 1 + n
		}
	}
	k, size := kindAt(text, i)
	after, n := k, 0 // the kind of the next character, if this one may go before a word
	if k == chars.Blank || k == 0 {
		after, n = kindAt(text, i+size)
	}
	switch {
	case k == chars.Letter:
		return runEnd(text, i, k, 0)
	case k == chars.Number:
		return runEnd(text, i, k, s.maxDigits)
	case s.isGPT2 && c == ' ' && n > 0 && after != chars.Blank:
		return runEnd(text, i+1, after, 0)
	case !s.isGPT2 && after == chars.Letter && n > 0 && c != '\r' && c != '\n':
		return runEnd(text, i+size, after, 0)
	case k == 0 || !s.isGPT2 && c == ' ' && n > 0 && after == 0:
		end := runEnd(text, i+size, 0, 0)
		for !s.isGPT2 && end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	return s.blanksEnd(text, i)
}

// blanksEnd returns the end of the match of white space that begins at i.
func (s *scanner) blanksEnd(text []byte, i int) int {
	end := runEnd(text, i, chars.Blank, 0)
	if !s.isGPT2 {
		for j := end; j > i; j-- {
			if text[j-1] == '\n' || text[j-1] == '\r' {
				return j
			}
		}
	}
	if end == len(text) {
		return end
	}
	if _, last := utf8.DecodeLastRune(text[i:end]); end-last > i {
		return end - last
	}
	return end
}

// contraction returns the length of the letters after an apostrophe that text begins with: s, t, re,
// ve, m, ll or d. anyCase also allows capitals, and ſ for s. 0 means none of them.
func contraction(text []byte, anyCase bool) int {
	letter := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if c := text[i]; anyCase && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return text[i]
	}
	switch letter(0) {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if letter(1) == 'e' {
			return 2
		}
	case 'l':
		if letter(1) == 'l' {
			return 2
		}
	case 0xC5:
		if anyCase && letter(1) == 0xBF {
			return 2
		}
	}
	return 0
}
