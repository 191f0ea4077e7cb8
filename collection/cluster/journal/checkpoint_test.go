package journal

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

func TestCheckpoints(t *testing.T) {
	l, s := openLog()
	position := func(n uint64) Position { return Position{Number: n, Hash: Hash{byte(n), 0xab}} }
	for g, numbers := range map[uint64][]uint64{1: {7, 255, 256}, 2: {9}, 12: {0}} {
		for _, n := range numbers {
			checkpoint(t, l, g, position(n))
		}
	}
	for _, stranger := range []string{"x", "00000001-0-0", "00000001-0000000000000007-XY",
		"1-0000000000000007-07ab0000000000000000000000000000"} {
		s.Set(l.filesPrefix+stranger, nil)
	}
	files, err := l.Checkpoints(t.Context(), 1)
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	if f := files[2]; f.Position != position(256) || f.Generation != 1 || f.Size != 1 || f.Made.IsZero() {
		t.Error(f)
	}
	if files[0].Name != "data/wiki.1/files/0003/00000001-0000000000000007-07ab0000000000000000000000000000" {
		t.Error(files[0].Name)
	}
	if all, err := l.checkpoints(t.Context(), l.filesPrefix); len(all) != 5 || err != nil {
		t.Error(all, err)
	}
}

// Of each generation two checkpoints stay, and the entries after both; nothing goes that is younger than the
// grace, or that a generation still needs.
func TestUnneeded(t *testing.T) {
	begin := time.Now()
	const grace = time.Hour
	cp := func(g, n uint64, age time.Duration) Checkpoint {
		return Checkpoint{Name: fmt.Sprint(g, "-", n), Generation: g, Position: Position{Number: n},
			Made: begin.Add(-age)}
	}
	for i, c := range []struct {
		all         []Checkpoint
		generations []uint64
		before      uint64
		drop        string
	}{
		{nil, []uint64{1}, 0, ""},
		{nil, nil, 0, ""},
		{[]Checkpoint{cp(1, 10, 5*grace)}, nil, 0, ""},
		{[]Checkpoint{cp(1, 10, 5*grace)}, []uint64{1}, 0, ""},
		{[]Checkpoint{cp(1, 10, 5*grace), cp(1, 20, 0)}, []uint64{1}, 10, ""},
		{[]Checkpoint{cp(1, 10, grace-1), cp(1, 20, 0)}, []uint64{1}, 0, ""},
		{[]Checkpoint{cp(1, 30, 2*grace), cp(1, 10, 5*grace), cp(1, 20, 3*grace)}, []uint64{1}, 20, "1-10"},
		{[]Checkpoint{cp(1, 10, 5*grace), cp(1, 20, 3*grace), cp(1, 25, 10), cp(1, 30, 1)}, []uint64{1}, 20, "1-10"},
		{[]Checkpoint{cp(1, 10, 5*grace), cp(1, 20, 3*grace), cp(1, 30, 1), cp(2, 15, 2*grace), cp(2, 28, 9)},
			[]uint64{1, 2}, 15, "1-10"},
		{[]Checkpoint{cp(1, 10, 5*grace), cp(1, 20, 3*grace), cp(1, 30, 1)}, []uint64{1, 2}, 0, "1-10"},
		{[]Checkpoint{cp(1, 10, 5*grace), cp(2, 15, 3*grace), cp(2, 30, 1)}, []uint64{2}, 15, ""},
	} {
		before, drop := SelectRemovable(c.all, c.generations, begin, grace)
		var names []string
		for _, d := range drop {
			names = append(names, d.Name)
		}
		if before != c.before || strings.Join(names, " ") != c.drop {
			t.Errorf("%d: before %d, %q", i, before, names)
		}
	}
}

func FuzzEntry(f *testing.F) {
	for _, batches := range [][]string{nil, {"a"}, {"a", strings.Repeat("b", maxBatch)}} {
		object, _, err := encode(7, Hash{1}, [16]byte{2}, batches, []byte("body"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(object)
		f.Add(object[:len(object)-1])
		f.Add(append(slices.Clone(object), 0))
		huge := slices.Clone(object)
		copy(huge[56:], bytes.Repeat([]byte{255}, 12)) // sizes and counts
		f.Add(huge)
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		h, _, headErr := parseHead(object)
		e, err := decode(object)
		if err != nil {
			return
		}
		if headErr != nil || h.number != e.Number || !slices.Equal(h.batches, e.Batches) {
			t.Fatalf("the head is %v, %v", h, headErr)
		}
		again, hash, err := encode(e.Number, e.parent, [16]byte(object[40:56]), e.Batches, e.Body)
		if err != nil || hash != e.Hash || !bytes.Equal(again, object) {
			t.Fatalf("it is written otherwise: %v", err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	l := New(nil, "a", 0, Options{})
	f.Add(l.CheckpointName(3, Position{Number: 77, Hash: Hash{5}}))
	f.Add("00000003--1-0")
	f.Add("100000003-ffffffffffffffff-00000000000000000000000000000000")
	f.Fuzz(func(t *testing.T, name string) {
		if c, ok := ParseCheckpoint(objects.Entry{Name: name}); ok {
			want := l.CheckpointName(c.Generation, c.Position)
			if path.Base(want) != name[strings.LastIndexByte(name, '/')+1:] {
				t.Fatalf("%q is %v, which is %q", name, c, want)
			}
		}
	})
}
