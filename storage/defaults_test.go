package storage

import (
	"bytes"
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
	f := openWriting(t, path)
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
	f := openWriting(t, path)
	defer f.Close()
	for want, change := range map[string]func(*Defaults){
		"0 classes":     func(d *Defaults) { d.Classes = nil },
		"65 classes":    func(d *Defaults) { d.Classes = make([]DefaultClass, 65) },
		"k = 0 after 0": func(d *Defaults) { d.Classes[0].K = 0 },
		"exact budget":  func(d *Defaults) { d.Classes[0].Exact = -1 },
		"recall of 1.5": func(d *Defaults) { d.Classes[0].HeldOut = 1.5 },
		"recall of -1":  func(d *Defaults) { d.Classes[0].Worst = -1 },
		"recall of 2":   func(d *Defaults) { d.Classes[0].Error = 2 },
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
		c, ok := d.ClassFor(k)
		require.Equal(t, k <= last, ok)
		if ok {
			require.GreaterOrEqual(t, c.K, k)
			for _, o := range d.Classes {
				require.False(t, o.K >= k && o.K < c.K, "class %d is nearer than %d", o.K, c.K)
			}
		}
	})
	require.False(t, DefaultClass{Target: 0.99, HeldOut: 0.98}.Confirmed())
	require.False(t, DefaultClass{Target: 0.99, HeldOut: 0.99, WorstTarget: 0.7, Worst: 0.6}.Confirmed())
	require.True(t, DefaultClass{Target: 0.99, HeldOut: 0.99, WorstTarget: 0.7, Worst: 0.7}.Confirmed())
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

// The least of what several indexes were seen to find holds for all.
func TestCommonDefaultsFindTheLeast(t *testing.T) {
	a := &Defaults{Classes: []DefaultClass{{K: 10, Effort: 1, Recall: 1, HeldOut: 1, Worst: 0.9, WorstTarget: 0.7, Error: 0.001}}}
	b := &Defaults{Classes: []DefaultClass{{K: 10, Effort: 2, Recall: 0.99, HeldOut: 0.99, Worst: 0.8, Error: 0.003}}}
	got := CommonDefaults([]*Defaults{a, b, nil}).Classes[0]
	require.Equal(t, DefaultClass{K: 10, Effort: 2, Recall: 0.99, HeldOut: 0.99, Worst: 0.8, WorstTarget: 0.7, Error: 0.003}, got)
}

// What several indexes have stored holds for all where they do not contradict each other.
func TestCommonDefaults(t *testing.T) {
	effort := func(of ...float64) *Defaults {
		d := &Defaults{Docs: 10, Tokens: 100}
		for i, e := range of {
			d.Classes = append(d.Classes, DefaultClass{K: 10 * (i + 1), Effort: e, Recall: 1 - e/100, HeldOut: 1 - e/50, Target: 0.9, Queries: 5})
		}
		return d
	}
	probes := func(n int) *Defaults { return &Defaults{Classes: []DefaultClass{{K: 10, Probes: n}}} }
	for name, c := range map[string]struct {
		of   []*Defaults
		want []DefaultClass // K, Probes, Effort, Recall, HeldOut
	}{
		"none":                   {[]*Defaults{nil, nil}, nil},
		"one":                    {[]*Defaults{effort(2)}, []DefaultClass{{K: 10, Effort: 2, Recall: 0.98, HeldOut: 0.96}}},
		"the largest effort":     {[]*Defaults{effort(2, 1), effort(1, 4)}, []DefaultClass{{K: 10, Effort: 2, Recall: 0.98, HeldOut: 0.96}, {K: 20, Effort: 4, Recall: 0.96, HeldOut: 0.92}}},
		"a part without":         {[]*Defaults{nil, effort(2), nil}, []DefaultClass{{K: 10, Effort: 2, Recall: 0.98, HeldOut: 0.96}}},
		"little effort":          {[]*Defaults{effort(.25), effort(.5)}, []DefaultClass{{K: 10, Effort: .5, Recall: 0.995, HeldOut: 0.99}}},
		"little, and the usual":  {[]*Defaults{effort(.25), effort(0)}, []DefaultClass{{K: 10, Effort: 1, Recall: 0.9975, HeldOut: 0.995}}},
		"little, and none":       {[]*Defaults{effort(.25), nil}, []DefaultClass{{K: 10, Effort: 1, Recall: 0.9975, HeldOut: 0.995}}},
		"other classes":          {[]*Defaults{effort(2, 1), effort(2)}, nil},
		"the same probes":        {[]*Defaults{probes(3), probes(3)}, []DefaultClass{{K: 10, Probes: 3}}},
		"other probes":           {[]*Defaults{probes(3), probes(4)}, nil},
		"probes of some":         {[]*Defaults{probes(3), nil}, nil},
		"an effort and probes":   {[]*Defaults{effort(2), probes(3)}, nil},
		"with probes and effort": {[]*Defaults{probes(3), {Classes: []DefaultClass{{K: 10, Probes: 3, Effort: 2}}}}, nil},
	} {
		var before []Defaults
		for _, d := range c.of {
			if d != nil {
				before = append(before, Defaults{Classes: append([]DefaultClass(nil), d.Classes...)})
			}
		}
		got := CommonDefaults(c.of)
		if c.want == nil {
			require.Nil(t, got, name)
		} else {
			require.Len(t, got.Classes, len(c.want), name)
			require.NoError(t, got.Validate(), name)
			for i, w := range c.want {
				g := got.Classes[i]
				require.Equal(t, w, DefaultClass{K: g.K, Probes: g.Probes, Effort: g.Effort, Recall: g.Recall, HeldOut: g.HeldOut}, name)
			}
		}
		for _, d := range c.of { // what is given stays as it is
			if d != nil {
				require.Equal(t, before[0].Classes, d.Classes, name)
				before = before[1:]
			}
		}
	}
	sum := CommonDefaults([]*Defaults{effort(2), nil, effort(1)})
	require.EqualValues(t, 20, sum.Docs)
	require.EqualValues(t, 200, sum.Tokens)
	require.Equal(t, 10, sum.Classes[0].Queries)
}
