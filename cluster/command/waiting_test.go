package command

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/internal/freeports"
	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

// lines takes those of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// A service that waits for a cluster, and is refused when that is there, says so once, however often
// it tries again.
func TestRefusedServiceSaysSoOnce(t *testing.T) {
	address := "127.0.0.1:" + freeports.Find(t, 1)[0]
	log := &lines{}
	s := &serving{servers: "nats://" + address}
	_, end, err := s.Open(t.Context(), &daemon.Config{}, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	refuses, err := net.Listen("tcp", address)
	require.NoError(t, err)
	for range 4 {
		conn, err := refuses.Accept()
		require.NoError(t, err)
		_, err = fmt.Fprint(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"proto\":1,\"max_payload\":1024}\r\n")
		require.NoError(t, err)
		_, err = bufio.NewReader(conn).ReadString('\n') // CONNECT
		require.NoError(t, err)
		_, err = fmt.Fprint(conn, "-ERR 'Authorization Violation'\r\n")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	require.NoError(t, refuses.Close())
	require.NoError(t, end())
	var said []string
	for _, line := range log.all {
		if strings.Contains(line, "cannot be served") {
			said = append(said, line)
		}
	}
	require.Len(t, said, 1)
	require.Contains(t, said[0], "Authorization Violation")
}
