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
Serve the indexes of a folder over HTTP until SIGINT or SIGTERM: clients of
next-plaid use it as they are. GET /openapi.json describes the routes, and
docs/service.md has an example of each. With --store the indexes are in an object
store, which any number of services share; --data is then a cache (docs/cluster.md).

An index is declared (POST /indices), and grows from its first document on. What
was acknowledged is on the disk and can be searched. The folder is locked: commands
that change its indexes wait until the service has ended.

Settings come from flags, from environment variables (--max-body is
PLAID_SERVE_MAX_BODY), and from a file of YAML or JSON (--config), in this order of
precedence. --print-config shows what is in force and where it comes from. With --ready nothing is
served: the command asks the service that has the same settings whether it takes
requests, as an image does that looks after itself. Bearer
tokens are in a file (--tokens-file) or in PLAID_SERVE_TOKENS; without them everybody
who reaches the address may do everything, which is why it is 127.0.0.1 by default.
Spans go to OTEL_EXPORTER_OTLP_ENDPOINT where that is set.

The first signal ends it in order: /readyz says so, requests that run are finished,
and what waits is written. The second ends it at once, which loses nothing that was
acknowledged. With --until-eof the end of stdin is such a signal: a program that
starts the service for itself holds the other end of a pipe, which closes however
that program ends; with --temporary a folder goes then. SIGHUP has tokens and
certificates read again.`,
		Example: `  plaid serve --data ./data
  plaid serve --store s3://bucket/plaid --listen :8080
  plaid serve --data ./data --model ./models/colbert-nano --listen :8080 --tokens-file tokens
  plaid serve --config plaid.yaml --print-config`,
		Args: namedArgs(),
	}
	f := cmd.Flags()
	c.Register(f)
	f.BoolVar(&printConfig, "print-config", false, "print the settings in force as YAML, and end")
	f.BoolVar(&ready, "ready", false, "ask the service that runs with these settings whether it is ready, and "+
		"end: exit code 0, or 1")
	starter.register(f, "service")
	f.BoolVar(&c.ReadOnly, "read-only", false,
		"serve the folder without changing it, beside others that do the same; only indexes that have documents")
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
