package storage

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

func openDerivedTest(t *testing.T, path string, o DerivedOptions) *DerivedFile {
	d, err := OpenDerived(context.Background(), path, o)
	require.NoError(t, err)
	return d
}

func putDerived(t *testing.T, d *DerivedFile, keys ...string) {
	require.NoError(t, d.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		require.NoError(t, err)
		for _, key := range keys {
			require.NoError(t, b.Put([]byte(key), make([]byte, 300)))
		}
		return nil
	}))
}

func countDerived(t *testing.T, d *DerivedFile) (n int) {
	require.NoError(t, d.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("b")).ForEach(func(_, _ []byte) error {
			n++
			return nil
		})
	}))
	return n
}

// A branch that leads back to a page above it would have bbolt follow it until the process
// dies. Nothing is held after the error, nor after a panic.
func TestDerivedDamage(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "x")
	d := openDerivedTest(t, path, DerivedOptions{Write: true, PageSize: 1024})
	var keys []string
	for i := range 60 {
		keys = append(keys, string([]byte{'k', byte(i / 256), byte(i)}))
	}
	putDerived(t, d, keys[:40]...)
	putDerived(t, d, keys...)
	require.NoError(t, d.Close())
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	tried := map[string]int{}
	for page := 2; page < len(good)/1024; page++ {
		b := good[page*1024:]
		kind := map[byte]string{1: "branch", 2: "leaf", 16: "free list"}[b[8]]
		for _, byteOf := range []int{0, 8, 10, 16 + 8} { // number, kind, count, first child
			bad := append([]byte{}, good...)
			bad[page*1024+byteOf] ^= 0x41
			if kind == "branch" && byteOf == 24 {
				bad[page*1024+24], bad[page*1024+25] = b[0], b[1] // itself
			}
			require.NoError(t, os.WriteFile(path, bad, 0o666))
			for _, write := range []bool{false, true} {
				d, err := OpenDerived(ctx, path, DerivedOptions{Write: write})
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					tried[kind]++
					continue
				}
				_ = d.View(func(tx *bolt.Tx) error { // or a panic, which is an error
					return tx.Bucket([]byte("b")).ForEach(func(_, _ []byte) error { return nil })
				})
				require.NoError(t, d.Close())
			}
		}
	}
	require.NotZero(t, tried["branch"])
	require.NotZero(t, tried["leaf"])
	require.NotZero(t, tried["free list"])
	require.NoError(t, os.WriteFile(path, good, 0o666))
	d = openDerivedTest(t, path, DerivedOptions{Write: true})
	require.Equal(t, 60, countDerived(t, d))
	err = d.Update(func(*bolt.Tx) error { panic("ours") })
	require.ErrorIs(t, err, ErrInternal)
	require.NoError(t, d.Close())
	require.NoError(t, openDerivedTest(t, path, DerivedOptions{Write: true}).Close())

	_, err = OpenDerived(ctx, filepath.Dir(path), DerivedOptions{Write: true})
	require.ErrorContains(t, err, "it is a folder")
	_, err = OpenDerived(ctx, path+"y", DerivedOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	_, err = OpenDerived(ctx, path, DerivedOptions{})
	require.ErrorIs(t, err, ErrCorrupt, "empty")
}
