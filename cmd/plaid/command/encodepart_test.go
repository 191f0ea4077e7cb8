package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A matrix that was complete when the run was killed, before its spool was removed, is
// what the next run goes on with; any other one stays.
func TestMatrixOfAKilledRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		there []string
		moves bool
	}{
		{"killed at the end", []string{"docs.npy", "docs.npy.spool"}, true},
		{"killed before", []string{"docs.npy.part", "docs.npy.spool"}, false},
		{"killed before, over another", []string{"docs.npy", "docs.npy.part", "docs.npy.spool"}, false},
		{"complete", []string{"docs.npy"}, false},
		{"nothing", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := encoding{dir: t.TempDir()}
			for _, name := range c.there {
				require.NoError(t, os.WriteFile(e.file(name), []byte(name), 0o600))
			}
			part, err := e.part(e.file("docs.npy.spool"))
			require.NoError(t, err)
			require.Equal(t, filepath.Join(e.dir, "docs.npy.part"), part)
			if c.moves {
				got, err := os.ReadFile(part)
				require.NoError(t, err)
				require.Equal(t, "docs.npy", string(got))
				require.NoFileExists(t, e.file("docs.npy"))
				return
			}
			for _, name := range c.there {
				got, err := os.ReadFile(e.file(name))
				require.NoError(t, err)
				require.Equal(t, name, string(got))
			}
		})
	}
}
