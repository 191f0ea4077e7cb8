// Studies measure what the documentation shows figures of, each as a table in Markdown.
//
//	go run ./cmd/studies STUDY [flags] ARGUMENTS
//
// Without arguments it lists the studies; STUDY -h lists the flags of one. VECTORS is a
// folder with the vectors of documents and of queries, as beir.Files finds them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// study is one study: a measurement with flags and arguments of its own.
type study struct {
	name, args, about string
	// prepare registers the flags and returns the function that measures, which is called after
	// they are parsed.
	prepare func(f *flag.FlagSet) measureFunc
}

// measureFunc runs a study and writes its table to stdout.
type measureFunc func(ctx context.Context, args []string, stdout, stderr io.Writer) error

var studies = []study{
	{"growth", "VECTORS", "how search time grows with a collection (docs/lab/search-quality.md)", growthStudy},
	{"grown", "VECTORS", "the cost of a collection that grows in batches (docs/serving.md)", grownStudy},
	{"cluster", "STORE", "changes, searches and requests of a cluster in one process (docs/lab/cluster.md)",
		clusterStudy},
	{"load", "VECTORS", "how many queries the service answers, compared with its engine (docs/serving.md)", loadStudy},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "studies:", err)
		os.Exit(1)
	}
}

// run runs the study that args name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	i := slices.IndexFunc(studies, func(s study) bool { return len(args) > 0 && s.name == args[0] })
	if i < 0 {
		for _, s := range studies {
			fmt.Fprintf(stderr, "%-8s %-18s  %s\n", s.name, s.args, s.about)
		}
		return errors.New("want the name of a study")
	}
	s := &studies[i]
	f := flag.NewFlagSet(s.name+" "+s.args, flag.ContinueOnError)
	f.SetOutput(stderr)
	measure := s.prepare(f)
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() != len(strings.Fields(s.args)) {
		return fmt.Errorf("%s: want %s", s.name, s.args)
	}
	return measure(ctx, f.Args(), stdout, stderr)
}

// numbers adds a flag for a list of numbers of at least minimum, separated by commas.
func numbers[T cmp.Ordered](f *flag.FlagSet, name string, minimum T, usage string, values ...T) *[]T {
	f.Func(name, fmt.Sprintf("%s, separated by commas (default %v)", usage, values), func(text string) error {
		var parsed []T
		if err := json.Unmarshal([]byte("["+text+"]"), &parsed); err != nil || len(parsed) == 0 ||
			slices.Min(parsed) < minimum {
			return fmt.Errorf("want numbers of at least %v", minimum)
		}
		values = parsed
		return nil
	})
	return &values
}
