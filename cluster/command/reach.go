package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
)

const (
	// hintAfter is how long something is waited for before that is said.
	hintAfter = 2 * time.Second
	// reachWithin is how long a command waits for a server at most: its addresses may be wrong.
	reachWithin = time.Minute
	// reachAgain is the time between two attempts.
	reachAgain = 200 * time.Millisecond
)

// noQuorum is what is waited for once a server answers.
const noQuorum = "no quorum of the servers answers yet (with --log-replicas 3, two of three have to)"

// noServer is what is waited for before.
func noServer(addresses string) string { return "no server answers at " + addresses }

// waitingFor is what is said meanwhile.
const waitingFor = "waiting for a server at %s"

// away tells whether a server may only not be there yet: another error stays for good.
func away(err error) bool {
	var dns *net.DNSError
	var op *net.OpError // with the alert of a certificate as well, which is none of "dial"
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// reach connects to servers, which may be started later, until ctx ends. waiting, if not nil,
// is told when that takes long.
func reach(ctx context.Context, addresses, name string, t *tls.Config, waiting func()) (*nats.Conn, error) {
	if waiting != nil {
		defer time.AfterFunc(hintAfter, waiting).Stop()
	}
	for {
		conn, err := bus.Connect(addresses, name, t)
		if err == nil || !away(err) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", noServer(addresses), errors.Join(ctx.Err(), err))
		case <-time.After(reachAgain):
		}
	}
}

// openBus waits until the servers know what the cluster consists of: they have to find
// each other first, and more than half of them must be there.
func openBus(ctx context.Context, conn *nats.Conn, waiting func()) (*bus.Bus, error) {
	if waiting != nil {
		defer time.AfterFunc(hintAfter, waiting).Stop()
	}
	for {
		attempt, stop := context.WithTimeout(ctx, bus.Attempt)
		b, err := bus.Open(attempt, conn)
		stop()
		if err == nil {
			return b, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the servers have no quorum, or no node was ever started: %w", err)
		case <-time.After(reachAgain):
		}
	}
}
