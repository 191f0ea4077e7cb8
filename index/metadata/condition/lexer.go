package condition

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// token is a word or sign of a condition.
type token struct {
	kind   tokenKind
	offset int    // in bytes of the text
	text   string // of a name or string without quotes, otherwise as written
}

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenName             // a field's key
	tokenQuoted           // the same in double quotes
	tokenWord             // a keyword, in upper case
	tokenString           // in single quotes
	tokenNumber
	tokenSign // ( ) , ? . = == != <> < <= > >= + -
)

// keywords are not names of fields unless quoted.
var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "LIKE": true, "REGEXP": true, "BETWEEN": true,
	"IN": true, "IS": true, "NULL": true, "TRUE": true, "FALSE": true,
}

// tokenize splits a condition into tokens, and ends with tokenEnd.
func tokenize(text string) ([]token, error) {
	l := lexer{text: text}
	switch {
	case len(text) > MaxText:
		return nil, tooComplex(text, MaxText, "it has %d bytes, at most %d are possible", len(text), MaxText)
	case !utf8.ValidString(text):
		return nil, l.errorf(0, "it is not UTF-8")
	}
	var tokens []token
	for {
		t, err := l.next()
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		if t.kind == tokenEnd {
			return tokens, nil
		}
		if len(tokens) > MaxWords {
			return nil, tooComplex(text, t.offset, "it has more than %d words and signs", MaxWords)
		}
	}
}

// lexer reads the tokens of a condition.
type lexer struct {
	text   string
	offset int
}

// errorf returns a syntax error at an offset.
func (l *lexer) errorf(offset int, format string, args ...any) error {
	return syntaxError(l.text, offset, format, args...)
}

// syntaxError returns an ErrSyntax at an offset of a condition.
func syntaxError(text string, offset int, format string, args ...any) error {
	return &Error{Condition: text, Offset: offset, Err: fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))}
}

// tooComplex returns an error for a condition beyond a limit.
func tooComplex(text string, offset int, format string, args ...any) error {
	err := fmt.Errorf("%w: %w: %s", ErrSyntax, ErrTooComplex, fmt.Sprintf(format, args...))
	return &Error{Condition: text, Offset: offset, Err: err}
}

// next reads the next token.
func (l *lexer) next() (token, error) {
	for l.offset < len(l.text) && strings.IndexByte(" \t\r\n\f", l.text[l.offset]) >= 0 {
		l.offset++
	}
	begin := l.offset
	if begin == len(l.text) {
		return token{kind: tokenEnd, offset: begin}, nil
	}
	// The first character decides the kind of the token.
	remaining := l.text[begin:]
	emit := func(kind tokenKind, n int) (token, error) {
		l.offset += n
		return token{kind: kind, offset: begin, text: remaining[:n]}, nil
	}
	switch c := remaining[0]; {
	case strings.HasPrefix(remaining, "--"), strings.HasPrefix(remaining, "/*"):
		return token{}, l.errorf(begin, "comments are not allowed")
	case c == '\'':
		return l.readQuoted(tokenString, "text")
	case c == '"':
		return l.readQuoted(tokenQuoted, "name")
	case isDigit(c), c == '.' && len(remaining) > 1 && isDigit(remaining[1]) && !l.afterName():
		n := numberLength(remaining)
		if n < len(remaining) && isNameByte(remaining[n]) {
			return token{}, l.errorf(begin, "neither a number nor a name")
		}
		return emit(tokenNumber, n)
	case isNameByte(c):
		n := 1
		for n < len(remaining) && isNameByte(remaining[n]) {
			n++
		}
		t, err := emit(tokenName, n)
		if upper := strings.ToUpper(t.text); keywords[upper] {
			t.kind, t.text = tokenWord, upper
		}
		return t, err
	case strings.HasPrefix(remaining, "<="), strings.HasPrefix(remaining, ">="), strings.HasPrefix(remaining, "<>"),
		strings.HasPrefix(remaining, "!="), strings.HasPrefix(remaining, "=="):
		return emit(tokenSign, 2)
	case strings.IndexByte("(),?.=<>+-", c) >= 0:
		return emit(tokenSign, 1)
	}
	r, _ := utf8.DecodeRuneInString(remaining)
	return token{}, l.errorf(begin, "%q has no meaning here", r)
}

// afterName reports whether a name ends here, so that a dot belongs to a field and not to a number.
func (l *lexer) afterName() bool {
	return l.offset > 0 && (isNameByte(l.text[l.offset-1]) || l.text[l.offset-1] == '"')
}

// readQuoted reads up to the closing quote; a doubled quote stands for one.
func (l *lexer) readQuoted(kind tokenKind, noun string) (token, error) {
	begin, quote := l.offset, l.text[l.offset]
	var b strings.Builder
	for i := begin + 1; i < len(l.text); i++ {
		c := l.text[i]
		if c != quote {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(l.text) && l.text[i+1] == quote {
			b.WriteByte(c)
			i++
			continue
		}
		l.offset = i + 1
		return token{kind: kind, offset: begin, text: b.String()}, nil
	}
	return token{}, l.errorf(begin, "this %s has no closing quote", noun)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isNameByte reports whether a byte may be in a name: ASCII letters, digits, underscores, and all
// bytes beyond ASCII. This is the rule of SQLite without $.
func isNameByte(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

// numberLength returns the length of the longest unsigned number that s begins with, 0 if there is
// none.
func numberLength(s string) int {
	digits := func(i int) int {
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i
	}
	n := digits(0)
	hasDigits := n > 0
	if n < len(s) && s[n] == '.' {
		end := digits(n + 1)
		if !hasDigits && end == n+1 {
			return 0
		}
		n, hasDigits = end, true
	}
	if !hasDigits {
		return 0
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		i := n + 1
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if end := digits(i); end > i {
			n = end
		}
	}
	return n
}
