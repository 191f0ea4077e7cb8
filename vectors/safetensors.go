package vectors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxSafetensorsHeader bounds the JSON header. The reference reader takes
// 100 MB, for models of many thousand tensors.
const maxSafetensorsHeader = 16 << 20

// Safetensors is a file of named tensors, little-endian and row-major
// (huggingface.co/docs/safetensors).
type Safetensors struct {
	path    string
	names   []string
	tensors map[string]tensorInfo
	data    int64 // where the tensors begin
	end     int64 // where the last one ends
	r       io.ReaderAt
	owner
}

// tensorInfo is a tensor as the header describes it.
type tensorInfo struct {
	dtype      string
	shape      []int
	begin, end int64
}

// OpenSafetensors opens a .safetensors file. Errors are [*FileError].
func OpenSafetensors(path string) (*Safetensors, error) { return new(inputs).openSafetensors(path) }

func (in *inputs) openSafetensors(path string) (*Safetensors, error) {
	return openAs(in, path, NewSafetensors)
}

// NewSafetensors reads the header of a file of size bytes; name stands for the
// path in errors. The tensors must fill the file exactly, without gaps and
// overlaps, each of the size that its shape takes.
func NewSafetensors(r io.ReaderAt, size int64, name string) (*Safetensors, error) {
	var head [8]byte
	n, err := readAtMost(r, head[:], size)
	if err != nil {
		return nil, NewFileError(name, err)
	}
	if n < len(head) {
		return nil, faultf(name, ErrFormat, "is cut short: %d bytes are no safetensors header", size)
	}
	return newSafetensors(r, head, size, func(int64) error { return nil }, name)
}

// newSafetensors is NewSafetensors after the length of the header was read.
func newSafetensors(
	r io.ReaderAt, head [8]byte, size int64, allow func(int64) error, name string,
) (*Safetensors, error) {
	length := binary.LittleEndian.Uint64(head[:])
	if length > maxSafetensorsHeader {
		return nil, faultf(name, ErrFormat, "claims a header of %d bytes, more than %d", length, maxSafetensorsHeader)
	}
	data := 8 + int64(length)
	if size >= 0 && data > size {
		return nil, faultf(name, ErrFormat, "is cut short: the header ends at byte %d, the file at %d", data, size)
	}
	if err := allow(int64(length)); err != nil {
		return nil, NewFileError(name, err)
	}
	text := make([]byte, length)
	if n, err := r.ReadAt(text, 8); n < len(text) {
		return nil, NewFileError(name, malformed(err))
	}
	s := &Safetensors{path: name, data: data, r: r, tensors: map[string]tensorInfo{}}
	if err := s.parse(text); err != nil {
		return nil, faultf(name, ErrFormat, "header: %v", err)
	}
	if size >= 0 {
		size -= data
	}
	if err := s.checkLayout(size); err != nil {
		return nil, faultf(name, ErrFormat, "%v", err)
	}
	return s, nil
}

// StreamSafetensors reads the header of a file that comes as a stream, such as the body of a
// request. Its arrays are to be read in the order of [Safetensors.Stored], each once and from its
// beginning on; what is left out is passed over. size is that of the file; −1 means that it is not
// known. allow is asked before a header of so many bytes is read. [Safetensors.Finish] comes last.
func StreamSafetensors(r io.Reader, size int64, allow func(header int64) error, name string) (*Safetensors, error) {
	f := &forward{r: r}
	var head [8]byte
	switch n, err := f.ReadAt(head[:], 0); {
	case errors.Is(err, io.EOF):
		return nil, faultf(name, ErrFormat, "is cut short: %d bytes are no safetensors header", n)
	case err != nil:
		return nil, NewFileError(name, err)
	}
	return newSafetensors(f, head, size, allow, name)
}

// parse reads the header: tensor name → description.
func (s *Safetensors) parse(text []byte) error {
	if !json.Valid(text) {
		return fmt.Errorf("is not JSON")
	}
	return members(text, func(key, rest []byte) (int, error) {
		n := valueEnd(rest)
		if n <= 0 {
			return n, nil
		}
		name, err := jsonString(key)
		if err != nil {
			return 0, err
		}
		if name == "__metadata__" {
			return n, nil
		}
		if _, twice := s.tensors[name]; twice {
			return 0, fmt.Errorf("tensor %.80q twice", name)
		}
		if len(s.names) == maxMembers {
			return 0, fmt.Errorf("more than %d tensors", maxMembers)
		}
		t, err := parseTensor(rest[:n])
		if err != nil {
			return 0, fmt.Errorf("tensor %.80q: %w", name, err)
		}
		s.tensors[name] = t
		s.names = append(s.names, name)
		return n, nil
	})
}

func parseTensor(value []byte) (t tensorInfo, err error) {
	var offsets []int64
	described := false
	err = members(value, func(key, rest []byte) (n int, err error) {
		if n = valueEnd(rest); n <= 0 {
			return n, nil
		}
		switch raw := rest[:n]; {
		case keyIs(key, "dtype"):
			t.dtype, err = jsonString(raw)
			described = true
		case keyIs(key, "shape"):
			t.shape, err = integers[int](raw)
		case keyIs(key, "data_offsets"):
			offsets, err = integers[int64](raw)
		default:
			err = fmt.Errorf("unknown field %s", excerpt(key))
		}
		return n, err
	})
	switch {
	case err != nil:
		return t, err
	case !described || t.shape == nil || len(offsets) != 2:
		return t, fmt.Errorf("wants dtype, shape and two data_offsets")
	case len(t.shape) > maxRank:
		return t, fmt.Errorf("more than %d axes", maxRank)
	case offsets[0] < 0 || offsets[1] < offsets[0]:
		return t, fmt.Errorf("offsets %d to %d", offsets[0], offsets[1])
	}
	t.begin, t.end = offsets[0], offsets[1]
	for _, d := range t.shape {
		if d < 0 {
			return t, fmt.Errorf("length %d in its shape", d)
		}
	}
	if k, known := safetensorsKind(t.dtype); known {
		n, ok := elements(t.shape, k.size())
		if !ok {
			return t, fmt.Errorf("shape %s is more than any file can hold", shapeString(t.shape))
		}
		if want := int64(n) * int64(k.size()); want != t.end-t.begin {
			return t, fmt.Errorf("%d bytes of data, %s %s takes %d", t.end-t.begin, t.dtype, shapeString(t.shape), want)
		}
	}
	return t, nil
}

// checkLayout refuses gaps, overlaps and offsets beyond the size of the data; −1 means that it is not
// known.
func (s *Safetensors) checkLayout(size int64) error {
	at := int64(0)
	for _, name := range s.Stored() {
		t := s.tensors[name]
		switch {
		case size >= 0 && t.end > size:
			return fmt.Errorf("is cut short: tensor %.80q ends at byte %d of %d bytes of data", name, t.end, size)
		case t.begin < at:
			return fmt.Errorf("tensor %.80q overlaps the one before it", name)
		case t.begin > at:
			return fmt.Errorf("gap of %d bytes before tensor %.80q", t.begin-at, name)
		}
		at = t.end
	}
	if size >= 0 && at != size {
		return fmt.Errorf("%d bytes of data, the tensors take only %d", size, at)
	}
	if s.end = s.data + at; s.end < at {
		return fmt.Errorf("tensors of %d bytes", at)
	}
	return nil
}

// Names are the tensors, in the order of the header.
func (s *Safetensors) Names() []string { return s.names }

// Stored are the tensors in the order of their bytes.
func (s *Safetensors) Stored() []string {
	order := slices.Clone(s.names)
	slices.SortStableFunc(order, func(a, b string) int {
		x, y := s.tensors[a], s.tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end))
	})
	return order
}

// Dtype is the type of a tensor as the file spells it; "" if there is no such tensor.
func (s *Safetensors) Dtype(name string) string { return s.tensors[name].dtype }

// Array opens a tensor, which is valid until the file is closed.
func (s *Safetensors) Array(name string) (*Array, error) {
	t, ok := s.tensors[name]
	if !ok {
		return nil, faultf(s.path, ErrFormat, "has no tensor named %q", name)
	}
	label := fmt.Sprintf("%s[%.80s]", s.path, name)
	k, ok := safetensorsKind(t.dtype)
	if !ok {
		return nil, faultf(label, ErrFormat, "type %.40q is not read", t.dtype)
	}
	n, _ := elements(t.shape, k.size())
	return &Array{Dtype: k.dtype(false), Shape: t.shape, path: label, kind: k, n: n, r: s.r, off: s.data + t.begin}, nil
}
