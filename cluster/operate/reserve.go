package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// errReleased: the reservation of a generation was given up by somebody else.
var errReleased = fmt.Errorf("%w: another generation was begun, or this one was given up", ErrState)

// reserve takes the number of the next generation, if the map is free for one, which
// the map says from then on. What the logs have when that is said they keep until the
// generation is entered or release is called, which does nothing after a success.
func (o *Operator) reserve(ctx context.Context, id string, free func(*topology.Map) error) (m *topology.Map, release func(error), err error) {
	m, err = o.maps.Update(ctx, id, func(m *topology.Map) error {
		m.Reserve(time.Now())
		return free(m)
	})
	if err != nil {
		return nil, nil, err
	}
	number := m.Last
	release = func(failed error) {
		if failed == nil {
			return
		}
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		_, err := o.maps.Update(ctx, id, func(m *topology.Map) error {
			if !m.Holds(number) {
				return errReleased
			}
			m.Release(number)
			return nil
		})
		if err != nil && !errors.Is(err, errReleased) && !errors.Is(err, topology.ErrRemoved) {
			o.log.Warn("a generation that was given up stays reserved: no log is cut off for a week, or until the next build",
				"collection", id, "generation", number, "error", err)
		}
	}
	return m, release, nil
}

// enter makes a generation that was reserved the next one. Where it was not, somebody
// else was faster, and its entries may have been cut off from the logs.
func (o *Operator) enter(ctx context.Context, id string, g *topology.Generation, free func(*topology.Map) error) (*topology.Map, error) {
	return o.maps.Update(ctx, id, func(m *topology.Map) error {
		if err := free(m); err != nil {
			return err
		}
		if !m.Holds(g.Number) {
			return fmt.Errorf("generation %d of %s: %w", g.Number, m.Collection, errReleased)
		}
		m.Enter(g)
		return nil
	})
}
