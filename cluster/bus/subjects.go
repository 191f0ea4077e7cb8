package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names of what plaid has in NATS. Collections are named by their identities, which, as
// names of nodes, have no dots.
const (
	Prefix     = "plaid.v1."
	MapBucket  = "plaid-map"
	NodeBucket = "plaid-nodes"
	// BuildStream is the queue of builds.
	BuildStream = "PLAID_BUILD"

	nodePrefix      = Prefix + "n."
	ackPrefix       = Prefix + "ack."
	logPrefix       = Prefix + "log."
	buildPrefix     = Prefix + "build."
	logStreamPrefix = "PLAID_LOG_"
)

// QuerySubject is where a node is asked.
func QuerySubject(node string) string { return nodePrefix + node + ".q" }

// LookSubject is where a node is asked for documents, and for what it says of a shard.
func LookSubject(node string) string { return nodePrefix + node + ".look" }

// CancelSubject is where a node hears which queries nobody waits for.
func CancelSubject(node string) string { return nodePrefix + node + ".cancel" }

// AdminSubject is where a node takes orders of an operator.
func AdminSubject(node string) string { return nodePrefix + node + ".admin" }

// LogStream is the log of a shard, LogSubject where it is written to. Each shard has a
// stream of its own, so that its sequence has no gaps by others.
func LogStream(collection string, shard int) string {
	return fmt.Sprintf("%s%s_s%04d", logStreamPrefix, collection, shard)
}

// LogSubject is where changes of a shard are published.
func LogSubject(collection string, shard int) string {
	return fmt.Sprintf("%s%s.s%04d", logPrefix, collection, shard)
}

// buildSubjects are those of all shards and generations of a collection.
func buildSubjects(collection string) string { return buildPrefix + collection + ".>" }

// BuildSubject is where the build of a shard is ordered.
func BuildSubject(collection string, generation uint64, shard int) string {
	return fmt.Sprintf("%s%s.g%d.s%04d", buildPrefix, collection, generation, shard)
}

// LeaseTime is how long a node counts as there after it was last heard of, if [Setup] is
// not told otherwise.
const LeaseTime = 10 * time.Second

// Attempt is how long to wait for an answer of JetStream before asking again: while it
// finds a leader it gives none.
const Attempt = 4 * time.Second

// Duplicates is how long a log knows the batches that it has. Servers count it from the
// time that another one has put on the batch, so it is longer than anybody asks again by
// more than clocks should disagree.
const Duplicates = 10 * time.Minute

// Bus is a connection with the buckets and streams.
type Bus struct {
	Conn  *nats.Conn
	JS    jetstream.JetStream
	Maps  jetstream.KeyValue
	Nodes jetstream.KeyValue
	// Lease is how long nodes count as there.
	Lease time.Duration
	// Replicas of streams and buckets; those that are made later have as many.
	Replicas int
}

// Open finds the buckets. Setup makes them first.
func Open(ctx context.Context, conn *nats.Conn) (*Bus, error) {
	b, err := attach(conn)
	if err != nil {
		return nil, err
	}
	if b.Maps, err = b.JS.KeyValue(ctx, MapBucket); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", MapBucket, err)
	}
	if b.Nodes, err = b.JS.KeyValue(ctx, NodeBucket); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", NodeBucket, err)
	}
	if b.Replicas, err = replicasOf(ctx, b.Maps); err != nil {
		return nil, err
	}
	if leases, err := b.Nodes.Status(ctx); err != nil {
		return nil, err
	} else if b.Lease = leases.TTL(); b.Lease <= 0 {
		b.Lease = LeaseTime
	}
	return b, nil
}

// replicasOf is how many servers keep a bucket.
func replicasOf(ctx context.Context, kv jetstream.KeyValue) (int, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return 0, err
	}
	return max(status.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.Replicas, 1), nil
}

func attach(conn *nats.Conn) (*Bus, error) {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(10*time.Second))
	return &Bus{Conn: conn, JS: js}, err
}

// Setup makes the buckets and the queue of builds where they are not there, with so
// many replicas, which takes as many servers; those that have more keep them. It waits for
// servers until ctx ends.
func Setup(ctx context.Context, conn *nats.Conn, replicas int, lease time.Duration) (*Bus, error) {
	if lease == 0 {
		lease = LeaseTime
	}
	b, err := attach(conn)
	if err != nil {
		return nil, err
	}
	for {
		// What is asked while there is no leader is never answered.
		within, stop := context.WithTimeout(ctx, Attempt)
		err := b.make(within, replicas, lease)
		stop()
		if err == nil {
			return Open(ctx, conn)
		}
		select { // servers that are started one after another find each other in a moment
		case <-ctx.Done():
			return nil, fmt.Errorf("making buckets with %d replicas: %w", replicas, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (b *Bus) make(ctx context.Context, replicas int, lease time.Duration) error {
	switch before, err := b.JS.KeyValue(ctx, MapBucket); {
	case errors.Is(err, jetstream.ErrBucketNotFound):
	case err != nil:
		return err
	default: // one node that is told of fewer takes away nobody's copies
		has, err := replicasOf(ctx, before)
		if err != nil {
			return err
		}
		replicas = max(replicas, has)
	}
	if _, err := b.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: MapBucket, History: 8, Replicas: replicas}); err != nil {
		return err
	}
	// A key's own time to live never fires where there is history, and without markers
	// nobody hears that one has ended.
	if _, err := b.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: NodeBucket, History: 1, Replicas: replicas, TTL: lease, LimitMarkerTTL: max(lease, time.Second),
	}); err != nil {
		return err
	}
	_, err := b.JS.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: BuildStream, Subjects: []string{buildPrefix + ">"}, Retention: jetstream.WorkQueuePolicy, Replicas: replicas,
		// One order a shard: another one for the same is refused while it waits.
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
	})
	return err
}

// Forget drops what there is of a collection: the logs of its shards, and orders to build
// them. What is not there is no error.
func (b *Bus) Forget(ctx context.Context, collection string) error {
	var errs []error
	logs := b.JS.StreamNames(ctx, jetstream.WithStreamListSubject(logPrefix+collection+".*"))
	// All names come first: pages of the listing are counted from its beginning.
	var names []string
	for name := range logs.Name() {
		names = append(names, name)
	}
	for _, name := range names {
		if err := b.JS.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("log %s: %w", name, err))
		}
	}
	if err := logs.Err(); err != nil {
		errs = append(errs, fmt.Errorf("logs of %s: %w", collection, err))
	}
	stream, err := b.JS.Stream(ctx, BuildStream)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(buildSubjects(collection)))
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("orders to build %s: %w", collection, err))
	}
	return errors.Join(errs...)
}

// MakeLog makes the log of a shard, whose first entry gets the sequence after.
func (b *Bus) MakeLog(ctx context.Context, collection string, shard int, after uint64) error {
	_, err := b.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: LogStream(collection, shard), Subjects: []string{LogSubject(collection, shard)}, Replicas: b.Replicas,
		FirstSeq: after + 1, Duplicates: Duplicates, DenyDelete: true,
	})
	if err != nil {
		return fmt.Errorf("log of shard %d of %s: %w", shard, collection, err)
	}
	return nil
}
