package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// Splitting holds the settings of splitting texts into passages.
type Splitting struct {
	// By is the unit that is kept whole if it fits in a passage. "" means ByWords. A longer unit is
	// split: a section or a block into sentences or lines, these into words, and a word, or a line
	// of a script without spaces, into characters.
	By Unit
	// Window limits the text of a passage, and Overlap is about how much text it repeats from
	// the passage before. Both count tokens of Model, or words if no tokenizer is known. A Window of
	// 0 means as much as Model reads. The prompt, the title and other tokens around a text are not
	// counted; if they leave less than Window of the model's length, passages are shorter.
	//
	// A word is a run of characters between white space, or 32 characters of a longer run. In
	// scripts without spaces between words, such as Chinese, Japanese, Thai, Lao, Khmer, Burmese
	// and Tibetan, each letter is a word.
	//
	// If a tokenizer returns one unknown token for more than 32 characters, each of them counts.
	// A word that is longer than the tokenizer reads (100 characters for BERT's) is split, so
	// that no passage has such a word.
	Window, Overlap int
	// Model has the tokenizer that counts tokens, and limits how many it reads ([Encoder.Config]).
	// Words are counted if it is nil or has no tokenizer, such as the model of a server.
	Model *Config
	// Threads is how many texts are split at a time. 0 means one, on the caller's goroutine.
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
	// ByHeadings begins a passage at each heading of a Markdown text that has text
	// below it, and keeps sentences whole. The headings above a section are part of the
	// title of its passages.
	ByHeadings Unit = "headings"
	// ByBlocks keeps blocks of source code whole, or else their lines: functions and
	// declarations between empty lines.
	ByBlocks Unit = "blocks"
)

// Units returns all units.
func Units() []Unit { return []Unit{ByWords, BySentences, ByHeadings, ByBlocks} }

// Check returns an error for impossible settings before a text is read, such as a window of more
// tokens than the model reads.
func (p Splitting) Check() error {
	_, err := p.resolveRules()
	return err
}

// passageRules are the settings of a [Splitting], checked and completed by its model.
type passageRules struct {
	by              Unit
	window, overlap int
	cuts            []cutFunc            // by level, from the longest pieces to single runes
	tokenizer       *tokenizer.Tokenizer // nil means that words are counted
	unknownID       int32                // the id of the unknown token; -1 means that it has no such token
	maxWordLength   int                  // the longest word in characters that the tokenizer reads. 0 means any
	prompt          string
	maxTokens       int  // tokens that the model reads of prompt, title and text together
	keepSpace       bool // the model also reads white space around a text
}

// resolveRules checks the settings and completes them by the model.
func (p Splitting) resolveRules() (*passageRules, error) {
	rules := &passageRules{by: p.By, window: p.Window, overlap: p.Overlap, unknownID: -1}
	switch p.By {
	case "", ByWords:
	case BySentences, ByHeadings:
		rules.cuts = []cutFunc{sentenceEnds}
	case ByBlocks:
		rules.cuts = []cutFunc{codeBlockEnds, lineEnds}
	default:
		return nil, fmt.Errorf("passages by %q: want one of %v", p.By, Units())
	}
	rules.cuts = append(rules.cuts, wordEnds, characterEnds, runeEnds)
	unit := "words"
	if p.Model != nil && p.Model.Tokenizer != nil {
		unit = "tokens"
		if err := rules.setModel(p.Model); err != nil {
			return nil, err
		}
	}
	switch {
	case rules.window == 0 && p.Window == 0:
		return nil, errors.New("set how many words a passage has: " +
			"the model does not tell its tokens, nor how many it reads")
	case rules.window < 1 || rules.overlap < 0 || rules.overlap >= rules.window:
		return nil, fmt.Errorf("passages of %d %s that overlap by %d are impossible",
			rules.window, unit, rules.overlap)
	}
	return rules, nil
}

// setModel sets the tokenizer of a model and the limits on the tokens that it reads.
func (p *passageRules) setModel(c *Config) error {
	p.tokenizer, p.prompt = c.Tokenizer, c.Document.Prompt
	p.keepSpace = c.KeepSpace || p.prompt != "" // see [Encoder.trimText]
	p.maxWordLength = p.tokenizer.MaxWordLength()
	if id, ok := p.tokenizer.Unknown(); ok {
		p.unknownID = id
	}
	p.maxTokens = c.Document.Length - idsAround(c.Tokenizer, &c.Document)
	prompt, err := p.countTokens(p.prompt)
	if err != nil {
		return err
	}
	reads := p.maxTokens - prompt // tokens of a text without a title
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
		p, err := how.resolveRules()
		if err != nil {
			yield(Text{}, err)
			return
		}
		row := -1
		for split, err := range parallel.Map(ctx, texts, max(how.Threads, 1), textBytes, p.split) {
			row++
			if err != nil {
				yield(Text{}, err)
				return
			}
			for t, err := range split.passageTexts() {
				if err != nil {
					err = split.text.ErrorAt(row, err)
				}
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}

// splitText is a text and its passages; a text that stays as it is has none.
type splitText struct {
	text     Text
	passages []passage
	err      error
}

// passageTexts yields the passages as texts, or the text itself.
func (p *splitText) passageTexts() iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		switch {
		case p.err != nil:
			yield(Text{}, p.err)
			return
		case len(p.passages) == 0:
			yield(p.text, nil)
			return
		case p.text.ID == "":
			yield(Text{}, errors.New("has no id, which its passages need"))
			return
		}
		for n, passage := range p.passages {
			t := p.text
			header := vectors.Passage{ParentID: t.ID, Number: n, Start: passage.start, End: passage.end}
			t.ID, t.Text, t.Title = header.ID(), t.Text[passage.start:passage.end], passage.title
			var err error
			if t.Payload, err = header.Payload(t.Payload); err != nil {
				yield(Text{}, err)
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}

// passage is a range of a text, with the title that is encoded before it.
type passage struct {
	start, end int // bytes
	title      string
}

// split finds the passages of a text. An error is part of the result, so that the caller can add the
// row of the text. A text that is a passage already stays as it is.
func (p *passageRules) split(t Text) (splitText, error) {
	out := splitText{text: t}
	passage, err := vectors.PassageFromPayload(t.ID, t.Payload)
	if err != nil || passage != nil {
		out.err = err
		return out, nil
	}
	if out.err = t.checkStorable(true); out.err != nil {
		return out, nil
	}
	s := splitter{passageRules: p, text: t.Text}
	if s.tokenEnds, s.extraEnds, out.err = p.tokenEnds(t.Text); out.err != nil {
		return out, nil
	}
	title, over, err := s.measureAll(t)
	if err == nil && (over > 0 || p.by == ByHeadings) {
		out.passages, err = s.split(title)
		if len(out.passages) == 1 && over == 0 {
			out.passages = nil
		}
	}
	out.err = err
	return out, nil
}

// measuredTitle is a title, and how much of the model's length it takes.
type measuredTitle struct {
	title   string
	tokens  int  // tokens of prompt and title
	limit   int  // about how many tokens or words a passage has below it
	counted bool // tokens and limit include the title; false if words are counted, or a long title will be cut
}

// seamTokens bounds the tokens that title and text, tokenized together, have beyond the sum of both.
const seamTokens = 8

// measureTitle measures a title. A title that leaves less than an eighth of the model's length to the
// text will be cut, and its passages are split as if it were not there.
func (p *passageRules) measureTitle(title string) (measuredTitle, error) {
	t := measuredTitle{title: title, limit: p.window}
	if p.tokenizer == nil || p.prompt == "" && title == "" {
		return t, nil
	}
	before, err := p.countTokens(p.prompt + title)
	if err != nil {
		return t, err
	}
	if remaining := p.maxTokens - before; remaining*8 >= p.maxTokens {
		if remaining > 4*seamTokens { // a shorter text would lose too much of it to the reserve
			remaining -= seamTokens
		}
		t.tokens, t.counted, t.limit = before, true, min(p.window, remaining)
	}
	return t, nil
}

// excessTokens returns by how much a text of n tokens or words is too long below a title. 0 means that
// it fits. It tokenizes title and text together only if the sum is near the limit.
func (p *passageRules) excessTokens(t measuredTitle, text string, n int) (int, error) {
	if n > p.window {
		return n - p.window, nil
	}
	if !t.counted || t.tokens+n+seamTokens <= p.maxTokens {
		return 0, nil
	}
	full := Text{Title: t.title, Text: text}.Full()
	if !p.keepSpace {
		full = strings.TrimSpace(full)
	}
	n, err := p.countTokens(p.prompt + full)
	return max(n-p.maxTokens, 0), err
}

// countTokens returns the number of tokens or words of a text.
func (p *passageRules) countTokens(text string) (int, error) {
	if p.tokenizer == nil {
		n := 0
		countWords(text, func(int) { n++ })
		return n, nil
	}
	ids, err := p.tokenizer.EncodeIDs(nil, text)
	return len(ids), err
}

// tokenEnds returns the ends of the tokens or words of a text, ascending. An unknown token that stands
// for a long run has an end for each of its characters; extra is the number of ends beyond one per token.
func (p *passageRules) tokenEnds(text string) (ends []int, extra int, err error) {
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
		if run := text[t.Start:t.End]; t.ID == p.unknownID && utf8.RuneCountInString(run) > longWord {
			for offset := range run {
				if offset > 0 {
					ends = append(ends, t.Start+offset)
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
