package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
)

const (
	probeTimeout = 500 * time.Millisecond // how long a node has to answer whether it is alive
	silentBeats  = 5                      // halves of a beat without the store after which a node counts as cut off
)

// aliveRequest asks a node whether it is alive, and how long it has not reached the store.
type aliveRequest struct{}

type aliveAnswer struct {
	Silent int64 `json:"silent_ms"` // time since the store last answered the node
}

// doAlive answers that this node is alive.
func (c *Cluster) doAlive(context.Context, *aliveRequest) (*aliveAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &aliveAnswer{time.Since(c.lastAnswer).Milliseconds()}, nil
}

// suspectNode avoids a node that has failed until it answers that it is alive, so that no user's request has to find
// out. It asks the node in the background, again after each failure.
func (c *Cluster) suspectNode(n *Node) {
	if !c.front.peers.noteFailure(n.Name) {
		return // a task asks it already
	}
	began := c.startTask("asking "+n.Started, func(ctx context.Context) {
		defer c.front.peers.noteAlive(n.Name) // also when another process has taken its name
		for c.isProcessAlive(n.Started) {
			sleepFor(ctx, c.front.peers.probeDelay(n.Name))
			if ctx.Err() != nil || c.probeNode(ctx, n, &aliveAnswer{}) == nil {
				return
			}
			c.front.peers.noteFailure(n.Name)
		}
	})
	if !began { // another task is about to hear from the node, or this process ends
		c.front.peers.noteAlive(n.Name)
	}
}

// probeNode asks a node whether it is alive.
func (c *Cluster) probeNode(ctx context.Context, n *Node, out *aliveAnswer) error {
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	return c.callNode(ctx, n, "alive", &aliveRequest{}, out)
}

// probeNodeAndStore asks a node whether it is alive, and whether it reaches the store as well as this process does.
func (c *Cluster) probeNodeAndStore(ctx context.Context, n *Node) error {
	remote := &aliveAnswer{}
	if err := c.probeNode(ctx, n, remote); err != nil {
		return err
	}
	local, err := c.doAlive(ctx, nil)
	maxSilence := c.cfg.Beat.Milliseconds() * silentBeats / 2
	worse := c.isSelf(n) || local.Silent < remote.Silent/2 // this process reaches the store better than the node does
	if err == nil && remote.Silent > maxSilence && worse {
		err = fmt.Errorf("the store has not answered node %s for %d ms", n.Name, remote.Silent)
	}
	return err
}

// checkCutOff returns an error if the store has not answered this process for beatsToDie beats.
func (c *Cluster) checkCutOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.lastAnswer)
	if silent < beatsToDie*c.cfg.Beat || !errors.Is(c.storeErr, collection.ErrUnreachable) {
		return nil
	}
	return fmt.Errorf("%w for %v: %w", errCutOff, silent.Round(time.Second), c.storeErr)
}
