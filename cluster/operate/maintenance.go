package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
)

// Maintenance of nodes is noted in the object store: who places shards must not miss it when
// NATS has lost what it had. Objects are written once, so each time has one of its own.
const maintenancePrefix = "maintenance/"

// Maintain says that a node is in maintenance until a time: its shards stay its own, however
// long it is away. A time that has passed ends that.
func (o *Operator) Maintain(ctx context.Context, name string, until time.Time) error {
	if err := topology.CheckName(name); err != nil {
		return err
	}
	before, err := o.store.List(ctx, maintenancePrefix+name+"/")
	if err != nil {
		return err
	}
	if until.After(time.Now()) {
		text, err := json.Marshal(until.UTC())
		if err != nil {
			return err
		}
		if err := o.store.Put(ctx, maintenancePrefix+name+"/"+wire.NewID().String(), strings.NewReader(string(text)), int64(len(text))); err != nil {
			return err
		}
	}
	for _, e := range before {
		err = errors.Join(err, o.store.Delete(ctx, e.Name))
	}
	return err
}

// Maintained are the nodes in maintenance, and until when.
func (o *Operator) Maintained(ctx context.Context) (map[string]time.Time, error) {
	entries, err := o.store.List(ctx, maintenancePrefix)
	if err != nil {
		return nil, err
	}
	all := map[string]time.Time{}
	for _, e := range entries {
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Name, maintenancePrefix), "/")
		until, err := o.readTime(ctx, e.Name)
		if errors.Is(err, objects.ErrNotFound) { // it was ended
			continue
		}
		if err != nil {
			return nil, err
		}
		if until.After(time.Now()) && until.After(all[name]) {
			all[name] = until
		}
	}
	return all, nil
}

func (o *Operator) readTime(ctx context.Context, object string) (t time.Time, err error) {
	r, err := o.store.Get(ctx, object)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	text, err := io.ReadAll(io.LimitReader(r, 1<<10))
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return t, fmt.Errorf("object %s: %w", object, err)
	}
	return t, nil
}
