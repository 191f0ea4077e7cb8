package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
)

// status is what plaid cluster status prints.
type status struct {
	// Well: nothing is amiss, and nothing is waited for.
	Well  bool              `json:"well"`
	Nodes []*topology.Lease `json:"nodes"`
	// Away are nodes that shards are on and that were not heard of lately.
	Away        []string           `json:"away,omitempty"`
	Collections []collectionStatus `json:"collections"`
	// Strange are collections whose maps this program does not understand, and why.
	Strange  map[string]string `json:"not_understood,omitempty"`
	maps     []*topology.Map
	furthest map[[3]string]uint64 // the last entry that a replica of each shard has
}

type collectionStatus struct {
	Collection string `json:"collection"`
	Version    uint64 `json:"version"`
	Generation uint64 `json:"generation"`     // 0: nothing is searched
	Next       uint64 `json:"next,omitempty"` // being built, or built and not promoted
	Built      int    `json:"next_shards_built,omitempty"`
	Reserved   bool   `json:"reserved,omitempty"` // the next one is being trained
	Shards     int    `json:"shards"`
	Replicas   int    `json:"replicas"`
	Acks       int    `json:"acks"`
	Documents  uint64 `json:"documents"`
	// Short are shards with fewer replicas that answer than the map wants; Silent have none;
	// Unchanging ones take no changes for now.
	Short      []int `json:"short"`
	Silent     []int `json:"silent"`
	Unchanging []int `json:"unchanging,omitempty"`
}

func (x *cli) statusCommand() *cobra.Command {
	var watching bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, collections and what is amiss",
		Long: x.Help(`
Say whether all is well, or else what is amiss and what is waited for; then show the nodes
that were heard of lately, what each has, and the collections. With --watch it is shown
again whenever it changes, until the command is interrupted.`),
		Args: x.Takes(),
	}
	p := x.place(cmd.Flags(), time.Minute)
	cmd.Flags().Bool("json", false, "print it as JSON")
	cmd.Flags().BoolVar(&watching, "watch", false, "show it again whenever it changes")
	cmd.RunE = x.RunE(func(ctx context.Context, _ []string) error {
		begin := p.within
		if watching {
			if cmd.Flags().Changed("timeout") {
				return flags.Usagef("--timeout does not go with --watch")
			}
			begin = p.open
		}
		err := begin(ctx, func(ctx context.Context, b *bus.Bus) error {
			w, err := topology.Watch(ctx, b)
			if err != nil {
				return err
			}
			defer w.Close()
			if watching {
				return x.watchStatus(ctx, w)
			}
			s := look(w)
			return x.Report(s, s.print)
		})
		if watching && ctx.Err() != nil {
			return nil // that is how it ends
		}
		return err
	})
	return cmd
}

// watchStatus shows the status whenever it has changed, until ctx ends.
func (x *cli) watchStatus(ctx context.Context, w *topology.Watcher) error {
	const least = 500 * time.Millisecond // between two times
	var shown bytes.Buffer
	for {
		changed := w.Changed()
		s := look(w)
		var now bytes.Buffer
		s.print(&now)
		if !bytes.Equal(now.Bytes(), shown.Bytes()) {
			if err := x.Report(s, func(b *bytes.Buffer) {
				if shown.Len() > 0 {
					b.WriteByte('\n')
				}
				fmt.Fprintf(b, "%s: ", time.Now().Format(time.TimeOnly))
				b.Write(now.Bytes())
			}); err != nil {
				return err
			}
			shown = now
		}
		for _, wait := range []<-chan struct{}{changed, after(ctx, least)} {
			select {
			case <-wait:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// after is closed when a time is over, or ctx.
func after(ctx context.Context, t time.Duration) <-chan struct{} {
	ctx, stop := context.WithTimeout(ctx, t)
	context.AfterFunc(ctx, stop)
	return ctx.Done()
}

func look(w *topology.Watcher) *status {
	s := &status{Nodes: w.Leases(), Collections: []collectionStatus{}, maps: w.Maps()}
	s.furthest = furthestOf(s.Nodes)
	for _, m := range s.maps {
		s.Collections = append(s.Collections, collectionOf(w, m))
		for _, nodes := range m.Assigned {
			for _, name := range nodes {
				if !slices.Contains(s.Away, name) && !slices.ContainsFunc(s.Nodes, func(l *topology.Lease) bool { return l.Node == name }) {
					s.Away = append(s.Away, name)
				}
			}
		}
	}
	for name, err := range w.Faults() {
		if s.Strange == nil {
			s.Strange = map[string]string{}
		}
		s.Strange[name] = err.Error()
	}
	slices.Sort(s.Away)
	s.Well = len(s.Nodes) > 0 && s.amiss() == nil
	return s
}

func collectionOf(w *topology.Watcher, m *topology.Map) collectionStatus {
	c := collectionStatus{
		Collection: m.Collection, Version: m.Version, Shards: m.Shards(), Replicas: m.Replicas, Acks: m.Acks,
		Reserved: len(m.Holding(time.Now())) > 0, Short: []int{}, Silent: []int{},
	}
	if m.Next != nil {
		c.Next = m.Next.Number
		for _, shard := range m.Next.Shards {
			if shard.Object.Name != "" {
				c.Built++
			}
		}
	}
	if m.Current == nil {
		return c
	}
	c.Generation = m.Current.Number
	for i := range m.Shards() {
		ready, following, lost, documents := 0, 0, false, m.Current.Shards[i].Documents
		for _, r := range w.Replicas(m.ID(), m.Current.Number, i) {
			lost = lost || r.Lost
			if r.Ready {
				ready, documents = ready+1, r.Documents
			}
			if r.State() == "ready" {
				following++
			}
		}
		c.Documents += documents
		switch {
		case ready == 0:
			c.Silent = append(c.Silent, i)
		case ready < m.Replicas:
			c.Short = append(c.Short, i)
		}
		if ready > 0 && (lost || following < m.Acks) {
			c.Unchanging = append(c.Unchanging, i)
		}
	}
	return c
}

// amiss says in words what is not as it should be, and what is waited for.
func (s *status) amiss() (words []string) {
	if s.Away != nil {
		words = append(words, "not heard of: "+strings.Join(s.Away, ", "))
	}
	for _, l := range s.Nodes {
		if _, _, now := s.stateOf(l); now != nil {
			words = append(words, l.Node+": "+strings.Join(now, "; "))
		}
	}
	for i := range s.Collections {
		words = append(words, s.Collections[i].amiss()...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Strange)) {
		words = append(words, fmt.Sprintf("%s: this program does not understand its map, and shows nothing of it; a later version may: %s", name, s.Strange[name]))
	}
	return append(words, s.failing()...)
}

// failing says which builds fail, each as the node has it that tried it last.
func (s *status) failing() (words []string) {
	for _, m := range s.maps {
		last := map[int]topology.FailedBuild{}
		by := map[int]string{}
		for _, l := range s.Nodes {
			for _, f := range l.Failing {
				if f.Awaited(m) && f.Tries > last[f.Shard].Tries {
					last[f.Shard], by[f.Shard] = f, l.Node
				}
			}
		}
		for _, shard := range slices.Sorted(maps.Keys(last)) {
			f := last[shard]
			words = append(words, fmt.Sprintf("%s: the build of shard %d of generation %d has failed %s, on %s the last time: %s; it is tried again at %s, unless you discard it",
				m.Collection, shard, f.Generation, out.Plural(int(f.Tries), "time"), by[shard], f.Error, f.Again.Local().Format(time.TimeOnly)))
		}
	}
	return words
}

func (c *collectionStatus) amiss() (words []string) {
	for _, w := range []struct {
		shards []int
		what   string
	}{
		{c.Silent, "no replica answers, searches fail"}, {c.Short, "fewer replicas answer than wanted"},
		{c.Unchanging, fmt.Sprintf("no changes are taken until %s can make them", out.Plural(c.Acks, "replica"))},
	} {
		if len(w.shards) > 0 {
			words = append(words, fmt.Sprintf("%s, %s: %s", c.Collection, shardsOf(w.shards, c.Shards), w.what))
		}
	}
	return words
}

// shardsOf names shards.
func shardsOf(shards []int, of int) string {
	const most = 8
	switch {
	case len(shards) == of && of > 1:
		return fmt.Sprintf("all %d shards", of)
	case len(shards) > most:
		return fmt.Sprintf("%d of %d shards", len(shards), of)
	case len(shards) == 1:
		return fmt.Sprintf("shard %d", shards[0])
	}
	return "shards " + strings.Trim(fmt.Sprint(shards), "[]")
}

func (s *status) print(b *bytes.Buffer) {
	if len(s.Nodes) == 0 {
		b.WriteString("no node was heard of lately: none runs, or none has reached the servers yet\n")
	}
	switch words := s.amiss(); {
	case s.Well:
		fmt.Fprintf(b, "all is well on %s\n", out.Plural(len(s.Nodes), "node"))
	case words != nil:
		b.WriteString("not all is well:\n")
		for _, w := range words {
			fmt.Fprintf(b, "  %s\n", w)
		}
	}
	for i := range s.Collections {
		s.Collections[i].print(b)
	}
	if len(s.Nodes) == 0 {
		return
	}
	b.WriteByte('\n')
	t := out.Table{}
	t.Line("NODE", "ZONE", "SHARDS", "READY", "STATE")
	for _, l := range s.Nodes {
		shards, ready, words := s.stateOf(l)
		if words == nil {
			words = []string{"ok"}
		}
		t.Line(l.Node, l.Zone, fmt.Sprint(shards), fmt.Sprint(ready), strings.Join(append(words, happenedTo(l)...), "; "))
	}
	t.Print(b)
}

// print says what a collection is, and how far its next generation is.
func (c *collectionStatus) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s: ", c.Collection)
	if c.Generation == 0 {
		fmt.Fprintf(b, "%s, nothing is searched yet", out.Plural(c.Shards, "shard"))
	} else {
		fmt.Fprintf(b, "%s in %s, generation %d", out.Plural(int(c.Documents), "document"), out.Plural(c.Shards, "shard"), c.Generation)
	}
	switch {
	case c.Next > 0 && c.Built == c.Shards:
		fmt.Fprintf(b, "; generation %d is built, plaid cluster promote %s lets searches see it", c.Next, c.Collection)
	case c.Next > 0:
		fmt.Fprintf(b, "; generation %d has %d of %d built", c.Next, c.Built, c.Shards)
	case c.Reserved:
		b.WriteString("; the next generation is trained")
	}
	b.WriteByte('\n')
}

// farBehind is from how many entries on a replica that answers is said to be behind: leases are
// some seconds old, and those of nodes are not of the same moment.
const farBehind = 1000

// shardAt is a shard in a generation.
func shardAt(r *topology.Serving) [3]string {
	return [3]string{r.Collection, fmt.Sprint(r.Generation), fmt.Sprint(r.Shard)}
}

// furthestOf is the last entry that a replica of each shard has applied.
func furthestOf(leases []*topology.Lease) map[[3]string]uint64 {
	furthest := map[[3]string]uint64{}
	for _, l := range leases {
		for i := range l.Shards {
			at := shardAt(&l.Shards[i])
			furthest[at] = max(furthest[at], l.Shards[i].Applied)
		}
	}
	return furthest
}

// stateOf says in words what a node waits for. Replicas of generations that are over, which
// the node is about to drop, do not count.
func (s *status) stateOf(l *topology.Lease) (shards, ready int, words []string) {
	say := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(words, text) {
			words = append(words, text)
		}
	}
	if l.Draining {
		say("leaving")
	}
	fetching, behind, most := 0, 0, uint64(0)
	for _, r := range l.Shards {
		wanted := slices.ContainsFunc(s.maps, func(m *topology.Map) bool { return m.ID() == r.Collection && m.Generation(r.Generation) != nil })
		if !wanted {
			continue
		}
		shards++
		switch r.State() {
		case "lost":
			say("takes no changes: %s", r.Log)
		case "without_log":
			say("answers, waits for its log: %s", r.Log)
		case "failed":
			say("%s", cmp.Or(r.Fault, r.Log))
		case "catching_up":
			fetching++
		}
		if r.Ready {
			ready++
		}
		if n := max(r.Behind, max(s.furthest[shardAt(&r)], r.Applied)-r.Applied); n >= farBehind {
			behind, most = behind+1, max(most, n)
		}
	}
	if fetching > 0 {
		say("%s catching up", out.Plural(fetching, "shard"))
	}
	if behind > 0 {
		say("%s behind the log, by up to %d entries", out.Plural(behind, "shard"), most)
	}
	return shards, ready, words
}

// happenedTo says what should not have happened to a node since it was started, and may be over.
func happenedTo(l *topology.Lease) (words []string) {
	for _, c := range []struct {
		n           uint64
		what, after string
	}{{l.Counts.Panics, "panic", ""}, {l.Counts.Rebuilds, "replica", " made again"}, {l.Counts.Differences, "difference", " found"}} {
		if c.n > 0 {
			words = append(words, out.Plural(int(c.n), c.what)+c.after+" since it was started")
		}
	}
	if n := len(l.Uncompared); n > 0 {
		u := l.Uncompared[0]
		words = append(words, fmt.Sprintf("%s not compared at the last time, such as shard %d of %s: %s", out.Plural(n, "shard"), u.Shard, u.Collection, u.Why))
	}
	return words
}
