//go:build linux && (amd64 || arm64)

package reliability

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

// The model of a disk loses what was not synced and nothing else.
func TestDisk(t *testing.T) {
	const dir = "/d"
	full := bytes.Repeat([]byte("x"), 3*sectorBytes)
	d := newDisk(dir, image{"a": &blob{[]byte("old")}})
	call := func(op faults.Op, name string, change func(c *faults.Call)) {
		c := &faults.Call{Op: op, Path: filepath.Join(dir, name)}
		if change != nil {
			change(c)
		}
		d.happened(c)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	type folder = map[string][]byte
	found := func(renames int, p plan) folder {
		f := folder{}
		for name, b := range d.image(rng, renames, p) {
			if b != nil {
				f[name] = b.content
			}
		}
		return f
	}
	none, all := plans[0], plan(allKept)

	call(faults.Create, "b", nil)
	call(faults.Write, "b", func(c *faults.Call) { c.Data = full })
	require.Equal(t, folder{"a": []byte("old")}, found(0, all), "the name is not safe yet")
	require.Equal(t, folder{"a": []byte("old"), "b": {}}, found(1, none), "a name without content")
	require.Equal(t, folder{"a": []byte("old"), "b": full}, found(1, all))
	lengths := map[int]bool{}
	for range 100 {
		b := found(1, drawn(torn))["b"]
		require.Zero(t, len(b)%sectorBytes)
		for i := range len(b) / sectorBytes {
			sector := b[i*sectorBytes:][:sectorBytes]
			require.Contains(t, [][]byte{full[:sectorBytes], make([]byte, sectorBytes)}, sector, "sectors are written whole")
		}
		lengths[len(b)/sectorBytes] = true
	}
	require.Len(t, lengths, 4, "the file may be of any length")

	call(faults.Sync, "b", nil)
	require.Equal(t, folder{"a": []byte("old"), "b": full}, found(1, none))
	call(faults.Rename, "b", func(c *faults.Call) { c.To = dir + "/a" })
	require.Equal(t, folder{"a": []byte("old"), "b": full}, found(1, none))
	require.Equal(t, folder{"a": full}, found(2, none))
	call(faults.Sync, "", nil)
	require.Equal(t, folder{"a": full}, found(0, none))
	require.Empty(t, d.renames)

	// A file whose name is gone is known by what it is.
	node := faults.Node{Dev: 1, Ino: 2}
	call(faults.Create, "tmp", nil)
	call(faults.Write, "tmp", func(c *faults.Call) { c.Data, c.Node = []byte("1"), node })
	call(faults.Link, "tmp", func(c *faults.Call) { c.To = dir + "/c" })
	call(faults.Unlink, "tmp", nil)
	call(faults.Write, "tmp (deleted)", func(c *faults.Call) { c.Data, c.Offset, c.Node = []byte("2"), 1, node })
	call(faults.Truncate, "c", func(c *faults.Call) { c.Size, c.Node = 3, node })
	require.Equal(t, []byte("12\x00"), found(3, all)["c"])
	both := d.image(rng, 2, all)
	require.Same(t, both["tmp"], both["c"], "two names of one file")

	// Folders: what is in one is safe when it has been synced, and its own name
	// when the one above has.
	call(faults.Mkdir, "f", nil)
	call(faults.Create, "f/x", nil)
	call(faults.Write, "f/x", func(c *faults.Call) { c.Data = []byte("y") })
	call(faults.Sync, "f/x", nil)
	call(faults.Sync, "f", nil)
	require.NotContains(t, found(0, all), "f/x")
	call(faults.Rename, "f", func(c *faults.Call) { c.To = dir + "/g" })
	call(faults.Sync, "", nil)
	img := found(0, none)
	require.Equal(t, []byte("y"), img["g/x"])
	require.NotContains(t, img, "f/x")
}
