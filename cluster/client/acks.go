package client

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
)

// acks are the answers of replicas to the changes of a client.
type acks struct {
	inbox string
	sub   *nats.Subscription
	mu    sync.Mutex
	wait  map[string]chan *node.Ack
}

func listen(conn *nats.Conn) (*acks, error) {
	a := &acks{inbox: conn.NewInbox(), wait: map[string]chan *node.Ack{}}
	var err error
	a.sub, err = conn.Subscribe(a.inbox, a.hear)
	return a, err
}

// hear takes an answer, or a list of them.
func (a *acks) hear(msg *nats.Msg) {
	var all []*node.Ack
	if bytes.HasPrefix(msg.Data, []byte("[")) {
		if json.Unmarshal(msg.Data, &all) != nil {
			return
		}
	} else if one := (&node.Ack{}); json.Unmarshal(msg.Data, one) == nil {
		all = append(all, one)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ack := range all {
		if ack == nil || a.wait[ack.Batch] == nil {
			continue
		}
		select {
		case a.wait[ack.Batch] <- ack:
		default: // more answers than replicas
		}
	}
}

func (a *acks) expect(id wire.ID) (inbox string, heard <-chan *node.Ack) {
	ch := make(chan *node.Ack, 2*topology.MaxReplicas)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait[id.String()] = ch
	return a.inbox, ch
}

func (a *acks) forget(id wire.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wait, id.String())
}

func (a *acks) close() { _ = a.sub.Unsubscribe() }
