package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/vectors"
)

var where = conditiontest.Bind

// fieldValues are what payloads of the model have; long ones share their beginning.
var fieldValues = []string{
	`1`, `2`, `2.0`, `3`, `-7.5`, `1e9`, `9007199254740993`, `9007199254740992.0`, `"en"`, `"de"`, `"EN"`, `"3"`, `"2024-05-01"`, `""`, `null`, `true`, `false`,
	`[1,"a"]`, `{"in":3}`, `{"in":"x"}`, `"` + longText + `a"`, `"` + longText + `b"`, `"` + longText + `"`,
}

var longText = fmt.Sprintf("%0200d", 7)

func drawPayload(t *rapid.T) []byte {
	switch rapid.IntRange(0, 9).Draw(t, "payload") {
	case 0:
		return nil
	case 1:
		return []byte("no object")
	case 2: // over pages
		text := strings.Repeat("x", rapid.IntRange(0, 400).Draw(t, "length"))
		return fmt.Appendf(nil, `{"a": %d, "text": %q}`, rapid.IntRange(0, 4).Draw(t, "a"), text)
	}
	fields := map[string]json.RawMessage{}
	for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "B", "c"}), 0, 4).Draw(t, "keys") {
		fields[key] = json.RawMessage(rapid.SampledFrom(fieldValues).Draw(t, "value"))
	}
	p, err := json.Marshal(fields)
	require.NoError(t, err)
	return p
}

func drawCondition(t *rapid.T) *condition.Condition {
	var params []any
	value := func() string {
		v := rapid.SampledFrom(append(slices.Clone(fieldValues), `"%0%"`, `"e_"`, `5`, `17`)).Draw(t, "value")
		params = append(params, json.RawMessage(v))
		return "?"
	}
	var draw func(depth int) string
	draw = func(depth int) string {
		if depth < 3 && rapid.Bool().Draw(t, "joined") {
			join := rapid.SampledFrom([]string{"(%s AND %s)", "(%s OR %s)"}).Draw(t, "join")
			return fmt.Sprintf(join, draw(depth+1), draw(depth+1))
		}
		not := rapid.SampledFrom([]string{"", "", "NOT "}).Draw(t, "not")
		field := rapid.SampledFrom([]string{"a", "b", "c", "b.in", "a", "b", "_id", "_subset_"}).Draw(t, "field")
		switch rapid.IntRange(0, 5).Draw(t, "test") {
		case 0:
			return not + field + " = " + value()
		case 1:
			return not + field + rapid.SampledFrom([]string{" <> ", " < ", " <= ", " > ", " >= "}).Draw(t, "sign") + value()
		case 2:
			return field + " " + not + "IN (" + value() + ", " + value() + ", " + value() + ")"
		case 3:
			return field + " " + not + "BETWEEN " + value() + " AND " + value()
		case 4:
			return field + " " + not + "LIKE " + value()
		}
		return field + " IS " + not + "NULL"
	}
	return where(t, draw(0), params...)
}

// documents are what conditions see of the model's. Ordinals are those of the index.
func (m *model) documents(t tb, s *Snapshot) []*condition.Record {
	out := make([]*condition.Record, len(m.docs))
	for i, d := range m.docs {
		ordinal, ok, err := s.Ordinal(d.ID)
		require.NoError(t, err)
		require.True(t, ok)
		out[i] = new(condition.Evaluation).Document(d.Payload, d.ID, ordinal)
	}
	return out
}

// matches are the ids that a condition is true of, by the payloads of the model; ok is
// false if it names a field that no document has.
func (m *model) matches(t tb, s *Snapshot, c *condition.Condition) (ids []string, ok bool) {
	documents := m.documents(t, s)
	err := c.Check(func(f condition.Field) bool {
		return slices.ContainsFunc(documents, func(d *condition.Record) bool { return d.Has(f) })
	})
	for i, d := range documents {
		if c.Match(d) {
			ids = append(ids, m.docs[i].ID)
		}
	}
	return ids, err == nil || len(m.docs) == 0 // where nothing is live no name is unknown
}

// selects checks that conditions select what they are true of.
func (m *model) selects(t *rapid.T) {
	s := taken(t, m.ix)
	defer s.Close()
	for range 3 {
		c := drawCondition(t)
		want, ok := m.matches(t, s, c)
		docs, err := s.Select(context.Background(), c)
		if !ok {
			require.ErrorIs(t, err, condition.ErrUnknownField, "%s", c)
			var unknown *condition.UnknownFieldError
			require.ErrorAs(t, err, &unknown)
			there := map[condition.Field]bool{}
			for _, d := range m.docs {
				new(condition.Evaluation).Document(d.Payload, d.ID, 0).Fields(4, func(f condition.Field, _ condition.Value, _ condition.Form) bool {
					there[f] = true
					return true
				})
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(there)), unknown.Fields)
			if len(there) > 0 {
				require.Contains(t, err.Error(), "unknown field "+string(unknown.Field)+" (there are, nearest first: ")
			}
			continue
		}
		require.NoError(t, err)
		var got []string
		for it := docs.Iterator(); it.HasNext(); {
			got = append(got, s.ID(it.Next()))
		}
		require.Equal(t, want, got, "%s", c)
	}
}

// setPayload replaces payloads by id.
func (m *model) setPayload(t *rapid.T) {
	payloads := map[string][]byte{"stranger": []byte("x")}
	missing := []string{"stranger"}
	docs := slices.Clone(m.docs)
	for _, id := range drawIDs(t, 4) {
		p := drawPayload(t)
		payloads[id] = p
		if i := m.find(id); i >= 0 {
			docs[i].Payload = p
		} else {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	n, miss, err := m.ix.SetPayload(context.Background(), payloads)
	require.NoError(t, err)
	require.Equal(t, missing, miss)
	require.Equal(t, Affected{Documents: len(payloads) - len(missing)}, n)
	m.docs = docs
}

// updateWhere sets a field where a condition is true.
func (m *model) updateWhere(t *rapid.T) {
	s := taken(t, m.ix)
	defer s.Close()
	c := drawCondition(t)
	set := condition.Fields{rapid.SampledFrom([]string{"a", "b", "C"}).Draw(t, "set"): json.RawMessage(rapid.SampledFrom(fieldValues).Draw(t, "to"))}
	ids, ok := m.matches(t, s, c)
	docs := slices.Clone(m.docs)
	var fault error
	for _, id := range ids {
		d := &docs[m.find(id)]
		merged, err := set.Merge(d.Payload)
		d.Payload, fault = merged, errors.Join(fault, err)
	}
	n, err := m.ix.UpdatePayload(context.Background(), c, set)
	switch {
	case !ok:
		require.ErrorIs(t, err, condition.ErrUnknownField)
	case fault != nil:
		require.ErrorIs(t, err, condition.ErrNotObject)
	default:
		require.NoError(t, err)
		require.Equal(t, Affected{Documents: len(ids)}, n)
		m.docs = docs
	}
}

// deleteWhere deletes what a condition is true of.
func (m *model) deleteWhere(t *rapid.T) {
	s := taken(t, m.ix)
	defer s.Close()
	c := drawCondition(t)
	ids, ok := m.matches(t, s, c)
	n, err := m.ix.DeleteWhere(context.Background(), c)
	if !ok {
		require.ErrorIs(t, err, condition.ErrUnknownField)
		return
	}
	require.NoError(t, err)
	require.Equal(t, Affected{Documents: len(ids)}, n)
	for _, id := range ids {
		m.remove(id)
	}
}

func TestPayloadChangesThatAreRefused(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	docs := corpus(9, 5, 8, 1)
	docs[4].Payload = []byte("[1]")
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	before := digestOfIndex(t, ix)
	set := condition.Fields{"x": json.RawMessage("1")}

	_, err := ix.UpdatePayload(ctx, where(t, "1=1"), set)
	require.ErrorIs(t, err, condition.ErrNotObject)
	require.ErrorContains(t, err, `document "d4"`)
	_, err = ix.UpdatePayload(ctx, where(t, "yeer = 3"), set)
	require.ErrorIs(t, err, condition.ErrUnknownField)
	_, err = ix.UpdatePayload(ctx, where(t, "1=1"), condition.Fields{"_id": json.RawMessage("1")})
	require.ErrorIs(t, err, ErrOption)
	_, _, err = ix.SetPayload(ctx, map[string][]byte{"d1": []byte("{}"), "d2": []byte("\xff")})
	require.ErrorIs(t, err, vectors.ErrPayload)
	require.ErrorContains(t, err, `document "d2"`)
	_, err = ix.DeleteWhere(ctx, where(t, "yeer IS NULL"))
	require.ErrorIs(t, err, condition.ErrUnknownField)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = ix.UpdatePayload(canceled, where(t, "_id = 'd1'"), set)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, digestOfIndex(t, ix))

	// What there is nothing to do for changes nothing.
	n, err := ix.UpdatePayload(ctx, where(t, "1=0"), set)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = ix.UpdatePayload(ctx, where(t, "1=1"), nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, before, digestOfIndex(t, ix))
}

func digestOfIndex(t tb, ix *Index) string {
	s := taken(t, ix)
	defer s.Close()
	return snapshotDigest(t, s)
}
