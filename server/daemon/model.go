package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/storage"
)

// encodes tells whether there is something that encodes texts.
func (c *Config) encodes() bool {
	return c.Model != "" || strings.HasPrefix(c.Encoder, "http://") || strings.HasPrefix(c.Encoder, "https://")
}

// modelName is what encodes, for the log.
func (c *Config) modelName() string { return cmp.Or(c.Model, c.Encoder) }

func checkOption(s string) error {
	if key, _, ok := strings.Cut(s, "="); !ok || key == "" {
		return fmt.Errorf("%q: want KEY=VALUE", s)
	}
	return nil
}

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
	e, err := c.openModel(ctx, log)
	if err != nil {
		failed(fmt.Errorf("model: %w", err))
		return
	}
	closing.add(e.Close)
	s.SetEncoder(e)
	log.Info("model loaded", "model", c.modelName(), "dim", e.Dim(), "took", time.Since(began))
}

// openModel opens it as commands do that have the same flags.
func (c *Config) openModel(ctx context.Context, log *slog.Logger) (_ made, err error) {
	var f flags.Encoder
	set := pflag.NewFlagSet("model", pflag.ContinueOnError)
	f.RegisterDocuments(set)
	give := func(name, value string) {
		if value != "" && err == nil {
			err = set.Set(name, value)
		}
	}
	give("model", c.Model)
	give("encoder", c.Encoder)
	give("model-settings", c.ModelSettings)
	if c.Precision != encode.F32.String() {
		give("precision", c.Precision)
	}
	if c.DocumentLength > 0 {
		give("document-length", strconv.Itoa(c.DocumentLength))
	}
	for _, option := range c.EncoderOptions {
		give("encoder-option", option)
	}
	if err != nil {
		return made{}, err
	}
	dir, o, err := f.Options(nil, c.ModelThreads, log)
	if err != nil {
		return made{}, err
	}
	o.QueryLength, o.BatchWait = c.QueryLength, c.ModelWait
	e, err := encode.OpenContext(ctx, dir, o)
	if err != nil {
		return made{}, err
	}
	model, err := flags.ModelOf(e, dir, o)
	if err != nil {
		return made{}, errors.Join(err, e.Close())
	}
	return made{e, model}, nil
}
