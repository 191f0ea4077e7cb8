//go:build unix

package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// oldProgram is that of an earlier version, and how one is had.
func oldProgram(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PLAID_OLD_BINARY")
	if path == "" {
		t.Skip("PLAID_OLD_BINARY names no program of an earlier version (cluster/cmd/plaid of commit 2f5d52d, say)")
	}
	return path
}

// said runs a command of the earlier version.
func said(t *testing.T, p *processes, old string, args ...string) (string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	text, err := exec.CommandContext(ctx, old, append([]string{"cluster"}, append(args, "--servers", p.url)...)...).CombinedOutput()
	return string(text), err
}

// alike compares the documents of replicas. Their digests need not be the same: an earlier
// version has other things beside them in its files.
func alike(t *testing.T, p *processes, collection string, replicas int) {
	t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	same := func(c operate.Check) bool {
		return len(c.Replicas) == replicas && !slices.ContainsFunc(c.Replicas, func(r operate.ReplicaCheck) bool {
			return r.Error != "" || r.Applied != c.Replicas[0].Applied
		})
	}
	for {
		changed := p.op.Watcher().Changed()
		checks, err := p.op.Verify(ctx, collection)
		if len(checks) > 0 && !slices.ContainsFunc(checks, func(c operate.Check) bool { return !same(c) }) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%v: %+v", err, checks)
		}
	}
	m, err := p.op.Watcher().Map(collection)
	require.NoError(t, err)
	for s, nodes := range m.Assigned {
		var want map[string]string
		for _, name := range nodes {
			got := contents(t, filepath.Join(p.dir, name, "shards", m.ID(), fmt.Sprint("g", m.Current.Number), fmt.Sprintf("s%04d.plaid", s)))
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "shard %d on %s", s, name)
		}
	}
}

// contents are the documents of an index, which a node has open and does not change now.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy.plaid")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, 0o600))
	snap := searchtest.Snapshot(t, searchtest.Open(t, copied))
	all := map[string]string{}
	_, live := snap.LiveSet()
	for ordinal := uint32(0); len(all) < live; ordinal++ {
		d, err := snap.At(ordinal)
		if errors.Is(err, index.ErrNotFound) {
			continue
		}
		require.NoError(t, err)
		v, err := snap.Vectors(ordinal)
		require.NoError(t, err)
		all[d.ID] = fmt.Sprintf("%s %v", d.Payload, v)
	}
	return all
}

// Nodes are brought up to date one after the other, under changes and searches of fronts of
// both versions. No change is lost, no answer lacks anything, and replicas are alike in any
// mixture. What nodes of before do not understand waits until there are none.
func TestMixedVersions(t *testing.T) {
	old := oldProgram(t)
	p := startSet(t, 3, false, setup{programs: map[string]string{"n0": old, "n1": old, "n2": old}})
	docs, maker := documents(71, 200)
	for i := range docs {
		docs[i].Tokens, docs[i].Payload = maker.Tokens(3), fmt.Appendf(nil, `{"n":%d,"kind":"a"}`, i)
	}
	ctx := t.Context()
	store := filepath.Join(p.dir, "store")
	write := func(docs ...vectors.Document) string {
		path := filepath.Join(t.TempDir(), "docs.jsonl")
		require.NoError(t, os.WriteFile(path, searchtest.Lines(dim, docs...), 0o600))
		return path
	}
	next := 40
	_, err := p.op.Create(ctx, "wiki", operate.CreateOptions{Shards: 2, Replicas: 3})
	require.NoError(t, err)
	// The first generation is of the earlier version, as all of them are.
	text, err := said(t, p, old, "build", "wiki", "--vectors", write(docs[:next]...), "--centroids", "8", "--store", store)
	require.NoError(t, err, text)
	text, err = said(t, p, old, "promote", "wiki", "--store", store)
	require.NoError(t, err, text)

	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	live := map[string]bool{}
	for _, d := range docs[:next] {
		live[d.ID] = true
	}
	where := func(text string) *condition.Condition {
		expr, err := condition.Parse(text)
		require.NoError(t, err)
		c, err := expr.Bind()
		require.NoError(t, err)
		return c
	}
	steps := func(when string) {
		t.Log(when)
		for i := range 6 {
			batch := docs[next : next+2]
			next += 2
			if i%2 == 0 {
				_, err := f.Add(ctx, searchtest.Source(t, dim, batch), nil)
				require.NoError(t, err, when)
			} else {
				text, err := said(t, p, old, "add", "wiki", "--vectors", write(batch...))
				require.NoError(t, err, "%s: %s", when, text)
			}
			live[batch[0].ID], live[batch[1].ID] = true, true
			gone := docs[next-20].ID
			if i%2 == 0 {
				_, err = f.Delete(ctx, []string{gone}, nil)
				require.NoError(t, err, when)
			} else {
				text, err := said(t, p, old, "delete", "wiki", gone)
				require.NoError(t, err, "%s: %s", when, text)
			}
			delete(live, gone)
			require.Eventually(t, func() bool { // another front's changes are seen a little later
				r, err := f.Search(ctx, search.Query{Vectors: maker.Tokens(3)}, all)
				require.NoError(t, err, when)
				require.True(t, r.Coverage.Complete())
				return len(r.Hits) == len(live)
			}, patience, time.Millisecond, when)
		}
		query := filepath.Join(t.TempDir(), "q.jsonl")
		require.NoError(t, os.WriteFile(query, searchtest.Lines(dim, vectors.Document{ID: "q", Tokens: maker.Tokens(2)}), 0o600))
		require.Eventually(t, func() bool {
			text, err := said(t, p, old, "search", "wiki", "--queries", query, "-k", "1000", "--mode", "exhaustive", "--format", "trec", "--deadline", "1m")
			require.NoError(t, err, text)
			return strings.Count(text, " Q0 ") == len(live)
		}, patience, time.Millisecond, when)
		_, err = f.UpdatePayload(ctx, where(fmt.Sprintf("n >= %d", next-4)), condition.Fields{"kind": json.RawMessage("null"), "seen": json.RawMessage("true")}, nil)
		require.NoError(t, err, when)
		alike(t, p, "wiki", 3)
	}
	held := func(outdated bool) {
		_, err := f.UpdatePayload(ctx, where("n = 1"), condition.Fields{"kind": nil}, nil)
		require.Equal(t, outdated, isOneOf(err, topology.ErrOutdated), "%v", err)
		_, err = p.op.Build(ctx, "wiki", searchtest.Source(t, dim, docs[:next]), operate.BuildOptions{Dir: t.TempDir()})
		require.Equal(t, outdated, isOneOf(err, topology.ErrOutdated), "%v", err)
	}
	upgrade := func(name string) {
		x := p.node(name)
		require.NoError(t, x.cmd.Process.Signal(os.Interrupt))
		select {
		case <-x.done:
		case <-time.After(patience):
			t.Fatalf("%s does not end", name)
		}
		delete(p.programs, name)
		p.again(name)
		p.await(name, func() bool {
			for _, l := range p.op.Watcher().Leases() {
				if l.Node == name && l.Protocol == topology.Protocol {
					return p.allReady("wiki")
				}
			}
			return false
		})
	}
	steps("three nodes of before")
	held(true)
	upgrade("n0")
	steps("one of three is new")
	_, err = node.Send(ctx, p.bus.Conn, "n0", node.Order{Do: "checkpoint", Collection: p.id("wiki"), Generation: 1})
	require.ErrorContains(t, err, topology.ErrOutdated.Error())
	upgrade("n1")
	held(true)
	steps("two are new")
	// A node of before that lost its disk begins with the object and the log.
	p.kill("n2")
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "n2", "shards")))
	p.programs["n2"] = old
	p.again("n2")
	p.await("n2", func() bool { return p.allReady("wiki") })
	steps("two are new, one lost its disk")
	upgrade("n2")
	steps("all are new")
	held(false)
	_, err = p.op.Promote(ctx, "wiki")
	require.NoError(t, err)
	_, err = p.op.Checkpoint(ctx, "wiki")
	require.NoError(t, err)
	p.same(ctx, "wiki", 3)
}
