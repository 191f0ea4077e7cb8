package flags

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/storage"
)

// Encoder holds the flags of the encoder, which turns texts into token vectors.
type Encoder struct {
	// Dir is the folder of the model, or its name at a hub.
	Dir string

	precision      string
	settings       string
	documentLength int
	queryLength    int
	// backend is the encoder's name or the address of a server.
	backend string
	options []string
	set     *pflag.FlagSet
}

// bundledModel is the folder of the small model in the repository.
const bundledModel = "docs/examples/quickstart/colbert-nano"

// MissingModelError returns the error of a command that needs a model and has none.
func MissingModelError() error {
	return Usagef("--model is missing: give the folder of a late-interaction model, " +
		"or its name at the Hugging Face hub, such as answerdotai/answerai-colbert-small-v1 or " +
		"lightonai/GTE-ModernColBERT-v1 (plaid model lists what works); " +
		bundledModel + " in plaid's repository is a small one to try")
}

// Help texts of flags that plaid serve has, too.
const (
	ModelUsage = "`MODEL` that encodes texts: its folder, or its name at the Hugging Face hub, " +
		"ORG/NAME or ORG/NAME@REVISION (plaid model lists some)"
	ModelSettingsUsage = "JSON `FILE` with settings that override the model's folder " +
		"(docs/encoder.md)"
	QueryLengthUsage = "maximum length of a query in tokens of the model; longer ones are truncated (0: as its " +
		"folder says)"
	DocumentLengthUsage = "maximum length of a document in tokens of the model; longer ones are truncated (0: as " +
		"its folder says)"
	EncoderOptionUsage = "`KEY=VALUE` for --encoder: library, graph; of a server api, query-prefix, " +
		"document-prefix, batch, timeout, attempts (docs/encoder.md); may be repeated"
)

// Register adds the flags to f.
func (e *Encoder) Register(f *pflag.FlagSet) {
	e.RegisterFolder(f)
	e.registerBackend(f)
	f.StringArrayVar(&e.options, "encoder-option", nil, EncoderOptionUsage)
}

// RegisterQueries adds the flags of commands that encode questions for an index. The index knows
// the other settings.
func (e *Encoder) RegisterQueries(f *pflag.FlagSet) {
	e.registerModel(f)
	e.registerBackend(f)
	e.registerSettings(f)
	e.RegisterQueryLength(f)
}

// RegisterQueryLength adds the flag for the maximum length of queries.
func (e *Encoder) RegisterQueryLength(f *pflag.FlagSet) {
	f.Var(Int(&e.queryLength, 0, 0), "query-length", QueryLengthUsage)
}

func (e *Encoder) registerSettings(f *pflag.FlagSet) {
	f.StringVar(&e.settings, "model-settings", "", ModelSettingsUsage)
}

func (e *Encoder) registerBackend(f *pflag.FlagSet) {
	f.StringVar(&e.backend, "encoder", "", "`NAME` of the encoder: "+encode.Native+", "+encode.Device+
		" (the default with --device), "+encode.ONNXRuntime+", or the address of a server")
}

func (e *Encoder) registerModel(f *pflag.FlagSet) {
	e.set = f
	f.StringVar(&e.Dir, "model", "", ModelUsage)
}

// RegisterFolder adds the flags that concern the folder of a model only.
func (e *Encoder) RegisterFolder(f *pflag.FlagSet) {
	e.registerModel(f)
	f.Var(Choice(&e.precision, "", encode.F32.String(), encode.Int8.String(), encode.F16.String()), "precision",
		"how the model computes: f32 exactly, int8 more than twice as fast with small errors, f16 as devices do "+
			"(default: as for the index, or f32; f16 with --device)")
	e.registerSettings(f)
}

// RegisterDocuments adds the flags of commands that encode documents.
func (e *Encoder) RegisterDocuments(f *pflag.FlagSet) {
	e.Register(f)
	e.RegisterLength(f)
}

// RegisterLength adds the flag for the maximum length of documents.
func (e *Encoder) RegisterLength(f *pflag.FlagSet) {
	f.Var(Int(&e.documentLength, 0, 0), "document-length", DocumentLengthUsage)
}

// FirstGiven returns the name of the first flag of the group that is set, or "" if none is.
func (e *Encoder) FirstGiven() string {
	return firstChanged(e.set,
		"model", "precision", "model-settings", "document-length", "query-length", "encoder", "encoder-option")
}

// firstChanged returns the first of the names whose flag is set, or "" if none is.
func firstChanged(f *pflag.FlagSet, names ...string) string {
	for _, name := range names {
		if f != nil && f.Changed(name) {
			return name
		}
	}
	return ""
}

// HasModel reports whether the flags name a model or a server.
func (e *Encoder) HasModel() bool { return e.Dir != "" || modelof.IsServer(e.backend) }

// changed reports whether a flag is set.
func (e *Encoder) changed(name string) bool { return e.set != nil && e.set.Changed(name) }

// Options returns the folder of the model, "" for a server or if no flag names one, and how to open
// it. indexModel is what an index says of its model, or nil; it decides what the flags leave open.
func (e *Encoder) Options(
	indexModel *storage.Model, threads int, log *slog.Logger,
) (dir string, o *encode.Options, err error) {
	if modelof.IsServer(e.backend) || e.backend == "" && e.Dir == "" && indexModel != nil &&
		modelof.IsServer(indexModel.Name) {
		for _, name := range []string{"precision", "model-settings", "document-length", "query-length"} {
			if e.changed(name) {
				return "", nil, Usagef("--%s is for the folder of a model: a server has its own settings", name)
			}
		}
		o, err = e.serverOptions(indexModel, threads, log)
		return "", o, err
	}
	if indexModel != nil && modelof.IsServer(indexModel.Name) {
		indexModel = nil // a server's settings do not apply to a folder
	}
	dir, o = e.Dir, &encode.Options{Threads: threads, Logger: log}
	precision, indexFolder, settings := e.precision, modelof.Folder{}, new(modeldir.Override)
	if indexModel != nil {
		if dir == "" {
			dir = indexModel.Name
		}
		if indexModel.Precision != "" && !e.changed("precision") {
			precision = indexModel.Precision
		}
		if err := modelof.Settings(indexModel, &indexFolder); err != nil {
			return "", nil, err
		}
		settings = &indexFolder.Override
	}
	if o.Precision, err = modelof.Precision(indexModel, precision); err != nil {
		return "", nil, err
	}
	if e.settings != "" {
		override, err := modeldir.ReadOverride(e.settings)
		if err != nil {
			return "", nil, err
		}
		settings = override.WithDefaults(settings)
	}
	if e.documentLength > 0 {
		settings.DocumentLength = &e.documentLength
	}
	o.Override, o.QueryLength = settings, e.queryLength
	return dir, o, e.setFolderOptions(o, indexFolder)
}

// Opening says how to open an encoder.
type Opening struct {
	// IndexModel is the model that made the vectors of an index. Nil means that an index is missing,
	// or that the model is unknown.
	IndexModel *storage.Model
	Threads    int
	// OpenDevice opens the device of the command. The processor computes if OpenDevice is nil or
	// returns no device.
	OpenDevice DeviceOpener
	// Queries says that only queries will be encoded: their precision may differ from that of the
	// index, if their vectors are nearly the same.
	Queries bool
	// Hub is the hub of models that are given by name. Nil means the one that the environment
	// describes.
	Hub    *hub.Hub
	Logger *slog.Logger
}

// Open opens the model of --model, or that of an index. It returns the description of the model
// that an index stores. It is an error if the model is not the one of the index.
func (e *Encoder) Open(ctx context.Context, opening Opening) (*encode.Encoder, *storage.Model, error) {
	indexModel := opening.IndexModel
	dir, o, err := e.Options(indexModel, opening.Threads, opening.Logger)
	if err != nil {
		return nil, nil, err
	}
	if dir == "" && o.Remote == nil {
		return nil, nil, MissingModelError()
	}
	o.Hub = opening.Hub
	enc, err := e.OpenWith(ctx, dir, o, opening.OpenDevice)
	if err != nil {
		_, atHub := errors.AsType[*hub.Error](err)
		switch missing := errors.Is(err, fs.ErrNotExist); {
		case e.Dir == "" && missing:
			err = fmt.Errorf("the model of the index: %w; --model gives its new place", err)
		case e.Dir == "" && atHub:
			err = fmt.Errorf("the model of the index: %w", err)
		}
		return nil, nil, err
	}
	m, err := modelof.Describe(enc, dir, o)
	if err == nil && opening.Queries {
		m.NearFingerprint = enc.Config().Near
	}
	if err == nil {
		err = checkModel(indexModel, m)
	}
	if err != nil {
		return nil, nil, errors.Join(err, enc.Close())
	}
	return enc, m, nil
}

// checkModel returns an error if queryModel is not the model of the index, and names the precisions
// if these are the difference.
func checkModel(indexModel, queryModel *storage.Model) error {
	err := indexModel.CheckQueries(queryModel)
	if err == nil {
		return nil
	}
	if indexModel.Precision != queryModel.Precision {
		err = fmt.Errorf("%w; the precision is %s, that of the index %s", err, queryModel.Precision,
			indexModel.Precision)
	}
	return err
}

// ModelFile is the name of the file that describes the model, in a folder of vectors.
const ModelFile = "model.json"

// fingerprintPattern matches a SHA-256 in hexadecimal digits.
var fingerprintPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseModel reads the value of --vectors-model: a file as plaid encode writes it, a fingerprint,
// or a name. It returns nil for "".
func ParseModel(s string) (*storage.Model, error) {
	if s == "" {
		return nil, nil
	}
	m := new(storage.Model)
	if filepath.Ext(s) == ".json" {
		b, err := os.ReadFile(s)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(jsontext.TrimByteOrderMark(b), m); err != nil {
			return nil, fmt.Errorf("%s: not as plaid encode writes it: %w", s, err)
		}
		if err := m.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		return m, nil
	}
	if fingerprintPattern.MatchString(s) {
		m.Fingerprint = s
	} else {
		m.Name = s
	}
	if err := m.Validate(); err != nil {
		return nil, Usagef("--vectors-model: %w", err)
	}
	return m, nil
}

// setFolderOptions completes the options of a model in a folder from the flags; indexFolder has the
// settings of an index, which count where no flag is set.
func (e *Encoder) setFolderOptions(o *encode.Options, indexFolder modelof.Folder) error {
	if o.Backend = e.backend; e.backend == "" && indexFolder.Encoder != "" {
		o.Backend = indexFolder.Encoder
	}
	if o.Backend != encode.Native && o.Backend != encode.Device {
		o.Graph = indexFolder.Graph
	}
	switch o.Backend {
	case "", encode.Native, encode.Device, encode.ONNXRuntime:
	default:
		return Usagef("--encoder %q: there is %s, %s, %s, and servers by their address, http:// or https://",
			o.Backend, encode.Native, encode.Device, encode.ONNXRuntime)
	}
	return e.forEachOption(func(key, value string) (bool, error) {
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

// serverOptions returns the options of a server: that of the flags, or else that of the index. Dir
// is the server's name for the model. "" means the name that the index has.
func (e *Encoder) serverOptions(indexModel *storage.Model, threads int, log *slog.Logger) (*encode.Options, error) {
	r := &remote.Options{URL: e.backend, Logger: log}
	if indexModel != nil && modelof.IsServer(indexModel.Name) {
		r.URL = cmp.Or(r.URL, indexModel.Name)
		var s modelof.Server
		if err := modelof.Settings(indexModel, &s); err != nil {
			return nil, err
		}
		r.API, r.Model, r.QueryPrefix, r.DocumentPrefix = s.API, s.Model, s.QueryPrefix, s.DocumentPrefix
	}
	r.Model = cmp.Or(e.Dir, r.Model)
	err := e.forEachOption(func(key, value string) (ok bool, err error) {
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
	return &encode.Options{
		Backend: encode.Remote,
		Remote:  r,
		Threads: threads,
		Logger:  log,
	}, err
}

// forEachOption calls set with each --encoder-option. It returns a [UsageError] for an option that
// set does not know.
func (e *Encoder) forEachOption(set func(key, value string) (bool, error)) error {
	for _, option := range e.options {
		key, value, ok := strings.Cut(option, "=")
		if !ok || key == "" {
			return Usagef("--encoder-option %q: want KEY=VALUE", option)
		}
		ok, err := set(key, value)
		if err != nil {
			return Usagef("--encoder-option %q: %w", option, err)
		}
		if !ok {
			return Usagef("--encoder-option %q: --encoder %s has no such option", option,
				cmp.Or(e.backend, encode.Native))
		}
	}
	return nil
}
