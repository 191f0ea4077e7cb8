package vectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	npyMagic = "\x93NUMPY"
	// maxNPYHeader is the maximum length of the header text. Version 1.0 allows no more; longer headers
	// are for structured types, which are not read.
	maxNPYHeader = 1 << 16
)

// openNPY opens a .npy file.
func (in *inputs) openNPY(path string) (*Array, error) {
	if err := checkNotCompressed(path); err != nil {
		return nil, err
	}
	return openAs(in, path, NewNPY)
}

// NewNPY reads the header of a NumPy array file of size bytes, version 1.0 to 3.0
// (numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Errors show name in place of a path.
// The claims of the header are checked against size before anything is allocated. The error is
// [ErrFormat] for a file with fewer or more bytes, for Fortran order beyond rank 1, and for types other
// than numbers.
func NewNPY(r io.ReaderAt, size int64, name string) (*Array, error) {
	// The magic bytes, the version, and the length of the header text.
	head := make([]byte, 12)
	if n, err := readAtMost(r, head, size); err != nil {
		return nil, NewFileError(name, err)
	} else {
		head = head[:n]
	}
	if size == 0 {
		return nil, NewFileError(name, errEmptyFile)
	}
	if len(head) < len(npyMagic)+2 || string(head[:len(npyMagic)]) != npyMagic {
		if strings.HasPrefix(npyMagic, string(head[:min(len(head), len(npyMagic))])) {
			return nil, faultf(name, ErrFormat, "is cut short: %d bytes are no NumPy header", size)
		}
		return nil, faultf(name, ErrFormat, "does not begin as a NumPy file does")
	}
	prologue, length := 10, 0 // bytes before the text, and of it
	switch major := head[6]; {
	case major == 1 && len(head) >= 10:
		length = int(binary.LittleEndian.Uint16(head[8:]))
	case (major == 2 || major == 3) && len(head) >= 12:
		prologue = 12
		if l := binary.LittleEndian.Uint32(head[8:]); l <= maxNPYHeader {
			length = int(l)
		} else {
			return nil, faultf(name, ErrFormat, "header of %d bytes, more than %d", l, maxNPYHeader)
		}
	case major < 1 || major > 3:
		return nil, faultf(name, ErrFormat, "NumPy format version %d.%d is not known", major, head[7])
	default:
		return nil, faultf(name, ErrFormat, "is cut short: %d bytes are no NumPy header", size)
	}
	// The header text.
	off := int64(prologue + length)
	if off > size {
		return nil, faultf(name, ErrFormat, "is cut short: the header ends at byte %d, the file at %d", off, size)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, int64(prologue)); err != nil && !(errors.Is(err, io.EOF) && off == size) {
		return nil, NewFileError(name, malformed(err))
	}
	a, err := parseNPYHeader(string(text))
	if err != nil {
		return nil, faultf(name, ErrFormat, "%v", err)
	}
	// The number of elements, compared with the size of the file.
	a.r, a.off, a.path = r, off, name
	n, ok := elementCount(a.Shape, a.kind.size())
	if !ok {
		return nil, faultf(name, ErrFormat, "header claims shape %s, more than any file can hold", shapeString(a.Shape))
	}
	a.n = n
	want, have := int64(n)*int64(a.kind.size()), size-off
	switch {
	case have < want:
		return nil, faultf(name, ErrFormat, "is cut short: %d bytes of data, %s %s takes %d",
			have, a.Dtype, shapeString(a.Shape), want)
	case have > want:
		return nil, faultf(name, ErrFormat, "%d bytes of data, %s %s takes only %d",
			have, a.Dtype, shapeString(a.Shape), want)
	}
	return a, nil
}

// parseNPYHeader parses the Python dictionary of a header.
func parseNPYHeader(text string) (*Array, error) {
	p := pyReader{s: text}
	a := &Array{}
	var fortran bool
	seen := map[string]bool{}
	if !p.acceptByte('{') {
		return nil, p.errorf("want a dictionary")
	}
	for !p.acceptByte('}') {
		key, err := p.parseString()
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, p.errorf("key %.40q twice", key)
		}
		seen[key] = true
		if !p.acceptByte(':') {
			return nil, p.errorf("want a colon")
		}
		switch key {
		case "descr":
			if p.nextByte() == '[' || p.nextByte() == '(' {
				return nil, errors.New("structured types are not read")
			}
			descr, err := p.parseString()
			if err != nil {
				return nil, err
			}
			if a.kind, a.bigEndian, err = parseDtype(descr); err != nil {
				return nil, err
			}
			a.Dtype = a.kind.dtypeName(a.bigEndian)
		case "fortran_order":
			fortran, err = p.parseBool()
		case "shape":
			a.Shape, err = p.parseShape()
		default:
			err = p.errorf("key %.40q is not known", key)
		}
		if err != nil {
			return nil, err
		}
		if !p.acceptByte(',') && p.nextByte() != '}' {
			return nil, p.errorf("want a comma or a brace")
		}
	}
	if p.nextByte() != 0 || p.pos != len(p.s) {
		return nil, p.errorf("text after the dictionary")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return nil, fmt.Errorf("header has no %s", key)
		}
	}
	if fortran && len(a.Shape) > 1 {
		return nil, fmt.Errorf("array %s is in Fortran order, which is not read: save numpy.ascontiguousarray of it",
			shapeString(a.Shape))
	}
	return a, nil
}

// pyReader parses the Python literals of a header.
type pyReader struct {
	s   string
	pos int // position in s
}

func (p *pyReader) errorf(format string, args ...any) error {
	return fmt.Errorf("header, byte %d: %s", p.pos, fmt.Sprintf(format, args...))
}

// nextByte skips blanks and returns the next byte, 0 at the end.
func (p *pyReader) nextByte() byte {
	for p.pos < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.pos]) >= 0 {
		p.pos++
	}
	if p.pos == len(p.s) {
		return 0
	}
	return p.s[p.pos]
}

// acceptByte skips blanks and the byte c. It returns false if another byte follows.
func (p *pyReader) acceptByte(c byte) bool {
	if p.nextByte() != c || p.pos == len(p.s) {
		return false
	}
	p.pos++
	return true
}

// parseString parses a string. Escapes are not decoded.
func (p *pyReader) parseString() (string, error) {
	quote := p.nextByte()
	if quote != '\'' && quote != '"' {
		return "", p.errorf("want a string")
	}
	n := strings.IndexByte(p.s[p.pos+1:], quote)
	if n < 0 {
		return "", p.errorf("string without an end")
	}
	s := p.s[p.pos+1 : p.pos+1+n]
	p.pos += n + 2
	return s, nil
}

// parseBool parses True or False.
func (p *pyReader) parseBool() (bool, error) {
	p.nextByte()
	for name, value := range map[string]bool{"False": false, "True": true} {
		if strings.HasPrefix(p.s[p.pos:], name) {
			p.pos += len(name)
			return value, nil
		}
	}
	return false, p.errorf("want True or False")
}

// parseShape parses a tuple of lengths. Python 2 wrote some of them with an L, as in 3L.
func (p *pyReader) parseShape() ([]int, error) {
	if !p.acceptByte('(') {
		return nil, p.errorf("want a tuple")
	}
	shape := []int{}
	for !p.acceptByte(')') {
		p.nextByte()
		start := p.pos
		for p.pos < len(p.s) && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
			p.pos++
		}
		digits := p.s[start:p.pos]
		if digits == "" {
			return nil, p.errorf("want a length, 0 or more")
		}
		d, err := strconv.Atoi(digits)
		if err != nil {
			return nil, fmt.Errorf("header claims a length of %s, more than any file can hold",
				digits[:min(len(digits), 40)])
		}
		if len(shape) == maxRank {
			return nil, fmt.Errorf("header claims more than %d axes", maxRank)
		}
		shape = append(shape, d)
		p.acceptByte('L')
		if !p.acceptByte(',') && (p.nextByte() != ')' || len(shape) == 1) {
			return nil, p.errorf("want a comma")
		}
	}
	return shape, nil
}
