package kernels

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/registry"
)

// fake is a backend that has a name.
type fake string

func (f fake) Name() string                  { return string(f) }
func (f fake) Scorer(*Codec) (Scorer, error) { return nil, ErrShape }
func (f fake) Nearest(context.Context, []uint32, []float32, []float32, []float32, int) error {
	return ErrShape
}

// emptyRegistry gives a test a registry of its own.
func emptyRegistry(t *testing.T) {
	before := backends
	backends = new(registry.Registry[Backend])
	t.Cleanup(func() { backends = before })
	t.Setenv(EnvCPU, "")
}

func TestSelect(t *testing.T) {
	emptyRegistry(t)
	_, err := Select("")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "kernels/cpu", "says what to import")

	Register(fake("slow"), 0)
	Register(fake("best"), 7)
	Register(fake("good"), 3)
	Register(fake("as good as best"), 7)
	require.Equal(t, []string{"as good as best", "best", "good", "slow"}, Backends())
	for name, want := range map[string]string{"": "as good as best", "slow": "slow", "best": "best"} {
		b, err := Select(name)
		require.NoError(t, err)
		require.Equal(t, want, b.Name())
	}
	_, err = Select("no such backend")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, `"no such backend" (there is: as good as best, best, good, slow)`)

	t.Setenv(EnvCPU, "good")
	b, err := Select("")
	require.NoError(t, err)
	require.Equal(t, "good", b.Name())
	t.Setenv(EnvCPU, "goood")
	_, err = Select("")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, `"goood" from PLAID_CPU`)
	b, err = Select("slow")
	require.NoError(t, err)
	require.Equal(t, "slow", b.Name())
}

func TestRegisterTwice(t *testing.T) {
	emptyRegistry(t)
	Register(fake("a"), 0)
	require.PanicsWithValue(t, "kernels: backend registered twice: a", func() { Register(fake("a"), 1) })
	b, err := Select("")
	require.NoError(t, err)
	require.Equal(t, fake("a"), b, "the registry is in use after the panic")
}
