// Package jsontext checks JSON before it is decoded. encoding/json is more lenient than other
// readers: it replaces invalid UTF-8 and halves of surrogate pairs by U+FFFD, so that different
// strings become equal; it allows 10,000 levels of nesting; and it decodes an array of empty objects
// to a hundred times its size.
package jsontext

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may be nested. Readers in other languages allow 128 and
// more, and a response adds a few levels around stored values.
const MaxDepth = 100

// Error describes an error in a text, with its location.
type Error struct {
	Offset int    // byte
	Path   string // such as documents[2].title. "" means the value as a whole
	What   string
	Syntax bool // the text is not JSON
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.What)
	}
	return e.Path + ": " + e.What
}

// Options are the options of [Check]. The zero value is a good default.
type Options struct {
	// Vectors allows numbers beyond float64 in arrays of arrays: the reader of vectors has its own
	// limits.
	Vectors bool
	// Charge, where set, is called with the memory that the values read since the last call will
	// use, at least once for 64 KiB of text. An error ends the check.
	Charge func(bytes int64) error
}

// Upper bounds of the memory of decoded values, including conversions and the growth of lists.
const (
	costObject    = 512
	costArray     = 64
	costKey       = 64
	costString    = 64
	costScalar    = 64       // a number, true, false or null
	costComponent = 8        // a number in an array of arrays: a component of a vector
	chargeStep    = 64 << 10 // bytes, and bytes of text, between two charges
)

// Check reads one JSON value that fills the text, except for white space around it. The error is an
// [*Error], or that of Options.Charge.
func Check(text []byte, o Options) error {
	s := scanner{
		text:        text,
		options:     o,
		maxDepth:    MaxDepth,
		invalidUTF8: -1,
		step:        chargeStep,
		limit:       min(chargeStep, len(text)),
	}
	var chargeErr error
	s.proceed = func() bool {
		if chargeErr = s.chargeAll(); chargeErr == nil {
			s.checkUTF8(min(s.pos+s.step, len(text)))
		}
		return chargeErr == nil
	}
	s.checkUTF8(s.limit)
	if err := s.scan(); chargeErr != nil || err != nil {
		return cmp.Or(chargeErr, err)
	}
	if s.uncharged == 0 {
		return nil
	}
	return s.chargeAll()
}

// Valid is [json.Valid] for long texts: after every step bytes it asks proceed whether to continue.
// It returns false if not.
func Valid(text []byte, step int, proceed func() bool) bool {
	s := scanner{
		text:        text,
		maxDepth:    validDepth,
		lenient:     true,
		invalidUTF8: -1,
		step:        step,
		proceed:     proceed,
		limit:       min(step, len(text)),
	}
	return s.scan() == nil && !s.stopped
}

const validDepth = 10_000 // of encoding/json

// checkUTF8 looks for invalid UTF-8 up to end, or up to the beginning of the character there.
func (s *scanner) checkUTF8(end int) {
	for end < len(s.text) && end > s.checkedUTF8 && !utf8.RuneStart(s.text[end]) {
		end--
	}
	if end <= s.checkedUTF8 || s.invalidUTF8 >= 0 {
		return
	}
	unchecked := s.text[s.checkedUTF8:end]
	if !utf8.Valid(unchecked) {
		for i := 0; ; {
			r, n := utf8.DecodeRune(unchecked[i:])
			if r == utf8.RuneError && n < 2 {
				s.invalidUTF8 = s.checkedUTF8 + i
				break
			}
			i += n
		}
	}
	s.checkedUTF8 = end
}

// container is an array or an object that is open.
type container struct {
	array    bool
	index    int // of the element, in an array
	key, end int // bytes of the member's key without its quotation marks, in an object
}

// scanner reads a text from front to back without decoding it.
type scanner struct {
	text        []byte
	pos         int
	options     Options
	openValues  []container // arrays and objects around pos, the innermost last
	uncharged   int64       // memory that Charge was not called with yet
	checkedUTF8 int         // bytes that were checked for UTF-8
	invalidUTF8 int         // offset of the first byte that is invalid; −1 if all are valid
	maxDepth    int         // limit of len(openValues)
	lenient     bool        // accepts halves of surrogate pairs, and numbers beyond float64

	limit   int // the scanner calls proceed before it reads beyond this offset
	step    int // how far limit moves then
	proceed func() bool
	stopped bool // proceed returned false
}

// extendLimit moves the limit, and reports whether there is text behind it. If proceed returns
// false, the text ends at the limit.
func (s *scanner) extendLimit() bool {
	if s.pos >= len(s.text) {
		return false
	}
	if !s.proceed() {
		s.text, s.stopped = s.text[:s.pos], true
		return false
	}
	s.limit = min(s.pos+s.step, len(s.text))
	return true
}

// errorAt returns an error with the current path.
func (s *scanner) errorAt(pos int, syntax bool, format string, args ...any) error {
	return &Error{pos, s.currentPath(), fmt.Sprintf(format, args...), syntax}
}

func (s *scanner) endsEarly() error { return s.errorAt(len(s.text), true, "it ends too early") }

// unexpected returns the error for the character at pos.
func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.text) {
		return s.endsEarly()
	}
	r, _ := utf8.DecodeRune(s.text[s.pos:])
	return s.errorAt(s.pos, true, "%q in the place of %s", r, wanted)
}

// currentPath returns the path of the current value.
func (s *scanner) currentPath() string {
	var b strings.Builder
	for _, f := range s.openValues {
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

// charge adds to the memory of the values, and calls Charge when that exceeds chargeStep.
func (s *scanner) charge(n int64) error {
	if s.options.Charge == nil {
		return nil
	}
	if s.uncharged += n; s.uncharged < chargeStep {
		return nil
	}
	return s.chargeAll()
}

// chargeAll calls Charge with the memory that is not charged yet.
func (s *scanner) chargeAll() error {
	n := s.uncharged
	if s.uncharged = 0; s.options.Charge == nil {
		return nil
	}
	return s.options.Charge(n)
}

// next skips white space and returns the byte after it, or 0 at the end.
func (s *scanner) next() byte {
	for s.pos < s.limit || s.extendLimit() {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// scan reads the whole text.
func (s *scanner) scan() error {
	for {
		// A value is expected.
		closed, err := s.readValue()
		if err != nil {
			return err
		}
		for closed { // a value ended
			if len(s.openValues) == 0 {
				if s.next(); s.pos < len(s.text) {
					return s.errorAt(s.pos, true, "there is more after the value")
				}
				return nil
			}
			if closed, err = s.readSeparator(); err != nil {
				return err
			}
		}
	}
}

// readValue reads a scalar, or opens an array or an object, up to its first value. ended reports
// whether a value ended.
func (s *scanner) readValue() (ended bool, err error) {
	switch c := s.next(); {
	case c == '{', c == '[':
		if len(s.openValues) == s.maxDepth {
			return false, s.errorAt(s.pos, false, "more than %d arrays and objects are within each other", s.maxDepth)
		}
		s.pos++
		cost := int64(costArray)
		if c == '{' {
			cost = costObject
		}
		if err := s.charge(cost); err != nil {
			return false, err
		}
		s.openValues = append(s.openValues, container{array: c == '['})
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
		return false, s.readKey()
	case c == '"':
		n, err := s.readString()
		if err != nil {
			return false, err
		}
		return true, s.charge(int64(n) + costString)
	case (c == '-' || c >= '0' && c <= '9') && !bytes.HasPrefix(s.text[s.pos:], []byte("-I")):
		cost, finite := int64(costScalar), !s.lenient
		if n := len(s.openValues); n > 1 && s.openValues[n-1].array && s.openValues[n-2].array {
			cost, finite = costComponent, finite && !s.options.Vectors
		}
		if err := s.readNumber(finite); err != nil {
			return false, err
		}
		return true, s.charge(cost)
	}
	for _, word := range []string{"null", "true", "false"} {
		if strings.HasPrefix(string(s.text[s.pos:min(s.pos+5, len(s.text))]), word) {
			s.pos += len(word)
			return true, s.charge(costScalar)
		}
	}
	for _, word := range []string{"NaN", "Infinity", "-Infinity", "nan", "inf", "Inf"} {
		if bytes.HasPrefix(s.text[s.pos:], []byte(word)) {
			return false, s.errorAt(s.pos, true, "%s is not a number in JSON: write null", word)
		}
	}
	return false, s.unexpected("a value")
}

// readSeparator reads the text after a value in an array or an object: either the end of that,
// which also ends a value, or everything before the next value.
func (s *scanner) readSeparator() (ended bool, err error) {
	top := &s.openValues[len(s.openValues)-1]
	c := s.next()
	switch {
	case c == ',' && top.array:
		s.pos++
		top.index++
		return false, nil
	case c == ',':
		s.pos++
		return false, s.readKey()
	case top.array && c == ']', !top.array && c == '}':
		s.close()
		return true, nil
	case top.array:
		return false, s.unexpected("a comma or ]")
	}
	return false, s.unexpected("a comma or }")
}

// close closes the innermost array or object.
func (s *scanner) close() {
	s.pos++
	s.openValues = s.openValues[:len(s.openValues)-1]
}

// readKey reads a key and its colon.
func (s *scanner) readKey() error {
	top := &s.openValues[len(s.openValues)-1]
	top.key, top.end = 0, 0
	if s.next() != '"' {
		return s.unexpected("a key")
	}
	keyStart := s.pos + 1
	n, err := s.readString()
	if err != nil {
		return err
	}
	top.key, top.end = keyStart, s.pos-1
	if s.next() != ':' {
		return s.unexpected("a colon")
	}
	s.pos++
	return s.charge(int64(n) + costKey)
}

// readString reads a string, and returns its length.
func (s *scanner) readString() (int, error) {
	start := s.pos
	s.pos++
	for s.pos < s.limit || s.extendLimit() {
		s.pos += plainPrefixLen(s.text[s.pos:s.limit])
		if s.pos == s.limit {
			continue
		}
		switch c := s.text[s.pos]; {
		case c == '"':
			if s.invalidUTF8 >= start && s.invalidUTF8 < s.pos {
				return 0, s.errorAt(s.invalidUTF8, false, "a string that is not UTF-8")
			}
			s.pos++
			return s.pos - start - 2, nil
		case c < ' ':
			return 0, s.errorAt(s.pos, true, "a control character in a string")
		default: // a backslash
			if err := s.readEscape(); err != nil {
				return 0, err
			}
		}
	}
	return 0, s.endsEarly()
}

// readEscape reads an escape sequence, or both of a pair of surrogates.
func (s *scanner) readEscape() error {
	if s.pos+1 >= len(s.text) {
		return s.endsEarly()
	}
	switch s.text[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
	default:
		return s.errorAt(s.pos, true, "an escape that is not known")
	}
	unit, ok := s.utf16UnitAt(s.pos)
	if !ok {
		return s.errorAt(s.pos, true, "\\u without four hexadecimal digits")
	}
	if unit < 0xd800 || unit > 0xdfff || s.lenient {
		s.pos += 6
		return nil
	}
	if low, ok := s.utf16UnitAt(s.pos + 6); unit <= 0xdbff && ok && low >= 0xdc00 && low <= 0xdfff {
		s.pos += 12
		return nil
	}
	return s.errorAt(s.pos, false, "%s is half of a character: write both halves, or \\ufffd", s.text[s.pos:s.pos+6])
}

// utf16UnitAt returns the UTF-16 unit of \uXXXX at an offset.
func (s *scanner) utf16UnitAt(offset int) (rune, bool) { return utf16Unit(s.text, offset) }

// readNumber reads a number. With finite it must not exceed float64.
func (s *scanner) readNumber(finite bool) error {
	start, hasExponent := s.pos, false
	readDigits := func() bool {
		from := s.pos
		for (s.pos < s.limit || s.extendLimit()) && s.text[s.pos]-'0' < 10 {
			s.pos++
		}
		return s.pos > from
	}
	peek := func() byte {
		if s.pos < len(s.text) {
			return s.text[s.pos]
		}
		return 0
	}
	if peek() == '-' {
		s.pos++
	}
	if peek() == '0' {
		s.pos++
	} else if !readDigits() {
		return s.unexpected("a digit")
	}
	if peek() == '.' {
		s.pos++
		if !readDigits() {
			return s.unexpected("a digit")
		}
	}
	if c := peek(); c == 'e' || c == 'E' {
		hasExponent = true
		s.pos++
		if c := peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !readDigits() {
			return s.unexpected("a digit")
		}
	}
	if c := peek(); c-'0' < 10 { // after a leading zero
		return s.unexpected("the end of a number")
	}
	if finite && (hasExponent || s.pos-start > 300) { // float64 holds every number of up to 308 digits
		word := string(s.text[start:s.pos])
		if x, err := strconv.ParseFloat(word, 64); math.IsInf(x, 0) || err != nil {
			return s.errorAt(start, false, "the number %.40s is too large", word)
		}
	}
	return nil
}

// TrimByteOrderMark removes the byte order mark that Windows editors put at the start of files, and that
// JSON does not allow.
func TrimByteOrderMark(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\ufeff")) }
