package service

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
)

// soon is when to try again what a node that comes back can do.
const soon = time.Second

// answered is an error as the service answers it: those of a cluster become problems.
func answered(err error) error {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var p *server.Problem
	switch {
	case err == nil, errors.As(err, &p):
		return err
	case is(topology.ErrReplaced):
		return server.NewProblem(server.CodeBusy, "the index was removed and declared anew while this was under way", soon, err)
	case is(topology.ErrNoCollection):
		return fmt.Errorf("%w: %w", collection.ErrUnknown, err)
	case is(topology.ErrMap):
		return server.NewProblem(server.CodeCorrupt, "this program does not understand the map of the index; a later version may", 0, err)
	case is(client.ErrEmpty):
		return fmt.Errorf("%w: %w", collection.ErrEmpty, err)
	case is(client.ErrPartial):
		return server.NewProblem(server.CodeBusy, cause(err), soon, err)
	case is(client.ErrUnacknowledged):
		return server.NewProblem(server.CodeOutcomeUnknown, "too few replicas have acknowledged the change in time: it is made, will be, or was not; look before you repeat it", 0, err)
	case is(client.ErrTooLarge):
		return server.NewProblem(server.CodeTooLarge, err.Error()+": ask for less", 0, err)
	case is(client.ErrConflict):
		return server.NewProblem(server.CodeBusy, "others are changing the shards: "+cause(err), soon, err)
	case is(operate.ErrState, operate.ErrNodes, operate.ErrDiffer):
		return server.NewProblem(server.CodeBusy, err.Error(), soon, err)
	case is(client.ErrQuorum):
		return server.NewProblem(server.CodeBusy, cause(err), soon, err)
	case is(client.ErrRefused):
		code := server.CodeBadRequest
		if is(index.ErrDimension) {
			code = server.CodeDimension
		}
		return server.NewProblem(code, cause(err), 0, err)
	case is(nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected, jetstream.ErrNoStreamResponse):
		return server.NewProblem(server.CodeBusy, "the cluster cannot be reached", soon, err)
	}
	return err
}

// cause is the text of an error of a cluster, without which query of a batch it was.
func cause(err error) string {
	var partial *client.PartialError
	var write *client.WriteError
	switch {
	case errors.As(err, &partial):
		return partial.Error()
	case errors.As(err, &write):
		return write.Error()
	}
	return err.Error()
}

// changed is the error of a change. One that was made in some shards and not in others is
// one of unknown outcome: what is answered with any other changes nothing.
func changed(r *client.WriteReport, err error) error {
	if err == nil || r == nil || errors.Is(err, topology.ErrRemoved) || r.Added == 0 && affected(r) == (index.Affected{}) {
		return answered(err)
	}
	return server.NewProblem(server.CodeOutcomeUnknown, "the change was made in some shards and not in others: "+cause(err), 0, err)
}
