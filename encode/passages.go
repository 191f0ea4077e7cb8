package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// Splitting says how long texts are split into passages.
type Splitting struct {
	// By is the unit that is kept whole if it fits in a passage; "" means ByWords. A longer unit is
	// split: a section or a block into sentences or lines, these into words, and a word, or a line
	// of a script without spaces, between characters.
	By Unit
	// Window is the most that a passage has of its text, and Overlap about how much it repeats of
	// the one before: tokens of Model, or words if no tokenizer is known. A Window of 0 means as
	// much as Model reads. A prompt, a title and other tokens that a model puts around a text come
	// on top of that; if they leave less than Window, passages are shorter.
	//
	// A word is a run of characters between white space, or 32 characters of a longer run. In
	// scripts without spaces between words, such as Chinese, Japanese, Thai, Lao, Khmer, Burmese
	// and Tibetan, each letter is a word.
	//
	// A tokenizer may have one unknown token for more than 32 characters: each of them counts then.
	// A word that is longer than the tokenizer reads (100 characters for that of BERT) is split, so
	// that no passage has one.
	Window, Overlap int
	// Model counts tokens and says how many it reads ([Encoder.Config]). Words are counted if it is
	// nil or has no tokenizer, like a model behind an address.
	Model *Config
	// Threads is how many texts are split at a time; 0 means one, on the caller's goroutine.
	Threads int
}

// Unit is a part of a text that passages keep whole.
type Unit string

// The units.
const (
	// ByWords keeps words whole.
	ByWords Unit = "words"
	// BySentences keeps sentences whole.
	BySentences Unit = "sentences"
	// ByHeadings begins a passage at each heading of a text in Markdown that has something
	// below it, and keeps sentences whole. The headings that a section is below are part of the
	// title of its passages.
	ByHeadings Unit = "headings"
	// ByBlocks keeps blocks of source code whole, or else their lines: functions and
	// declarations that an empty line parts from others.
	ByBlocks Unit = "blocks"
)

// Units returns all units.
func Units() []Unit { return []Unit{ByWords, BySentences, ByHeadings, ByBlocks} }

// Check refuses wrong settings before a text is read, such as a window of more tokens than the
// model reads.
func (p Splitting) Check() error {
	_, err := p.ready()
	return err
}

// parting is a Parting that was checked.
type parting struct {
	by              Unit
	window, overlap int
	cuts            []cut
	tokenizer       *tokenizer.Tokenizer // nil means that words are counted
	unknown         int32                // the token of what it does not know; -1: it has none
	longest         int                  // characters of a word that it reads; 0: any
	prompt          string
	room            int  // tokens that the model reads of a prompt, a title and a text
	keepSpace       bool // the model reads white space around a text, too
}

func (p Splitting) ready() (*parting, error) {
	own := &parting{by: p.By, window: p.Window, overlap: p.Overlap, unknown: -1}
	switch p.By {
	case "", ByWords:
	case BySentences, ByHeadings:
		own.cuts = []cut{sentences}
	case ByBlocks:
		own.cuts = []cut{codeBlocks, lines}
	default:
		return nil, fmt.Errorf("passages by %q: there are %v", p.By, Units())
	}
	own.cuts = append(own.cuts, words, characters, runes)
	counted := "words"
	if p.Model != nil && p.Model.Tokenizer != nil {
		counted = "tokens"
		if err := own.model(p.Model); err != nil {
			return nil, err
		}
	}
	switch {
	case own.window == 0 && p.Window == 0:
		return nil, errors.New("set how many words a passage has: " +
			"the model does not tell its tokens, nor how many it reads")
	case own.window < 1 || own.overlap < 0 || own.overlap >= own.window:
		return nil, fmt.Errorf("passages of %d %s that overlap by %d are impossible", own.window, counted, own.overlap)
	}
	return own, nil
}

// model takes the tokenizer of a model, and how much it reads.
func (p *parting) model(c *Config) error {
	p.tokenizer, p.prompt = c.Tokenizer, c.Document.Prompt
	p.keepSpace = c.KeepSpace || p.prompt != "" // see [Encoder.trim]
	p.longest = p.tokenizer.LongestWord()
	if id, ok := p.tokenizer.Unknown(); ok {
		p.unknown = id
	}
	p.room = c.Document.Length - around(c.Tokenizer, &c.Document)
	prompt, err := p.count(p.prompt)
	if err != nil {
		return err
	}
	reads := p.room - prompt
	switch {
	case reads < 1:
		return fmt.Errorf("%w: documents of %d tokens have no room for a text between the %d around it",
			modeldir.ErrConfig, c.Document.Length, c.Document.Length-reads)
	case p.window == 0:
		p.window = reads
	case p.window > reads:
		return fmt.Errorf("passages of %d tokens: the model reads at most %d of a text "+
			"(documents have %d tokens, %d of them around the text)", p.window, reads, c.Document.Length,
			c.Document.Length-reads)
	}
	return nil
}

// Passages splits texts that are longer than a passage. A passage keeps the title and the payload
// of its text, with a [vectors.Passage] added, which also determines its id. Texts that fit into
// one stay as they are, and so do passages.
//
// No passage is longer than the window, nor, with its title, longer than the model reads. The
// exceptions are a passage of a single character, and a title that alone takes more than seven
// eighths of the model's length: the encoder cuts its passages, and reports that.
//
// An error of a text is a [*TextError], such as that of a text that is too long and has no id, or of a
// document that cannot be stored in passages ([vectors.Draft].Split), however short its text is.
func Passages(ctx context.Context, texts iter.Seq2[Text, error], how Splitting) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		p, err := how.ready()
		if err != nil {
			yield(Text{}, err)
			return
		}
		row := -1
		for parted, err := range parallel.Map(ctx, texts, max(how.Threads, 1), textBytes, p.part) {
			row++
			if err != nil {
				yield(Text{}, err)
				return
			}
			for t, err := range parted.texts() {
				if err != nil {
					err = parted.text.Fault(row, err)
				}
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}

// partedText is a text and its passages: none if it stays as it is.
type partedText struct {
	text  Text
	parts []passage
	err   error
}

// texts yields the passages, or the text itself.
func (p *partedText) texts() iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		switch {
		case p.err != nil:
			yield(Text{}, p.err)
			return
		case len(p.parts) == 0:
			yield(p.text, nil)
			return
		case p.text.ID == "":
			yield(Text{}, errors.New("has no id, which its passages need"))
			return
		}
		for n, part := range p.parts {
			t := p.text
			own := vectors.Passage{Of: t.ID, Number: n, Start: part.start, End: part.end}
			t.ID, t.Text, t.Title = own.ID(), t.Text[part.start:part.end], part.title
			var err error
			if t.Payload, err = own.Payload(t.Payload); err != nil {
				yield(Text{}, err)
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}

// passage is a part of a text.
type passage struct {
	start, end int // bytes
	title      string
}

// part finds the passages of a text. An error is in the result, so that it gets the row of the
// text.
func (p *parting) part(t Text) (partedText, error) {
	out := partedText{text: t}
	is, err := vectors.PassageOf(t.ID, t.Payload)
	if err != nil || is != nil {
		out.err = err
		return out, nil
	}
	if out.err = t.check(true); out.err != nil {
		return out, nil
	}
	s := splitting{parting: p, text: t.Text}
	if s.marks, s.spread, out.err = p.marks(t.Text); out.err != nil {
		return out, nil
	}
	title, over, err := s.whole(t)
	if err == nil && (over > 0 || p.by == ByHeadings) {
		out.parts, err = s.part(title)
		if len(out.parts) == 1 && over == 0 {
			out.parts = nil
		}
	}
	out.err = err
	return out, nil
}

// whole returns by how much the text is too long below its title.
func (s *splitting) whole(t Text) (title titled, over int, err error) {
	title, err = s.titled(t.Title)
	n := len(s.marks)
	if read := strings.TrimSpace(t.Text); err == nil && !s.keepSpace && len(read) < len(t.Text) {
		n, err = s.count(read)
		n += s.spread
	}
	if err == nil {
		over, err = s.over(title, t.Text, n)
	}
	return title, over, err
}

// titled is a title, and how much of the model's length it takes.
type titled struct {
	title  string
	before int // tokens, with those of the prompt
	most   int // about how much a passage has below it
	whole  bool
}

// seam is how many more tokens there can be where a title and a text meet.
const seam = 8

// titled measures a title. One that leaves less than an eighth of the model's length will be cut,
// and its passages are split as if it were not there.
func (p *parting) titled(title string) (titled, error) {
	t := titled{title: title, most: p.window}
	if p.tokenizer == nil || p.prompt == "" && title == "" {
		return t, nil
	}
	before, err := p.count(p.prompt + title)
	if err != nil {
		return t, err
	}
	if left := p.room - before; left*8 >= p.room {
		if left > 4*seam {
			left -= seam
		}
		t.before, t.whole, t.most = before, true, min(p.window, left)
	}
	return t, nil
}

// over returns by how much a part of the text, of n tokens or words, is too long below a title; 0
// means that it fits, and that none of its words is longer than the tokenizer reads.
func (s *splitting) over(t titled, text string, n int) (int, error) {
	over, err := s.parting.over(t, text, n)
	if over > 0 || err != nil || s.spread == 0 || s.longest == 0 || len(text) <= s.longest {
		return over, err
	}
	tokens, err := s.tokenizer.Encode(text)
	for _, token := range tokens {
		if token.ID == s.unknown {
			letters := utf8.RuneCountInString(norm.NFD.String(text[token.Start:token.End]))
			over = max(over, letters-s.longest)
		}
	}
	return over, err
}

// over returns by how much a text of n tokens or words is too long below a title; 0 means that it
// fits.
func (p *parting) over(t titled, text string, n int) (int, error) {
	if n > p.window {
		return n - p.window, nil
	}
	if !t.whole || t.before+n+seam <= p.room {
		return 0, nil
	}
	full := Text{Title: t.title, Text: text}.Full()
	if !p.keepSpace {
		full = strings.TrimSpace(full)
	}
	n, err := p.count(p.prompt + full)
	return max(n-p.room, 0), err
}

// count is how many tokens or words a text has.
func (p *parting) count(text string) (int, error) {
	if p.tokenizer == nil {
		n := 0
		countWords(text, func(int) { n++ })
		return n, nil
	}
	ids, err := p.tokenizer.EncodeIDs(nil, text)
	return len(ids), err
}

// marks are the ends of the tokens or words of a text, ascending. An unknown token that stands for
// a long run has one for each of its characters; spread is by how many marks are more than tokens.
func (p *parting) marks(text string) (ends []int, spread int, err error) {
	if p.tokenizer == nil {
		countWords(text, func(end int) { ends = append(ends, end) })
		return ends, 0, nil
	}
	tokens, err := p.tokenizer.Encode(text)
	if err != nil {
		return nil, 0, err
	}
	ends = make([]int, 0, len(tokens))
	for _, t := range tokens {
		if run := text[t.Start:t.End]; t.ID == p.unknown && utf8.RuneCountInString(run) > longWord {
			for at := range run {
				if at > 0 {
					ends = append(ends, t.Start+at)
				}
			}
		}
		ends = append(ends, t.End)
	}
	if !slices.IsSorted(ends) {
		slices.Sort(ends)
	}
	return ends, len(ends) - len(tokens), nil
}

// unit is bytes of a text that are kept whole, and the cut that they are a piece of.
type unit struct{ start, end, level int }

// splitting is a text that is being parted.
type splitting struct {
	*parting
	text   string
	marks  []int // ends of tokens or words
	spread int   // how many of these are within unknown tokens
	parts  []passage
}

// between estimates the tokens or words of a part of the text: by itself it may have one more or
// less.
func (s *splitting) between(start, end int) int {
	return sort.SearchInts(s.marks, end+1) - sort.SearchInts(s.marks, start+1)
}

// part returns the passages of the text.
func (s *splitting) part(title titled) ([]passage, error) {
	if s.by != ByHeadings {
		return s.parts, s.fill(s.add(nil, 0, len(s.text), 0), title, title)
	}
	below := func(headings []string) (titled, error) {
		return s.titled(strings.Join(append(nonEmpty(title.title), headings...), " › "))
	}
	for _, section := range sections(s.text) {
		first, err := below(section.above)
		if err != nil {
			return nil, err
		}
		rest, err := below(section.path)
		if err == nil {
			err = s.fill(s.add(nil, section.start, section.end, 0), first, rest)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.parts, nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// add appends the pieces of a part of the text, by the cut of a level. A piece that is too long for
// a passage is split by the next one.
func (s *splitting) add(units []unit, start, end, level int) []unit {
	begin := start
	for _, n := range s.cuts[level](s.text[start:end]) {
		lo, hi := trimmed(s.text, begin, start+n)
		begin = start + n
		switch {
		case lo == hi:
		case s.between(lo, hi) > s.window && level+1 < len(s.cuts):
			units = s.add(units, lo, hi, level+1)
		default:
			units = append(units, unit{lo, hi, level})
		}
	}
	return units
}

// finer splits a unit; nil means that it is a single character.
func (s *splitting) finer(u unit) []unit {
	for level := u.level + 1; level < len(s.cuts); level++ {
		if pieces := s.add(nil, u.start, u.end, level); len(pieces) > 1 {
			return pieces
		}
	}
	return nil
}

// fill puts units into as few passages as possible; the first has a title of its own.
func (s *splitting) fill(units []unit, title, rest titled) error {
	covered := 0 // units that are in a passage
	for first := 0; covered < len(units); title = rest {
		end := s.reach(units, first, covered, title.most)
		for {
			text := s.text[units[first].start:units[end-1].end]
			n, err := s.count(text)
			if err != nil {
				return err
			}
			over, err := s.over(title, text, n)
			if err != nil {
				return err
			}
			if over == 0 {
				break
			}
			if end > covered+1 { // with fewer units
				most := end - 1
				for end = most; end > covered+1 && s.between(units[end-1].end, units[most].end) < over; end-- {
				}
			} else if first < covered { // with less that is repeated
				first++
			} else if pieces := s.finer(units[first]); pieces != nil {
				units = slices.Replace(units, first, end, pieces...)
				end = s.reach(units, first, covered, title.most)
			} else {
				break
			}
		}
		s.parts = append(s.parts, passage{start: units[first].start, end: units[end-1].end, title: title.title})
		began := first
		covered, first = end, end
		if end == len(units) {
			break
		}
		// The overlap leaves room for a unit that is not repeated.
		for first-1 > began && s.between(units[first-1].start, units[end-1].end) <= s.overlap &&
			s.between(units[first-1].start, units[end].end) <= rest.most {
			first--
		}
	}
	return nil
}

// reach estimates the end of the units from first on that fit into a passage of most. At least one
// of them is in no passage before.
func (s *splitting) reach(units []unit, first, covered, most int) int {
	end := covered + 1
	for end < len(units) && s.between(units[first].start, units[end].end) <= most {
		end++
	}
	return end
}
