package daemon

import (
	"log/slog"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/nativetest"
	"github.com/plaid-ir/plaid/server"
)

// TestModelOnDevice: a precision that was given is kept to or refused, and a device that has
// no memory for model and indexes is an error if it was named, and else has the indexes only.
func TestModelOnDevice(t *testing.T) {
	open := func(args ...string) (string, int64, error) {
		c, err := configOf(t, append(args, "--model", "../../../docs/examples/quickstart/colbert-nano")...)
		require.NoError(t, err)
		var closing closers
		m, left, err := c.openEncoderOnDevice(t.Context(), &nativetest.Device{Weights: 600, Batches: 400}, slog.New(slog.DiscardHandler), &closing)
		if err != nil {
			return "", 0, err
		}
		defer func() { require.NoError(t, m.Close()) }()
		return m.Config().Backend + " " + m.Config().Precision, left, nil
	}
	got, left, err := open("--device", "a:0", "--device-memory", "1500")
	require.NoError(t, err)
	require.Equal(t, encode.Device+" f16", got)
	require.EqualValues(t, 500, left)
	_, _, err = open("--device", "a:0", "--precision", "f32")
	require.ErrorContains(t, err, "precision f32 needs the processor")
	got, _, err = open("--device", "a:0", "--precision", "f32", "--encoder", "native")
	require.NoError(t, err)
	require.Equal(t, encode.Native+" f32", got)

	_, _, err = open("--device", "a:0", "--device-memory", "1000")
	require.ErrorContains(t, err, "nothing is left for indexes")
	got, left, err = open("--device", "auto", "--device-memory", "1000")
	require.NoError(t, err)
	require.Equal(t, encode.Native+" f32", got)
	require.EqualValues(t, 1000, left)
}

// TestLimits: half of the memory is for bodies, half for answers, and 0 is no limit.
func TestLimits(t *testing.T) {
	limits := func(args ...string) server.Limits {
		c, err := configOf(t, args...)
		require.NoError(t, err)
		return c.limits()
	}
	const mib = 1 << 20
	require.Equal(t, server.Limits{Body: 100 * mib, Bodies: 1024 * mib, Answers: 1024 * mib, Work: 5 * time.Minute, Indexes: 1000}, limits())
	require.Equal(t, server.Limits{Body: 800 * mib, Bodies: 32 * mib, Answers: 32 * mib, Work: time.Second, Rate: 2.5, Indexes: 7},
		limits("--max-body", "800MiB", "--max-memory", "64MiB", "--work-timeout", "1s", "--rate", "2.5", "--max-indexes", "7"))
	require.Equal(t, server.Limits{Body: -1, Bodies: -1, Answers: -1, Work: -1, Indexes: -1},
		limits("--max-body", "0", "--max-memory", "0", "--work-timeout", "0s", "--max-indexes", "0"))
	_, err := configOf(t, "--max-memory", "1MiB")
	require.ErrorIs(t, err, ErrConfig)
}

func configOf(t *testing.T, args ...string) (*Config, error) {
	return settings(t, append([]string{"--data", t.TempDir()}, args...)...)
}

// settings are those of flags, and none of the environment.
func settings(t *testing.T, args ...string) (*Config, error) {
	c := NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	require.NoError(t, f.Parse(args))
	return c, c.Load(nil, f)
}
