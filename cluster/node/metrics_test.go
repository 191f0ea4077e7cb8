package node

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// What the alert rules ask for is there: each metric and each state of replicas.
func TestAlertsAskForWhatIsThere(t *testing.T) {
	rules, err := os.ReadFile("../../server/deploy/plaid-cluster.rules.yaml")
	require.NoError(t, err)
	n := &Node{}
	n.metrics.init()
	descs := make(chan *prometheus.Desc, 100)
	n.Describe(descs)
	close(descs)
	there := ""
	for d := range descs {
		there += d.String() + "\n"
	}
	names := regexp.MustCompile(`\bplaid_node_[a-z_]+`).FindAllString(string(rules), -1)
	require.Greater(t, len(names), 6)
	for _, name := range names {
		require.Contains(t, there, `"`+name+`"`)
	}
	for _, m := range regexp.MustCompile(`state=~?"([^"]+)"`).FindAllStringSubmatch(string(rules), -1) {
		for state := range strings.SplitSeq(m[1], "|") {
			require.True(t, slices.Contains(topology.States, state), state)
		}
	}
}
