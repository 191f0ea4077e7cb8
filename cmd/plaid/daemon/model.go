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

// encodes tells whether there is something that encodes texts.
func (c *Config) encodes() bool {
	return c.Model != "" || modelof.IsServer(c.Encoder)
}

// modelName is what encodes, for the log.
func (c *Config) modelName() string { return cmp.Or(c.Model, c.Encoder) }

// made is an encoder with what indexes are to know of it.
type made struct {
	*encode.Encoder
	model *storage.Model
}

// Model implements [server.Maker].
func (m made) Model() *storage.Model { return m.model }

// loadModel loads the model while the service answers what needs none.
func (c *Config) loadModel(ctx context.Context, s *server.Server, log *slog.Logger, closing *closers, failed func(error)) {
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

// encoderOn opens the model on a device, if there is one and texts are to be encoded there,
// and says how much of the device's memory indexes may take beside it; 0: what is free.
func (c *Config) encoderOn(ctx context.Context, device kernels.Device, log *slog.Logger, closing *closers) (*made, int64, error) {
	if !c.encodes() {
		return nil, c.DeviceMemory, nil
	}
	auto := cmp.Or(c.Device, os.Getenv(kernels.EnvDevice)) == kernels.AutoDevice
	began := time.Now()
	e, err := c.openModel(ctx, log, func(context.Context) (flags.OpenedDevice, error) {
		return flags.OpenedDevice{
			Device: device, Memory: c.DeviceMemory, Auto: auto,
			Note: func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) },
		}, nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("model: %w", err)
	}
	left := c.DeviceMemory
	if d := e.Config().Device; auto && d != nil && left > 0 && left <= d.Weights+d.Batches {
		log.Info("texts are encoded by the processor: the model and its batches would leave no device memory for indexes",
			"memory", left, "weights", d.Weights, "batches", d.Batches)
		if err := e.Close(); err != nil {
			return nil, 0, fmt.Errorf("model: %w", err)
		}
		if e, err = c.openModel(ctx, log, nil); err != nil {
			return nil, 0, fmt.Errorf("model: %w", err)
		}
	}
	closing.add(e.Close)
	log.Info("model loaded", "model", c.modelName(), "dim", e.Dim(), "backend", e.Config().Backend, "took", time.Since(began))
	if d := e.Config().Device; d != nil {
		log.Info("model on device", "device", d.Device.Name, "precision", d.Precision, "weights", d.Weights, "batches", d.Batches, "tokens", d.Tokens)
		if left > 0 {
			if left -= d.Weights + d.Batches; left <= 0 {
				return nil, 0, fmt.Errorf("%w: device memory of %d bytes: the model and its batches take %d, nothing is left for indexes", kernels.ErrUnavailable, c.DeviceMemory, d.Weights+d.Batches)
			}
		}
	}
	return &e, left, nil
}

// checkModel reads what the folder of the model says, so that one which is not there, or
// none, ends a service before it begins to serve.
func (c *Config) checkModel(ctx context.Context, log *slog.Logger) error {
	if !c.encodes() {
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

// modelOptions are how the model is opened, as commands do that have the same flags.
func (c *Config) modelOptions(log *slog.Logger) (f *flags.Encoder, dir string, o *encode.Options, err error) {
	f = new(flags.Encoder)
	set := pflag.NewFlagSet("model", pflag.ContinueOnError)
	f.RegisterDocuments(set)
	f.RegisterQueryLength(set)
	give := func(name, value string) {
		if value != "" && err == nil {
			err = set.Set(name, value)
		}
	}
	give("model", c.Model)
	give("encoder", c.Encoder)
	give("model-settings", c.ModelSettings)
	if c.Precision != encode.F32.String() || c.given("precision") {
		give("precision", c.Precision)
	}
	if c.QueryLength > 0 {
		give("query-length", strconv.Itoa(c.QueryLength))
	}
	if c.DocumentLength > 0 {
		give("document-length", strconv.Itoa(c.DocumentLength))
	}
	for _, option := range c.EncoderOptions {
		give("encoder-option", option)
	}
	if err != nil {
		return nil, "", nil, err
	}
	if dir, o, err = f.Options(nil, c.Threads, log); err != nil {
		return nil, "", nil, err
	}
	o.Hub = hub.FromEnv().With(log, logFetching(log, time.Now))
	return f, dir, o, nil
}

// logFetching logs now and then how much of a model has been fetched.
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

func (c *Config) openModel(ctx context.Context, log *slog.Logger, on flags.DeviceOpener) (made, error) {
	f, dir, o, err := c.modelOptions(log)
	if err != nil {
		return made{}, err
	}
	e, err := f.OpenWith(ctx, dir, o, on)
	if err != nil {
		return made{}, err
	}
	model, err := modelof.Of(e, dir, o)
	if err != nil {
		return made{}, errors.Join(err, e.Close())
	}
	return made{e, model}, nil
}
