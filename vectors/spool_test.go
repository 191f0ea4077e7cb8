package vectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// anyDocuments draws documents of dimension dim whose components a float16 holds.
func anyDocuments(t *rapid.T, dim int) []Document {
	named := rapid.Bool().Draw(t, "named")
	docs := make([]Document, rapid.IntRange(0, 12).Draw(t, "documents"))
	for i := range docs {
		d := &docs[i]
		if named {
			d.ID = fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"d", "ü ", "a/b "}).Draw(t, "prefix"), i)
		}
		rows := rapid.IntRange(0, 4).Draw(t, "rows")
		d.Tokens = make([]float32, rows*dim)
		for j := range d.Tokens {
			d.Tokens[j] = float32(rapid.IntRange(-1024, 1024).Draw(t, "component")) / 512
		}
		if p := rapid.SampledFrom([]string{"-", "", `{"a": 1}`}).Draw(t, "payload"); p != "-" {
			d.Payload = []byte(p)
		}
	}
	return docs
}

func sequence(docs []Document) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, d := range docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func TestSpoolIsASourceOfWhatWasAdded(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.IntRange(1, 5).Draw(rt, "dim")
		docs := anyDocuments(rt, dim)
		o := &SpoolOptions{Float16: rapid.Bool().Draw(rt, "float16")}
		if rapid.Bool().Draw(rt, "path") {
			n++
			o.Path = filepath.Join(dir, fmt.Sprint(n))
			if rapid.Bool().Draw(rt, "apart") {
				o.Vectors = o.Path + ".vectors"
			}
		}
		s, err := SpoolDocuments(context.Background(), dim, sequence(docs), o)
		require.NoError(rt, err)
		plain, err := FromDocuments(dim, docs)
		require.NoError(rt, err)
		same := func(s *Spool) {
			require.Equal(rt, plain.Dim(), s.Dim())
			want, got := all(t, plain), all(t, s)
			require.Len(rt, got, len(want))
			for i := range want {
				require.Equal(rt, want[i].ID, got[i].ID)
				require.Equal(rt, want[i].Payload == nil, got[i].Payload == nil)
				require.Equal(rt, string(want[i].Payload), string(got[i].Payload))
				require.Equal(rt, len(want[i].Tokens), len(got[i].Tokens))
				for j := range want[i].Tokens {
					require.Equal(rt, want[i].Tokens[j], got[i].Tokens[j])
				}
			}
		}
		same(s)
		require.NoError(rt, s.Close())
		require.NoError(rt, s.Close())
		if o.Path != "" {
			o.Resume = true
			s, err = NewSpool(dim, o)
			require.NoError(rt, err)
			same(s)
			require.NoError(rt, s.Close())
		}
	})
}

// A spool whose writer died at any byte goes on behind the last whole document.
func TestSpoolResumesAfterACut(t *testing.T) {
	const dim = 3
	o := &SpoolOptions{Path: filepath.Join(t.TempDir(), "s"), Tag: "model 1"}
	s, err := NewSpool(dim, o)
	require.NoError(t, err)
	docs := []Document{
		{ID: "a", Tokens: []float32{1, 2, 3}, Payload: []byte("{}")},
		{ID: "b"},
		{ID: "c", Tokens: []float32{4, 5, 6, 7, 8, 9}},
	}
	ends := []int64{s.size}
	for _, d := range docs {
		require.NoError(t, s.Add(d))
		ends = append(ends, s.size)
	}
	require.NoError(t, s.Close())
	whole := readFile(t, o.Path)
	require.EqualValues(t, len(whole), ends[3])

	for cut := range len(whole) + 1 {
		for _, garbage := range []string{"", "\x01\x00\x00\x00 what is not a record"} {
			content := append(whole[:cut:cut], garbage...)
			if garbage != "" && int64(cut) < ends[0] {
				continue // then it is another file
			}
			path := filepath.Join(t.TempDir(), "s")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			s, err := NewSpool(dim, &SpoolOptions{Path: path, Resume: true, Tag: o.Tag})
			require.NoError(t, err)
			want := 0
			for want < 3 && int64(cut) >= ends[want+1] {
				want++
			}
			require.Equal(t, want, s.Len(), "cut at byte %d", cut)
			for _, d := range docs[want:] {
				require.NoError(t, s.Add(d))
			}
			require.NoError(t, s.Close())
			require.Equal(t, whole, readFile(t, path))
		}
	}
}

// A bit that flips in a file that is resumed costs the last document at most, and is
// an error that names the document otherwise, which leaves the file as it is.
func TestSpoolResumesNoDamage(t *testing.T) {
	const dim, n = 2, 4
	for _, named := range []bool{true, false} {
		o := &SpoolOptions{Path: filepath.Join(t.TempDir(), "s")}
		s, err := NewSpool(dim, o)
		require.NoError(t, err)
		var ends []int64
		for i := range n {
			d := Document{Tokens: make([]float32, (i+1)%3*dim+dim)} // zeros, which look like lengths
			if named {
				d.ID = fmt.Sprint("document ", i)
			}
			if i%2 == 1 {
				d.Payload = []byte(`{"a":1}`)
			}
			require.NoError(t, s.Add(d))
			ends = append(ends, s.size)
		}
		begin := s.offsets[0]
		require.NoError(t, s.Close())
		whole := readFile(t, o.Path)
		o.Resume = true
		resumed := func(content []byte) (*Spool, error) {
			require.NoError(t, os.WriteFile(o.Path, content, 0o600))
			return NewSpool(dim, o)
		}
		step := int64(effort.Cases(29, 1))
		for bit := begin * 8; bit < int64(len(whole))*8; bit += step {
			content := append([]byte(nil), whole...)
			content[bit/8] ^= 1 << (bit % 8)
			doc := 0
			for ends[doc] <= bit/8 {
				doc++
			}
			for _, torn := range []int{0, 19} { // of the last document, which is longer
				content := content[:len(content)-torn]
				last := n - 1
				if torn > 0 {
					last--
				}
				s, err := resumed(content)
				if doc >= last {
					require.NoError(t, err)
					require.Equal(t, min(doc, n-1), s.Len())
					require.NoError(t, s.Close())
					continue
				}
				require.ErrorIs(t, err, ErrFormat, "bit %d", bit)
				var fe *FileError
				require.ErrorAs(t, err, &fe)
				require.Equal(t, o.Path, fe.Path)
				require.Equal(t, doc, fe.Doc)
				require.Equal(t, content, readFile(t, o.Path))
			}
		}
	}
}

// The search for whole records finds those that lie across what is read at a time, and
// ends where too much looks like one.
func TestSpoolSearchesBehindDamage(t *testing.T) {
	const dim = 64
	o := &SpoolOptions{Path: filepath.Join(t.TempDir(), "s")}
	s, err := NewSpool(dim, o)
	require.NoError(t, err)
	tokens := make([]float32, spoolBuffer/4-40) // so that the second head is cut
	require.NoError(t, s.Add(Document{ID: "a", Tokens: tokens[:len(tokens)/dim*dim], Payload: make([]byte, 63)}))
	require.NoError(t, s.Add(Document{ID: "b", Tokens: tokens[:len(tokens)/dim*dim]}))
	first, second := s.offsets[0], s.offsets[1]
	require.NoError(t, s.Close())
	o.Resume = true
	content := readFile(t, o.Path)
	for shift := 0; shift < recordBytes+2; shift += effort.Cases(5, 1) { // where the second head lies in what is read
		b := append(content[:first:first], content[first+int64(shift):]...)
		require.NoError(t, os.WriteFile(o.Path, b, 0o600))
		s, err := NewSpool(dim, o)
		if shift == 0 {
			require.NoError(t, err)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, fmt.Sprintf("a whole one is at byte %d", second-int64(shift)))
	}
	searched := maxSearchedBytes
	defer func() { maxSearchedBytes = searched }()
	maxSearchedBytes = 1000
	require.NoError(t, os.WriteFile(o.Path, content[:len(content)-1], 0o600))
	_, err = NewSpool(dim, o)
	require.ErrorIs(t, err, ErrFormat)
	require.Equal(t, content[:len(content)-1], readFile(t, o.Path))
}

func TestSpoolNoticesDamage(t *testing.T) {
	o := &SpoolOptions{Path: filepath.Join(t.TempDir(), "s")}
	s, err := NewSpool(2, o)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Add(Document{ID: "a", Tokens: []float32{1, 2}, Payload: []byte("x")}))
	first := s.offsets[0]
	require.NoError(t, s.Flush())
	for i := first; i < s.size; i++ {
		b := readFile(t, o.Path)
		b[i] ^= 4
		require.NoError(t, os.WriteFile(o.Path, b, 0o600))
		_, err := collect(s, 0, 1)
		require.ErrorIs(t, err, ErrFormat, "byte %d", i)
		require.ErrorContains(t, err, o.Path)
		b[i] ^= 4
		require.NoError(t, os.WriteFile(o.Path, b, 0o600))
	}
	require.NoError(t, os.Truncate(o.Path, s.size-1))
	_, err = collect(s, 0, 1)
	require.ErrorIs(t, err, ErrFormat)
}

func TestSpoolRefuses(t *testing.T) {
	add := func(docs ...Document) error {
		s, err := NewSpool(2, &SpoolOptions{Float16: true})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Add(Document{ID: "first", Tokens: []float32{1, 2}}))
		for _, d := range docs {
			err = s.Add(d)
		}
		if err != nil { // what was refused has left nothing
			require.Len(t, all(t, s), len(docs))
			require.NoError(t, s.Add(Document{ID: "next"}))
		}
		return err
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		doc  Document
		want error
	}{
		{Document{ID: "x", Tokens: []float32{1}}, ErrShape},
		{Document{ID: "x", Tokens: []float32{1, nan}}, ErrValue},
		{Document{ID: "x", Tokens: []float32{1, 70000}}, ErrValue}, // beyond float16
		{Document{ID: "first"}, ErrID},
		{Document{}, ErrID},
		{Document{ID: "\n"}, ErrID},
	} {
		require.ErrorIs(t, add(c.doc), c.want, "%v", c.doc)
	}
	require.ErrorContains(t, add(Document{ID: "x", Tokens: []float32{1, 2, 3, nan}}), `document 1 (id "x"), token 1, component 1`)

	_, err := NewSpool(0, nil)
	require.ErrorIs(t, err, ErrShape)
	_, err = NewSpool(5000, nil)
	require.ErrorIs(t, err, ErrShape)

	path := filepath.Join(t.TempDir(), "s")
	s, err := NewSpool(2, &SpoolOptions{Path: path, Tag: "a"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Add(Document{}), os.ErrClosed)
	_, err = NewSpool(2, &SpoolOptions{Path: path, Tag: "a"})
	require.ErrorIs(t, err, fs.ErrExist)
	for _, o := range []SpoolOptions{{Tag: "b"}, {Tag: "a", Float16: true}, {Tag: ""}} {
		o.Path, o.Resume = path, true
		_, err = NewSpool(2, &o)
		require.ErrorIs(t, err, ErrSpool)
	}
	_, err = NewSpool(3, &SpoolOptions{Path: path, Tag: "a", Resume: true})
	require.ErrorIs(t, err, ErrSpool)
	require.NoError(t, os.WriteFile(path, []byte("something else that is precious"), 0o600))
	_, err = NewSpool(2, &SpoolOptions{Path: path, Tag: "a", Resume: true})
	require.ErrorIs(t, err, ErrSpool)
	require.Equal(t, "something else that is precious", string(readFile(t, path)))
}

func TestCollectEndsAtAnError(t *testing.T) {
	boom := errors.New("boom")
	_, err := SpoolDocuments(context.Background(), 2, func(yield func(Document, error) bool) {
		if yield(Document{ID: "a"}, nil) {
			yield(Document{}, boom)
		}
	}, nil)
	require.ErrorIs(t, err, boom)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = SpoolDocuments(ctx, 2, sequence([]Document{{ID: "a"}}), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func FuzzSpool(f *testing.F) {
	path := filepath.Join(f.TempDir(), "s")
	s, err := NewSpool(2, &SpoolOptions{Path: path})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		if err := s.Add(Document{ID: fmt.Sprint(i), Tokens: make([]float32, 2*i), Payload: []byte("p")}); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(readFile(f, path), false)
	path += "keyed"
	if s, err = NewSpool(2, &SpoolOptions{Path: path, Keyed: true}); err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		if err := s.Add(Document{ID: fmt.Sprintf("%16d", i), Tokens: make([]float32, 2*i)}); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(readFile(f, path), true)
	f.Fuzz(func(t *testing.T, content []byte, keyed bool) {
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, err := NewSpool(2, &SpoolOptions{Path: path, Resume: true, Keyed: keyed})
		if err != nil {
			return
		}
		n := s.Len()
		_, err = collect(s, 0, n)
		require.NoError(t, err)
		for key, row := range s.keys {
			found, ok := s.Row(key)
			require.True(t, ok)
			require.EqualValues(t, row, found)
			_, err := s.Doc(found)
			require.NoError(t, err)
		}
		if !keyed && (s.ids != nil || n == 0) {
			require.NoError(t, s.Add(Document{ID: "one more, of which there is none"}))
		}
		if keyed {
			require.NoError(t, s.Add(Document{ID: "one more of them"}))
			require.ErrorIs(t, s.Add(Document{ID: "one more of them"}), ErrID)
			require.ErrorIs(t, s.Add(Document{ID: "no key"}), ErrID)
		}
		require.NoError(t, s.Close())
	})
}

// A file is for one spool at a time.
func TestSpoolIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s, err := NewSpool(2, &SpoolOptions{Path: path})
	require.NoError(t, err)
	require.NoError(t, s.Add(Document{Tokens: []float32{1, 2}}))
	_, err = NewSpool(2, &SpoolOptions{Path: path, Resume: true})
	if runtime.GOOS == "linux" {
		require.ErrorIs(t, err, ErrSpoolInUse)
	}
	require.NoError(t, s.Close())
	s, err = NewSpool(2, &SpoolOptions{Path: path, Resume: true})
	require.NoError(t, err)
	require.Equal(t, 1, s.Len())
	require.NoError(t, s.Close())
}
