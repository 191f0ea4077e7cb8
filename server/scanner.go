package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// scanner goes through valid JSON.
type scanner struct {
	text []byte
	at   int
}

// more tells whether there is text at the place.
func (s *scanner) more() bool { return s.at < len(s.text) }

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

// members goes over those of an object. visit passes the value of one.
func (s *scanner) members(visit func(name string) error) error {
	s.at++
	for s.next() == '"' {
		begin := s.at
		s.skip()
		var name string
		if err := json.Unmarshal(s.text[begin:s.at], &name); err != nil {
			return err
		}
		s.next()
		s.at++ // the colon
		if err := visit(name); err != nil {
			return err
		}
	}
	s.at++
	return nil
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
