package client

import (
	"testing"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// A node that fails is passed over, however fast it does so; it is tried again later,
// and counts as before when it has answered.
func TestPeersThatFail(t *testing.T) {
	var p peers
	p.init(0.05)
	replicas := []topology.Replica{{Lease: &topology.Lease{Node: "good"}}, {Lease: &topology.Lease{Node: "bad"}}}
	chosen := func() (bad int) {
		for range 100 {
			if p.choose(replicas, "", nil) == "bad" {
				bad++
			}
		}
		return bad
	}
	answer := func(node string, took time.Duration) {
		p.begin(node)
		p.done(node, took, 0, true)
	}
	for range 20 {
		answer("good", 10*time.Millisecond)
		answer("bad", time.Millisecond)
	}
	if n := chosen(); n != 100 {
		t.Errorf("the faster one is chosen %d times of 100", n)
	}
	for range maxFailures + 3 {
		p.fail("bad")
	}
	p.of("bad").failed = time.Now().Add(time.Hour) // however long this test is not run
	if n := chosen(); n != 0 {
		t.Errorf("one that has failed is chosen %d times of 100", n)
	}
	p.of("bad").failed = time.Now().Add(-(maxFailures + 1) * time.Second)
	if n := chosen(); n != 100 {
		t.Errorf("one that has failed long ago is chosen %d times of 100", n)
	}
	p.fail("bad")
	answer("bad", time.Millisecond)
	if n := chosen(); n != 100 || p.of("bad").failures != 0 {
		t.Errorf("one that answers again is chosen %d times of 100", n)
	}
}
