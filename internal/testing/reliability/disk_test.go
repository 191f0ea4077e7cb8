//go:build linux && (amd64 || arm64)

package reliability

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

// disk is what would be found of a folder after the power went: what was
// synced, and of the rest anything. Sectors of 512 bytes are written whole, in
// any order. A name is safe when its folder has been synced; of the changes of
// names that are not, the first few have happened.
type disk struct {
	dir     string // its path while it was recorded
	root    *node
	open    map[faults.Node]*node // as last seen, for those whose name is gone
	renames []rename
}

// rename is a change of names in a folder.
type rename struct {
	in     *node
	change func(names map[*node]map[string]*node)
}

// node is a file or a folder.
type node struct {
	names, durable map[string]*node // of a folder: as the process sees it, and when last synced

	content []byte  // of a file: when last synced
	pending []write // since then
}

func newFolder() *node {
	return &node{names: map[string]*node{}, durable: map[string]*node{}}
}

// write is data at an offset, or a new length.
type write struct {
	at   int64
	data []byte // nil: the file ends at at
}

// newDisk begins with files that are synced.
func newDisk(dir string, files image) *disk {
	d := &disk{dir: dir, root: newFolder(), open: map[faults.Node]*node{}}
	for name, b := range files {
		f := &node{content: b.content}
		d.root.names[name], d.root.durable[name] = f, f
	}
	return d
}

// at follows a path as the process would; nil if there is nothing.
func (d *disk) at(path string) *node {
	n := d.root
	rest, ok := strings.CutPrefix(path, d.dir)
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		if !ok || part == "" {
			break
		}
		if n = n.names[part]; n == nil {
			return nil
		}
	}
	return n
}

// change records a change of the names in a folder.
func (d *disk) change(in *node, change func(names map[*node]map[string]*node)) {
	change(nil)
	d.renames = append(d.renames, rename{in, change})
}

// set gives a name in a folder to a node, or takes it away if that is nil; as
// the process sees it where names is nil.
func set(names map[*node]map[string]*node, in *node, name string, n *node) {
	of := in.names
	if names != nil {
		if names[in] == nil {
			names[in] = maps.Clone(in.durable)
		}
		of = names[in]
	}
	if n == nil {
		delete(of, name)
	} else {
		of[name] = n
	}
}

// happened takes in a call.
func (d *disk) happened(c *faults.Call) {
	n := d.at(c.Path)
	if c.Node != (faults.Node{}) {
		if n == nil {
			n = d.open[c.Node]
		}
		d.open[c.Node] = n
	}
	in, name := d.at(filepath.Dir(c.Path)), filepath.Base(c.Path)
	switch c.Op {
	case faults.Create, faults.Mkdir:
		if n != nil {
			n.pending = append(n.pending, write{})
			return
		}
		n = &node{}
		if c.Op == faults.Mkdir {
			n = newFolder()
		}
		d.change(in, func(names map[*node]map[string]*node) { set(names, in, name, n) })
	case faults.Rename:
		to, as := d.at(filepath.Dir(c.To)), filepath.Base(c.To)
		d.change(to, func(names map[*node]map[string]*node) {
			set(names, in, name, nil)
			set(names, to, as, n)
		})
	case faults.Link:
		to, as := d.at(filepath.Dir(c.To)), filepath.Base(c.To)
		d.change(to, func(names map[*node]map[string]*node) { set(names, to, as, n) })
	case faults.Unlink, faults.Rmdir:
		if n != nil && (n.names == nil) == (c.Op == faults.Unlink) {
			d.change(in, func(names map[*node]map[string]*node) { set(names, in, name, nil) })
		}
	case faults.Write:
		n.pending = append(n.pending, write{c.Offset, c.Data})
	case faults.Truncate:
		n.pending = append(n.pending, write{at: c.Size})
	case faults.Sync:
		d.sync(n)
	}
}

func (d *disk) sync(n *node) {
	if n.names == nil {
		n.content, n.pending = n.chosen(nil, allKept), nil
		return
	}
	names := map[*node]map[string]*node{}
	var rest []rename
	for _, r := range d.renames {
		if r.in == n {
			r.change(names)
		} else {
			rest = append(rest, r)
		}
	}
	for folder, now := range names {
		folder.durable = now
	}
	d.renames = rest
}

// fate of a write that was not synced.
type fate int

const (
	lost fate = iota
	kept
	torn
)

// plan decides about the writes of a file, given the number of the write and
// how many there are.
type plan func(rng *rand.Rand, n, of int) fate

func allKept(*rand.Rand, int, int) fate { return kept }

// apply does a write, or of its sectors those for which some is true.
func (w write) apply(b []byte, some func() bool) []byte {
	if w.data == nil {
		if some != nil && !some() {
			return b
		}
		if int64(len(b)) > w.at {
			return b[:w.at]
		}
		return append(b, make([]byte, w.at-int64(len(b)))...)
	}
	for lo := w.at; lo < w.at+int64(len(w.data)); {
		hi := min(lo/sectorBytes*sectorBytes+sectorBytes, w.at+int64(len(w.data)))
		if some == nil || some() {
			if int64(len(b)) < hi {
				b = append(b, make([]byte, hi-int64(len(b)))...)
			}
			copy(b[lo:hi], w.data[lo-w.at:hi-w.at])
		}
		lo = hi
	}
	return b
}

// image is what is found by path. Names of one file share a blob.
type image map[string]*blob

// blob is a file; nil: a folder.
type blob struct{ content []byte }

// image is a folder that may be found now: so many of the changed names have
// happened, and of the writes what the plan says.
func (d *disk) image(rng *rand.Rand, renames int, p plan) image {
	names := map[*node]map[string]*node{}
	for _, r := range d.renames[:renames] {
		r.change(names)
	}
	img, blobs := image{}, map[*node]*blob{}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.names == nil {
			if blobs[n] == nil {
				blobs[n] = &blob{n.chosen(rng, p)}
			}
			img[path] = blobs[n]
			return
		}
		img[path] = nil
		of := n.durable
		if now, ok := names[n]; ok {
			of = now
		}
		for _, name := range slices.Sorted(maps.Keys(of)) {
			walk(filepath.Join(path, name), of[name])
		}
	}
	walk(".", d.root)
	return img
}

// chosen is the content of the file with the writes that a plan keeps.
func (f *node) chosen(rng *rand.Rand, p plan) []byte {
	b := append([]byte{}, f.content...)
	for i, w := range f.pending {
		switch p(rng, i, len(f.pending)) {
		case kept:
			b = w.apply(b, nil)
		case torn:
			b = w.apply(b, func() bool { return rng.IntN(2) == 0 })
		}
	}
	return b
}

func (img image) write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	written := map[*blob]string{}
	for _, name := range slices.Sorted(maps.Keys(img)) { // folders come before what is in them
		path, b := filepath.Join(dir, name), img[name]
		var err error
		switch first, ok := written[b]; {
		case b == nil:
			err = os.Mkdir(path, 0o777)
		case ok:
			err = os.Link(first, path)
		default:
			err = os.WriteFile(path, b.content, 0o666)
			written[b] = path
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// key is the same for images with the same content and expectation.
func (img image) key(numbers ...int) [sha256.Size]byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, numbers)
	for _, name := range slices.Sorted(maps.Keys(img)) {
		if f := img[name]; f != nil {
			fmt.Fprintln(&b, name, len(f.content))
			b.Write(f.content)
		} else {
			fmt.Fprintln(&b, name)
		}
	}
	return sha256.Sum256(b.Bytes())
}

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
