package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// EnvToken is the environment variable with the bearer token of a service. It is not a flag, since
// other users of the machine see the flags of a process.
const EnvToken = "PLAID_TOKEN"

// agentSettings are the settings of plaid serve that apply to a service without an address.
var agentSettings = []string{
	"data", "store", "model", "encoder", "encoder-option", "model-settings", "precision", "query-length",
	"document-length", "device", "threads", "log-format", "log-level",
}

func (a *app) mcpCommand() *cobra.Command {
	c := daemon.NewConfig()
	var url string
	cmd := &cobra.Command{
		Use:   "mcp [INDEX…]",
		Short: "Let an agent search, by the Model Context Protocol",
		Long: `
Serve an agent on stdin and stdout with the Model Context Protocol (MCP): its tools
list the indexes, search them by meaning and by words, read documents, find similar
ones, and explain a score; documents are resources. Nothing can be changed.

INDEX are index files, each named by its file name without .plaid. They are open only
during a request, so that plaid watch can keep them in sync with a folder. --data is a
folder of plaid serve, while no service runs on it; --store is an object store whose
services are asked; --url is a running service, asked with the token in ` + EnvToken + `.
With --model, questions are searched by meaning, without one by words.

A service offers the same tools at /mcp (streamable HTTP), for its tokens.`,
		Example: `  plaid mcp papers.plaid --model ./models/colbert-nano
  plaid mcp --data ./data --model ./models/colbert-nano
  plaid mcp --url http://localhost:8080`,
		Args: namedArgs("INDEX…"),
	}
	f := cmd.Flags()
	c.Register(f, agentSettings...)
	f.Lookup("log-level").DefValue = "warn"
	f.StringVar(&url, "url", "", "`ADDRESS` of a running service, instead of indexes")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		c.Files = args
		sources := 0
		for _, present := range []bool{len(args) > 0, f.Changed("data"), f.Changed("store")} {
			if present {
				sources++
			}
		}
		if sources != 1 && url == "" {
			return flags.Usagef("give one of INDEX, --data, --store and --url")
		}
		if len(args) > 0 && f.Changed("device") {
			return flags.Usagef("--device goes with --data: the processor searches INDEX")
		}
		for _, path := range args {
			if err := checkSingleFile(path); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if url != "" {
			settingFlag := ""
			f.Visit(func(flag *pflag.Flag) {
				if c.HasSetting(flag.Name) {
					settingFlag = flag.Name
				}
			})
			if settingFlag != "" {
				return flags.Usagef("--url is a service with settings of its own: --%s does not go with it",
					settingFlag)
			}
			if len(args) > 0 {
				return flags.Usagef("--url is a service with indexes of its own: INDEX does not go with it")
			}
			service, err := mcp.NewRemote(url, os.Getenv(EnvToken))
			if err != nil {
				return flags.UsageError{Err: err}
			}
			return a.answerAgent(ctx, service)
		}
		c.LogLevel = "warn"
		if err := c.Load(nil, f); err != nil {
			return flags.UsageError{Err: err}
		}
		c.LockTimeout = a.lockTimeout
		err := daemon.RunLocal(ctx, c, a.console, os.Environ(), func(ctx context.Context, s *server.Server) error {
			return a.answerAgent(ctx, mcp.NewInProcess(s))
		})
		if errors.Is(err, daemon.ErrConfig) {
			return flags.UsageError{Err: err}
		}
		return err
	})
	return cmd
}

// answerAgent answers an agent until stdin ends. If stdin is a terminal, it tells the user how
// agents start the command.
func (a *app) answerAgent(ctx context.Context, service *mcp.Service) error {
	if a.interactive {
		plaid := map[string]any{"command": "plaid", "args": a.args}
		settings, err := jsontext.MarshalUnescaped(map[string]any{"mcpServers": map[string]any{"plaid": plaid}})
		if err != nil {
			return err
		}
		a.printHint("waiting for an agent (an MCP client) on stdin; agents start this command themselves. "+
			"Add it to an agent's settings, with full paths:\n  %s", settings)
	}
	err := mcp.New(service, index.Version()).Run(ctx, io.NopCloser(a.in), nopWriteCloser{a.stdout})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("mcp: %w", err)
	}
	return ctx.Err()
}

// nopWriteCloser is a writer whose Close does nothing.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
