package cluster

// shards is a collection; its methods are in collection.go, view.go and change.go.
type shards struct {
	c        *Cluster
	name, id string
}
