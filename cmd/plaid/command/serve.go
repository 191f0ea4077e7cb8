package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/server"
)

func (a *app) serveCommand() *cobra.Command {
	c := daemon.NewConfig()
	var printConfig, ready bool
	var starter starterFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a folder of indexes over HTTP",
		Long: `
Serve the indexes of a folder over HTTP until SIGINT or SIGTERM. Clients of next-plaid
work without changes. GET /openapi.json describes the routes, and docs/service.md has an
example of each. With --store, the indexes are in an object store, which any number of
services share; --data is then a cache (docs/cluster.md).

An index is declared (POST /indices), and grows from its first document on. Acknowledged
changes are on disk and can be searched. The folder is locked: commands that change its
indexes wait until the service has ended.

Settings come from flags, from environment variables (--max-body is
PLAID_SERVE_MAX_BODY), and from a YAML or JSON file (--config), in this order of
precedence. --print-config shows the settings in force, and where each comes from. With
--ready, the command does not serve, but asks the service with the same settings whether
it is ready, as a container's health check does. Bearer tokens are in a file
(--tokens-file) or in PLAID_SERVE_TOKENS. Without tokens, everybody who reaches the
address may do everything, which is why it is 127.0.0.1 by default. Spans are sent to
OTEL_EXPORTER_OTLP_ENDPOINT, if that is set.

The first signal ends the service in order: /readyz reports it, running requests are
finished, and queued changes are written. The second ends it at once, without losing
anything that was acknowledged. With --until-eof, the end of stdin is such a signal. That
is for a program that starts the service and holds the other end of a pipe, which closes
however the program ends; --temporary then removes a folder. After SIGHUP, tokens and
certificates are read again.`,
		Example: `  plaid serve --data ./data
  plaid serve --store s3://bucket/plaid --listen :8080
  plaid serve --data ./data --model ./models/colbert-nano --listen :8080 --tokens-file tokens
  plaid serve --config plaid.yaml --print-config`,
		Args: namedArgs(),
	}
	f := cmd.Flags()
	c.Register(f)
	f.BoolVar(&printConfig, "print-config", false, "print the settings in force as YAML, and exit")
	f.BoolVar(&ready, "ready", false, "ask the service that runs with these settings whether it is ready, and exit "+
		"with code 0, or 1")
	starter.register(f, "service")
	f.BoolVar(&c.ReadOnly, "read-only", false,
		"serve the folder without changing it, as other processes may do, too; only indexes with documents are served")
	cmd.RunE = a.commandFunc(func(ctx context.Context, _ []string) error {
		if err := c.Load(os.Environ(), f); err != nil {
			return flags.UsageError{Err: err}
		}
		if printConfig {
			var b bytes.Buffer
			if err := c.Print(&b); err != nil {
				return err
			}
			return a.writeOutput(b.Bytes())
		}
		if ready {
			if err := daemon.Ready(ctx, c); err != nil {
				return errors.New(err.Error()) // exit code 1 for every reason
			}
			return nil
		}
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
		c.Reload = reload
		c.LockTimeout = a.lockTimeout
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		onListening := func(address string) {
			if page := pageAt(address, c); page != "" && a.errWidth > 0 {
				a.printHint("open %s", page)
			}
		}
		if err := starter.checkFlags(); err != nil {
			return err
		}
		if starter.untilEOF {
			onListening = func(string) { starter.watchStdin(a, cancel) }
		}
		err := starter.removeTemporary(daemon.Run(ctx, c, a.console, os.Environ(), onListening))
		if errors.Is(err, daemon.ErrConfig) || errors.Is(err, server.ErrTokens) {
			return flags.UsageError{Err: err}
		}
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	return cmd
}

// pageAt returns the URL of the web page of a service that listens at an address, or "" if no browser
// can open it.
func pageAt(address string, c *daemon.Config) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil { // a Unix socket
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port) + c.BasePath + "/ui"
}
