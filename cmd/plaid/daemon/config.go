// Package daemon implements `plaid serve`: it reads a configuration, opens a store and a model, and
// serves them until it is told to end.
package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/collection"
)

// Config is the configuration of a service. [NewConfig] returns one with the defaults.
type Config struct {
	File string

	Data, Listen string
	BasePath     string
	Images       string

	Model          string
	Encoder        string
	EncoderOptions []string
	ModelSettings  string
	Precision      string
	QueryLength    int
	DocumentLength int

	Device       string
	DeviceMemory int64
	Threads      int

	TokensFile      string
	TLSCert, TLSKey string
	CORSOrigins     []string
	Hosts           []string
	TrustedProxies  []string

	// MaxBody and MaxMemory determine the other limits in bytes: see [Config.limits].
	MaxBody, MaxMemory        int64
	WorkTimeout, DrainTimeout time.Duration
	Rate                      float64
	IndexRates                []string
	MaxIndexes                int

	// Sampling says which share of the questions is also answered exhaustively, to measure recall.
	Sampling collection.Sampling

	LogFormat, LogLevel string

	// Store is the address of the object store with the indexes. "" means that they are in the
	// folder Data, which is a cache otherwise.
	Store                 string
	Node, Zone, Advertise string
	Shards, Replicas      int
	// Partial is "refuse" or "allow".
	Partial string

	// Files are paths of index files that are served in place of a folder, and are not changed: see
	// [store.OpenShared]. Each index has the name of its file, without .plaid. No setting names Files
	// or the next three fields: a Go program sets them.
	Files []string
	// ReadOnly serves the folder without a lock on it and without changing it: see
	// [store.OpenReadOnly].
	ReadOnly bool
	// Backend names the kernels; LockTimeout is how long to wait for another process that has the
	// data folder open.
	Backend     string
	LockTimeout time.Duration
	// Reload, if not nil, receives a signal when tokens and certificates shall be read again.
	Reload <-chan os.Signal

	settings []*setting
}

// envTokens is the variable that holds tokens, one in each line, as in a file of tokens. It is not
// a setting: secrets are never printed.
const envTokens = envPrefix + "TOKENS"

// NewConfig returns the configuration with all settings at their defaults.
func NewConfig() *Config {
	c := &Config{}
	add := func(name string, v pflag.Value, usage string) {
		c.settings = append(c.settings, &setting{name: name, usage: usage, value: v})
	}
	addList := func(name string, v pflag.Value, usage string) {
		add(name, v, usage)
		c.settings[len(c.settings)-1].list = true
	}
	text := func(name string, p *string, def, usage string) {
		add(name, textValue(p, def), usage)
	}
	// count adds a number; its usage says what 0 means.
	count := func(name string, p *int, usage string) {
		add(name, flags.Int(p, 0, 0), usage)
	}
	size := func(name string, p *int64, def int64, usage string) {
		add(name, sizeValue(p, def), usage)
	}
	span := func(name string, p *time.Duration, def time.Duration, usage string) {
		*p = def
		add(name, flags.Duration(p), usage)
	}
	text("config", &c.File, "", "`FILE` with settings, YAML or JSON, by the names of these flags")
	text("data", &c.Data, "", "`DIR` of the indexes; it is created if necessary, and locked. "+
		"With --store it is the cache (default: a folder in the user's cache)")
	text("listen", &c.Listen, "127.0.0.1:8080", "`ADDRESS` to listen on: host:port, or unix:PATH")
	text("base-path", &c.BasePath, "", "`PATH` below which the service is reached, such as /plaid, where a proxy "+
		"passes it on")

	text("images", &c.Images, "", "`DIR` of images, with a folder named after each index: "+
		"documents name their images in the field image, as paths in it")

	text("model", &c.Model, "", flags.ModelUsage+"; without a model, only vectors are accepted")
	text("encoder", &c.Encoder, "", "`NAME` of what computes: native, device (the default where one is named), "+
		"onnxruntime, or the address of a server that encodes")
	addList("encoder-option", optionsValue(&c.EncoderOptions), flags.EncoderOptionUsage)
	text("model-settings", &c.ModelSettings, "", flags.ModelSettingsUsage)
	add("precision", flags.Choice(&c.Precision, "f32", "f32", "int8", "f16"),
		"how the model computes on the processor; on a device it is f16")
	count("query-length", &c.QueryLength, flags.QueryLengthUsage)
	count("document-length", &c.DocumentLength, flags.DocumentLengthUsage)

	text("device", &c.Device, "", "`NAME` of the device that encodes and searches: cpu, cuda:0 and so on, several "+
		"with commas, cuda:all, or auto (default: PLAID_DEVICE, or cpu)")
	size("device-memory", &c.DeviceMemory, 0,
		"how much of the device's memory to use, first for the model (0: all that is free)")
	count("threads", &c.Threads, "goroutines of one search, and number of texts encoded at once (0: one for each "+
		"processor)")

	text("tokens-file", &c.TokensFile, "", "`FILE` with a bearer token a line: NAME read|write|admin SECRET, or "+
		"with permissions by index and limits (docs/serving.md); read again when it changes. "+envTokens+
		" may have such lines too")
	text("tls-cert", &c.TLSCert, "", "`FILE` with the certificate, PEM; read again when it changes")
	text("tls-key", &c.TLSKey, "", "`FILE` with the key of the certificate, PEM")
	addList("cors-origins", listValue(&c.CORSOrigins, checkOrigin), "origins whose pages may use the service, or *")
	addList("hosts", listValue(&c.Hosts, checkHost), "host names that the service answers to, or *; "+
		"others are refused, except localhost and addresses (default: none, and with tokens any name)")
	addList("trusted-proxies", listValue(&c.TrustedProxies, checkPrefix),
		"addresses of proxies that say in X-Forwarded-For whom a request comes from")

	size("max-body", &c.MaxBody, 100<<20, "largest body of a request, except for uploads of indexes; "+
		"a text to encode has at most a hundredth of it, or 1MiB if that is more (0: no limit)")
	size("max-memory", &c.MaxMemory, 2<<30, "memory for requests: half of it for their bodies, half for answers; "+
		"one body takes at most a quarter of it, one answer an eighth, the queue of an index a quarter, "+
		"and a training half as much as all requests (0: no limit)")
	span("work-timeout", &c.WorkTimeout, 300*time.Second,
		"how long a request may take; one that only reads may take a tenth (0: no limit)")
	span("drain-timeout", &c.DrainTimeout, 30*time.Second,
		"how long running requests may continue when the service ends")
	add("rate", rateValue(&c.Rate), "requests a second of one client; twice as many may come at once (0: "+
		"no limit)")
	addList("index-rates", listValue(&c.IndexRates, checkIndexRate),
		"requests a second of indexes, as PATTERN=N for each index whose name matches")
	add("max-indexes", flags.Int(&c.MaxIndexes, 1000, 0),
		"maximum number of indexes that requests can create. The limit of a token may be lower (0: no limit)")

	add("sample-rate", shareValue(&c.Sampling.Rate, 0), "share of the questions without a filter, 0 to 1, "+
		"that are answered exhaustively too, in the background, for the recall in metrics and statistics (0: none)")

	text("store", &c.Store, "", StoreUsage+", which holds the indexes for all services that share it: a cluster")
	text("node", &c.Node, "", "`NAME` of this service among those of the store, the same after a restart "+
		"(default: host and port)")
	text("zone", &c.Zone, "", "`NAME` of the zone that may fail as a whole: replicas are placed in different zones")
	text("advertise", &c.Advertise, "", "`URL` under which the other services of the store reach this one "+
		"(default: derived from the address)")
	add("shards", flags.Int(&c.Shards, 1, 1), "number of shards of a new index, in a store")
	add("replicas", flags.Int(&c.Replicas, 2, 1), "number of services that search each shard, in a store")
	add("partial", flags.Choice(&c.Partial, "refuse", "refuse", "allow"),
		"whether to return results without the shards that do not answer, in a store")

	add("log-format", flags.Choice(&c.LogFormat, "text", LogFormats...), "format of the log on stderr")
	add("log-level", flags.Choice(&c.LogLevel, "info", LogLevels...), "minimum level of the log")
	return c
}

// Register adds the flags of all settings, or only of those named. [Config.Load] reads their
// values.
func (c *Config) Register(f *pflag.FlagSet, names ...string) {
	for _, s := range c.settings {
		if len(names) == 0 || slices.Contains(names, s.name) {
			var v pflag.Value = &flagValue{Value: s.value}
			if s.value.Type() == repeated {
				v = &flagListValue{flagValue{Value: s.value}}
			}
			f.Var(v, s.name, s.usage)
		}
	}
}

// HasSetting reports whether a flag is one of the settings.
func (c *Config) HasSetting(name string) bool {
	return slices.ContainsFunc(c.settings, func(s *setting) bool { return s.name == name })
}

// flagValue is the value of a flag that remembers the text it was given: it is applied after the
// environment and the file, which it overrides. Set reports a bad value at once.
type flagValue struct {
	pflag.Value
	set  bool
	text string
}

// Set implements pflag.Value.
func (g *flagValue) Set(s string) error {
	g.set, g.text = true, s
	return g.Value.Set(s)
}

// String implements [pflag.Value]: it returns the text as it was given.
func (g *flagValue) String() string {
	if g.set {
		return g.text
	}
	return g.Value.String()
}

// flagListValue is the value of a flag that may be repeated.
type flagListValue struct{ flagValue }

// Set implements pflag.Value.
func (g *flagListValue) Set(s string) error {
	if g.set {
		s = g.text + "," + s
	}
	return g.flagValue.Set(s)
}

// Append implements pflag.SliceValue.
func (g *flagListValue) Append(s string) error { return g.Set(s) }

// Replace implements pflag.SliceValue.
func (g *flagListValue) Replace(values []string) error {
	return g.flagValue.Set(strings.Join(values, ","))
}

// GetSlice implements pflag.SliceValue.
func (g *flagListValue) GetSlice() []string { return strings.Split(g.text, ",") }

// Load applies the file, the environment and the flags that were given, each over the one before,
// and checks the result.
func (c *Config) Load(environ []string, f *pflag.FlagSet) error {
	file := c.File
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, envPrefix+"CONFIG="); ok && file == "" {
			file = value
		}
	}
	flagTexts := map[string]string{}
	f.Visit(func(flag *pflag.Flag) { flagTexts[flag.Name] = flag.Value.String() })
	if file != "" {
		if err := c.readFile(file); err != nil {
			return err
		}
	}
	if err := c.readEnv(environ); err != nil {
		return err
	}
	for _, s := range c.settings {
		text, ok := flagTexts[s.name]
		if !ok {
			continue
		}
		if err := s.set(text, "flag"); err != nil {
			return err
		}
	}
	return c.checkSettings()
}

// minMemory is the minimum of max-memory: shares of it are the limits of single requests.
const minMemory = 16 << 20

// checkSettings returns an error for settings that do not go together.
func (c *Config) checkSettings() error {
	configError := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	if _, err := c.filesByName(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := c.checkStore(); err != nil {
		return configError("%v", err)
	}
	switch {
	case c.Data == "" && c.Store == "" && len(c.Files) == 0:
		return configError("give --data, the folder of the indexes, or --store, an object store")
	case strings.Contains(c.Data, "://"):
		return configError("data is %q; want a folder of this machine: use --store for the address of an object store",
			c.Data)
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return configError("tls-cert and tls-key go together")
	case c.BasePath != "" && (!strings.HasPrefix(c.BasePath, "/") || strings.HasSuffix(c.BasePath, "/")):
		return configError("base-path is %q; want a path such as /plaid", c.BasePath)
	case c.MaxMemory > 0 && c.MaxMemory < minMemory:
		return configError("max-memory is %d bytes; it must be at least %d", c.MaxMemory, minMemory)
	case c.Listen == "":
		return configError("listen is empty")
	case !isAddress(c.Listen):
		return configError("listen is %q; want HOST:PORT, such as 127.0.0.1:8080, or unix:PATH", c.Listen)
	case !c.hasEncoder() && (c.QueryLength != 0 || c.DocumentLength != 0 || c.Precision != "f32" || c.Encoder != "" ||
		len(c.EncoderOptions) > 0 || c.ModelSettings != ""):
		return configError("precision, model-settings, query-length, document-length, encoder and encoder-option " +
			"need a model")
	}
	return nil
}

// isAddress reports whether a service can listen on s: host and port, where the host may be empty,
// or a Unix socket.
func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != "" || strings.HasPrefix(s, "unix:")
}

// proxies returns the addresses of trusted proxies.
func (c *Config) proxies() ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, s := range c.TrustedProxies {
		p, err := parsePrefix(s)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// LogFormats and LogLevels are the values that [Logger] takes.
var (
	LogFormats = []string{"text", "json"}
	LogLevels  = []string{"debug", "info", "warn", "error"}
)

// Logger returns a logger that writes records of at least a level to w, in a format.
func Logger(w io.Writer, format, level string) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[level]}
	if format == "json" {
		o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr { // keys of numbers name the unit
			if a.Value.Kind() == slog.KindDuration {
				return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
