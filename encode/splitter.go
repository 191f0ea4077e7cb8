package encode

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// span is a range of bytes of a text that is kept whole, and the level of the cut that made it.
type span struct{ start, end, level int }

// splitter splits one text into passages.
type splitter struct {
	*passageRules
	text      string
	tokenEnds []int // ends of tokens or words
	extraEnds int   // how many of these lie within unknown tokens
	passages  []passage
}

// measureAll returns the title of a text, measured, and by how much the whole text is too long for one
// passage below it.
func (s *splitter) measureAll(t Text) (title measuredTitle, over int, err error) {
	title, err = s.measureTitle(t.Title)
	n := len(s.tokenEnds)
	if read := strings.TrimSpace(t.Text); err == nil && !s.keepSpace && len(read) < len(t.Text) {
		n, err = s.countTokens(read)
		n += s.extraEnds
	}
	if err == nil {
		over, err = s.excess(title, t.Text, n)
	}
	return title, over, err
}

// excess returns by how much text, a part of the whole with n tokens or words, is too long below a
// title. 0 means that it fits, and that none of its words is longer than the tokenizer reads.
func (s *splitter) excess(t measuredTitle, text string, n int) (int, error) {
	over, err := s.passageRules.excessTokens(t, text, n)
	if over > 0 || err != nil || s.extraEnds == 0 || s.maxWordLength == 0 || len(text) <= s.maxWordLength {
		return over, err
	}
	tokens, err := s.tokenizer.Encode(text)
	for _, token := range tokens {
		if token.ID == s.unknownID {
			letters := utf8.RuneCountInString(norm.NFD.String(text[token.Start:token.End]))
			over = max(over, letters-s.maxWordLength)
		}
	}
	return over, err
}

// estimate returns about how many tokens or words text[start:end] has: tokenized by itself it may have
// one more or less.
func (s *splitter) estimate(start, end int) int {
	return sort.SearchInts(s.tokenEnds, end+1) - sort.SearchInts(s.tokenEnds, start+1)
}

// split returns the passages of the text. title is the title of the text; below headings, they are
// added to it.
func (s *splitter) split(title measuredTitle) ([]passage, error) {
	if s.by != ByHeadings {
		return s.passages, s.fillPassages(s.appendSpans(nil, 0, len(s.text), 0), title, title)
	}
	below := func(headings []string) (measuredTitle, error) {
		return s.measureTitle(strings.Join(append(nonEmpty(title.title), headings...), " › "))
	}
	for _, section := range sections(s.text) {
		first, err := below(section.above)
		if err != nil {
			return nil, err
		}
		following, err := below(section.path)
		if err == nil {
			err = s.fillPassages(s.appendSpans(nil, section.start, section.end, 0), first, following)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.passages, nil
}

// nonEmpty returns a list of s, or an empty one for "".
func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// appendSpans cuts text[start:end] at a level and appends the spans. A span that is too long for
// a passage is cut at the next level.
func (s *splitter) appendSpans(spans []span, start, end, level int) []span {
	begin := start
	for _, n := range s.cuts[level](s.text[start:end]) {
		lo, hi := trimSpan(s.text, begin, start+n)
		begin = start + n
		switch {
		case lo == hi:
		case s.estimate(lo, hi) > s.window && level+1 < len(s.cuts):
			spans = s.appendSpans(spans, lo, hi, level+1)
		default:
			spans = append(spans, span{lo, hi, level})
		}
	}
	return spans
}

// splitSpan cuts a span at the first level that makes several spans of it. nil means that it is a single
// character.
func (s *splitter) splitSpan(u span) []span {
	for level := u.level + 1; level < len(s.cuts); level++ {
		if pieces := s.appendSpans(nil, u.start, u.end, level); len(pieces) > 1 {
			return pieces
		}
	}
	return nil
}

// fillPassages puts spans into as few passages as possible. The first passage has the title, the others
// have the title following.
func (s *splitter) fillPassages(spans []span, title, following measuredTitle) error {
	covered := 0 // spans that are in a passage
	for first := 0; covered < len(spans); title = following {
		// Estimate how many spans fit, and correct that by counting tokens.
		end := s.passageEnd(spans, first, covered, title.limit)
		for {
			text := s.text[spans[first].start:spans[end-1].end]
			n, err := s.countTokens(text)
			if err != nil {
				return err
			}
			over, err := s.excess(title, text, n)
			if err != nil {
				return err
			}
			if over == 0 {
				break
			}
			if end > covered+1 { // drop as many spans at the end as the excess is long
				last := end - 1
				for end = last; end > covered+1 && s.estimate(spans[end-1].end, spans[last].end) < over; end-- {
				}
			} else if first < covered { // repeat less of the passage before
				first++
			} else if pieces := s.splitSpan(spans[first]); pieces != nil {
				spans = slices.Replace(spans, first, end, pieces...)
				end = s.passageEnd(spans, first, covered, title.limit)
			} else {
				break
			}
		}
		s.passages = append(s.passages, passage{start: spans[first].start, end: spans[end-1].end, title: title.title})
		began := first
		covered, first = end, end
		if end == len(spans) {
			break
		}
		// Repeat spans at the end, as long as the next passage still holds one that is not repeated.
		for first-1 > began && s.estimate(spans[first-1].start, spans[end-1].end) <= s.overlap &&
			s.estimate(spans[first-1].start, spans[end].end) <= following.limit {
			first--
		}
	}
	return nil
}

// passageEnd estimates the end of the spans from first on that fit into a passage of limit tokens or
// words. At least one of them is not covered by a passage before.
func (s *splitter) passageEnd(spans []span, first, covered, limit int) int {
	end := covered + 1
	for end < len(spans) && s.estimate(spans[first].start, spans[end].end) <= limit {
		end++
	}
	return end
}
