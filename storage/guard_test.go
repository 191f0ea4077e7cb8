package storage

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

func TestGuard(t *testing.T) {
	try := func(fn func()) (err error) {
		defer Guard("x.plaid", &err)()
		fn()
		return nil
	}
	require.NoError(t, try(func() {}))

	// bbolt's own panics are damage.
	err := try(func() { new(bolt.Cursor).First() })
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "x.plaid: index is corrupt: damaged page")

	// Ours are not, wherever they come from.
	cause := errors.New("a cause")
	for name, fn := range map[string]func(){
		"index": func() { s := []int{1}; s[len(s)+2]++ },
		"nil":   func() { var f *File; f.path = "" },
		"panic": func() { panic(cause) },
		"in the standard library": func() {
			slices.SortFunc([]int{2, 1}, func(int, int) int { panic(cause) })
		},
	} {
		err := try(fn)
		require.ErrorIs(t, err, ErrInternal, name)
		require.NotErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, "x.plaid: internal error: ", name)
		var p *PanicError
		require.ErrorAs(t, err, &p, name)
		require.Contains(t, string(p.Stack), "guard_test.go", name)
	}
	require.ErrorIs(t, try(func() { panic(cause) }), cause)
}

// A panic of a callback that bbolt calls is no damage, and the file goes on.
func TestPanicWithinATransaction(t *testing.T) {
	f, err := Open(context.Background(), writeTestIndex(t), Options{Write: true})
	require.NoError(t, err)
	before := seen(t, f)
	err = f.Update(func(tx *Tx) error {
		g, err := tx.Generation(1)
		require.NoError(t, err)
		require.NoError(t, g.PutID("half", 0))
		panic("ours")
	})
	require.ErrorIs(t, err, ErrInternal)
	require.NotErrorIs(t, err, ErrCorrupt)
	require.Equal(t, before, seen(t, f))
	require.NoError(t, addDoc(f, "delta"))
	require.Contains(t, seen(t, f), "delta")
	require.NoError(t, f.Close())
}
