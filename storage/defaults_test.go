package storage

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

func testDefaults() *Defaults {
	return &Defaults{Docs: 3, Tokens: 5, Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Classes: []DefaultClass{
		{K: 10, Probes: 4, Exact: 40, Target: 0.99, Recall: 0.995, HeldOut: 0.99, Queries: 150},
	}}
}

func putDefaults(t *testing.T, path string, generation uint64, d *Defaults) {
	t.Helper()
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutDefaults(generation, d) }))
	require.NoError(t, f.Close())
}

func TestDefaultsRoundTrip(t *testing.T) {
	path := writeTestIndex(t)
	_, v := openView(t, path)
	got, err := v.Defaults()
	require.NoError(t, err)
	require.Equal(t, testDefaults(), got)
	digest, _, err := v.Inspect(t.Context())
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.NoError(t, v.file.Close())

	putDefaults(t, path, 1, nil)
	_, v = openView(t, path)
	got, err = v.Defaults()
	require.NoError(t, err)
	require.Nil(t, got)
	again, _, err := v.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, digest, again, "stored parameters are in the digest")
}

// A program that does not know of the record may have built the index anew.
func TestDefaultsOfAnotherGeneration(t *testing.T) {
	path := writeTestIndex(t)
	putDefaults(t, path, 7, testDefaults())
	_, v := openView(t, path)
	got, err := v.Defaults()
	require.NoError(t, err)
	require.Nil(t, got)
	require.NoError(t, v.Verify(t.Context()))
}

func TestDamagedDefaults(t *testing.T) {
	for name, value := range map[string][]byte{
		"short":    {1, 2},
		"checksum": append(layout.Seal(layout.KeyDefaults, []byte(`{"generation":1}`)), 0),
		"no JSON":  layout.Seal(layout.KeyDefaults, []byte(`{"generation":`)),
		"empty":    layout.Seal(layout.KeyDefaults, []byte(`{"generation":1}`)),
		"negative": layout.Seal(layout.KeyDefaults, []byte(`{"generation":1,"classes":[{"k":10,"probes":-1}]}`)),
		"order":    layout.Seal(layout.KeyDefaults, []byte(`{"generation":1,"classes":[{"k":10},{"k":10}]}`)),
	} {
		t.Run(name, func(t *testing.T) {
			path := writeTestIndex(t)
			db, err := bolt.Open(path, 0o644, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket(layout.RootBucket).Put(layout.KeyDefaults, value) }))
			require.NoError(t, db.Close())
			f, v := openView(t, path)
			_, err = v.Defaults()
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, "stored search parameters")
			_, err = contents(v)
			require.NoError(t, err, "the rest can be read")
			require.NoError(t, v.Close())
			require.NoError(t, f.Close())
			putDefaults(t, path, 1, nil) // and the record be removed
			_, v = openView(t, path)
			_, err = v.Defaults()
			require.NoError(t, err)
		})
	}
}

func TestDefaultsOutOfRange(t *testing.T) {
	path := writeTestIndex(t)
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err)
	defer f.Close()
	for want, change := range map[string]func(*Defaults){
		"0 classes":     func(d *Defaults) { d.Classes = nil },
		"65 classes":    func(d *Defaults) { d.Classes = make([]DefaultClass, 65) },
		"k = 0 after 0": func(d *Defaults) { d.Classes[0].K = 0 },
		"exact budget":  func(d *Defaults) { d.Classes[0].Exact = -1 },
		"recall of 1.5": func(d *Defaults) { d.Classes[0].HeldOut = 1.5 },
	} {
		d := testDefaults()
		change(d)
		err := f.Update(func(tx *Tx) error { return tx.PutDefaults(1, d) })
		require.ErrorContains(t, err, want)
	}
}

func TestDefaultsFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ks := rapid.SliceOfNDistinct(rapid.IntRange(1, 200), 1, 5, rapid.ID[int]).Draw(t, "k")
		d := &Defaults{}
		last := 0
		for _, k := range ks {
			last += k
			d.Classes = append(d.Classes, DefaultClass{K: last})
		}
		require.NoError(t, d.Validate())
		k := rapid.IntRange(1, last+5).Draw(t, "asked")
		c, ok := d.For(k)
		require.Equal(t, k <= last, ok)
		if ok {
			require.GreaterOrEqual(t, c.K, k)
			for _, o := range d.Classes {
				require.False(t, o.K >= k && o.K < c.K, "class %d is nearer than %d", o.K, c.K)
			}
		}
	})
	require.False(t, DefaultClass{Target: 0.99, HeldOut: 0.98}.Confirmed())
}

// A name that was damaged is not "there are none"; and what is wrong with other
// values does not concern the search parameters.
func TestDamagedNameOfDefaults(t *testing.T) {
	for name, wrong := range map[string]bool{"defaultr": true, "note-built": false} {
		path := writeTestIndex(t)
		db, err := bolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(layout.RootBucket)
			sealed := bytes.Clone(b.Get(layout.KeyDefaults))
			require.NoError(t, b.Delete(layout.KeyDefaults))
			if !wrong { // a note of its own, and not sound
				sealed[0]++
			}
			return b.Put([]byte(name), sealed)
		}))
		require.NoError(t, db.Close())
		_, v := openView(t, path)
		d, err := v.Defaults()
		require.Nil(t, d)
		if wrong {
			require.ErrorIs(t, err, ErrCorrupt, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}
