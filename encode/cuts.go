package encode

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/human"
)

// cutFunc splits a text into pieces and returns their ends. The last one is the end of the text.
type cutFunc func(text string) (ends []int)

// trimSpan returns the bounds of text[start:end] without the white space around it.
func trimSpan(text string, start, end int) (int, int) {
	part := strings.TrimLeftFunc(text[start:end], unicode.IsSpace)
	start = end - len(part)
	return start, start + len(strings.TrimRightFunc(part, unicode.IsSpace))
}

// wordEnds ends pieces where white space begins.
func wordEnds(text string) (ends []int) {
	space := true
	for i, r := range text {
		isSpace := unicode.IsSpace(r)
		if isSpace && !space {
			ends = append(ends, i)
		}
		space = isSpace
	}
	return append(ends, len(text))
}

// runeEnds ends pieces after each character of Unicode.
func runeEnds(text string) (ends []int) {
	for i := range text {
		if i > 0 {
			ends = append(ends, i)
		}
	}
	return append(ends, len(text))
}

// characterEnds ends pieces after each character as a reader sees it: a letter with its
// combining marks, a syllable of Hangul, a flag, or joined emoji.
func characterEnds(text string) (ends []int) {
	const joiner = 0x200d
	joined, halfFlag := true, false // joined: no piece ends before the first rune
	for i, r := range text {
		indicator := r >= 0x1f1e6 && r <= 0x1f1ff // regional indicators: two of them are a flag
		if !joined && !extendsCharacter(r) && !(halfFlag && indicator) {
			ends = append(ends, i)
			halfFlag = false
		}
		halfFlag = indicator && !halfFlag
		joined = r == joiner
	}
	return append(ends, len(text))
}

// extendsCharacter reports whether a rune belongs to the character before it.
func extendsCharacter(r rune) bool {
	switch {
	case r < 0x300:
		return false
	case r >= 0x1160 && r <= 0x11ff, r >= 0xd7b0 && r <= 0xd7fb: // vowels and finals of Hangul
		return true
	case r == 0xe33, r == 0xeb3: // vowels of Thai and Lao that stand behind their letter
		return true
	case r == 0x200c, r == 0x200d: // joiners
		return true
	case r == 0xff9e, r == 0xff9f: // half-width voicing marks of Japanese
		return true
	case r >= 0x1f3fb && r <= 0x1f3ff, r >= 0xe0020 && r <= 0xe007f: // skin tones, tags of flags
		return true
	}
	return unicode.Is(unicode.M, r)
}

// longWord is the length in characters at which a run without blanks counts as a word, and the
// next word begins.
const longWord = 32

// countWords calls visit with the end of each word, as [Splitting.Window] counts words.
func countWords(text string, visit func(end int)) {
	length := 0 // in characters, of the word that has not ended
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		space, isWord := unicode.IsSpace(r), isBlankless(r)
		switch {
		case extendsCharacter(r):
			continue
		case !space && !isWord:
			if length++; length == longWord {
				visit(i + size)
				length = 0
			}
			continue
		case length > 0:
			visit(i)
			length = 0
		}
		if isWord {
			visit(i + size)
		}
	}
	if length > 0 {
		visit(len(text))
	}
}

// isBlankless reports whether a letter or punctuation mark belongs to a script without spaces
// between words.
func isBlankless(r rune) bool {
	switch {
	case r < 0xe00:
		return false
	case r >= 0x3000 && r <= 0x30ff, r >= 0xff00 && r <= 0xffef: // with punctuation
		return true
	}
	return human.HasNoBlanks(r)
}

// sentenceEnds ends pieces where sentences end.
func sentenceEnds(text string) (ends []int) {
	for i := 0; i < len(text); {
		n, isEnd := scanSentenceEnd(text[i:])
		if i += n; isEnd && i < len(text) {
			ends = append(ends, i)
		}
	}
	return append(ends, len(text))
}

// lineEnds ends pieces after line feeds.
func lineEnds(text string) (ends []int) {
	end := 0
	for line := range strings.Lines(text) {
		end += len(line)
		ends = append(ends, end)
	}
	return ends
}

// codeBlockEnds ends pieces where the next block of source code begins: at a line without
// indentation after an empty line, unless it begins with a closing bracket. So a function and the comment
// above it are one block.
func codeBlockEnds(text string) (ends []int) {
	offset, afterEmpty := 0, false
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, " \t\r\n")
		if bare != "" && afterEmpty && !strings.ContainsRune(" \t)}]", rune(bare[0])) {
			ends = append(ends, offset)
		}
		afterEmpty = bare == ""
		offset += len(line)
	}
	return append(ends, offset)
}

// scanSentenceEnd returns the number of bytes of the first character of s, or of the run of punctuation marks
// there, and reports whether a sentence ends after it. A sentence ends at an empty line, at a full
// stop of Chinese or Japanese, and at a Western full stop with any closing quotes and brackets, if
// it is followed by white space and the next character is not a lower-case letter.
func scanSentenceEnd(s string) (n int, ends bool) {
	first, n := utf8.DecodeRuneInString(s)
	switch {
	case strings.HasPrefix(s, "\n\n") || strings.HasPrefix(s, "\n\r\n"):
		return 2, true // the rest of the empty line belongs to the next sentence
	case !strings.ContainsRune(".!?…。！？", first):
		return n, false
	}
	wide := strings.ContainsRune("。！？", first)
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !strings.ContainsRune(".!?…。！？\"')]}”’»」』）", r) {
			break
		}
		wide = wide || strings.ContainsRune("。！？", r)
		n += size
	}
	rest := strings.TrimLeftFunc(s[n:], unicode.IsSpace)
	next, _ := utf8.DecodeRuneInString(rest)
	spaceFollows := len(rest) < len(s)-n
	return n, wide || rest == "" || spaceFollows && !unicode.IsLower(next)
}
