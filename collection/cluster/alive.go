package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
)

const (
	probeTime   = 500 * time.Millisecond // that a node has to say that it lives
	silentBeats = 5                      // halves of beats without the store after which a node is cut off
)

// aliveAsk asks a node whether it hears of the store.
type aliveAsk struct{}

type aliveAnswer struct {
	Silent int64 `json:"silent_ms"` // since when it has not
}

func (c *Cluster) doAlive(context.Context, *aliveAsk) (*aliveAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &aliveAnswer{time.Since(c.answered).Milliseconds()}, nil
}

// suspect passes over a node that has failed, until it says that it lives: no request of a user has to find out.
func (c *Cluster) suspect(n *Node) {
	if !c.front.peers.fail(n.Name) {
		return // it is asked already
	}
	began := c.aside("asking "+n.Started, func(ctx context.Context) {
		defer c.front.peers.returned(n.Name) // also if another process has its name
		for c.runs(n.Started) {
			if pause(ctx, c.front.peers.rest(n.Name)); ctx.Err() != nil || c.alive(ctx, n, &aliveAnswer{}) == nil {
				return
			}
			c.front.peers.fail(n.Name)
		}
	})
	if !began { // it is about to be said that it lives
		c.front.peers.returned(n.Name)
	}
}

// alive asks a node whether it lives.
func (c *Cluster) alive(ctx context.Context, n *Node, out *aliveAnswer) error {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	return c.call(ctx, n, "alive", &aliveAsk{}, out)
}

// works asks a node whether it lives, and reaches the store as well as this process does.
func (c *Cluster) works(ctx context.Context, n *Node) error {
	there := &aliveAnswer{}
	if err := c.alive(ctx, n, there); err != nil {
		return err
	}
	here, err := c.doAlive(ctx, nil)
	if most := c.c.Beat.Milliseconds() * silentBeats / 2; err == nil && there.Silent > most && (c.self(n) ||
		here.Silent < there.Silent/2) {
		err = fmt.Errorf("node %s has heard nothing of the store for %d ms", n.Name, there.Silent)
	}
	return err
}

// cutOff is an error if the store has not answered this process for beatsToDie beats.
func (c *Cluster) cutOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.answered)
	if silent < beatsToDie*c.c.Beat || !errors.Is(c.trouble, collection.ErrUnreachable) {
		return nil
	}
	return fmt.Errorf("%w for %v: %w", errCutOff, silent.Round(time.Second), c.trouble)
}
