package human

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1073741824": 1 << 30, "1GiB": 1 << 30, "1gib": 1 << 30, "256MiB": 256 << 20, "1GB": 1e9, "500M": 500 << 20,
		"1.5GiB": 3 << 29, "64 KiB": 64 << 10, "7B": 7, "2k": 2048, "2kB": 2000, "1TiB": 1 << 40,
	} {
		got, err := ParseSize(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "GiB", "-1", "1XB", "1GiBs", "1 2", "NaN", "Inf", "1e30", "9999999TiB", "0x1p70", "1b b"} {
		_, err := ParseSize(s)
		require.Error(t, err, s)
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"1GiB", "500M", "1.5kB", "-3", "b", " B", "１MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil && n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
	})
}
