package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// scanner goes through valid JSON. It looks at its context, where it has one, every so many
// bytes; once that has ended the text ends where it is.
type scanner struct {
	text []byte
	at   int

	ctx   context.Context // nil: without end
	limit int             // up to here it is read without a look
	ended error           // of the context
}

// more tells whether there is text at the place.
func (s *scanner) more() bool { return s.at < s.limit || s.goesOn() }

func (s *scanner) goesOn() bool {
	if s.at >= len(s.text) || !s.looks() {
		return false
	}
	s.limit = min(s.at+pieceText, len(s.text))
	return true
}

// looks looks at the context; false: it has ended.
func (s *scanner) looks() bool {
	if s.ctx != nil && s.ended == nil {
		if s.ended = s.ctx.Err(); s.ended != nil {
			s.text, s.limit = nil, 0
		}
	}
	return s.ended == nil
}

// next skips white space and commas, and returns the byte after it, 0 at the end.
func (s *scanner) next() byte {
	for s.more() {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n', ',':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) open() bool {
	if s.next() != '[' {
		return false
	}
	s.at++
	return true
}

func (s *scanner) end() bool {
	c := s.next()
	if c == ']' {
		s.at++
	}
	return c == ']' || c == 0
}

// skip goes over a value.
func (s *scanner) skip() {
	s.next()
	depth := 0
	for s.more() {
		switch s.text[s.at] {
		case '"':
			for s.at++; s.more() && s.text[s.at] != '"'; s.at++ {
				if s.text[s.at] == '\\' {
					s.at++
				}
			}
			if depth == 0 {
				s.at++
				return
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return // of what the value is in
			}
			if depth--; depth == 0 {
				s.at++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		s.at++
	}
}

// longestNumber bounds the digits of a component of a vector.
const longestNumber = 1 << 10

func (s *scanner) number() (float32, error) {
	s.next()
	begin := s.at
	for s.more() {
		c := s.text[s.at]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			s.at++
			continue
		}
		break
	}
	if s.ended != nil {
		return 0, s.ended
	}
	word := s.text[begin:s.at]
	switch {
	case len(word) == 0:
		return 0, errors.New("want a number")
	case len(word) > longestNumber:
		return 0, fmt.Errorf("%.20s… has %d characters; %d are the most", word, len(word), longestNumber)
	}
	x, err := strconv.ParseFloat(string(word), 32)
	if err != nil {
		return 0, fmt.Errorf("%s is beyond float32", word)
	}
	return float32(x), nil
}
