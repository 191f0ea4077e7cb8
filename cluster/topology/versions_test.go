package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Old versions of a map go and the last ones stay. A map that is shown and is older than all
// that are left misleads nobody: the next version follows the last one, and none is made twice.
func TestOldVersionsGo(t *testing.T) {
	s, b, o := store(t)
	ctx := t.Context()
	for _, name := range []string{"a", "a-b", "c"} {
		m := make1(t, NewIncarnation())
		m.Collection = name
		require.NoError(t, s.Create(ctx, m))
	}
	update := func(what string) *Map {
		m, err := s.Get(ctx, "c")
		require.NoError(t, err)
		m, err = s.Update(ctx, m.ID(), func(m *Map) error { m.Join(Member{Name: what}); return nil })
		require.NoError(t, err)
		return m
	}
	var early []byte
	for i := range 20 {
		m := update(fmt.Sprint("m", i))
		if i == 3 {
			var err error
			early, err = m.Encode()
			require.NoError(t, err)
		}
	}
	versions := func() (names []string) {
		all, err := o.List(ctx, "maps/c/")
		require.NoError(t, err)
		for _, e := range all {
			names = append(names, e.Name)
		}
		return names
	}
	dropped, err := s.DropOld(ctx, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, dropped, "they are young")
	require.Len(t, versions(), 21)
	dropped, err = s.DropOld(ctx, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 21-keptVersions, dropped)
	left := versions()
	require.Len(t, left, keptVersions)
	require.Equal(t, object("c", 21), left[keptVersions-1])
	for _, name := range []string{"a", "a-b"} {
		_, err := s.Newest(ctx, name)
		require.NoError(t, err)
	}
	require.EqualValues(t, 22, update("next").Version)

	_, err = b.Maps.Put(ctx, "c", early) // JetStream has come back with what it had long ago
	require.NoError(t, err)
	m, err := s.Get(ctx, "c")
	require.NoError(t, err)
	require.EqualValues(t, 5, m.Version)
	m = update("after")
	require.EqualValues(t, 23, m.Version)
	require.Contains(t, m.Members, Member{Name: "next"})
	m, err = s.Get(ctx, "c")
	require.NoError(t, err)
	require.EqualValues(t, 23, m.Version)

	require.NoError(t, b.Maps.Purge(ctx, "c"))
	m, err = s.Recover(ctx, "c")
	require.NoError(t, err)
	require.EqualValues(t, 23, m.Version)
}
