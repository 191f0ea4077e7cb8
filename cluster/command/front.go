package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// front are the flags of commands that search and change.
type front struct {
	*place
	c       client.Config
	partial string
}

func (x *cli) front(f *pflag.FlagSet) *front {
	r := &front{place: x.placeFor(f, time.Minute, "`TIME` to wait for servers, and for a quorum of them")}
	f.StringVar(&r.c.Zone, "zone", "", "`NAME` of the zone whose replicas are asked first")
	return r
}

// open connects a client, which closes the connection with it.
func (r *front) open(ctx context.Context, collection string) (*connected, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	within, stop := context.WithTimeout(ctx, r.wait)
	defer stop()
	conn, b, err := r.connect(within, within)
	if err != nil {
		return nil, err
	}
	r.c.Collection, r.c.AllowPartial, r.c.Logger = collection, r.partial == "allow", r.x.Logger()
	watch, err := topology.Watch(within, b)
	if err != nil {
		conn.Close()
		return nil, err
	}
	hangUp := func() { watch.Close(); conn.Close() }
	c, err := client.Over(b, watch, r.c)
	if err != nil {
		hangUp()
		return nil, err
	}
	return &connected{c, hangUp}, nil
}

type connected struct {
	*client.Client
	hangUp func()
}

func (c *connected) Close() error {
	defer c.hangUp()
	return c.Client.Close()
}

func (x *cli) searchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "search COLLECTION {QUESTION… | --questions FILE | --queries FILE}", Short: "Find the best documents of a collection",
		Long: x.Help(`
Find the documents of highest MaxSim score in all shards of a collection, as plaid
search does in an index. A shard that does not answer is an error; with --partial allow
the documents of the others are returned, and the exit code says so.`),
		Example: "  plaid cluster search wiki --queries queries.npy -k 100 --deadline 200ms",
		Args:    x.Takes("COLLECTION", "…"),
	}
	f := cmd.Flags()
	r := x.front(f)
	f.DurationVar(&r.c.Deadline, "deadline", 10*time.Second, "`TIME` that a query may take")
	f.Var(flags.Choice(&r.partial, "refuse", "refuse", "allow"), "partial", "results that lack shards")
	return x.Search(cmd, func(ctx context.Context, name string) (search.Searcher, error) { return r.open(ctx, name) })
}

func (x *cli) addCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add COLLECTION --vectors FILE…", Short: "Add documents to a collection",
		Long: x.Help(`
Add documents. Each goes to its shard, in batches, and a batch is reported when enough
replicas have it on their disks. What was added before an error stays added.`),
		Args: x.Takes("COLLECTION"),
	}
	f := cmd.Flags()
	r := x.front(f)
	o := client.WriteOptions{}
	f.BoolVar(&o.Replace, "replace", false, "replace documents that have the same id")
	f.DurationVar(&r.c.WriteDeadline, "deadline", 10*time.Minute, "`TIME` that the change may take")
	f.Bool("json", false, "print the report as JSON")
	return x.Vectors(cmd, func(ctx context.Context, name string, src vectors.Source, model *storage.Model) error {
		o.Model = model
		return x.change(ctx, r, name, func(ctx context.Context, c *client.Client) (*client.WriteReport, error) { return c.Add(ctx, src, &o) })
	})
}

func (x *cli) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete COLLECTION {ID… | --ids FILE}", Short: "Delete documents of a collection",
		Long: x.Help(`
Delete documents by their ids. Ids that are not there are named, and change the exit
status: 3 if other documents were deleted, 4 if none was.`),
		Args: x.Takes("COLLECTION", "…"),
	}
	f := cmd.Flags()
	r := x.front(f)
	var file string
	f.StringVar(&file, "ids", "", "`FILE` with one id a line")
	f.DurationVar(&r.c.WriteDeadline, "deadline", 10*time.Minute, "`TIME` that the change may take")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = x.RunE(func(ctx context.Context, args []string) error {
		ids := args[1:]
		if file != "" {
			more, err := vectors.ReadIDList(ctx, file)
			if err != nil {
				return err
			}
			ids = append(ids, more...)
		}
		if len(ids) == 0 && file == "" {
			return flags.Usagef("no ids are given")
		}
		return x.change(ctx, r, args[0], func(ctx context.Context, c *client.Client) (*client.WriteReport, error) {
			report, err := c.Delete(ctx, ids, nil)
			if err == nil {
				err = missing(report)
			}
			return report, err
		})
	})
	return cmd
}

func (x *cli) change(ctx context.Context, r *front, name string, do func(context.Context, *client.Client) (*client.WriteReport, error)) error {
	c, err := r.open(ctx, name)
	if err != nil {
		return err
	}
	defer c.Close()
	report, err := do(ctx, c.Client)
	if report == nil {
		return err
	}
	if err != nil && len(report.Applied) == 0 {
		return err
	}
	return errors.Join(err, x.Report(report, func(b *bytes.Buffer) {
		var said []string
		for _, w := range []struct {
			n    int
			what string
		}{{report.Added, "added"}, {report.Replaced, "replaced"}, {report.Deleted, "deleted"}, {report.Passages, "passages deleted"}, {len(report.Missing), "not there"}} {
			if w.n > 0 {
				said = append(said, fmt.Sprintf("%d %s", w.n, w.what))
			}
		}
		if said == nil {
			said = []string{"nothing to do"}
		}
		fmt.Fprintln(b, strings.Join(said, ", "))
	}))
}

var (
	errSomeMissing = errors.New("done in part")
	errAllMissing  = errors.New("not found")
)

// missing names the ids that were not there, the first of them at least.
func missing(report *client.WriteReport) error {
	if len(report.Missing) == 0 {
		return nil
	}
	kind := errSomeMissing
	if report.Deleted == 0 && report.Passages == 0 {
		kind = errAllMissing
	}
	const most = 10
	var shown []string
	for _, id := range slices.Sorted(slices.Values(report.Missing))[:min(len(report.Missing), most)] {
		shown = append(shown, out.Quoted(id))
	}
	more := ""
	if n := len(report.Missing); n > most {
		more = fmt.Sprintf(" and %d more", n-most)
	}
	return fmt.Errorf("%w: not in the collection: [%s]%s", kind, strings.Join(shown, " "), more)
}
