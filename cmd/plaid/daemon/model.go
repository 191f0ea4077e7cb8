package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/storage"
)

// hasEncoder reports whether the settings name an encoder of texts.
func (c *Config) hasEncoder() bool {
	return c.Model != "" || modelof.IsServer(c.Encoder)
}

// modelName returns the name of the encoder, for the log.
func (c *Config) modelName() string { return cmp.Or(c.Model, c.Encoder) }

// loadedEncoder is an encoder with the description that indexes store of it.
type loadedEncoder struct {
	*encode.Encoder
	model *storage.Model
}

// Model implements [server.ModelEncoder].
func (m loadedEncoder) Model() *storage.Model { return m.model }

// loadModel loads the model while the service already answers the requests that need none. It calls
// failed if that goes wrong.
func (c *Config) loadModel(ctx context.Context, s *server.Server, log *slog.Logger, closing *closers,
	failed func(error)) {
	defer func() {
		if fault := recover(); fault != nil {
			log.Error("a panic", "panic", fault, "stack", string(debug.Stack()))
			failed(fmt.Errorf("model: a panic: %v", fault))
		}
	}()
	began := time.Now()
	e, err := c.openModel(ctx, log, nil)
	if err != nil {
		failed(fmt.Errorf("model: %w", err))
		return
	}
	closing.add(e.Close)
	s.SetEncoder(e)
	log.Info("model loaded", "model", c.modelName(), "dim", e.Dim(), "took", time.Since(began))
}

// openEncoderOnDevice opens the model on a device, if the settings name a model. It also returns
// how many bytes of the device indexes may use. 0 means all that is free. An automatically chosen
// device is left to the indexes if the model would take all of its memory.
func (c *Config) openEncoderOnDevice(ctx context.Context, device kernels.Device, log *slog.Logger,
	closing *closers) (*loadedEncoder, int64, error) {
	if !c.hasEncoder() {
		return nil, c.DeviceMemory, nil
	}
	auto := cmp.Or(c.Device, os.Getenv(kernels.EnvDevice)) == kernels.AutoDevice
	began := time.Now()
	e, err := c.openModel(ctx, log, func(context.Context) (flags.OpenedDevice, error) {
		return flags.OpenedDevice{
			Device: device,
			Memory: c.DeviceMemory,
			Auto:   auto,
			Note:   func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) },
		}, nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("model: %w", err)
	}
	indexMemory := c.DeviceMemory
	if d := e.Config().Device; auto && d != nil && indexMemory > 0 && indexMemory <= d.Weights+d.Batches {
		log.Info("texts are encoded by the processor: the model and its batches would leave no device memory for "+
			"indexes",
			"memory", indexMemory, "weights", d.Weights, "batches", d.Batches)
		if err := e.Close(); err != nil {
			return nil, 0, fmt.Errorf("model: %w", err)
		}
		if e, err = c.openModel(ctx, log, nil); err != nil {
			return nil, 0, fmt.Errorf("model: %w", err)
		}
	}
	closing.add(e.Close)
	log.Info("model loaded", "model", c.modelName(), "dim", e.Dim(), "backend", e.Config().Backend, "took",
		time.Since(began))
	if d := e.Config().Device; d != nil {
		log.Info("model on device", "device", d.Device.Name, "precision", d.Precision, "weights", d.Weights,
			"batches", d.Batches, "tokens", d.Tokens)
		if indexMemory > 0 {
			if indexMemory -= d.Weights + d.Batches; indexMemory <= 0 {
				return nil, 0, fmt.Errorf("%w: device memory of %d bytes: the model and its batches take %d, "+
					"nothing is left for indexes", kernels.ErrUnavailable, c.DeviceMemory, d.Weights+d.Batches)
			}
		}
	}
	return &e, indexMemory, nil
}

// checkModel reads the settings in the model's folder, so that a missing or unreadable model ends
// the service before it begins to serve.
func (c *Config) checkModel(ctx context.Context, log *slog.Logger) error {
	if !c.hasEncoder() {
		return nil
	}
	f, dir, o, err := c.modelOptions(log)
	if err == nil && o.Remote == nil {
		_, err = encode.FindModel(ctx, dir, o)
		err = f.Explain(err)
	}
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// modelOptions returns how the model is opened. It goes through the flags of the commands, so that
// a setting means the same everywhere.
func (c *Config) modelOptions(log *slog.Logger) (f *flags.Encoder, dir string, o *encode.Options, err error) {
	f = new(flags.Encoder)
	set := pflag.NewFlagSet("model", pflag.ContinueOnError)
	f.RegisterDocuments(set)
	f.RegisterQueryLength(set)
	setFlag := func(name, value string) {
		if value != "" && err == nil {
			err = set.Set(name, value)
		}
	}
	setFlag("model", c.Model)
	setFlag("encoder", c.Encoder)
	setFlag("model-settings", c.ModelSettings)
	if c.Precision != encode.F32.String() || c.isSet("precision") {
		setFlag("precision", c.Precision)
	}
	if c.QueryLength > 0 {
		setFlag("query-length", strconv.Itoa(c.QueryLength))
	}
	if c.DocumentLength > 0 {
		setFlag("document-length", strconv.Itoa(c.DocumentLength))
	}
	for _, option := range c.EncoderOptions {
		setFlag("encoder-option", option)
	}
	if err != nil {
		return nil, "", nil, err
	}
	if dir, o, err = f.Options(nil, c.Threads, log); err != nil {
		return nil, "", nil, err
	}
	o.Hub = hub.FromEnv().WithLogger(log, logFetching(log, time.Now))
	return f, dir, o, nil
}

// logFetching returns a function that logs every ten seconds how much of a model has been fetched.
func logFetching(log *slog.Logger, now func() time.Time) func(hub.Progress) {
	const every = 10 * time.Second
	last := now()
	return func(p hub.Progress) {
		if t := now(); t.Sub(last) >= every {
			last = t
			log.Info("fetching the model", "model", p.Model, "file", p.File, "bytes", p.Done, "of", p.Total)
		}
	}
}

// openModel opens the model, on the device that openDevice returns, or on the processor if
// openDevice is nil.
func (c *Config) openModel(
	ctx context.Context, log *slog.Logger, openDevice flags.DeviceOpener,
) (loadedEncoder, error) {
	f, dir, o, err := c.modelOptions(log)
	if err != nil {
		return loadedEncoder{}, err
	}
	e, err := f.OpenWith(ctx, dir, o, openDevice)
	if err != nil {
		return loadedEncoder{}, err
	}
	model, err := modelof.Describe(e, dir, o)
	if err != nil {
		return loadedEncoder{}, errors.Join(err, e.Close())
	}
	return loadedEncoder{e, model}, nil
}
