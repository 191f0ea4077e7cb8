package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// app is one run of the program.
type app struct {
	opener
	// commandStarted reports that the command line was valid: later errors are not about its usage.
	commandStarted bool
	// helpAll reports that --help-all was given.
	helpAll bool
	root    *cobra.Command
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := newApp(s, args)
	a.json = wantsJSON(args)
	root := a.rootCommand()
	a.addCompletionCommand(root)
	if a.completing() {
		removeUsageQuotes(root)
	}
	if len(args) > 1 && args[0] == "--json" && !strings.HasPrefix(args[1], "-") {
		args = slices.Concat(args[1:2], args[:1], args[2:]) // plaid --json COMMAND is plaid COMMAND --json
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.stages.logLast()
	a.console.ClearStatus()
	if err != nil && ctx.Err() != nil && explainedByInterrupt(err) {
		err = context.Canceled
	}
	if err != nil && !a.commandStarted {
		err = flags.UsageError{Err: rewordExclusiveFlags(err)}
	}
	if err != nil {
		a.reportError(cmd, err)
	}
	return exitCode(err)
}

// completing reports whether a shell asks for completions of a line.
func (a *app) completing() bool {
	return len(a.args) > 0 && strings.HasPrefix(a.args[0], cobra.ShellCompRequestCmd)
}

// exclusiveFlags matches cobra's message about flags that exclude each other.
var exclusiveFlags = regexp.MustCompile(`^if any flags in the group \[(.+)\] are set none of the others can be`)

// rewordExclusiveFlags says in the words of this program that flags exclude each other.
func rewordExclusiveFlags(err error) error {
	m := exclusiveFlags.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	return fmt.Errorf("give --%s, not both", strings.ReplaceAll(m[1], " ", " or --"))
}

// Root returns the command line without running it; manual pages are generated from it.
func Root() *cobra.Command { return newApp(streams{}, nil).rootCommand() }

// newApp returns a run of the program with these streams and arguments.
func newApp(s streams, args []string) *app {
	a := &app{opener: opener{stdio: stdio{
		streams: s,
		stdout:  s.out,
		args:    args,
		console: out.NewConsole(s.err, s.errWidth),
	}}}
	a.console.CurrentWidth = s.resized
	a.out = a.console.ErasingStatus(s.out)
	if a.now == nil {
		a.now = time.Now
	}
	return a
}

// wantsJSON reports whether --json is among the arguments. It does not wait until the flags are parsed,
// since errors in other flags are printed as JSON, too.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// reportError writes an error to stderr: as text with advice, or as a line of JSON with --json.
func (a *app) reportError(cmd *cobra.Command, err error) {
	code := exitCode(err)
	msg := a.forTerminal(errorText(err))
	if code == exitInterrupted {
		msg = "interrupted"
	} else if advice := errorAdvice(cmd, err); advice != "" {
		msg += "; " + advice
	}
	var fault *storage.PanicError
	errors.As(err, &fault)
	var usage flags.UsageError
	suggestion := ""
	if errors.As(err, &usage) {
		suggestion = suggestionFor(cmd, msg)
	}
	if a.json {
		if suggestion != "" {
			msg += "; " + suggestion
		}
		line := struct {
			Error  string `json:"error"`
			Reason string `json:"reason"`
			Code   int    `json:"code"`
			Stack  string `json:"stack,omitempty"`
		}{Error: msg, Reason: exitWord(code), Code: code}
		if fault != nil {
			line.Stack = string(fault.Stack)
		}
		text, _ := out.TypedJSONLine("error", line)
		_, _ = a.console.Write(text)
		return
	}
	for line := range strings.Lines(msg) {
		fmt.Fprintf(a.console, "plaid: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if fault != nil {
		fmt.Fprintf(a.console, "plaid: this is a bug in plaid (%s), not a problem of your files; please report it "+
			"with "+
			"the following lines\n%s", index.Version(), fault.Stack)
	}
	if suggestion != "" {
		fmt.Fprintln(a.console, capitalized(suggestion))
	}
	if usage.Err != nil {
		fmt.Fprintf(a.console, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
}

// errorText returns the text of an error without the names of the system calls that opened a file,
// and with a path said once.
func errorText(err error) string {
	msg := err.Error()
	var pathError *fs.PathError
	if errors.As(err, &pathError) && slices.Contains([]string{"open", "stat", "lstat"}, pathError.Op) {
		pathPrefix := pathError.Path + ": "
		msg = strings.ReplaceAll(msg, pathError.Op+" "+pathPrefix, pathPrefix)
		msg = strings.ReplaceAll(msg, pathPrefix+pathPrefix, pathPrefix)
	}
	msg = strings.ReplaceAll(msg, kernels.ErrUnavailable.Error()+": ", "")
	if errors.Is(err, fs.ErrNotExist) { // use one text, that of the system, for errors of Go, too
		msg = strings.ReplaceAll(msg, fs.ErrNotExist.Error(), syscall.ENOENT.Error())
	}
	return msg
}

// errorAdvice returns what the user can do about an error of a library, in terms of the flags of
// the command, which libraries do not know, or "".
func errorAdvice(cmd *cobra.Command, err error) string {
	hasFlag := func(flag string) bool { return cmd != nil && cmd.Flags().Lookup(flag) != nil }
	isError := func(target error) bool { return errors.Is(err, target) }
	switch {
	case hasFlag("force") && !cmd.Flags().Changed("force") &&
		(isError(storage.ErrExists) || isError(storage.ErrNotIndex) && cmd.Name() == "backup"):
		return "--force replaces it"
	case isError(index.ErrDuplicateID) && hasFlag("replace") && !cmd.Flags().Changed("replace"):
		return "--replace replaces the old documents"
	case isError(encode.ErrNoTextField) && hasFlag("text-field"):
		return "--text-field names the field with the text, --title-field and --id-field name the others"
	case isError(encode.ErrNoField) && hasFlag("text-field"):
		return "--text-field, --id-field and --title-field name fields or columns that each file has"
	case isError(encode.ErrSuffix) && hasFlag("text-format"):
		return "--text-format names the format of a file with another suffix"
	case isError(storage.ErrLocked) && hasFlag("lock-timeout"):
		if slices.Contains(readingCommands, cmd.Name()) {
			return "--lock-timeout waits for it; while a service has it open, plaid search http://HOST/INDEX asks " +
				"the " +
				"service, and GET /indices/INDEX/backup returns a copy"
		}
		return "--lock-timeout waits for it"
	case isError(interop.ErrNotIndex) && cmd != nil && cmd.Name() == "import":
		return "SOURCE is the folder that ColBERT, fast-plaid or next-plaid wrote, with metadata.json and " +
			"centroids in it"
	case isError(interop.ErrPayloads) && hasFlag("metadata"):
		return "--metadata FILE stores other metadata, --metadata none stores none"
	case isError(encode.ErrLines) && hasFlag("text-format"):
		return "--text-format lines reads it"
	case isError(fs.ErrNotExist) && indexIsMissing(cmd, err):
		return cmp.Or(indexHint(cmd), "plaid index makes one")
	case isError(syscall.EROFS) && cmd != nil && cmd.Name() == "keywords":
		return "searches by words work without the file, but read the words each time"
	case isError(syscall.ENOSPC) && hasFlag("spool") && !cmd.Flags().Changed("spool") &&
		strings.Contains(err.Error(), ".spool"):
		return "it keeps the vectors of texts, 256 bytes a token, until the end; --spool FILE moves it to another disk"
	case isError(condition.ErrParameter) && hasFlag("param"):
		return "--param gives the value of a question mark, one for each, in order"
	case isError(storage.ErrCorrupt) && cmd != nil && cmd.Name() != "compact" && storeAddress(cmd) == "":
		return "plaid compact --salvage saves the documents that can still be read"
	case isError(fs.ErrNotExist) && modelIsMissing(cmd, err):
		return "--model takes the folder of a model, or its name at the Hugging Face hub, ORG/NAME"
	case isError(interop.ErrUnsupported) && cmd != nil && cmd.Name() == "export":
		return "plaid index --scales none makes an index without scales, from the original vectors or from those " +
			"of plaid " +
			"export --format npy"
	}
	return ""
}

// readingCommands are the commands that a copy of an index would serve as well.
var readingCommands = []string{"search", "explain", "get", "info", "export", "bench"}

// modelIsMissing reports whether an error is about a --model that is neither a folder nor a name
// that a hub could have.
func modelIsMissing(cmd *cobra.Command, err error) bool {
	if _, named := errors.AsType[*hub.Error](err); named || cmd == nil {
		return false
	}
	var dir string
	if f := cmd.Flags().Lookup("model"); f != nil {
		dir = f.Value.String()
	}
	if cmd.Name() == "model" && dir == "" {
		dir = cmd.Flags().Arg(0)
	}
	if text := err.Error(); dir == "" || !strings.Contains(text, dir+": ") || strings.HasSuffix(text, "?") {
		return false // the message suggests a name already
	}
	_, serr := os.Stat(dir)
	return errors.Is(serr, fs.ErrNotExist)
}

// indexIsMissing reports whether an error says that the index which the command reads does not
// exist.
func indexIsMissing(cmd *cobra.Command, err error) bool {
	if cmd == nil || !strings.Contains(cmd.Use, "INDEX") || cmd.Name() == "index" || cmd.Name() == "import" {
		return false
	}
	path := cmd.Flags().Arg(0)
	_, serr := os.Stat(path)
	return path != "" && errors.Is(serr, fs.ErrNotExist) && strings.Contains(err.Error(), path+": ")
}

// commandFunc wraps the function of a command: from its call on, errors are not about the usage of
// the command line. It closes the devices that the command has opened.
func (a *app) commandFunc(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.commandStarted, a.name = true, strings.ReplaceAll(commandPath(cmd), " ", "-")
		if err := errors.Join(refuseServiceAddress(cmd, args),
			flags.CheckBareChoices(cmd.Flags(), a.args)); err != nil {
			return err
		}
		err := fn(cmd.Context(), args)
		return errors.Join(err, a.closeDevices())
	}
}

// refuseServiceAddress returns an error for the address of a service or of a store where a command
// needs the file of an index.
func refuseServiceAddress(cmd *cobra.Command, args []string) error {
	use := strings.Fields(cmd.Use)
	if len(args) == 0 || len(use) < 2 || !strings.Contains(use[1], "INDEX") {
		return nil
	}
	if strings.HasPrefix(args[0], "s3://") {
		return flags.Usagef("%s is an object store: plaid search NAME --store %s searches an index of it", args[0],
			args[0])
	}
	if cmd.Name() == "search" || !modelof.IsServer(args[0]) {
		return nil
	}
	return flags.Usagef("%s is a service, and %s reads files: of these commands, only plaid search "+
		"can ask a service", args[0], cmd.CommandPath())
}

// namedArgs checks the number of arguments: one for each name. A name in brackets is optional, and
// a name that ends in "…" stands for any number of arguments, including none.
func namedArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for i, name := range names {
			if strings.HasSuffix(name, "…") {
				return nil
			}
			switch {
			case i < len(args):
			case strings.HasPrefix(name, "["):
				return nil
			default:
				return fmt.Errorf("%s is missing", name)
			}
		}
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q%s", args[len(names)], inputHint(cmd, args[len(names)]))
		}
		return nil
	}
}
