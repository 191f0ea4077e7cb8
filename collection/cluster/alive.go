package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
)

const (
	probeTimeout = 500 * time.Millisecond // that a node has to say that it lives
	silentBeats  = 5                      // halves of beats without the store after which a node is cut off
)

// aliveRequest asks a node whether it hears of the store.
type aliveRequest struct{}

type aliveAnswer struct {
	Silent int64 `json:"silent_ms"` // since when it has not
}

func (c *Cluster) doAlive(context.Context, *aliveRequest) (*aliveAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &aliveAnswer{time.Since(c.lastAnswer).Milliseconds()}, nil
}

// suspectNode passes over a node that has failed, until it says that it lives: no request of a user has to find out.
func (c *Cluster) suspectNode(n *Node) {
	if !c.front.peers.noteFailure(n.Name) {
		return // it is asked already
	}
	began := c.startTask("asking "+n.Started, func(ctx context.Context) {
		defer c.front.peers.noteAlive(n.Name) // also if another process has its name
		for c.isProcessAlive(n.Started) {
			if sleepFor(ctx, c.front.peers.probeDelay(n.Name)); ctx.Err() != nil || c.probeNode(ctx, n, &aliveAnswer{}) == nil {
				return
			}
			c.front.peers.noteFailure(n.Name)
		}
	})
	if !began { // it is about to be said that it lives
		c.front.peers.noteAlive(n.Name)
	}
}

// probeNode asks a node whether it lives.
func (c *Cluster) probeNode(ctx context.Context, n *Node, out *aliveAnswer) error {
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	return c.callNode(ctx, n, "alive", &aliveRequest{}, out)
}

// probeNodeAndStore asks a node whether it lives, and reaches the store as well as this process does.
func (c *Cluster) probeNodeAndStore(ctx context.Context, n *Node) error {
	there := &aliveAnswer{}
	if err := c.probeNode(ctx, n, there); err != nil {
		return err
	}
	here, err := c.doAlive(ctx, nil)
	if maxSilence := c.cfg.Beat.Milliseconds() * silentBeats / 2; err == nil && there.Silent > maxSilence && (c.isSelf(n) ||
		here.Silent < there.Silent/2) {
		err = fmt.Errorf("node %s has heard nothing of the store for %d ms", n.Name, there.Silent)
	}
	return err
}

// checkCutOff is an error if the store has not answered this process for beatsToDie beats.
func (c *Cluster) checkCutOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.lastAnswer)
	if silent < beatsToDie*c.cfg.Beat || !errors.Is(c.storeErr, collection.ErrUnreachable) {
		return nil
	}
	return fmt.Errorf("%w for %v: %w", errCutOff, silent.Round(time.Second), c.storeErr)
}
