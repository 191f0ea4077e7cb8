package flags

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/internal/modelof"
	"github.com/plaid-ir/plaid/storage"
)

// backend are the flags of what computes token vectors.
type backend struct {
	name    string // or the address of a server
	options []string
}

func (b *backend) register(f *pflag.FlagSet) {
	b.registerName(f)
	f.StringArrayVar(&b.options, "encoder-option", nil, "`KEY=VALUE` for --encoder, any number of times: library, graph; of a server api, query-prefix, "+
		"document-prefix, batch, timeout, attempts (docs/encoder.md)")
}

func (b *backend) registerName(f *pflag.FlagSet) {
	f.StringVar(&b.name, "encoder", "", "`NAME` of what computes: "+encode.Native+", "+encode.Device+" (the default where --device names one), "+encode.ONNXRuntime+", or the address of a server that encodes")
}

// local applies the flags to options of a folder, or what an index keeps of it where
// they say nothing.
func (b *backend) local(o *encode.Options, kept modelof.Folder) error {
	if o.Backend = b.name; b.name == "" && kept.Encoder != "" {
		o.Backend = kept.Encoder
	}
	if o.Backend != encode.Native && o.Backend != encode.Device {
		o.Graph = kept.Graph
	}
	switch o.Backend {
	case "", encode.Native, encode.Device, encode.ONNXRuntime:
	default:
		return Usagef("--encoder %q: there is %s, %s, %s, and servers by their address, http:// or https://", o.Backend, encode.Native, encode.Device, encode.ONNXRuntime)
	}
	return b.forEachOption(func(key, value string) (bool, error) {
		switch key {
		case "library":
			o.Library = value
		case "graph":
			o.Graph = value
		default:
			return false, nil
		}
		return true, nil
	})
}

// server returns the options of a server, of that which an index names where no flag
// does. model is how the server calls the model, "": as the index says.
func (b *backend) server(of *storage.Model, model string, threads int, log *slog.Logger) (*encode.Options, error) {
	r := &remote.Options{URL: b.name, Logger: log}
	if of != nil && modelof.IsServer(of.Name) {
		if r.URL == "" {
			r.URL = of.Name
		}
		var s modelof.Server
		if err := modelof.Settings(of, &s); err != nil {
			return nil, err
		}
		r.API, r.Model, r.QueryPrefix, r.DocumentPrefix = s.API, s.Model, s.QueryPrefix, s.DocumentPrefix
	}
	if model != "" {
		r.Model = model
	}
	err := b.forEachOption(func(key, value string) (ok bool, err error) {
		switch key {
		case "api":
			r.API = value
		case "query-prefix":
			r.QueryPrefix = value
		case "document-prefix":
			r.DocumentPrefix = value
		case "batch":
			r.Batch, err = strconv.Atoi(value)
		case "attempts":
			r.Attempts, err = strconv.Atoi(value)
		case "timeout":
			r.Timeout, err = time.ParseDuration(value)
		default:
			return false, nil
		}
		return true, err
	})
	return &encode.Options{Backend: encode.Remote, Remote: r, Threads: threads, Logger: log}, err
}

// forEachOption hands over the options; those that set does not know are usage errors.
func (b *backend) forEachOption(set func(key, value string) (bool, error)) error {
	name := b.name
	if name == "" {
		name = encode.Native
	}
	for _, option := range b.options {
		key, value, ok := strings.Cut(option, "=")
		if !ok || key == "" {
			return Usagef("--encoder-option %q: want KEY=VALUE", option)
		}
		ok, err := set(key, value)
		if err != nil {
			return Usagef("--encoder-option %q: %w", option, err)
		}
		if !ok {
			return Usagef("--encoder-option %q: --encoder %s has no such option", option, name)
		}
	}
	return nil
}
