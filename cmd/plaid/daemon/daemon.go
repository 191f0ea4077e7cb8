package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// Run serves until ctx ends. Then /readyz says that it is ending, running requests are finished,
// queued changes are written, and files are closed. Run writes its log to log; environ is the
// environment. It calls ready, if that is not nil, with the address when the service listens.
func Run(ctx context.Context, c *Config, log io.Writer, environ []string, ready func(address string)) (err error) {
	parallel.AddSpareProcessors()
	defer delayCollection()()
	logger := Logger(log, c.LogFormat, c.LogLevel)
	closing, reload := &closers{}, &reloader{}
	defer func() { err = errors.Join(err, closing.close()) }()
	o, err := c.options(ctx, environ, logger, closing, reload)
	if err != nil {
		return err
	}
	if err := c.checkModel(ctx, logger); err != nil {
		return err
	}
	// Certificates and tokens are read again at each signal.
	serving := &server.ServeOptions{Drain: c.DrainTimeout}
	if c.TLSCert != "" {
		cert, err := openCertificate(c.TLSCert, c.TLSKey, logger)
		if err != nil {
			return err
		}
		serving.TLS = &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Get(), nil },
			MinVersion:     tls.VersionTLS12,
		}
		reload.add(cert.Reload)
	}
	defer reload.reloadOnSignal(c.Reload)()

	// Listen before indexes and model are opened: a second service on the same address fails at once.
	l, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	closing.add(func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	indexes, err := c.open(ctx, o, l, logger, closing)
	if err != nil {
		return err
	}
	collections := indexes.collections
	o.Agents = func(service http.Handler) http.Handler {
		return mcp.New(mcp.NewInProcess(service), o.Version).Handler()
	}
	// Serve, while the model is being loaded.
	s, err := server.New(collections, nil, o)
	if err != nil {
		return err
	}
	serving.Handler = stripBasePath(c.BasePath, routePeers(indexes.peerHandler, s))
	err = c.withModel(ctx, s, indexes.model, logger, closing, func(ctx context.Context) error {
		c.warnOfRisks(l, o.Tokens != nil, logger)
		logger.Info("serving", "address", publicAddress(l, c), "data", collections.Location(), "indexes",
			len(collections.Names()), "model", c.modelName(), "version", o.Version)
		if ready != nil {
			ready(l.Addr().String())
		}
		return s.Serve(ctx, l, serving)
	})
	logger.Info("ended")
	return err
}

// RunLocal opens the same service as [Run], but without an address, and hands it to use.
func RunLocal(ctx context.Context, c *Config, log io.Writer, environ []string,
	use func(ctx context.Context, s *server.Server) error) (err error) {
	logger := Logger(log, c.LogFormat, c.LogLevel)
	closing := &closers{}
	defer func() { err = errors.Join(err, closing.close()) }()
	o, err := c.options(ctx, environ, logger, closing, &reloader{})
	if err != nil {
		return err
	}
	o.Tokens = nil // the user of this process can read the files anyway
	indexes, err := c.open(ctx, o, nil, logger, closing)
	if err != nil {
		return err
	}
	s, err := server.New(indexes.collections, nil, o)
	if err != nil {
		return err
	}
	switch {
	case indexes.model != nil:
		s.SetEncoder(*indexes.model)
	case c.hasEncoder(): // unlike Run, load the model before the first request
		e, err := c.openModel(ctx, logger, nil)
		if err != nil {
			return fmt.Errorf("model: %w", err)
		}
		closing.add(e.Close)
		s.SetEncoder(e)
	}
	return use(ctx, s)
}

// options returns the options of the server that depend neither on its address nor on its indexes.
func (c *Config) options(ctx context.Context, environ []string, logger *slog.Logger, closing *closers,
	reload *reloader) (*server.Options, error) {
	tracing, err := OpenTracing(ctx, index.Version())
	if err != nil {
		return nil, err
	}
	o := &server.Options{
		Version:      index.Version(),
		Logger:       logger,
		EncoderLater: c.hasEncoder(),
		Origins:      c.CORSOrigins,
		Hosts:        c.Hosts,
		Limits:       c.limits(),
	}
	if tracing != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("spans are lost", "error", err) }))
		closing.add(func() error { return tracing.Shutdown(context.Background()) })
		o.Tracing = trace.TracerProvider(tracing)
	}
	if o.TrustedProxies, err = c.proxies(); err != nil {
		return nil, err
	}
	for _, text := range c.IndexRates {
		r, err := server.ParseIndexRate(text)
		if err != nil {
			return nil, err
		}
		o.IndexRates = append(o.IndexRates, r)
	}
	if c.Images != "" {
		if o.Images, err = os.OpenRoot(c.Images); err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		closing.add(o.Images.Close)
	}
	o.Tokens, err = c.tokens(ctx, environ, reload, logger)
	return o, err
}

// withModel calls serve while it loads the model, and ends serve if that fails. onDevice is the
// model if it is loaded already, or nil.
func (c *Config) withModel(ctx context.Context, s *server.Server, onDevice *loadedEncoder, logger *slog.Logger,
	closing *closers, serve func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	switch {
	case onDevice != nil:
		s.SetEncoder(*onDevice)
	case c.hasEncoder():
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.loadModel(ctx, s, logger, closing, stop)
		}()
		defer func() { stop(nil); <-done }()
	}
	err := serve(ctx)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // loading the model has failed
	}
	return err
}

// openedIndexes are the indexes that are served, with the other things that were opened for them.
type openedIndexes struct {
	collections collection.Catalog
	// peerHandler answers the other services of a store, below peerRoutes. It is nil if there are
	// none.
	peerHandler http.Handler
	// model is a model on a device, which is opened before the indexes, since they get the memory
	// that it leaves. If it is nil, the model is loaded while the service already answers other
	// requests.
	model *loadedEncoder
}

// open opens the indexes, and completes the options of the service with their properties. l is the
// listener of the service, or nil if it has no address.
func (c *Config) open(ctx context.Context, o *server.Options, l net.Listener, logger *slog.Logger,
	closing *closers) (*openedIndexes, error) {
	if len(c.Files) > 0 {
		paths, err := c.filesByName()
		if err != nil {
			return nil, err
		}
		collections, closeFiles, err := store.OpenShared(ctx, paths, &store.Options{
			Threads:     c.Threads,
			Backend:     c.Backend,
			LockTimeout: c.LockTimeout,
			Logger:      logger,
			Derive:      store.DeriveKeywords(logger),
		})
		if err != nil {
			return nil, err
		}
		closing.add(closeFiles)
		return &openedIndexes{collections: collections}, nil
	}
	// Open the device, and on it the model, which takes its memory first.
	device, note, err := kernels.OpenDevice(ctx, c.Device)
	if err != nil {
		return nil, err
	}
	if note != "" {
		logger.Info(note)
	}
	indexes := &openedIndexes{}
	storeOptions := &store.Options{
		Threads:     c.Threads,
		Memory:      c.MaxMemory / 2,
		Device:      device,
		Backend:     c.Backend,
		LockTimeout: c.LockTimeout,
		Logger:      logger,
		Derive:      store.DeriveKeywords(logger),
		Queue:       store.QueueLimits{Bytes: c.MaxMemory / 4},
		Sampling:    c.Sampling,
	}
	if device != nil {
		closing.add(device.Close)
		if indexes.model, storeOptions.Attach.Memory,
			err = c.openEncoderOnDevice(ctx, device, logger, closing); err != nil {
			return nil, err
		}
		o.Device = device.Info().Name
		if o.Scorer, err = maxsim.OnDevice(kernels.MemberDevices(device)[0]); err != nil {
			return nil, err
		}
	}
	// Open the store or the folder.
	data, closeStore := c.Data, (func(context.Context) error)(nil)
	if c.Store != "" {
		var nodes *cluster.Cluster
		if nodes, data, err = c.openStore(ctx, storeOptions, l, logger, closing); err == nil {
			indexes.collections, indexes.peerHandler, closeStore = nodes, nodes.Handler(), nodes.Close
		}
	} else {
		var st *store.Store
		if st, closeStore, err = c.openFolder(ctx, storeOptions); err == nil {
			indexes.collections = st.Catalog()
		}
	}
	if err != nil {
		return nil, err
	}
	closing.add(func() error {
		drain, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
		defer cancel()
		return closeStore(drain)
	})
	if c.ReadOnly {
		return indexes, nil
	}
	// Uploads go to a folder next to the indexes.
	o.UploadDir = filepath.Join(data, ".uploads")
	if err := os.RemoveAll(o.UploadDir); err != nil { // left by a service that was killed
		return nil, err
	}
	return indexes, os.MkdirAll(o.UploadDir, 0o777)
}

// openFolder opens the folder of the indexes. It returns the function that closes it.
func (c *Config) openFolder(ctx context.Context, o *store.Options) (*store.Store, func(context.Context) error, error) {
	if c.ReadOnly {
		return store.OpenReadOnly(ctx, c.Data, o)
	}
	st, err := store.Open(ctx, c.Data, o)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf(
			"%w; plaid serve needs a folder that it can write to, and --read-only serves one as it is", err)
	} else if err != nil {
		return nil, nil, err
	}
	return st, st.Close, nil
}

// closers are functions that close files, models and indexes. They are called in reverse order.
type closers struct{ functions []func() error }

// add adds a function that close calls.
func (c *closers) add(f func() error) { c.functions = append(c.functions, f) }

// close calls the functions in reverse order and joins their errors.
func (c *closers) close() error {
	var errs []error
	for i := len(c.functions) - 1; i >= 0; i-- {
		errs = append(errs, c.functions[i]())
	}
	return errors.Join(errs...)
}

// limits returns the limits of the service that settings name; the server derives the others.
func (c *Config) limits() server.Limits {
	return server.Limits{
		Body:    unlimited(c.MaxBody),
		Bodies:  unlimited(c.MaxMemory / 2),
		Answers: unlimited(c.MaxMemory / 2),
		Work:    unlimited(c.WorkTimeout),
		Rate:    c.Rate,
		Indexes: unlimited(c.MaxIndexes),
	}
}

// unlimited converts a setting in which 0 means no limit to a field of [server.Limits], in which -1
// does.
func unlimited[T int | int64 | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

// reloader reads files again when it receives a signal.
type reloader struct{ functions []func() }

// add adds a function that reads files again.
func (r *reloader) add(f func()) { r.functions = append(r.functions, f) }

// reloadOnSignal calls the functions at each signal, until stop is called.
func (r *reloader) reloadOnSignal(signals <-chan os.Signal) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-signals:
				for _, f := range r.functions {
					f()
				}
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// tokens returns the tokens of the file and of the environment, or nil if neither is set. A variable
// that is set but empty is an error, as an empty file is: its author surely did not mean that
// everybody may do everything.
func (c *Config) tokens(ctx context.Context, environ []string, reload *reloader,
	log *slog.Logger) (server.TokenSource, error) {
	var sources tokenSources
	text, set := "", false
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, envTokens+"="); ok {
			text, set = value, true
		}
	}
	if set {
		t, err := server.ParseTokens(strings.NewReader(text), envTokens)
		if err != nil {
			return nil, err
		}
		sources = append(sources, t)
	}
	if c.TokensFile != "" {
		f, err := server.OpenTokenFile(ctx, c.TokensFile, log)
		if err != nil {
			return nil, err
		}
		reload.add(f.Reload)
		sources = append(sources, f)
	}
	if len(sources) == 0 {
		return nil, nil
	}
	return sources, nil
}

// tokenSources are several sources of tokens that count as one.
type tokenSources []server.TokenSource

// Tokens implements [server.TokenSource].
func (sources tokenSources) Tokens() []server.Token {
	if len(sources) == 1 {
		return sources[0].Tokens()
	}
	var tokens []server.Token
	for _, s := range sources {
		tokens = append(tokens, s.Tokens()...)
	}
	return tokens
}

// warnOfRisks warns of risky settings if other machines reach the service.
func (c *Config) warnOfRisks(l net.Listener, hasTokens bool, log *slog.Logger) {
	if isLoopback(l) || l.Addr().Network() == "unix" {
		return
	}
	if !hasTokens {
		log.Warn("whoever reaches this address can read, change and remove everything: set tokens-file")
	}
	if c.TLSCert == "" && hasTokens {
		log.Warn("tokens and documents cross the network in the clear, unless a proxy does TLS: set tls-cert and " +
			"tls-key")
	}
}

// stripBasePath removes a path from the front of the paths of requests. Paths without it are served
// as they are, since some proxies remove it themselves.
func stripBasePath(path string, s http.Handler) http.Handler {
	if path == "" {
		return s
	}
	inside := http.StripPrefix(path, s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), path+"/") {
			inside.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	})
}

// filesByName returns the paths of Files by the names of their indexes.
func (c *Config) filesByName() (map[string]string, error) {
	paths := map[string]string{}
	for _, path := range c.Files {
		name := strings.TrimSuffix(filepath.Base(path), ".plaid")
		if err := collection.CheckName(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if other, twice := paths[name]; twice {
			return nil, fmt.Errorf("%s and %s have the same name", other, path)
		}
		paths[name] = path
	}
	return paths, nil
}

// delayCollection makes Go collect garbage when there are 8 MiB more of it than there is memory in
// use, until end is called. By default Go begins when the heap has 4 MiB: collections took a tenth
// of the processor time of a service of small indexes.
func delayCollection() (end func()) {
	const counted = 8 << 20
	untouched := make([]byte, counted) // counts as in use, but takes no memory
	return func() { runtime.KeepAlive(untouched) }
}
