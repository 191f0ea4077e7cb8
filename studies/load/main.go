// Load measures what the service reaches: how many queries a second, and how late the
// answers come, for many clients at a time, and what of it is the engine's own. The
// engine is asked the same queries in the same process, in turns with the service, by
// as many goroutines as there are clients. It prints a table in Markdown;
// docs/service.md shows it.
//
//	go run ./studies/load [flags] VECTORS
//
// VECTORS is a folder with docs.npy, doclens.npy, queries.npy and the like.
//
// In the closed loop each client asks again when it has an answer. In the open loop
// queries arrive at a rate, at random (a Poisson process), whatever the answers do,
// and a query that has to wait for a free client is late: its time counts from its
// arrival.
//
// The clients are in the process of the service and cost part of its processors. They
// keep their connections, send vectors as base64, and compare each answer of a
// collection that does not change, byte by byte, with the first one to that query.
//
// With -soak, `plaid serve` runs as a process of its own for a while, and everything is
// done to it at once, and checked; see soak.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/plaid-ir/plaid/studies/program"
)

func main() {
	program.Main("load", func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		if err := serveIfAsked(ctx); !errors.Is(err, errNotAsked) {
			return err
		}
		return run(ctx, args, stdout, stderr)
	})
}

type options struct {
	vectors, data string
	clients       []int
	open          []float64 // shares of the closed loop's throughput
	slice         time.Duration
	rounds        int
	k, batch      int
	documents     int // a second, that the writer adds
	group         int // documents of one update
	seed          uint64
	json          bool
	soak          time.Duration
	rate          float64 // searches a second of the soak
	cpuprofile    string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.SetOutput(stderr)
	clients := f.String("clients", "2,8,32,200", "numbers of clients, separated by commas")
	open := f.String("open", "0.5,0.8", "rates of the open loop, as shares of what the closed loop reached (empty: none)")
	f.StringVar(&o.data, "data", "", "folder of the collection, which is made if it is not there, and kept (empty: a temporary one)")
	f.DurationVar(&o.slice, "slice", 2*time.Second, "how long the engine, and then the service, is asked in a round")
	f.IntVar(&o.rounds, "rounds", 5, "rounds")
	f.IntVar(&o.k, "k", 10, "how many documents to search for")
	f.IntVar(&o.batch, "batch", 1, "queries of one request")
	f.IntVar(&o.documents, "documents", 50, "documents a second that the writer adds (0: measure without a writer only)")
	f.IntVar(&o.group, "group", 10, "documents of one update")
	f.Uint64Var(&o.seed, "seed", 1, "what decides the arrivals, and the changes of the soak")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.DurationVar(&o.soak, "soak", 0, "change, search and check a service for so long, instead of measuring")
	f.Float64Var(&o.rate, "rate", 50, "searches a second of the soak")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "file for a profile of the slices of the service")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() != 1:
		return o, errors.New("want one folder of vectors")
	case min(o.rounds, o.k, o.batch, o.group) < 1 || o.documents < 0 || o.slice <= 0 || o.soak < 0 || !(o.rate > 0):
		return o, errors.New("want rounds, k, batch, group, slice and rate above zero, and nothing negative")
	}
	o.vectors = f.Arg(0)
	if o.clients, err = program.List(*clients, strconv.Atoi); err != nil || len(o.clients) == 0 || slices.Min(o.clients) < 1 {
		return o, fmt.Errorf("-clients %s: want numbers of at least 1", *clients)
	}
	share := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	if o.open, err = program.List(*open, share); err != nil || len(o.open) > 0 && !(slices.Min(o.open) > 0) {
		return o, fmt.Errorf("-open %s: want shares above 0", *open)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.data == "" {
		if o.data, err = os.MkdirTemp("", "plaid-load-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.data)) }()
	}
	in, err := open(ctx, o.vectors)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	if o.soak > 0 {
		r, err := soak(ctx, o, in, stderr)
		if r == nil {
			return err
		}
		return errors.Join(err, print(stdout, o.json, r))
	}
	r, err := measure(ctx, o, in, stderr)
	if err != nil {
		return err
	}
	return print(stdout, o.json, r)
}

// report is what was found.
type report interface{ table(w io.Writer) error }

func print(w io.Writer, asJSON bool, r report) error {
	if !asJSON {
		return r.table(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
