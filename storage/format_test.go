package storage

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

var update = flag.Bool("update", false, "write testdata/format.txt anew")

// TestFormat decodes a small index into annotated bytes. The result is a golden file,
// to which docs/formats.md leads, so that it cannot drift from the code.
func TestFormat(t *testing.T) {
	db, err := bolt.Open(writeTestIndex(t), 0o644, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	var d dump
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return d.bucket(name, b, 0) })
	}))
	const golden = "testdata/format.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(d.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), d.String())
}

type dump struct{ strings.Builder }

func (d *dump) line(depth int, format string, args ...any) {
	fmt.Fprintf(d, "%s%s\n", strings.Repeat("  ", depth), fmt.Sprintf(format, args...))
}

func name(k []byte) string {
	for _, c := range k {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%x", k)
		}
	}
	return string(k)
}

func (d *dump) bucket(n []byte, b *bolt.Bucket, depth int) error {
	if g, ok := layout.GenerationNumber(n); ok {
		d.line(depth, "[g %016x] generation %d", g, g)
	} else {
		d.line(depth, "[%s]", name(n))
	}
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return d.bucket(k, b.Bucket(k), depth+1)
		}
		d.line(depth+1, "%s", name(k))
		d.value(string(n), string(k), v, depth+2)
		return nil
	})
}

// value prints the fields of a value and what they mean.
func (d *dump) value(bucket, key string, v []byte, depth int) {
	le := binary.LittleEndian
	at := 0
	field := func(n int, format string, args ...any) {
		shown := fmt.Sprintf("% x", v[at:at+min(n, 16)])
		if n > 16 {
			shown = fmt.Sprintf("% x … (%d bytes)", v[at:at+8], n)
		}
		d.line(depth, "%-50s %s", shown, fmt.Sprintf(format, args...))
		at += n
	}
	u32 := func(i int) uint32 { return le.Uint32(v[at+4*i:]) }
	body := len(v) - layout.ChecksumSize
	switch {
	case key == "format":
		field(len(layout.Magic), "magic %q", layout.Magic)
		field(2, "format version %d", le.Uint16(v[at:]))
		field(2, "feature version %d", le.Uint16(v[at:]))
	case key == "current":
		field(8, "generation %d", le.Uint64(v))
	case key == "header" || key == "state" || key == "defaults":
		for _, part := range strings.SplitAfter(string(v[:body]), ",") {
			d.line(depth, "%s", part)
			at += len(part)
		}
	case key == "payload-docs":
		var docs roaring.Bitmap
		_ = docs.UnmarshalBinary(v[:body])
		field(body, "roaring bitmap of documents %v", docs.ToArray())
	case key == "centroids":
		for c := range 3 {
			field(8, "centroid %d, 4 bf16", c)
		}
	case key == "docs":
		n := int(u32(0))
		field(4, "%d documents", n)
		field(4, "the first is ordinal %d", u32(0))
		for i := range n {
			field(4, "length of document %d: %d tokens", i, u32(0))
		}
		for i := range n {
			field(4, "end of id %d: byte %d", i, u32(0))
		}
		for i := range n {
			field(4, "CRC32C of the codes of document %d", i)
			field(4, "CRC32C of its factors and residuals")
		}
		field(body-at, "ids %q", v[at:body])
	case key == "codes" || key == "factors":
		for t := 0; at < len(v)-layout.TailBytes; t++ {
			field(2, "token %d: %s %d", t, strings.TrimSuffix(key, "s"), le.Uint16(v[at:]))
		}
		field(layout.TailBytes, "tail of zeros")
	case key == "residuals":
		for t := 0; at < len(v)-layout.TailBytes; t++ {
			b := v[at]
			field(1, "token %d: buckets %d %d %d %d", t, b&3, b>>2&3, b>>4&3, b>>6)
		}
		field(layout.TailBytes, "tail of zeros")
	case key == "passages":
		var docs roaring.Bitmap
		_ = docs.UnmarshalBinary(v[:body])
		field(body, "roaring bitmap of passages %v", docs.ToArray())
	case bucket == "ids":
		field(4, "ordinal %d", u32(0))
		if body == 8 {
			field(4, "the first of %d, as passages", u32(0))
		}
	case bucket == "payload":
		field(body, "%s", v[:body])
	case key == "r" || strings.HasPrefix(key, "f"):
		bitmap := func(what string) {
			n := int(u32(0))
			if n == 0 {
				field(4, "%s: none", what)
				return
			}
			field(4, "a bitmap of %d bytes follows", n)
			var docs roaring.Bitmap
			_ = docs.UnmarshalBinary(v[at : at+n])
			field(n, "%s: documents %v", what, docs.ToArray())
		}
		if key == "r" {
			bitmap("covered")
			n := u32(0)
			field(4, "%d fields", n)
			for range n {
				field(4, "a name of %d bytes follows", u32(0))
				field(int(le.Uint32(v[at-4:])), "field %d", 0)
			}
			bitmap("with fields that are left out")
			break
		}
		bitmap("with the field")
		bitmap("with null")
		bitmap("of which nothing else is kept")
		bitmap("with a number")
		bitmap("with text")
		bitmap("with text that is longer than what is kept")
		bitmap("with an array")
		field(1, "a document has several values: %t", v[at] == 1)
		field(4, "%d block of values", u32(0))
		field(4, "%d block in all", u32(0))
		for _, what := range []string{"first", "last"} {
			size := int(v[at+1])
			field(2, "%s value: text of %d bytes", what, size)
			field(size, "%q", v[at:at+size])
		}
		field(1, "blocks follow: %t", v[at] == 1)
		field(4, "a block of %d bytes follows", u32(0))
		bitmap("of the block")
		entries := int(u32(0))
		field(4, "%d values", entries)
		for range entries {
			size := int(v[at+1])
			field(2, "text of %d bytes", size)
			field(size, "%q", v[at:at+size])
		}
		for range entries {
			field(2, "the document has value %d", le.Uint16(v[at:]))
		}
	default: // a posting block
		const head = PostingBlock + 1
		shown := 4
		for c := range shown {
			field(4, "list of centroid %d begins at byte %d", c, u32(0))
		}
		field(4*(head-shown), "centroids %d to %d: no list; and the end", shown, PostingBlock-1)
		for c := range uint32(shown) {
			if list := postingList(v, c); len(list) > 0 {
				docs, _ := list.appendDocs(nil, 10)
				field(len(list), "centroid %d: roaring bitmap of documents %v", c, docs)
			}
		}
	}
	if at < len(v) {
		field(layout.ChecksumSize, "CRC32C of key and value")
	}
	if at != len(v) {
		d.line(depth, "%d BYTES UNEXPLAINED", len(v)-at)
	}
}
