// Package jsontext looks at JSON before it is decoded. encoding/json takes more than other
// readers do: bytes that are no UTF-8 and halves of surrogate pairs become U+FFFD, so that
// different strings become one; nesting may be 10,000 deep; and an array of empty objects
// takes a hundred times its bytes.
package jsontext

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many arrays and objects may be within each other. Readers of other
// languages take 128 and more, and an answer puts a few around what was stored.
const MaxDepth = 100

// Error says what is wrong with a text, and where.
type Error struct {
	Offset int    // byte
	Path   string // such as documents[2].title; "": the value as a whole
	What   string
	Syntax bool // the text is no JSON at all
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.What)
	}
	return e.Path + ": " + e.What
}

// Options of [Check]. The zero value is a good choice.
type Options struct {
	// Vectors takes any numbers in arrays of arrays, and not just those that float64 has: whoever
	// reads vectors knows better what they may be.
	Vectors bool
	// Charge, where set, is told how much memory the values will take that have been passed
	// since the last time, at the latest after 64 KiB of text; an error ends the check.
	Charge func(bytes int64) error
}

// What values take when they are decoded, at most: with what they are made into, and with
// the growth of the lists that they are put in.
const (
	costObject = 512
	costArray  = 64
	costKey    = 64
	costString = 64
	costScalar = 64       // a number, true, false or null
	costInRow  = 8        // a number in an array of arrays: a component of a vector
	chargeStep = 64 << 10 // bytes, and bytes of text, between two charges
)

// Check reads one JSON value that fills the text, white space around it aside. The error
// is an [*Error], or that of Options.Charge.
func Check(text []byte, o Options) error {
	s := scanner{text: text, o: o, depth: MaxDepth, invalid: -1, step: chargeStep, limit: min(chargeStep, len(text))}
	var full error
	s.goOn = func() bool {
		if full = s.chargeAll(); full == nil {
			s.utf8UpTo(min(s.at+s.step, len(text)))
		}
		return full == nil
	}
	s.utf8UpTo(s.limit)
	if err := s.run(); full != nil || err != nil {
		return cmp.Or(full, err)
	}
	if s.owed == 0 {
		return nil
	}
	return s.chargeAll()
}

// Valid is [json.Valid] for long texts: it asks after every step of so many bytes whether to
// go on, and is false if not.
func Valid(text []byte, step int, goOn func() bool) bool {
	s := scanner{text: text, depth: validDepth, lax: true, invalid: -1, step: step, goOn: goOn, limit: min(step, len(text))}
	return s.run() == nil && !s.ended
}

const validDepth = 10_000 // of encoding/json

// utf8UpTo looks for bytes that are no UTF-8 up to a place, or a little less.
func (s *scanner) utf8UpTo(end int) {
	for end < len(s.text) && end > s.checked && !utf8.RuneStart(s.text[end]) {
		end--
	}
	if end <= s.checked || s.invalid >= 0 {
		return
	}
	piece := s.text[s.checked:end]
	if !utf8.Valid(piece) {
		for i := 0; ; {
			r, n := utf8.DecodeRune(piece[i:])
			if r == utf8.RuneError && n < 2 {
				s.invalid = s.checked + i
				break
			}
			i += n
		}
	}
	s.checked = end
}

// frame is an array or an object that is open.
type frame struct {
	array    bool
	index    int // of the element, in an array
	key, end int // bytes of the member's key without its quotation marks, in an object
}

type scanner struct {
	text    []byte
	at      int
	o       Options
	open    []frame
	owed    int64
	checked int  // bytes of which it is known whether they are UTF-8
	invalid int  // the first that is none; −1: all are
	depth   int  // of what is open, at most
	lax     bool // halves of surrogate pairs are characters, and numbers may be beyond float64

	limit int // up to here it is read without a question
	step  int // and after the answer so much further
	goOn  func() bool
	ended bool // it said no
}

// more tells whether there is text behind the limit that is to be read; otherwise the text
// ends here.
func (s *scanner) more() bool {
	if s.at >= len(s.text) {
		return false
	}
	if !s.goOn() {
		s.text, s.ended = s.text[:s.at], true
		return false
	}
	s.limit = min(s.at+s.step, len(s.text))
	return true
}

func (s *scanner) fault(at int, syntax bool, format string, args ...any) error {
	return &Error{at, s.path(), fmt.Sprintf(format, args...), syntax}
}

func (s *scanner) early() error { return s.fault(len(s.text), true, "it ends too early") }

func (s *scanner) unexpected(want string) error {
	if s.at >= len(s.text) {
		return s.early()
	}
	r, _ := utf8.DecodeRune(s.text[s.at:])
	return s.fault(s.at, true, "%q in the place of %s", r, want)
}

// path is where the scanner is.
func (s *scanner) path() string {
	var b strings.Builder
	for _, f := range s.open {
		switch {
		case f.array:
			fmt.Fprintf(&b, "[%d]", f.index)
		case f.end > f.key:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			key := s.text[f.key:min(f.end, f.key+80)]
			b.WriteString(strings.ToValidUTF8(string(key), "\uFFFD"))
		}
		if b.Len() > 300 {
			b.WriteString("…")
			break
		}
	}
	return b.String()
}

func (s *scanner) charge(n int64) error {
	if s.o.Charge == nil {
		return nil
	}
	if s.owed += n; s.owed < chargeStep {
		return nil
	}
	return s.chargeAll()
}

func (s *scanner) chargeAll() error {
	n := s.owed
	if s.owed = 0; s.o.Charge == nil {
		return nil
	}
	return s.o.Charge(n)
}

// next skips white space and returns the byte after it, 0 at the end.
func (s *scanner) next() byte {
	for s.at < s.limit || s.more() {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) run() error {
	for {
		// A value is expected.
		closed, err := s.value()
		if err != nil {
			return err
		}
		for closed { // a value has ended
			if len(s.open) == 0 {
				if s.next(); s.at < len(s.text) {
					return s.fault(s.at, true, "there is more after the value")
				}
				return nil
			}
			if closed, err = s.after(); err != nil {
				return err
			}
		}
	}
}

// value reads a scalar, or opens an array or an object, up to its first value. It says
// whether a value has ended.
func (s *scanner) value() (ended bool, err error) {
	switch c := s.next(); {
	case c == '{', c == '[':
		if len(s.open) == s.depth {
			return false, s.fault(s.at, false, "more than %d arrays and objects are within each other", s.depth)
		}
		s.at++
		cost := int64(costArray)
		if c == '{' {
			cost = costObject
		}
		if err := s.charge(cost); err != nil {
			return false, err
		}
		s.open = append(s.open, frame{array: c == '['})
		if c == '[' {
			if s.next() == ']' {
				s.close()
				return true, nil
			}
			return false, nil
		}
		if s.next() == '}' {
			s.close()
			return true, nil
		}
		return false, s.key()
	case c == '"':
		n, err := s.str()
		if err != nil {
			return false, err
		}
		return true, s.charge(int64(n) + costString)
	case (c == '-' || c >= '0' && c <= '9') && !bytes.HasPrefix(s.text[s.at:], []byte("-I")):
		cost, finite := int64(costScalar), !s.lax
		if n := len(s.open); n > 1 && s.open[n-1].array && s.open[n-2].array {
			cost, finite = costInRow, finite && !s.o.Vectors
		}
		if err := s.number(finite); err != nil {
			return false, err
		}
		return true, s.charge(cost)
	}
	for _, word := range []string{"null", "true", "false"} {
		if strings.HasPrefix(string(s.text[s.at:min(s.at+5, len(s.text))]), word) {
			s.at += len(word)
			return true, s.charge(costScalar)
		}
	}
	for _, word := range []string{"NaN", "Infinity", "-Infinity", "nan", "inf", "Inf"} {
		if bytes.HasPrefix(s.text[s.at:], []byte(word)) {
			return false, s.fault(s.at, true, "%s is no number in JSON: write null", word)
		}
	}
	return false, s.unexpected("a value")
}

// after reads what follows a value in an array or an object: the end of that, which is the
// end of a value too, or all up to the next value.
func (s *scanner) after() (ended bool, err error) {
	top := &s.open[len(s.open)-1]
	c := s.next()
	switch {
	case c == ',' && top.array:
		s.at++
		top.index++
		return false, nil
	case c == ',':
		s.at++
		return false, s.key()
	case top.array && c == ']', !top.array && c == '}':
		s.close()
		return true, nil
	case top.array:
		return false, s.unexpected("a comma or ]")
	}
	return false, s.unexpected("a comma or }")
}

// close passes the end of the innermost array or object.
func (s *scanner) close() {
	s.at++
	s.open = s.open[:len(s.open)-1]
}

// key reads a key and its colon.
func (s *scanner) key() error {
	top := &s.open[len(s.open)-1]
	top.key, top.end = 0, 0
	if s.next() != '"' {
		return s.unexpected("a key")
	}
	begin := s.at + 1
	n, err := s.str()
	if err != nil {
		return err
	}
	top.key, top.end = begin, s.at-1
	if s.next() != ':' {
		return s.unexpected("a colon")
	}
	s.at++
	return s.charge(int64(n) + costKey)
}

// str reads a string, and returns its length.
func (s *scanner) str() (int, error) {
	begin := s.at
	s.at++
	for s.at < s.limit || s.more() {
		s.at += plainBytes(s.text[s.at:s.limit])
		if s.at == s.limit {
			continue
		}
		switch c := s.text[s.at]; {
		case c == '"':
			if s.invalid >= begin && s.invalid < s.at {
				return 0, s.fault(s.invalid, false, "a string that is not UTF-8")
			}
			s.at++
			return s.at - begin - 2, nil
		case c < ' ':
			return 0, s.fault(s.at, true, "a control character in a string")
		default: // a backslash
			if err := s.escape(); err != nil {
				return 0, err
			}
		}
	}
	return 0, s.early()
}

// escape reads what a backslash begins: a whole pair of surrogates.
func (s *scanner) escape() error {
	if s.at+1 >= len(s.text) {
		return s.early()
	}
	switch s.text[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return nil
	case 'u':
	default:
		return s.fault(s.at, true, "an escape that is not known")
	}
	unit, ok := s.unit(s.at)
	if !ok {
		return s.fault(s.at, true, "\\u without four hexadecimal digits")
	}
	if unit < 0xd800 || unit > 0xdfff || s.lax {
		s.at += 6
		return nil
	}
	if low, ok := s.unit(s.at + 6); unit <= 0xdbff && ok && low >= 0xdc00 && low <= 0xdfff {
		s.at += 12
		return nil
	}
	return s.fault(s.at, false, "%s is half of a character: write both halves, or \\ufffd", s.text[s.at:s.at+6])
}

// unit is the UTF-16 unit of \uXXXX at a place.
func (s *scanner) unit(at int) (rune, bool) { return unit(s.text, at) }

func unit(text []byte, at int) (rune, bool) {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
	return rune(n), err == nil
}

// LoneSurrogate is the place of the first \uD800 to \uDFFF in valid JSON that is not half of a
// pair; −1: there is none.
func LoneSurrogate(text []byte) int {
	for at := 0; at < len(text); {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			break
		}
		at += next
		high, ok := unit(text, at)
		if !ok || !utf16.IsSurrogate(high) {
			at += 2
			continue
		}
		if low, ok := unit(text, at+6); !ok || utf16.DecodeRune(high, low) == utf8.RuneError {
			return at
		}
		at += 12
	}
	return -1
}

// number reads a number as the grammar has it; with finite it must not be beyond float64.
func (s *scanner) number(finite bool) error {
	begin, exponent := s.at, false
	digits := func() bool {
		from := s.at
		for (s.at < s.limit || s.more()) && s.text[s.at]-'0' < 10 {
			s.at++
		}
		return s.at > from
	}
	peek := func() byte {
		if s.at < len(s.text) {
			return s.text[s.at]
		}
		return 0
	}
	if peek() == '-' {
		s.at++
	}
	if peek() == '0' {
		s.at++
	} else if !digits() {
		return s.unexpected("a digit")
	}
	if peek() == '.' {
		s.at++
		if !digits() {
			return s.unexpected("a digit")
		}
	}
	if c := peek(); c == 'e' || c == 'E' {
		exponent = true
		s.at++
		if c := peek(); c == '+' || c == '-' {
			s.at++
		}
		if !digits() {
			return s.unexpected("a digit")
		}
	}
	if c := peek(); c-'0' < 10 { // after a leading zero
		return s.unexpected("the end of a number")
	}
	if finite && (exponent || s.at-begin > 300) {
		word := string(s.text[begin:s.at])
		if x, err := strconv.ParseFloat(word, 64); math.IsInf(x, 0) || err != nil {
			return s.fault(begin, false, "the number %.40s is too large", word)
		}
	}
	return nil
}

// WithoutMark drops the byte order mark that editors of Windows begin files with, and that JSON has
// no place for.
func WithoutMark(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\ufeff")) }
