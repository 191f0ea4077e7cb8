//go:build linux

package reliability

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/operate"
)

var (
	soak     = flag.Duration("soak", 5*time.Second, "how long the test of a slow disk lasts")
	diskWait = flag.Duration("disk", 100*time.Millisecond, "how long each write of the slow disk takes")
)

// One of three nodes has a disk on which each write to be kept takes long. Two acknowledge a
// change, so changes and searches go on; nothing is wrong or lost, and the replicas are alike in
// the end.
func TestSlowDisk(t *testing.T) {
	long(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not there")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "slow")
	text := fmt.Sprintf("#!/bin/sh\nexec %s -D -f -qq -o /dev/null --seccomp-bpf -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_exit=%d %s \"$@\"\n",
		strace, diskWait.Microseconds(), self)
	require.NoError(t, os.WriteFile(program, []byte(text), 0o755))
	if out, err := exec.Command(strace, "-f", "-qq", "-o", os.DevNull, "--seccomp-bpf", "-e", "trace=fsync", "true").CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v: %s", err, out)
	}
	p := startSet(t, 3, false, setup{programs: map[string]string{"n2": program}}, "--heal-after", "1s", "--compare-every", "10s", "--checkpoint-every", "5s")
	rng := rand.New(rand.NewPCG(*seed, 21))
	m, docs := newModel()
	p.collection("wiki", operate.CreateOptions{Shards: 3, Replicas: 3, Acks: 2}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	c := counts{reasons: map[string]int{}}
	ctx, stop := context.WithTimeout(p.ctx, *soak)
	defer stop()
	for ctx.Err() == nil && !t.Failed() {
		if rng.IntN(3) == 0 {
			m.search(t, ctx, f, &c)
		} else {
			m.change(t, ctx, f, rng, &c)
		}
	}
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	last, end := context.WithTimeout(p.ctx, patience+*soak) // the slow one may be far behind
	defer end()
	m.search(t, last, f, &c)
	p.same(last, "wiki", 3)
	require.Positive(t, c.acknowledged)
	require.Zero(t, c.refused, "two of three are as fast as ever")
	fmt.Fprintf(os.Stderr, "soak: seed %d, %v, writes of %v: %d changes, of which %d acknowledged, %d of unknown outcome; %d searches, of which %d answered: %v\n",
		*seed, *soak, *diskWait, c.changes, c.acknowledged, c.unknown, c.searches, c.answered, !t.Failed())
}
