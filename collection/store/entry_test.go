package store

import (
	"fmt"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// drawChange is any change that an entry may hold.
func drawChange(t *rapid.T) *change {
	c := &change{}
	batch := func(rows int) outcome {
		n := rapid.IntRange(0, 3)
		return outcome{ID: rapid.StringN(1, 20, 40).Draw(t, "batch"), Rows: rows, Replaced: n.Draw(t, "replaced"),
			Empty: n.Draw(t, "empty"), Evicted: n.Draw(t, "evicted"), Affected: index.Affected{Documents: n.Draw(t, "affected")}}
	}
	text := func(what string) string { return rapid.String().Draw(t, what) }
	c.Kind = rapid.SampledFrom([]changeKind{addDocuments, deleteDocuments, setFields}).Draw(t, "kind")
	if c.Kind == addDocuments {
		c.First, c.Dim = rapid.Uint32().Draw(t, "first"), rapid.IntRange(1, 4).Draw(t, "dim")
		c.Replace = rapid.Bool().Draw(t, "replace")
		if rapid.Bool().Draw(t, "limit") {
			most := rapid.Uint64().Draw(t, "most")
			c.MaxDocuments = &most
		}
		for range rapid.IntRange(1, 3).Draw(t, "requests") {
			rows := rapid.IntRange(1, 3).Draw(t, "rows")
			c.Batches = append(c.Batches, batch(rows))
			for range rows {
				d := vectors.Document{ID: text("id")}
				if p := text("payload"); p != "" {
					d.Payload = []byte(p)
				}
				for range c.Dim * rapid.IntRange(0, 2).Draw(t, "tokens") {
					d.Tokens = append(d.Tokens, rapid.Float32().Draw(t, "value"))
				}
				c.docs = append(c.docs, d)
			}
		}
		return c
	}
	c.Batches = append(c.Batches, batch(0))
	c.chosen = roaring.BitmapOf(rapid.SliceOfN(rapid.Uint32(), 1, 9).Draw(t, "ordinals")...)
	if c.Kind == setFields {
		c.fields = condition.Fields{}
		for i := range rapid.IntRange(0, 3).Draw(t, "fields") {
			c.fields[text("name")+fmt.Sprint(i)] = []byte(`"<` + text("value") + `>"`)
		}
	}
	return c
}

// What is read from an entry is what was written.
func TestEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChange(t)
		b, err := c.encode()
		require.NoError(t, err)
		got, err := decodeChange(b)
		require.NoError(t, err)
		if c.chosen != nil {
			require.True(t, c.chosen.Equals(got.chosen))
			got.chosen = c.chosen
		}
		if len(c.docs) == 0 {
			got.docs = c.docs
		}
		require.Equal(t, c, got)
		for n := range b { // a part of it is none
			_, err := decodeChange(b[:n])
			require.ErrorIs(t, err, ErrEntry)
		}
		_, err = decodeChange(append(b, 0))
		require.ErrorIs(t, err, ErrEntry)
	})
}

// No bytes make the reader of entries panic, or take much more memory than they are.
func FuzzEntry(f *testing.F) {
	for i := range 20 {
		b, err := rapid.Custom(drawChange).Example(i).encode()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte("\x01\xff\xff\xff\xff"))
	f.Add([]byte("\x01\x02\x00\x00\x00{}\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChange(b)
		if err != nil {
			require.ErrorIs(t, err, ErrEntry)
			return
		}
		r := &request{}
		for _, o := range c.Batches {
			r.batch.ID = o.ID
			require.True(t, c.answerRequest(r))
		}
		if c.chosen != nil {
			c.chosen.GetCardinality()
		}
		again, err := c.encode()
		require.NoError(t, err)
		_, err = decodeChange(again)
		require.NoError(t, err)
	})
}
