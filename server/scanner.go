package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// scanner reads JSON that is known to be valid.
type scanner struct {
	text   []byte
	offset int // of the next byte
}

// hasMore reports whether bytes remain.
func (s *scanner) hasMore() bool { return s.offset < len(s.text) }

// peekByte skips white space and commas, and returns the next byte without reading it. 0 means the end.
func (s *scanner) peekByte() byte {
	for s.hasMore() {
		switch c := s.text[s.offset]; c {
		case ' ', '\t', '\r', '\n', ',':
			s.offset++
		default:
			return c
		}
	}
	return 0
}

// openList reads the beginning of a list, and reports whether there was one.
func (s *scanner) openList() bool {
	if s.peekByte() != '[' {
		return false
	}
	s.offset++
	return true
}

// endList reads the end of a list, and reports whether there was one; it is true at the end of the text, too.
func (s *scanner) endList() bool {
	c := s.peekByte()
	if c == ']' {
		s.offset++
	}
	return c == ']' || c == 0
}

// visitMembers reads an object and calls visit for each member, which must read the value.
func (s *scanner) visitMembers(visit func(name string) error) error {
	s.offset++ // the opening brace
	for s.peekByte() == '"' {
		begin := s.offset
		s.skipValue()
		var name string
		if err := json.Unmarshal(s.text[begin:s.offset], &name); err != nil {
			return err
		}
		s.peekByte()
		s.offset++ // the colon
		if err := visit(name); err != nil {
			return err
		}
	}
	s.offset++ // the closing brace
	return nil
}

// skipValue reads a value and ignores it.
func (s *scanner) skipValue() {
	s.peekByte()
	depth := 0
	for s.hasMore() {
		switch s.text[s.offset] {
		case '"':
			for s.offset++; s.hasMore() && s.text[s.offset] != '"'; s.offset++ {
				if s.text[s.offset] == '\\' {
					s.offset++
				}
			}
			if depth == 0 {
				s.offset++
				return
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return // the end of the list or object that has the value
			}
			if depth--; depth == 0 {
				s.offset++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		s.offset++
	}
}

// maxNumberLength is the largest number of digits of a component of a vector.
const maxNumberLength = 1 << 10

// parseNumber reads a number. The next value must be a number, and within float32.
func (s *scanner) parseNumber() (float32, error) {
	s.peekByte()
	begin := s.offset
	for s.hasMore() {
		c := s.text[s.offset]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			s.offset++
			continue
		}
		break
	}
	word := s.text[begin:s.offset]
	switch {
	case len(word) == 0:
		return 0, errors.New("want a number")
	case len(word) > maxNumberLength:
		return 0, fmt.Errorf("%.20s… has %d characters; the limit is %d", word, len(word), maxNumberLength)
	}
	x, err := strconv.ParseFloat(string(word), 32)
	if err != nil {
		return 0, fmt.Errorf("%s is beyond float32", word)
	}
	return float32(x), nil
}
