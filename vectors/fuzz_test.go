package vectors

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// checked fails unless err is nil or wraps a sentinel and names its file.
func checked(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var fe *FileError
	if !errors.As(err, &fe) || fe.Path == "" {
		t.Fatalf("error names no file: %v", err)
	}
	for _, want := range []error{ErrFormat, ErrShape, ErrValue, ErrID, ErrPayload} {
		if errors.Is(err, want) {
			return
		}
	}
	t.Fatalf("error wraps no sentinel: %v", err)
}

// frugal fails if f allocates much more than its input explains.
func frugal(t *testing.T, input []byte, f func()) {
	t.Helper()
	before := allocated()
	f()
	if used, limit := allocated()-before, uint64(32<<20+2048*len(input)); used > limit {
		t.Fatalf("%d bytes allocated for an input of %d", used, len(input))
	}
}

// readArray touches both ends of an array, in every way.
func readArray(t *testing.T, a *Array) {
	n := min(a.Len(), 100)
	checked(t, a.Float32s(make([]float32, n), 0))
	checked(t, a.Float32s(make([]float32, n), a.Len()-n))
	checked(t, a.Ints(make([]int64, n), a.Len()-n))
	checked(t, a.Bytes(make([]byte, n), a.Len()-n))
}

func readSource(t *testing.T, s Source, err error) {
	checked(t, err)
	if err != nil {
		return
	}
	defer s.Close()
	n := min(s.Len(), 1000)
	for d, err := range s.Docs(context.Background(), 0, n) {
		checked(t, err)
		if err == nil && (d.ID == "" || len(d.Tokens) > 0 && len(d.Tokens)%s.Dim() != 0) {
			t.Fatalf("document %q with %d values of dimension %d", d.ID, len(d.Tokens), s.Dim())
		}
	}
}

func FuzzNPY(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.npy")
	for _, p := range paths {
		f.Add(readFile(f, p))
	}
	f.Add(rawNPY("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 0, 4), }", nil))
	f.Add(rawNPY("{'descr': '|u1', 'fortran_order': True, 'shape': (3L,)}", []byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		frugal(t, b, func() {
			n, err := NewNPY(bytes.NewReader(b), int64(len(b)), "f.npy")
			checked(t, err)
			if err != nil {
				return
			}
			readArray(t, n)
			s, err := newDense(n, nil, nil, "")
			if err == nil {
				readSource(t, s, nil)
			}
			checked(t, err)
		})
	})
}

func FuzzNPZ(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.npz")
	for _, p := range paths {
		f.Add(readFile(f, p))
	}
	good := npyBytes(f, "<f4", []int{2, 1, 2}, 1, 2, 3, 4)
	m := deflated(f, "vectors", good)
	m.plain = 100
	f.Add(zipBytes(f, m))
	bomb, _ := zeros(f, []int{1 << 10, 16, 4}, 1<<18)
	f.Add(zipBytes(f, bomb))
	f.Fuzz(func(t *testing.T, b []byte) {
		frugal(t, b, func() {
			z, err := readNPZ(bytes.NewReader(b), int64(len(b)), "f.npz")
			readContainer(t, z, err)
		})
	})
}

// readContainer reads all arrays of a file, unless it was refused.
func readContainer(t *testing.T, c container, err error) {
	if checked(t, err); err != nil {
		return
	}
	for _, name := range c.Names() {
		a, err := c.Array(name)
		checked(t, err)
		if err == nil {
			readArray(t, a)
			a.Close()
		}
	}
	var p arrays
	checked(t, p.openByName(c, Files{Vectors: "f"}))
	closeAll(p.closers)
}

func FuzzSafetensors(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.safetensors")
	for _, p := range paths {
		f.Add(readFile(f, p))
	}
	f.Add(safetensorsBytes(`{"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"__metadata__":{"x":"y"}}   `, make([]byte, 4)))
	f.Add(safetensorsBytes(`{"10":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"2":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}`, make([]byte, 8)))
	f.Add(safetensorsBytes(`{"a":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[0,0]}}`, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frugal(t, b, func() {
			s, err := NewSafetensors(bytes.NewReader(b), int64(len(b)), "f.safetensors")
			readContainer(t, s, err)
			for _, size := range []int64{int64(len(b)), -1} {
				readStream(t, s, err, b, size)
			}
		})
	})
}

// readStream reads the file s as a stream, or returns the error.
func readStream(t *testing.T, s *Safetensors, fault error, b []byte, size int64) {
	stream, err := StreamSafetensors(iotest.OneByteReader(bytes.NewReader(b)), size, func(int64) error { return nil }, "f.safetensors")
	checked(t, err)
	if err == nil && fault != nil && size < 0 {
		if err = stream.Finish(); err == nil {
			t.Fatalf("a stream that is no file: %v", fault)
		}
		checked(t, err)
		return
	}
	if (err == nil) != (fault == nil) {
		t.Fatalf("as a stream: %v; as a file: %v", err, fault)
	}
	if err != nil {
		return
	}
	for i, name := range stream.Stored() {
		a, err := stream.Array(name)
		whole, fault := s.Array(name)
		if (err == nil) != (fault == nil) {
			t.Fatalf("as a stream: %v; as a file: %v", err, fault)
		}
		if err != nil || i%3 == 2 { // which is passed over
			continue
		}
		if a.Dtype == "<f2" || a.Dtype == "bf16" {
			got, want := make([]uint16, a.Len()), make([]uint16, a.Len())
			if a.Float16s(got, 0) != nil || whole.Float16s(want, 0) != nil || !slices.Equal(got, want) {
				t.Fatalf("tensor %q: %v, not %v", name, got, want)
			}
			continue
		}
		got, want := make([]float32, a.Len()), make([]float32, a.Len())
		n := a.Len() / 2
		err = errors.Join(a.Float32s(got[:n], 0), a.Float32s(got[n:], n), whole.Float32s(want, 0))
		if err != nil || !bytes.Equal(f32Bytes(got...), f32Bytes(want...)) {
			t.Fatalf("tensor %q: %v, not %v: %v", name, got, want, err)
		}
	}
	if err := stream.Finish(); err != nil {
		t.Fatal(err)
	}
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte(`{"id":"a","vectors":[[1,2.5],[-3e-7,0]],"text":"x"}` + "\r\n\n" + `{"_id":7,"vectors":[]}`))
	f.Add([]byte(`{"vectors":[[NaN]]}`))
	f.Add([]byte(`{"vectors":[[1],[2]` + "\n"))
	f.Add([]byte(`{"id":"a","vectors":[[1]],"t":"\ud83d"}`))
	f.Add([]byte(`{"id":"a","vectors":[[1]],"_subset_":1,"t":1e999}`))
	f.Add([]byte("\ufeff{\"v\\u0065ctors\":[[1]],\"id\":\"\\ud800\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frugal(t, b, func() {
			s, err := newJSONL(context.Background(), bytes.NewReader(b), int64(len(b)), "f.jsonl", true)
			checked(t, err)
			if err != nil {
				return
			}
			readSource(t, s, nil)
			docs, err := collect(s, 0, s.Len())
			if err != nil {
				return
			}
			// What reads well is written so that it reads the same.
			for i := range docs {
				docs[i].Payload = nil
			}
			again := jsonLines(max(s.Dim(), 1), docs...)
			copies, err := readJSONL(again)
			if err != nil || len(copies) != len(docs) {
				t.Fatalf("%d documents of %d read back: %v\n%s", len(copies), len(docs), err, again)
			}
			for i, d := range docs {
				if copies[i].ID != d.ID || !bytes.Equal(f32Bytes(copies[i].Tokens...), f32Bytes(d.Tokens...)) {
					t.Fatalf("document %d came back as %+v, was %+v", i, copies[i], d)
				}
			}
		})
	})
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{"a\nb\nc", "a\r\nb\r\n", "\ufeffa\n\xff", "a\na", "\ufeff[\"a\"]", `["a", 7, "\u0000"]`, `["a"`, "[1,2.5]", "[[", strings.Repeat("x", 5000), "3\n-4\n"} {
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n = max(n, 0)
		frugal(t, b, func() {
			for _, parse := range []func() ([]string, error){
				func() ([]string, error) { return parseIDs(bytes.NewReader(b), "f.txt", wantedIDs{n: n, file: "d.npy"}) },
				func() ([]string, error) {
					return parseIDList(bytes.NewReader(b), "f.json", wantedIDs{n: n, file: "d.npy"})
				},
			} {
				ids, err := parse()
				checked(t, err)
				seen := map[string]bool{}
				for _, id := range ids {
					if err == nil && (CheckID(id) != nil || seen[id]) {
						t.Fatalf("bad id %q accepted", id)
					}
					seen[id] = true
				}
				if err == nil && len(ids) != n {
					t.Fatalf("%d ids accepted for %d", len(ids), n)
				}
			}
			lengths, err := parseLengths(bytes.NewReader(b), "l.txt")
			checked(t, err)
			if err == nil {
				_, err = firstRows(lengths, "l.txt", n, "d.npy")
				checked(t, err)
			}
			_, err = parseLengthList(bytes.NewReader(b), "l.json")
			checked(t, err)
			p := &payloads{path: "p.jsonl", spans: make([]span, 3)}
			checked(t, p.findObjects(bytes.NewReader(b), []string{"a", "b", "7"}))
		})
	})
}

func TestMain(m *testing.M) {
	// Fuzzing spills archives into temporary files; keep them in one place.
	dir, err := os.MkdirTemp("", "plaid-vectors-*")
	if err != nil {
		panic(err)
	}
	os.Setenv("TMPDIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
