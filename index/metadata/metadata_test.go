package metadata

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	os.Exit(m.Run())
}

// values is a run in memory.
type values map[string][]byte

func (v values) get(key []byte) ([]byte, error) { return v[string(key)], nil }

func (v values) put(key, value []byte) error {
	if v[string(key)] != nil {
		return fmt.Errorf("key %q twice", key)
	}
	v[string(key)] = slices.Clone(value)
	return nil
}

func (v values) open(t require.TestingT) *Run {
	r, err := Open(v.get)
	require.NoError(t, err)
	return r
}

func written(t require.TestingT, b *Builder) values {
	v := values{}
	require.NoError(t, b.write(v.put))
	return v
}

func built(t require.TestingT, payloads map[uint32]string) values {
	var b Builder
	for ordinal, p := range payloads {
		b.Add(context.Background(), ordinal, []byte(p))
	}
	return written(t, &b)
}

var bind = conditiontest.Bind

// bounds of a set of documents.
type bounds struct{ sure, maybe *roaring.Bitmap }

// runSets answers a condition from a run.
type runSets struct{ run *Run }

func (s runSets) All() bounds  { return bounds{s.run.docs.Clone(), s.run.docs.Clone()} }
func (s runSets) None() bounds { return bounds{roaring.New(), roaring.New()} }
func (s runSets) And(a, b bounds) bounds {
	return bounds{roaring.And(a.sure, b.sure), roaring.And(a.maybe, b.maybe)}
}
func (s runSets) Or(a, b bounds) bounds {
	return bounds{roaring.Or(a.sure, b.sure), roaring.Or(a.maybe, b.maybe)}
}
func (s runSets) Test(t *condition.Test, is condition.Truth) (bounds, error) {
	sure, maybe, err := s.run.Test(context.Background(), t, is)
	return bounds{sure, maybe}, err
}

// Texts around the limits, of which many have a beginning in common.
func drawValue(t *rapid.T) string {
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return fmt.Sprint(rapid.IntRange(-5, 5).Draw(t, "integer"))
	case 1:
		return rapid.SampledFrom([]string{"1.0", "2.5", "-0.5", "1e300", "9007199254740993", "9007199254740992.0", "9223372036854775807", "true", "null", `[1]`, `{"in":1}`, `{"in":{"deep":{"er":{"still":1}}}}`}).Draw(t, "value")
	}
	n := rapid.SampledFrom([]int{0, 1, 31, 32, 33, 40, 41, 60}).Draw(t, "length")
	text := strings.Repeat("m", n) + rapid.SampledFrom([]string{"", "", "a", "z", "mm", "1", "é", "e\u0301"}).Draw(t, "end")
	return `"` + text + `"`
}

// Without long texts nothing is in doubt, however many values and documents there are.
func TestManyValues(t *testing.T) {
	n := 20000
	if !effort.Long() {
		n = 9000
	}
	var b Builder
	payload := func(i int) []byte {
		return fmt.Appendf(nil, `{"low": %d, "high": %d, "real": %g, "text": "id-%07d", "lang": "%s"}`, i%7, (i*7919)%n, float64(i)/8, (i*104729)%n, []string{"en", "de", "fr"}[i%3])
	}
	documents := make([]*condition.Record, n)
	for i := range n {
		b.Add(context.Background(), uint32(i), payload(i))
		documents[i] = new(condition.Evaluation).Document(payload(i), "", uint32(i))
	}
	v := written(t, &b)
	require.Greater(t, len(v), 15, "several blocks")
	for key, value := range v {
		require.Less(t, len(value), 300<<10, "%q", key)
	}
	run := v.open(t)
	for _, text := range []string{
		"low = 3", "low IN (1, 5)", "low <> 2", "high < 100", "high BETWEEN 5000 AND 15000", "high = 12345", "real >= 1000.5", "real < 0",
		"text = 'id-0000077'", "text >= 'id-0015000'", "text NOT BETWEEN 'id-0001' AND 'id-0019990'", "text LIKE 'id-00001%'", "lang = 'de' AND high < 3000",
		"lang IN ('de', 'xx')", "text > 5", "high < 'x'", "lang LIKE 'E_'", "real IS NULL",
	} {
		c := bind(t, text)
		got, err := condition.Select(context.Background(), c, runSets{run})
		require.NoError(t, err)
		require.True(t, got.sure.Equals(got.maybe), text)
		want := roaring.New()
		for i := range n {
			if c.Match(documents[i]) {
				want.Add(uint32(i))
			}
		}
		require.True(t, want.Equals(got.sure), "%s: %d, want %d", text, got.sure.GetCardinality(), want.GetCardinality())
	}
}

// A run is the same bytes whatever the order of its documents, also of those that another
// run brought.
func TestRunsAreTheSameInAnyOrder(t *testing.T) {
	zeros := []string{"0", "0.0", "-0.0", "-0", "-1e-999", "1", "1.0", "2.5", `"x"`, `"0.0"`, "null", "false"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "documents")
		payloads := make([][]byte, n)
		for i := range payloads {
			payloads[i] = fmt.Appendf(nil, `{"n": %s, "t": %s}`, rapid.SampledFrom(zeros).Draw(t, "zero"), drawValue(t))
		}
		var inOrder Builder
		for i, p := range payloads {
			inOrder.Add(context.Background(), uint32(i), p)
		}
		want := written(t, &inOrder)
		var newer, older Builder
		for _, i := range rapid.Permutation(numbers(n)).Draw(t, "order") {
			b := &newer
			if rapid.Bool().Draw(t, "older") {
				b = &older
			}
			b.Add(context.Background(), uint32(i), payloads[i])
		}
		run := written(t, &older).open(t)
		require.NoError(t, newer.absorbRun(context.Background(), run, &run.docs, nil))
		require.Equal(t, want, written(t, &newer))
	})
}

func TestLimits(t *testing.T) {
	var b Builder
	var many strings.Builder
	for i := range 1100 {
		fmt.Fprintf(&many, `%s"f%04d": 1`, map[bool]string{true: "{", false: ","}[i == 0], i)
	}
	b.Add(context.Background(), 1, []byte(many.String()+"}"))
	b.Add(context.Background(), 2, []byte(`{"f0001": 2, "f1099": 2}`))
	b.Add(context.Background(), 3, nil)
	run := written(t, &b).open(t)
	for text, want := range map[string][2][]uint32{
		"f0001 = 1":              {{1}, {1}},
		"f1099 = 1":              {nil, {1, 2}},
		"f1099 IS NULL":          {{3}, {1, 2, 3}},
		"a.b.c.d.e = 1":          {nil, {1, 2}},
		"a.b.c.d.e.f.g.h.i = 1":  {nil, {1, 2, 3}},
		"f0001 = 2 OR a IS NULL": {{2, 3}, {1, 2, 3}},
	} {
		got, err := condition.Select(context.Background(), bind(t, text), runSets{run})
		require.NoError(t, err)
		require.Equal(t, want, [2][]uint32{nilled(got.sure), nilled(got.maybe)}, text)
	}
	docs, unknown, err := run.docsWithField("f0001")
	require.NoError(t, err)
	require.Empty(t, unknown.ToArray())
	require.Equal(t, []uint32{1, 2}, docs.ToArray())
	docs, unknown, err = run.docsWithField("f1099")
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2}, unknown.ToArray())
	require.True(t, docs.IsEmpty())

	var long Builder
	long.Add(context.Background(), 0, fmt.Appendf(nil, `{"%0300d": 1}`, 1))
	_, unknown, err = written(t, &long).open(t).docsWithField("other")
	require.NoError(t, err)
	require.Equal(t, []uint32{0}, unknown.ToArray(), "a name beyond the limit was left out")
}

func nilled(b *roaring.Bitmap) []uint32 {
	if b.IsEmpty() {
		return nil
	}
	return b.ToArray()
}

// Damaged values are errors, or give wrong documents; they never do harm.
func FuzzRun(f *testing.F) {
	v := built(f, map[uint32]string{0: `{"a": 1, "b": "x"}`, 1: `{"a": 2.5}`, 2: `{"a": "y"}`, 3: `{"a": "` + strings.Repeat("m", 50) + `"}`, 4: `{"a": ["x", null, "y", 7, [1]]}`, 5: `{"a": true}`})
	f.Add(v["r"], v["fa"], []byte{})
	f.Fuzz(func(t *testing.T, head, field, block []byte) {
		get := func(key []byte) ([]byte, error) {
			switch key[0] {
			case 'r':
				return head, nil
			case 'f':
				return field, nil
			}
			return block, nil
		}
		run, err := Open(get)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		for _, text := range []string{"a = 1", "a > 'm'", "a LIKE 'x%'", "a IS NULL", "a NOT IN (1, 'mmmm')"} {
			if _, err := condition.Select(context.Background(), bind(t, text), runSets{run}); err != nil && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
		}
		var b Builder
		if err := b.absorbValues(context.Background(), run, &run.docs); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		defer PayloadsPerBlock(0)()
		counts := NewCounter("a", nil)
		if _, err := counts.countRun(context.Background(), &countedRun{Run: run}, &run.docs); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}

// numbers are those from 0 on.
func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
