package flags

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/nativetest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/storage"
)

// TestEncoderOnDevice: a device that is named encodes, unless another encoder is; what it
// cannot is an error, but where nobody named the device.
func TestEncoderOnDevice(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var notes []string
	on := func(err error, auto bool) DeviceOpener {
		return func(context.Context) (OpenedDevice, error) {
			return OpenedDevice{Device: &nativetest.Device{Weights: 7, Refuses: func(transformer.Options) error { return err }}, Memory: 99, Auto: auto, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}, nil
		}
	}
	open := func(of *storage.Model, on DeviceOpener, queries bool, args ...string) (c encode.Config, m *storage.Model, err error) {
		e := new(Encoder)
		parse(t, e.RegisterDocuments, append([]string{"--model", nano}, args...)...)
		enc, m, err := e.Open(t.Context(), Opening{IndexModel: of, Threads: 1, OpenDevice: on, Queries: queries, Logger: log})
		if err == nil {
			c = enc.Config()
			require.NoError(t, enc.Close())
		}
		return c, m, err
	}
	exact, inF32, err := open(nil, nil, false)
	require.NoError(t, err)
	half, inF16, err := open(nil, on(nil, false), false)
	require.NoError(t, err)
	require.Equal(t, []string{encode.Native, "f32", encode.Device, "f16"}, []string{exact.Backend, exact.Precision, half.Backend, half.Precision})
	require.EqualValues(t, 99, half.Device.Batches)
	require.Equal(t, "f16", inF16.Precision)
	require.Empty(t, inF16.NearFingerprint, "an index does not keep it")
	require.NotContains(t, inF16.Settings, "device", "nor on what its vectors were made")
	require.NotEqual(t, inF32.Fingerprint, inF16.Fingerprint)

	c, _, err := open(nil, on(nil, false), false, "--encoder", "native")
	require.NoError(t, err)
	require.Equal(t, encode.Native, c.Backend)

	// Queries of either are for indexes of either, documents are not.
	for _, x := range []struct {
		of *storage.Model
		on DeviceOpener
	}{{inF16, nil}, {inF32, on(nil, false)}} {
		_, m, err := open(x.of, x.on, true)
		require.NoError(t, err)
		require.Equal(t, x.of.Fingerprint, m.NearFingerprint)
		require.NoError(t, x.of.CheckQueries(m))
		require.ErrorIs(t, x.of.Check(m), storage.ErrModel)
		_, _, err = open(x.of, x.on, false)
		require.ErrorIs(t, err, storage.ErrModel)
		require.ErrorContains(t, err, "that of the index "+x.of.Precision)
	}
	_, _, err = open(inF16, nil, true, "--precision", "int8")
	require.ErrorIs(t, err, storage.ErrModel)

	_, _, err = open(nil, on(nil, false), false, "--precision", "f32")
	usage(t, err, "precision f32 needs the processor, since oracle:0 computes in f16")
	inInt8 := *inF32
	inInt8.Precision = "int8"
	_, _, err = open(&inInt8, on(nil, false), true)
	usage(t, err, "precision int8 needs the processor")
	_, _, err = open(nil, nil, false, "--precision", "f16")
	usage(t, err, "precision f16 needs a device")
	_, _, err = open(nil, nil, false, "--encoder", "device")
	usage(t, err, "--encoder device needs a device")
	_, _, err = open(nil, func(context.Context) (OpenedDevice, error) { return OpenedDevice{}, kernels.ErrUnavailable }, false)
	require.ErrorIs(t, err, kernels.ErrUnavailable)

	// Named, it is an error; found, it is said.
	cannot := fmt.Errorf("%w: heads of 80", transformer.ErrConfig)
	_, _, err = open(nil, on(cannot, false), false)
	require.ErrorIs(t, err, transformer.ErrConfig)
	require.Empty(t, notes)
	c, _, err = open(nil, on(cannot, true), false)
	require.NoError(t, err)
	require.Equal(t, encode.Native, c.Backend)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "texts are encoded by the processor: ")
	require.Contains(t, notes[0], "heads of 80")
	full := fmt.Errorf("%w: 5 bytes of weights", kernels.ErrDeviceMemory)
	_, _, err = open(nil, on(full, false), false)
	require.ErrorIs(t, err, kernels.ErrDeviceMemory)
	c, _, err = open(nil, on(full, true), false)
	require.NoError(t, err)
	require.Equal(t, encode.Native, c.Backend)
	require.Len(t, notes, 2)
	require.Contains(t, notes[1], "5 bytes of weights")
	c, _, err = open(nil, on(nil, true), false, "--precision", "int8")
	require.NoError(t, err)
	require.Equal(t, "int8", c.Precision)
	require.Len(t, notes, 3)
}
