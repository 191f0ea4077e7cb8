package encode

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/vectors"
)

// Parting says how long texts are parted into passages.
type Parting struct {
	// By is what is not cut in two.
	By Unit
	// Window is how much of a text a passage has at most, and Overlap how much of it is
	// repeated of the one before: in tokens by tokens, and in words otherwise. Words are
	// what lies between white space. A title and a prompt come on top of that.
	Window, Overlap int
	// Tokenizer counts tokens; that of a model is in its Config.
	Tokenizer *tokenizer.Tokenizer
	// InTokens has Window and Overlap count tokens whatever is not cut in two.
	InTokens bool
}

// Unit is what passages are made of.
type Unit string

const (
	// ByWords counts words and keeps them whole.
	ByWords Unit = "words"
	// BySentences keeps sentences whole that are not longer than a passage.
	BySentences Unit = "sentences"
	// ByHeadings begins a passage at each heading of a text in Markdown that has something
	// below it, and parts a section that is too long by sentences. The headings that a
	// section is below are part of the title of its passages.
	ByHeadings Unit = "headings"
	// ByBlocks keeps blocks of source code whole, or else their lines: functions and
	// declarations that an empty line parts from others.
	ByBlocks Unit = "blocks"
	// ByTokens keeps words whole, and counts the tokens of a model.
	ByTokens Unit = "tokens"
)

// Units are all that there are.
func Units() []Unit { return []Unit{ByWords, BySentences, ByHeadings, ByBlocks, ByTokens} }

func (p *Parting) check() error {
	switch {
	case p.Window < 1 || p.Overlap < 0 || p.Overlap >= p.Window:
		return fmt.Errorf("passages of %d that overlap by %d are impossible", p.Window, p.Overlap)
	case (p.By == ByTokens || p.InTokens) && p.Tokenizer == nil:
		return fmt.Errorf("passages by tokens need the tokenizer of a model in a folder")
	case p.By == ByTokens, p.By == ByWords, p.By == BySentences, p.By == ByHeadings, p.By == ByBlocks:
		return nil
	}
	return fmt.Errorf("passages by %q: there are %v", p.By, Units())
}

// Passages parts texts that are longer than a passage. A passage keeps the title and the
// payload of its text, with a [vectors.Passage] in it, which also gives it its id. Texts
// that are short enough stay as they are, but for one whose id looks like that of a
// passage: it becomes the only passage of itself. A text that is a passage stays one.
func Passages(texts iter.Seq2[Text, error], how Parting) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		if err := how.check(); err != nil {
			yield(Text{}, err)
			return
		}
		row := -1
		for t, err := range texts {
			row++
			var parts []passage
			if err == nil {
				parts, err = how.part(t.Text)
			}
			if err != nil {
				yield(Text{}, err)
				return
			}
			_, n := vectors.SplitPassageID(t.ID)
			is, perr := vectors.PassageOf(t.ID, t.Payload)
			if perr != nil {
				yield(Text{}, &TextError{Row: row, ID: t.ID, Err: perr})
				return
			}
			if is != nil || len(parts) < 2 && n < 0 {
				if !yield(t, nil) {
					return
				}
				continue
			}
			if t.ID == "" {
				yield(Text{}, &TextError{Row: row, Err: fmt.Errorf("has no id, which its passages need")})
				return
			}
			if len(parts) == 0 {
				parts = []passage{{end: len(t.Text)}}
			}
			for n, part := range parts {
				p := t
				own := vectors.Passage{Of: t.ID, Number: n, Start: part.start, End: part.end}
				p.ID, p.Text = own.ID(), t.Text[part.start:part.end]
				p.Title = strings.Join(append(nonEmpty(t.Title), part.headings...), " › ")
				if p.Payload, err = own.Payload(t.Payload); err != nil {
					yield(Text{}, &TextError{Row: row, ID: t.ID, Err: err})
					return
				}
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// passage is a part of a text.
type passage struct {
	start, end int // bytes
	headings   []string
}

// unit is what is not cut in two: bytes of a text, and how much it counts.
type unit struct{ start, end, weight int }

// part is the passages of a text, at least one unless there is no word in it.
func (p *Parting) part(text string) (parts []passage, err error) {
	switch p.By {
	case BySentences:
		return p.fill(nil, p.sentences(text, 0)), nil
	case ByBlocks:
		return p.fill(nil, p.blocks(text)), nil
	case ByHeadings:
		for _, s := range sections(text) {
			from := len(parts)
			parts = p.fill(parts, p.sentences(text[s.start:s.end], s.start))
			for i := from; i < len(parts); i++ {
				parts[i].headings = s.path
				if i == from {
					parts[i].headings = s.above
				}
			}
		}
		return parts, nil
	}
	units := words(text)
	if p.By == ByTokens {
		tokens, err := p.Tokenizer.Encode(text)
		if err != nil {
			return nil, err
		}
		for i, at := 0, 0; i < len(units); i++ {
			units[i].weight = 0
			for ; at < len(tokens) && (i+1 == len(units) || tokens[at].Start < units[i+1].start); at++ {
				units[i].weight++
			}
		}
	}
	return p.fill(nil, units), nil
}

// fill puts units into as few passages as will do.
func (p *Parting) fill(parts []passage, units []unit) []passage {
	for first := 0; first < len(units); {
		end, weight := first+1, units[first].weight
		for end < len(units) && weight+units[end].weight <= p.Window {
			weight += units[end].weight
			end++
		}
		parts = append(parts, passage{start: units[first].start, end: units[end-1].end})
		if end == len(units) {
			break
		}
		// What is repeated leaves room for a unit that is not.
		first, weight = end, units[end].weight
		for repeated := 0; first > 0; first-- {
			w := units[first-1].weight
			if repeated += w; repeated > p.Overlap || weight+w > p.Window {
				break
			}
			weight += w
		}
	}
	return parts
}

// words are what lies between white space.
func words(s string) (units []unit) {
	space := true
	for i, r := range s {
		is := unicode.IsSpace(r)
		switch {
		case space && !is:
			units = append(units, unit{i, len(s), 1})
		case is && !space:
			units[len(units)-1].end = i
		}
		space = is
	}
	return units
}

// sentences are those of a part of a text that begins at a byte of it. One that is longer
// than a passage is taken apart into its words.
func (p *Parting) sentences(part string, at int) (units []unit) {
	begin := 0
	for i := 0; i < len(part); {
		n, ends := sentenceEnd(part[i:])
		i += n
		if ends || i == len(part) {
			units = p.add(units, part[begin:i], at+begin)
			begin = i
		}
	}
	return units
}

// blocks are those of source code: what stands between empty lines and begins without
// indentation. So a function is one, with the comment above it. One that is longer than a
// passage is taken apart into its lines, and such a line into its words.
func (p *Parting) blocks(text string) (units []unit) {
	flush := func(lo, hi int) {
		if p.weight(text[lo:hi], len(words(text[lo:hi]))) <= p.Window {
			units = p.add(units, text[lo:hi], lo)
			return
		}
		for line := range strings.Lines(text[lo:hi]) {
			units = p.add(units, line, lo)
			lo += len(line)
		}
	}
	begin, at, empty := 0, 0, false
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, " \t\r\n")
		if bare != "" && empty && !strings.ContainsRune(" \t)}]", rune(bare[0])) {
			flush(begin, at)
			begin = at
		}
		empty = bare == ""
		at += len(line)
	}
	flush(begin, at)
	return units
}

// add appends a part of a text that begins at a byte of it as one unit, if a passage can have
// it, or else a unit a word.
func (p *Parting) add(units []unit, part string, at int) []unit {
	inside := words(part)
	if len(inside) == 0 {
		return units
	}
	weight := p.weight(part, len(inside))
	if weight <= p.Window {
		return append(units, unit{at + inside[0].start, at + inside[len(inside)-1].end, weight})
	}
	for _, w := range inside {
		units = append(units, unit{at + w.start, at + w.end, p.weight(part[w.start:w.end], 1)})
	}
	return units
}

// weight is how much a text of so many words counts. What is no text has as many tokens as bytes.
func (p *Parting) weight(text string, words int) int {
	if !p.InTokens {
		return words
	}
	tokens, err := p.Tokenizer.Encode(text)
	if err != nil {
		return len(text)
	}
	return len(tokens)
}

// sentenceEnd reads a character of a text, or all marks that stand together, and tells
// whether a sentence ends behind them. It ends at an empty line, at a full stop of Chinese or
// Japanese, and at one of ours, with closing quotes and brackets behind it, that white space
// follows and then no small letter.
func sentenceEnd(s string) (n int, ends bool) {
	first, n := utf8.DecodeRuneInString(s)
	switch {
	case strings.HasPrefix(s, "\n\n") || strings.HasPrefix(s, "\n\r\n"):
		return 2, true
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
	return n, wide || rest == "" || len(rest) < len(s)-n && !unicode.IsLower(next)
}
