package keywords

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/human"
)

// ErrSyntax: a query in [Expression] mode that is none. The error is a [*SyntaxError].
var ErrSyntax = errors.New("syntax error in a keyword query")

// SyntaxError says what is wrong with a query, and where. It wraps [ErrSyntax].
type SyntaxError struct {
	Query  string
	Offset int // in bytes
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v: byte %d: %s", ErrSyntax, e.Offset, e.Reason)
}

// Unwrap makes errors.Is find ErrSyntax.
func (e *SyntaxError) Unwrap() error { return ErrSyntax }

// Limits of a query.
const (
	// MaxWords is how many words the text of a query may have, those of phrases and
	// repeated ones included.
	MaxWords = 4096
	// MaxQueryBytes is how long the text of a query may be.
	MaxQueryBytes = 256 << 10
)

// ErrTooLong: a query of more than [MaxWords] or [MaxQueryBytes].
var ErrTooLong = errors.New("a keyword query is too long")

// occur says what a part of a query demands of documents.
type occur int

const (
	may occur = iota
	must
	mustNot
)

// unit is a part of a query, counted in documents as one term is: a term, the terms
// with a prefix, or terms in a row.
type unit struct {
	terms     []string
	positions []uint32 // of the terms, from 0, where there are several
	prefix    bool     // the one term is the beginning of terms
	weight    float64  // how often it is in the query
	occur     occur
}

// mergeKey is equal for units that are the same but for their weight.
func (u *unit) mergeKey() string {
	return fmt.Sprintf("%d %t %v %q", u.occur, u.prefix, u.positions, u.terms)
}

// parse reads a query. Units that are the same become one, in the order of their first
// places, so that documents that score the same do so to the bit.
func parse(q Query, s Settings) ([]unit, error) {
	if len(q.Text) > MaxQueryBytes {
		return nil, fmt.Errorf("%w: %d bytes are the most", ErrTooLong, MaxQueryBytes)
	}
	a := newAnalyzer(s)
	a.isQuery = true
	var units []unit
	var err error
	switch q.Mode {
	case Words:
		units = a.wordUnits(q.Text)
	case Expression:
		units, err = a.expression(q.Text)
	default:
		err = fmt.Errorf("%w: mode %d", ErrOption, q.Mode)
	}
	if err != nil {
		return nil, err
	}
	remainingWords := MaxWords
	for i := range units {
		if remainingWords -= len(units[i].terms); remainingWords < 0 {
			return nil, fmt.Errorf("%w: %d words are the most", ErrTooLong, MaxWords)
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

// wordUnits is each word by itself. Nothing in it is a sign.
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
		if r := []rune(t.term); len(r) > 3 && human.Blankless(r[0]) { // words of it are not known
			for i := range len(r) - 2 {
				units = append(units, a.textUnits(string(r[i:i+3]))...)
			}
			continue
		}
		units = append(units, a.textUnits(t.term)...)
	}
	return units
}

// textUnits is a piece of text as it stands, in trigrams: any three characters that follow
// each other may be one; so those that together are the text are enough.
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

// phraseUnits is words in a row.
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

// expression reads the language of [Expression]:
//
//	query = item { blanks item } ;
//	item  = [ "+" | "-" ] ( word [ "*" ] | '"' text '"' ) ;
func (a *analyzer) expression(text string) ([]unit, error) {
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
		itemStart, demand := offset, may
		switch text[offset] {
		case '+':
			demand = must
			offset++
		case '-':
			demand = mustNot
			offset++
		}
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
		anyWanted = anyWanted || demand != mustNot
		for i := range itemUnits {
			itemUnits[i].occur = demand
		}
		units = append(units, itemUnits...)
	}
	if items > 0 && !anyWanted {
		return syntaxError(0, "it only says what is not to be found")
	}
	return units, nil
}

var errPrefix = errors.New("a prefix is one word of letters and digits")

// wordOrPrefix is a word of an expression. One with signs in it is a phrase.
func (a *analyzer) wordOrPrefix(text string, prefix bool) ([]unit, error) {
	if !prefix || a.Tokenizer == Trigram {
		return a.phraseUnits(text), nil
	}
	bare := analyzer{Settings: Settings{Tokenizer: Unicode61}, isQuery: true} // the beginning of a word has no stem
	tokens, places := bare.appendWords(nil, text, 0)
	if places > 0 && !strings.ContainsFunc(text, func(r rune) bool { return isWord(r) && !human.Paired(r) }) {
		return a.phraseUnits(text), nil // what follows may be anything
	}
	if len(tokens) != 1 {
		return nil, errPrefix
	}
	return []unit{{terms: []string{tokens[0].term}, prefix: true, weight: 1}}, nil
}
