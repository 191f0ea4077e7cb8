package storage

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModelCheck(t *testing.T) {
	a := &Model{Name: "a", Fingerprint: "1"}
	for _, c := range []struct {
		index, other *Model
		same         bool
	}{
		{nil, a, true},
		{a, nil, true},
		{a, &Model{Name: "moved", Fingerprint: "1"}, true},
		{a, &Model{Name: "a", Fingerprint: "2"}, false},
		{a, &Model{Name: "a"}, true},
		{a, &Model{Name: "b"}, false},
		{&Model{Name: "a"}, &Model{Name: "b", Fingerprint: "1"}, false},
		{&Model{Name: "a"}, &Model{Fingerprint: "1"}, true}, // nothing to compare
		{&Model{Fingerprint: "1"}, &Model{Fingerprint: "2"}, false},
	} {
		err := c.index.Check(c.other)
		if c.same {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrModel)
		require.ErrorContains(t, err, c.other.String())
	}
}

func TestModelValidate(t *testing.T) {
	require.NoError(t, (*Model)(nil).Validate())
	require.NoError(t, (&Model{Name: "/models/ü"}).Validate())
	require.Error(t, (&Model{}).Validate())
	require.Error(t, (&Model{Name: "a\x1b[31m"}).Validate())
	require.Error(t, (&Model{Name: "\xff"}).Validate())
	require.Error(t, (&Model{Fingerprint: strings.Repeat("a", 5000)}).Validate())
	require.NoError(t, (&Model{Name: "a", Precision: "int8", Settings: `{"query_length":48}`}).Validate())
	require.ErrorContains(t, (&Model{Name: "a", Settings: "\n"}).Validate(), "settings")
	require.ErrorContains(t, (&Model{Name: "a", Precision: "\xff"}).Validate(), "precision")
}
