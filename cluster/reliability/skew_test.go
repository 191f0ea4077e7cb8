//go:build unix

package reliability

import (
	"testing"
	"time"
)

// Nodes whose clocks are minutes off are like others: nothing compares their times.
func TestClocks(t *testing.T) {
	long(t)
	p := startSet(t, 3, false, setup{clocks: map[string]time.Duration{"n0": -7 * time.Minute, "n1": 6 * time.Minute}})
	runModel(t, p, 2, 0)
}

// The same where each node has a server, and each of those leads at times: leases, logs
// and the queue of builds have the stamps of all clocks.
func TestClocksOfServers(t *testing.T) {
	long(t)
	p := startSet(t, 3, true, setup{clocks: map[string]time.Duration{"n0": -4 * time.Minute, "n1": 3 * time.Minute}})
	runModel(t, p, 4, 0)
}
