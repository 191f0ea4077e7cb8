// Package highlight finds the words of a document's text that match the words of a question, from
// the matches of a search ([search.Options].Matches). It tokenizes the text again to locate its
// tokens, but computes no vectors.
package highlight

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/search"
)

// Reasons why the words of a document are unknown.
var (
	ErrNoText    = errors.New("the index has no text of the document")
	ErrPooled    = errors.New("the index has pooled tokens, each of several pieces")
	ErrNoPieces  = errors.New("a server does not tell the pieces of a text")
	ErrOtherText = errors.New("the text beside the document is not the one that was encoded")
)

// IsUnknown reports whether an error is one of these reasons.
func IsUnknown(err error) bool {
	return errors.Is(err, ErrNoText) || errors.Is(err, ErrPooled) ||
		errors.Is(err, ErrNoPieces) || errors.Is(err, ErrOtherText)
}

// Tokenizer is the method of [encode.Encoder] that this package needs.
type Tokenizer interface {
	Tokenize(r encode.Role, text string) ([]encode.Token, error)
}

// KeptTokens returns the tokens of a text that have vectors, or [ErrNoPieces] if the encoder cannot
// split the text.
func KeptTokens(e Tokenizer, r encode.Role, text string) (kept []encode.Token, err error) {
	tokens, err := e.Tokenize(r, text)
	if err == nil && tokens == nil && strings.TrimSpace(text) != "" {
		return nil, ErrNoPieces
	}
	for _, t := range tokens {
		if t.Kept {
			kept = append(kept, t)
		}
	}
	return kept, err
}

// defaultFields are the fields that documents are usually encoded from, in the order in which they
// are tried.
var defaultFields = [][]string{{"title", "text"}, {"text"}, {"page_content"}, {"content"}}

// SourceText is a text that a document was encoded from: fields of its payload joined by blanks,
// and the tokens that have vectors.
type SourceText struct {
	Text   string
	Tokens []encode.Token
	fields []field
}

// field is a field of a payload that is part of a SourceText.
type field struct {
	name, text string
	start      int // offset in SourceText.Text
}

// sourceTexts returns the texts that a document may have been encoded from, without their tokens:
// of the named fields, or of the default ones. No text is empty.
func sourceTexts(payload []byte, names []string) (texts []*SourceText) {
	var values map[string]any
	if json.Unmarshal(payload, &values) != nil {
		return nil
	}
	trials := defaultFields
	if names != nil {
		trials = [][]string{names}
	}
	for _, names := range trials {
		d := &SourceText{}
		for _, name := range names {
			s, ok := values[name].(string)
			if !ok || s == "" {
				continue
			}
			if d.Text != "" {
				d.Text += " "
			}
			d.fields = append(d.fields, field{name, s, len(d.Text)})
			d.Text += s
		}
		if d.Text != "" && !slices.ContainsFunc(texts, func(o *SourceText) bool { return o.Text == d.Text }) {
			texts = append(texts, d)
		}
	}
	return texts
}

// FindSourceText returns the first text of a payload that has as many tokens as the document. pool
// is how many tokens of a document share one vector in the index. 1 or less means one vector a token.
// If the text is unknown, the error is one of the reasons above.
func FindSourceText(e Tokenizer, payload []byte, names []string, tokens, pool int) (*SourceText, error) {
	encoderPools := false
	if encoder, ok := e.(interface{ Config() encode.Config }); ok {
		c := encoder.Config()
		encoderPools = c.Pools()
	}
	if encoderPools || pool > 1 {
		return nil, ErrPooled
	}
	texts := sourceTexts(payload, names)
	if len(texts) == 0 {
		return nil, ErrNoText
	}
	tokensOfFirst := 0 // of the first text, for the error
	for i, d := range texts {
		var err error
		if d.Tokens, err = KeptTokens(e, encode.Document, d.Text); err != nil {
			return nil, err
		}
		if len(d.Tokens) == tokens {
			return d, nil
		}
		if i == 0 {
			tokensOfFirst = len(d.Tokens)
		}
	}
	return nil, fmt.Errorf("%w: the text has %d tokens and the document %d", ErrOtherText, tokensOfFirst, tokens)
}

// Locate returns where a token is: the name and text of its field, and the bytes of that text. The
// name is "" for tokens that a model adds around a text.
func (d *SourceText) Locate(t encode.Token) (name, text string, start, end int) {
	if t.Start == t.End {
		return "", "", 0, 0
	}
	for i := len(d.fields) - 1; i >= 0; i-- {
		if f := d.fields[i]; t.Start >= f.start || i == 0 {
			return f.name, f.text, max(t.Start-f.start, 0), min(max(t.End-f.start, 0), len(f.text))
		}
	}
	return "", "", 0, 0
}

// Span is a word of a document that a word of a question matched. Start and End are byte offsets in
// the field of the payload, at the beginning of characters.
type Span struct {
	Field string `json:"field"`
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"text"` // the bytes from Start to End
	// Word is the word of the question, with its byte offsets there.
	Word      string `json:"word"`
	WordStart int    `json:"word_start"`
	WordEnd   int    `json:"word_end"`
	// Score is the contribution of the pair to the score of the document.
	Score float64 `json:"score"`
}

// Spans returns the words of a document that a question matched, in the order of the fields and of
// the text. queryTokens are the tokens of the question that have vectors ([KeptTokens]).
func (d *SourceText) Spans(question string, queryTokens []encode.Token, matches []search.Match) []Span {
	var spans []Span
	order := map[string]int{}
	for i, f := range d.fields {
		order[f.name] = i
	}
	spanIndex := map[[4]int]int{} // key: field, start and end of the word, start of the question's word
	for _, m := range matches {
		if m.QueryToken >= len(queryTokens) || m.DocToken < 0 || m.DocToken >= len(d.Tokens) {
			continue
		}
		q := queryTokens[m.QueryToken]
		name, text, start, end := d.Locate(d.Tokens[m.DocToken])
		if name == "" || start >= end || q.Start >= q.End || q.End > len(question) {
			continue
		}
		s := Span{Field: name, Score: m.Score * m.Weight}
		s.Start, s.End = widenToWords(text, start, end)
		s.WordStart, s.WordEnd = widenToWords(question, q.Start, q.End)
		s.Text, s.Word = text[s.Start:s.End], question[s.WordStart:s.WordEnd]
		if !strings.ContainsFunc(s.Word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
			continue // question marks have matches, too
		}
		key := [4]int{order[name], s.Start, s.End, s.WordStart}
		if i, ok := spanIndex[key]; ok {
			spans[i].Score += s.Score
			continue
		}
		spanIndex[key] = len(spans)
		spans = append(spans, s)
	}
	slices.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(order[a.Field]-order[b.Field], a.Start-b.Start, a.WordStart-b.WordStart)
	})
	return spans
}

// widenToWords widens a byte range to whole words, or to whole characters in scripts without blanks
// between words.
func widenToWords(text string, start, end int) (int, int) {
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	first, _ := utf8.DecodeRuneInString(text[start:])
	last, _ := utf8.DecodeLastRuneInString(text[:end])
	for isWordChar(first) && start > 0 {
		r, n := utf8.DecodeLastRuneInString(text[:start])
		if !isWordChar(r) {
			break
		}
		start -= n
	}
	for isWordChar(last) && end < len(text) {
		r, n := utf8.DecodeRuneInString(text[end:])
		if !isWordChar(r) {
			break
		}
		end += n
	}
	return start, end
}

// isWordChar reports whether a character belongs to a word of a script with blanks between words.
func isWordChar(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r)) && !human.HasNoBlanks(r)
}

// MarkSpans returns the text of a field with its spans between the marks before and after. It passes
// all text of the field through escape. Spans that touch are marked as one.
func MarkSpans(text, field string, spans []Span, before, after string, escape func(string) string) string {
	var b strings.Builder
	end := 0
	open := false
	for _, s := range spans {
		if s.Field != field || s.End <= end || s.Start >= s.End || s.End > len(text) {
			continue
		}
		if start := max(s.Start, end); start > end || !open {
			if open {
				b.WriteString(after)
			}
			b.WriteString(escape(text[end:start]) + before)
			open, end = true, start
		}
		b.WriteString(escape(text[end:s.End]))
		end = s.End
	}
	if open {
		b.WriteString(after)
	}
	b.WriteString(escape(text[min(end, len(text)):]))
	return b.String()
}

// HTML returns the text of a field as HTML, with its spans in <mark>. The text itself is escaped.
func HTML(text, field string, spans []Span) string {
	return MarkSpans(text, field, spans, "<mark>", "</mark>", html.EscapeString)
}

// BestWindow returns the range of a field, of at most size bytes, in which the words of the question
// have the highest total score. Each word of the question counts once, with its best span.
func BestWindow(text, field string, spans []Span, size int) (start, end int) {
	best := -1.0
	for i, first := range spans {
		if first.Field != field {
			continue
		}
		words := map[int]float64{}
		sum, lastEnd := 0.0, first.End
		for _, s := range spans[i:] {
			// The first span always counts, even if it alone is longer than size.
			if s.Field != field || s.End-first.Start > size && s.End > first.End {
				break
			}
			if gain := s.Score - words[s.WordStart]; gain > 0 {
				words[s.WordStart] += gain
				sum += gain
			}
			lastEnd = max(lastEnd, s.End)
		}
		if sum > best {
			best, start, end = sum, first.Start, lastEnd
		}
	}
	margin := max(size-(end-start), 0) / 2
	start, end = max(start-margin, 0), min(end+margin, len(text))
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return start, end
}
