// Package freeports finds ports for tests whose servers must know each other's
// addresses before they start.
package freeports

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Find returns ports that were free a moment ago.
func Find(t testing.TB, n int) []string {
	t.Helper()
	var ports []string
	for tries := 0; len(ports) < n; tries++ {
		require.Less(t, tries, 10_000)
		port := strconv.Itoa(12_000 + rand.IntN(18_000)) // below the ports that the system gives to connections
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports
}
