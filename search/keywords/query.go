package keywords

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/internal/human"
)

// ErrSyntax reports an invalid query in [Expression] mode. The error is a [*SyntaxError].
var ErrSyntax = errkind.New(errkind.BadTextQuery, "syntax error in a keyword query")

// SyntaxError is a syntax error in a query, with its location. It wraps [ErrSyntax].
type SyntaxError struct {
	Query  string
	Offset int // in bytes
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v: byte %d: %s", ErrSyntax, e.Offset, e.Reason)
}

// Unwrap returns ErrSyntax.
func (e *SyntaxError) Unwrap() error { return ErrSyntax }

// Limits of a query.
const (
	// MaxWords is how many words the text of a query may have, including those of phrases and
	// repeated ones.
	MaxWords = 4096
	// MaxQueryBytes is how long the text of a query may be.
	MaxQueryBytes = 256 << 10
)

// ErrTooLong reports a query of more than [MaxWords] or [MaxQueryBytes].
var ErrTooLong = errkind.New(errkind.BadRequest, "a keyword query is too long")

// occur is the requirement of a part of a query.
type occur int

const (
	may occur = iota
	must
	mustNot
)

// unit is a part of a query that is counted like one term: a term, the terms with a prefix, or a
// phrase.
type unit struct {
	terms     []string
	positions []uint32 // of the terms in the phrase, from 0. nil for a single term
	prefix    bool     // the one term is a prefix of terms
	weight    float64  // how often it is in the query
	occur     occur
}

// mergeKey is equal for units that differ in their weights only.
func (u *unit) mergeKey() string {
	return fmt.Sprintf("%d %t %v %q", u.occur, u.prefix, u.positions, u.terms)
}

// parse reads a query. Equal units become one, in the order of their first positions, so that the
// scores of documents with the same matches are equal to the last bit.
func parse(q Query, s Settings) ([]unit, error) {
	if len(q.Text) > MaxQueryBytes {
		return nil, fmt.Errorf("%w: at most %d bytes are possible", ErrTooLong, MaxQueryBytes)
	}
	a := newAnalyzer(s)
	a.isQuery = true
	var units []unit
	var err error
	switch q.Mode {
	case Words:
		units = a.wordUnits(q.Text)
	case Expression:
		units, err = a.parseExpression(q.Text)
	default:
		err = fmt.Errorf("%w: mode %d", ErrOption, q.Mode)
	}
	if err != nil {
		return nil, err
	}
	remainingWords := MaxWords
	for i := range units {
		if remainingWords -= len(units[i].terms); remainingWords < 0 {
			return nil, fmt.Errorf("%w: at most %d words are possible", ErrTooLong, MaxWords)
		}
	}
	indexByKey := map[string]int{}
	merged := units[:0]
	for _, u := range units {
		k := u.mergeKey()
		if i, ok := indexByKey[k]; ok {
			merged[i].weight++
			continue
		}
		indexByKey[k] = len(merged)
		merged = append(merged, u)
	}
	return merged, nil
}

// wordUnits returns each word of a text as a unit. Signs have no meaning.
func (a *analyzer) wordUnits(text string) []unit {
	var units []unit
	if a.Tokenizer != Trigram {
		tokens, _ := a.appendWords(nil, text, 0)
		for _, t := range tokens {
			units = append(units, unit{terms: []string{t.term}, weight: 1})
		}
		return units
	}
	plain := analyzer{Settings: Settings{Tokenizer: Unicode61}, wholeRuns: true}
	tokens, _ := plain.appendWords(nil, text, 0)
	for _, t := range tokens {
		if r := []rune(t.term); len(r) > 3 && human.HasNoBlanks(r[0]) { // word boundaries are unknown
			for i := range len(r) - 2 {
				units = append(units, a.textUnits(string(r[i:i+3]))...)
			}
			continue
		}
		units = append(units, a.textUnits(t.term)...)
	}
	return units
}

// textUnits returns a unit that matches a text literally, by trigrams. Every three consecutive
// characters are a term, so trigrams that cover the text are enough.
func (a *analyzer) textUnits(text string) []unit {
	a.readLiteral(text)
	n := len(a.runes)
	switch {
	case n == 0:
		return nil
	case n < 3:
		return []unit{{terms: []string{string(a.runes)}, prefix: true, weight: 1}}
	}
	u := unit{weight: 1}
	for i := 0; i < n; i += 3 {
		i := min(i, n-3)
		u.terms, u.positions = append(u.terms, string(a.runes[i:i+3])), append(u.positions, uint32(i))
	}
	if len(u.terms) == 1 {
		u.positions = nil
	}
	return []unit{u}
}

// phraseUnits returns a unit for consecutive words.
func (a *analyzer) phraseUnits(text string) []unit {
	if a.Tokenizer == Trigram {
		return a.textUnits(text)
	}
	tokens, _ := a.appendWords(nil, text, 0)
	if len(tokens) == 0 {
		return nil
	}
	u := unit{weight: 1}
	for _, t := range tokens {
		u.terms, u.positions = append(u.terms, t.term), append(u.positions, t.pos-tokens[0].pos)
	}
	if len(tokens) == 1 {
		u.positions = nil
	}
	return []unit{u}
}

// parseExpression parses the language of [Expression]:
//
//	query = item { blanks item } ;
//	item  = [ "+" | "-" ] ( word [ "*" ] | '"' text '"' ) ;
func (a *analyzer) parseExpression(text string) ([]unit, error) {
	syntaxError := func(offset int, format string, args ...any) ([]unit, error) {
		return nil, &SyntaxError{Query: text, Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
	if !utf8.ValidString(text) {
		return syntaxError(0, "the text is not UTF-8")
	}
	var units []unit
	anyWanted, items := false, 0
	for offset := 0; ; {
		offset += len(text[offset:]) - len(strings.TrimLeftFunc(text[offset:], unicode.IsSpace))
		if offset == len(text) {
			break
		}
		itemStart, itemOccur := offset, may
		switch text[offset] {
		case '+':
			itemOccur = must
			offset++
		case '-':
			itemOccur = mustNot
			offset++
		}
		// Parse a phrase in quotation marks, or a word.
		var itemUnits []unit
		if offset < len(text) && text[offset] == '"' {
			n := strings.IndexByte(text[offset+1:], '"')
			if n < 0 {
				return syntaxError(offset, "the quotation mark is not closed")
			}
			if strings.TrimSpace(text[offset+1:offset+1+n]) == "" {
				return syntaxError(offset, "there is nothing between the quotation marks")
			}
			itemUnits = a.phraseUnits(text[offset+1 : offset+1+n])
			offset += n + 2
			if rest := text[offset:]; rest != "" {
				if r, _ := utf8.DecodeRuneInString(rest); !unicode.IsSpace(r) {
					return syntaxError(offset, "a blank is missing after the quotation mark")
				}
			}
		} else {
			word := text[offset:]
			if n := strings.IndexFunc(word, unicode.IsSpace); n >= 0 {
				word = word[:n]
			}
			if n := strings.IndexByte(word, '"'); n >= 0 {
				return syntaxError(offset+n, "a quotation mark within a word")
			}
			stem, prefix := strings.CutSuffix(word, "*")
			switch {
			case word == "":
				return syntaxError(itemStart, "%q stands alone", text[itemStart:offset])
			case stem == "":
				return syntaxError(offset, `"*" stands alone`)
			case strings.Contains(stem, "*"):
				return syntaxError(offset+strings.IndexByte(stem, '*'), `"*" is for the end of a word`)
			}
			var err error
			if itemUnits, err = a.wordOrPrefix(stem, prefix); err != nil {
				return syntaxError(offset, "%v", err)
			}
			offset += len(word)
		}
		items++
		anyWanted = anyWanted || itemOccur != mustNot
		for i := range itemUnits {
			itemUnits[i].occur = itemOccur
		}
		units = append(units, itemUnits...)
	}
	if items > 0 && !anyWanted {
		return syntaxError(0, "it has excluded items only")
	}
	return units, nil
}

var errPrefix = errors.New("a prefix is one word of letters and digits")

// wordOrPrefix returns the units of a word of an expression. A word with signs in it is a phrase.
func (a *analyzer) wordOrPrefix(text string, prefix bool) ([]unit, error) {
	if !prefix || a.Tokenizer == Trigram {
		return a.phraseUnits(text), nil
	}
	bare := analyzer{Settings: Settings{Tokenizer: Unicode61}, isQuery: true} // a prefix is not stemmed
	tokens, positions := bare.appendWords(nil, text, 0)
	if positions > 0 && !strings.ContainsFunc(text, func(r rune) bool { return isWord(r) && !human.UsesPairs(r) }) {
		return a.phraseUnits(text), nil // a phrase of single characters also matches where others follow
	}
	if len(tokens) != 1 {
		return nil, errPrefix
	}
	return []unit{{terms: []string{tokens[0].term}, prefix: true, weight: 1}}, nil
}
