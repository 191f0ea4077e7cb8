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

// maxSafetensorsHeader is the maximum size in bytes of the JSON header. (The reference reader allows
// 100 MB, for models of many thousand tensors.)
const maxSafetensorsHeader = 16 << 20

// Safetensors is a file of named tensors, little-endian and row-major
// (huggingface.co/docs/safetensors).
type Safetensors struct {
	path    string
	names   []string
	tensors map[string]tensorInfo
	data    int64 // offset of the first tensor
	end     int64 // offset of the end of the last
	r       io.ReaderAt
	owner
}

// tensorInfo is the description of a tensor in the header.
type tensorInfo struct {
	dtype      string
	shape      []int
	begin, end int64 // from the first tensor on
}

// OpenSafetensors opens a .safetensors file. Errors are [*FileError].
func OpenSafetensors(path string) (*Safetensors, error) { return new(inputs).openSafetensors(path) }

func (in *inputs) openSafetensors(path string) (*Safetensors, error) {
	return openAs(in, path, NewSafetensors)
}

// NewSafetensors reads the header of a file of size bytes. Errors show name in place of a path. The
// tensors must fill the file without gaps and overlaps, and their sizes must be those of their shapes.
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

// newSafetensors is NewSafetensors for a file whose first bytes, head, were read. A negative size means
// that it is unknown. It calls allow with the size of the header before it reads that.
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

// StreamSafetensors reads the header of a file that comes as a stream, such as the body of a request.
// Read its arrays in the order of [Safetensors.Stored], each at most once and from its beginning on, and
// call [Safetensors.Finish] last. size is that of the file in bytes; −1 means unknown. The function
// allow is called with the size of the header before that is read; its error ends the reading.
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

// parse parses the header, a JSON object that maps names of tensors to descriptions.
func (s *Safetensors) parse(text []byte) error {
	if !json.Valid(text) {
		return fmt.Errorf("is not JSON")
	}
	return visitMembers(text, func(key, value []byte) (int, error) {
		n := valueEnd(value)
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
		t, err := parseTensor(value[:n])
		if err != nil {
			return 0, fmt.Errorf("tensor %.80q: %w", name, err)
		}
		s.tensors[name] = t
		s.names = append(s.names, name)
		return n, nil
	})
}

// parseTensor parses and checks the description of a tensor.
func parseTensor(description []byte) (t tensorInfo, err error) {
	var offsets []int64
	hasDtype := false
	err = visitMembers(description, func(key, value []byte) (n int, err error) {
		if n = valueEnd(value); n <= 0 {
			return n, nil
		}
		switch raw := value[:n]; {
		case keyEquals(key, "dtype"):
			t.dtype, err = jsonString(raw)
			hasDtype = true
		case keyEquals(key, "shape"):
			t.shape, err = integers[int](raw)
		case keyEquals(key, "data_offsets"):
			offsets, err = integers[int64](raw)
		default:
			err = fmt.Errorf("unknown field %s", quoteExcerpt(key))
		}
		return n, err
	})
	switch {
	case err != nil:
		return t, err
	case !hasDtype || t.shape == nil || len(offsets) != 2:
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
		n, ok := elementCount(t.shape, k.size())
		if !ok {
			return t, fmt.Errorf("shape %s is more than any file can hold", shapeString(t.shape))
		}
		if want := int64(n) * int64(k.size()); want != t.end-t.begin {
			return t, fmt.Errorf("%d bytes of data, %s %s takes %d",
				t.end-t.begin, t.dtype, shapeString(t.shape), want)
		}
	}
	return t, nil
}

// checkLayout checks that the tensors have no gaps and overlaps, and that they fill the data of size
// bytes. A negative size means unknown.
func (s *Safetensors) checkLayout(size int64) error {
	end := int64(0) // of the tensors so far
	for _, name := range s.Stored() {
		t := s.tensors[name]
		switch {
		case size >= 0 && t.end > size:
			return fmt.Errorf("is cut short: tensor %.80q ends at byte %d of %d bytes of data", name, t.end, size)
		case t.begin < end:
			return fmt.Errorf("tensor %.80q overlaps the one before it", name)
		case t.begin > end:
			return fmt.Errorf("gap of %d bytes before tensor %.80q", t.begin-end, name)
		}
		end = t.end
	}
	if size >= 0 && end != size {
		return fmt.Errorf("%d bytes of data, the tensors take only %d", size, end)
	}
	if s.end = s.data + end; s.end < end { // overflow
		return fmt.Errorf("tensors of %d bytes", end)
	}
	return nil
}

// Names returns the names of the tensors, in the order of the header.
func (s *Safetensors) Names() []string { return s.names }

// Stored returns the names of the tensors, in the order of their bytes.
func (s *Safetensors) Stored() []string {
	order := slices.Clone(s.names)
	slices.SortStableFunc(order, func(a, b string) int {
		x, y := s.tensors[a], s.tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end))
	})
	return order
}

// Dtype returns the type of a tensor as the file spells it, or "" for an unknown name.
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
	n, _ := elementCount(t.shape, k.size())
	return &Array{
		Dtype: k.dtypeName(false),
		Shape: t.shape,
		path:  label,
		kind:  k,
		n:     n,
		r:     s.r,
		off:   s.data + t.begin,
	}, nil
}
