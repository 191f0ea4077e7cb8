package cluster

import (
	"context"

	"github.com/plaid-ir/plaid/collection"
)

func (c *Cluster) renew(ctx context.Context, name string) (*Map, error) { return c.mapOf(ctx, name) }

func (c *Cluster) growthOf(m *Map, all []collection.Stats) collection.GrowthStats {
	return collection.GrowthStats{}
}
