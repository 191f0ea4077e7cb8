package tokenizer

import (
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// scanner is one of the patterns by which byte-level tokenizers split text.
// Every character is in a match. No regular expression of Go's can look ahead,
// as \s+(?!\S) does: white space but for the last one before a word.
type scanner struct {
	old    bool // GPT-2's: one blank before letters, digits, others; contractions in lower case
	digits int  // most digits of a match; 0: any number
}

var gpt2 = &scanner{old: true}

// scanners are the patterns that are known as regular expressions: of GPT-2, of
// Llama 3 (and, in another spelling, GPT-4) and of Qwen 2.
var scanners = map[string]matcher{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: gpt2,

	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: &scanner{digits: 3},
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      &scanner{digits: 1},
}

// kinds of characters, of which each has one.
const kinds = chars.Letter | chars.Number | chars.Blank

// kind is the class of the character at i, 0 for what is none of kinds, and its
// length; at the end of the text the length is 0.
func kind(text []byte, i int) (chars.Prop, int) {
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

// run is the end of the characters of a kind from i on, at most so many (0: any number).
func run(text []byte, i int, k chars.Prop, most int) int {
	for n := 0; most == 0 || n < most; n++ {
		kk, size := kind(text, i)
		if size == 0 || kk != k {
			break
		}
		i += size
	}
	return i
}

func (s *scanner) find(text []byte, from int) (int, int) {
	if from >= len(text) {
		return -1, -1
	}
	return from, s.end(text, from)
}

func (s *scanner) end(text []byte, i int) int {
	c := text[i]
	if c == '\'' {
		if n := contraction(text[i+1:], !s.old); n > 0 {
			return i + 1 + n
		}
	}
	k, size := kind(text, i)
	after, n := k, 0 // the kind after one character that may go before a word
	if k == chars.Blank || k == 0 {
		after, n = kind(text, i+size)
	}
	switch {
	case k == chars.Letter:
		return run(text, i, k, 0)
	case k == chars.Number:
		return run(text, i, k, s.digits)
	case s.old && c == ' ' && n > 0 && after != chars.Blank:
		return run(text, i+1, after, 0)
	case !s.old && after == chars.Letter && n > 0 && c != '\r' && c != '\n':
		return run(text, i+size, after, 0)
	case k == 0 || !s.old && c == ' ' && n > 0 && after == 0:
		end := run(text, i+size, 0, 0)
		for !s.old && end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	return s.blanks(text, i)
}

// blanks is the end of a match of white space.
func (s *scanner) blanks(text []byte, i int) int {
	end := run(text, i, chars.Blank, 0)
	if !s.old {
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

// contraction is the length of what may follow an apostrophe: s, t, re, ve, m,
// ll, d; with anyCase in capitals too, and ſ for s.
func contraction(text []byte, anyCase bool) int {
	at := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if c := text[i]; anyCase && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return text[i]
	}
	switch at(0) {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if at(1) == 'e' {
			return 2
		}
	case 'l':
		if at(1) == 'l' {
			return 2
		}
	case 0xC5:
		if anyCase && at(1) == 0xBF {
			return 2
		}
	}
	return 0
}
