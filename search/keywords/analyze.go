package keywords

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	snowball "github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/vectors"
)

// token is a term with its position in a document or query.
type token struct {
	term string
	pos  uint32
}

// Limits of stored terms.
const (
	maxTermBytes = 128 // longer terms are cut, in documents and in queries
	valueGap     = 16  // positions between two values of a payload, so that no phrase spans both
)

// maxStems is how many stems are cached. It is a variable so that tests can lower it.
var maxStems = 1 << 16

// analyzer splits text into tokens. It is not safe for concurrent use.
type analyzer struct {
	Settings
	isQuery    bool // texts are queries: of consecutive characters the pairs are enough
	wholeRuns  bool // scripts are not told apart: consecutive characters are a word
	stemmer    *snowball.Env
	stems      map[string]string // cache
	runes      []rune
	buf        []byte
	pairTokens int // tokens that the length of a document does not count

	stopRequested   func() bool // where set, reports whether to stop, which leaves texts half read
	stepsUntilCheck int         // bytes or characters until it is called
}

// bytesPerCheck is how many bytes of a text are read between two checks whether to stop:
// some milliseconds at most.
var bytesPerCheck = 1 << 16 // a variable, so that tests reach it with shorter texts

// shouldStop counts n bytes or characters, and reports whether to stop reading.
func (a *analyzer) shouldStop(n int) bool {
	if a.stepsUntilCheck -= n; a.stepsUntilCheck > 0 || a.stopRequested == nil {
		return false
	}
	a.stepsUntilCheck = bytesPerCheck
	return a.stopRequested()
}

func newAnalyzer(s Settings) *analyzer {
	a := &analyzer{Settings: s}
	if s.Stemmer == English {
		a.stemmer, a.stems = snowball.NewEnv(""), map[string]string{}
	}
	return a
}

// documentTokens appends the tokens of all values of a document. The length of the document is
// their number minus a.pairTokens.
func (a *analyzer) documentTokens(dst []token, values []string) []token {
	pos := uint32(0)
	a.pairTokens = 0
	for _, v := range values {
		if dst, pos = a.appendTokens(dst, v, pos); pos > 1<<31 {
			break // this is not text
		}
		pos += valueGap
	}
	return dst
}

// appendTokens appends the tokens of a text and returns the position after the last one.
func (a *analyzer) appendTokens(dst []token, text string, pos uint32) ([]token, uint32) {
	if a.Tokenizer == Trigram {
		return a.appendTrigrams(dst, text, pos)
	}
	return a.appendWords(dst, text, pos)
}

// appendWords appends the words of a text: runs of letters and digits, case-folded, without
// accents. Stop words leave a gap. In scripts that are [human.UsesPairs] each character is a word, and
// so is each pair of consecutive characters, at the position of the first.
func (a *analyzer) appendWords(dst []token, text string, pos uint32) ([]token, uint32) {
	text = a.decompose(text)
	a.buf, a.runes = a.buf[:0], a.runes[:0]
	stripMarks := false // the letter before drops its marks
	endWord := func() {
		if len(a.runes) > 0 {
			dst, pos = a.appendCharacters(dst, pos)
			a.runes = a.runes[:0]
		}
		if len(a.buf) == 0 {
			return
		}
		if term, ok := a.bufferedTerm(); ok {
			dst = append(dst, token{term, pos})
		}
		pos++
		a.buf = a.buf[:0]
	}
	for _, r := range text {
		if a.shouldStop(1) {
			break
		}
		switch {
		case r < utf8.RuneSelf:
			if len(a.runes) > 0 {
				endWord()
			}
			switch {
			case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
				a.buf = append(a.buf, byte(r))
			case 'A' <= r && r <= 'Z':
				a.buf = append(a.buf, byte(r)|0x20)
			default:
				endWord()
			}
			stripMarks = true
		case isInvisible(r):
		case unicode.Is(unicode.M, r):
			if len(a.runes) > 0 {
				a.runes = append(a.runes, r)
			} else if !stripMarks && len(a.buf) > 0 {
				a.buf = utf8.AppendRune(a.buf, r)
			}
		case !a.wholeRuns && human.UsesPairs(r):
			if len(a.buf) > 0 {
				endWord()
			}
			a.runes = append(a.runes, r)
		case isWord(r):
			if len(a.runes) > 0 {
				endWord()
			}
			a.buf = utf8.AppendRune(a.buf, foldCase(r))
			stripMarks = losesMarks(r)
		default:
			endWord()
		}
	}
	endWord()
	return dst, pos
}

// appendCharacters appends the characters in a.runes, which begin with a letter, and each
// consecutive pair: letters with their marks, and Korean syllables, in one form (NFC). A query of
// one character finds it anywhere; for longer queries the pairs are enough.
func (a *analyzer) appendCharacters(dst []token, pos uint32) ([]token, uint32) {
	run := norm.NFC.String(string(a.runes))
	previous, start := -1, 0 // where the characters begin
	for start < len(run) && !a.shouldStop(1) {
		_, n := utf8.DecodeRuneInString(run[start:])
		end := start + n
		for end < len(run) {
			r, n := utf8.DecodeRuneInString(run[end:])
			if !unicode.Is(unicode.M, r) {
				break
			}
			end += n
		}
		if previous >= 0 {
			dst = append(dst, token{cutTerm(run[previous:end]), pos - 1})
			a.pairTokens++
		}
		if !a.isQuery || previous < 0 && end == len(run) {
			dst = append(dst, token{cutTerm(run[start:end]), pos})
		}
		previous, start = start, end
		pos++
	}
	return dst, pos
}

// cutTerm cuts a term to the stored length.
func cutTerm(word string) string {
	if len(word) > maxTermBytes {
		return strings.ToValidUTF8(word[:maxTermBytes], "")
	}
	return word
}

// bufferedTerm returns the stored term for the word in the buffer, stemmed. ok is false for stop
// words.
func (a *analyzer) bufferedTerm() (string, bool) {
	word := cutTerm(string(a.buf))
	if a.StopWords == English && englishStopWords[word] {
		return "", false
	}
	if a.stemmer == nil {
		return word, true
	}
	if s, ok := a.stems[word]; ok {
		return s, true
	}
	a.stemmer.SetCurrent(word)
	english.Stem(a.stemmer)
	s := a.stemmer.Current()
	if len(a.stems) >= maxStems {
		clear(a.stems)
	}
	a.stems[word] = s
	return s, s != ""
}

// appendTrigrams appends every three consecutive characters, so that queries find any part of the
// text. Blanks at the end let the last two characters begin a trigram, too.
func (a *analyzer) appendTrigrams(dst []token, text string, pos uint32) ([]token, uint32) {
	a.readLiteral(text)
	if len(a.runes) == 0 {
		return dst, pos
	}
	n := len(a.runes)
	a.runes = append(a.runes, ' ', ' ')
	for i := range n {
		if a.shouldStop(1) {
			break
		}
		dst = append(dst, token{string(a.runes[i : i+3]), pos + uint32(i)})
	}
	return dst, pos + uint32(n)
}

// readLiteral writes the characters of a text to a.runes: case-folded, without accents, with single
// blanks and none at the ends.
func (a *analyzer) readLiteral(text string) {
	a.runes = a.runes[:0]
	stripMarks, blank := false, false
	for _, r := range a.decompose(text) {
		if a.shouldStop(1) {
			break
		}
		switch {
		case unicode.IsSpace(r):
			blank = len(a.runes) > 0
			continue
		case isInvisible(r):
			continue
		case unicode.Is(unicode.M, r):
			if stripMarks {
				continue
			}
		default:
			stripMarks = losesMarks(r)
		}
		if blank {
			a.runes = append(a.runes, ' ')
			blank = false
		}
		a.runes = append(a.runes, foldCase(r))
	}
}

// decompose returns a text in the form NFKD: letters apart from their marks, and one form for
// characters that Unicode has in several.
func (a *analyzer) decompose(text string) string {
	ascii := 0
	for ascii < len(text) && text[ascii] < utf8.RuneSelf {
		ascii++
	}
	if ascii == len(text) {
		return text
	}
	if len(text) <= bytesPerCheck {
		return norm.NFKD.String(text)
	}
	var out strings.Builder
	for text != "" && !a.shouldStop(bytesPerCheck) {
		n := min(bytesPerCheck, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		// Text on one side of a boundary does not affect the form on the other.
		if next := norm.NFKD.FirstBoundaryInString(text[n:]); next >= 0 {
			n += next
		} else {
			n = len(text)
		}
		out.WriteString(norm.NFKD.String(text[:n]))
		text = text[n:]
	}
	return out.String()
}

// foldCase returns the same letter for both cases: also for σ and ς.
func foldCase(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

// isWord reports whether a character belongs to a word: letters, numbers, and characters for private
// use.
func isWord(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.Co) }

// isInvisible reports whether a character occurs within words but does not belong to them: soft
// hyphens, joiners, variation selectors and fillers.
func isInvisible(r rune) bool {
	return r == 0xAD || r == 0x34F || r >= 0x200B && r <= 0x200D || r == 0x2060 || r == 0xFEFF ||
		r == 0x115F || r == 0x1160 || unicode.Is(unicode.Variation_Selector, r)
}

// losesMarks reports whether the marks of a letter are accents or points that writers may omit. In
// other scripts marks are vowels, or make another letter.
func losesMarks(r rune) bool {
	return r < utf8.RuneSelf ||
		unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hebrew, unicode.Arabic)
}

// englishStopWords are those of Lucene's English analyzer, including the remains of "it's" and
// "don't" when words end at the apostrophe.
var englishStopWords = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`a an and are as at be but by for if in into is it no not of on or s such t
		that the their then there these they this to was will with`) {
		m[w] = true
	}
	return m
}()

// payloadTexts appends the texts of a payload that are searched, in their order:
//
//	JSON          every string, number, true and false at any depth; if fields are given,
//	              those of an object below these fields only, otherwise all except the
//	              description of a passage
//	other text    the text
//	other bytes   nothing
//
// Fields are those of conditions: see [condition.Field]. A path leads through objects, keys with
// dots and arrays of objects, and ignores the case of ASCII letters.
func payloadTexts(dst []string, payload []byte, fields []string) []string {
	switch {
	case !utf8.Valid(payload):
		return dst
	case !json.Valid(payload):
		return append(dst, string(payload))
	}
	if p := bytes.TrimLeft(payload, " \t\r\n"); p[0] != '{' {
		fields = nil
	}
	w := walker{Decoder: json.NewDecoder(bytes.NewReader(payload)), fields: fields, texts: dst}
	w.UseNumber() // keeps numbers as they are written
	w.walkValue(nil, len(fields) == 0)
	return w.texts
}

// walker collects the texts of valid JSON.
type walker struct {
	*json.Decoder
	fields []string
	texts  []string
}

// walkValue reads a value, and collects its text if it is wanted. path has the names of the fields
// around it, and "" for lists. Within an object, isSearched decides about each field. It returns
// false at the end of the text.
func (w *walker) walkValue(path []string, wanted bool) bool {
	token, err := w.Token()
	if err != nil {
		return false
	}
	text := ""
	switch t := token.(type) {
	case json.Delim:
		path = append(path, "")
		for w.More() {
			inside := wanted
			if t == '{' {
				name, _ := w.Token()
				key, _ := name.(string)
				if len(w.fields) > 0 {
					key = condition.Fold(key)
				}
				path[len(path)-1] = key
				inside = w.isSearched(path)
			}
			if !w.walkValue(path, inside) {
				return false
			}
		}
		_, err = w.Token()
	case string:
		text = t
	case json.Number:
		text = t.String()
	case bool:
		text = strconv.FormatBool(t)
	}
	if wanted && text != "" {
		w.texts = append(w.texts, text)
	}
	return err == nil
}

// isSearched reports whether the value of a field is searched.
func (w *walker) isSearched(path []string) bool {
	if len(w.fields) == 0 {
		return path[0] != vectors.PassageField // it has numbers and an id
	}
	name := strings.Join(slices.DeleteFunc(slices.Clone(path), func(s string) bool { return s == "" }), ".")
	return slices.ContainsFunc(w.fields, func(f string) bool { return name == f || strings.HasPrefix(name, f+".") })
}
