package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/server"
)

// However many requests declare or upload indexes at once, there are never more than the limits
// of the service and of each token allow; and as many as that come to be.
func TestIndexesAreBounded(t *testing.T) {
	s, as := bearers(t, &server.Options{Limits: server.Limits{Indexes: 9}},
		"root admin", "one admin:a-* indexes=3", "two admin:b-* indexes=2")
	require.Equal(t, 200, as("root", "POST", "/indices", object{"name": "source"}).status)
	require.Equal(t, 202, as("root", "POST", "/indices/source/update", object{"documents": list{query("cats")}}).status)
	file := as("root", "GET", "/indices/source/backup", nil).body
	upload := func(who, name string) *reply {
		return s.send(t, "PUT", "/indices/"+name+"/backup", file, octets, "Authorization: Bearer "+secretOf(who))
	}
	atOnce := func(who, prefix string, n, room int) {
		t.Helper()
		var wg sync.WaitGroup
		replies := make([]*reply, n)
		for i := range n {
			name := fmt.Sprint(prefix, i)
			wg.Go(func() {
				if i%3 == 0 {
					replies[i] = upload(who, name)
				} else {
					replies[i] = as(who, "POST", "/indices", object{"name": name})
				}
			})
		}
		wg.Wait()
		made := 0
		for _, r := range replies {
			if r.status == 200 {
				made++
				continue
			}
			require.Equal(t, 403, r.status, r.body)
			isProblem(t, r, server.CodeTooManyIndexes)
		}
		require.Equal(t, room, made)
	}
	atOnce("one", "a-", 12, 3)
	atOnce("two", "b-", 12, 2)
	atOnce("root", "c-", 12, 9-1-3-2)
	require.Len(t, s.store.Names(), 9)

	// What is there may be declared no second time, be filled and be dropped, and then there is room.
	p := isProblem(t, as("root", "POST", "/indices", object{"name": "source"}), server.CodeIndexExists)
	require.NotContains(t, p.Message, "max-indexes")
	first := "/indices/" + s.store.Names()[0]
	require.Equal(t, 202, as("root", "POST", first+"/update", object{"documents": list{query("cats")}}).status)
	p = isProblem(t, as("root", "POST", "/indices", object{"name": "more"}), server.CodeTooManyIndexes)
	require.Contains(t, p.Message, "9 (max-indexes): delete one")
	require.Equal(t, 200, as("root", "DELETE", "/indices/source", nil).status)
	p = isProblem(t, as("two", "POST", "/indices", object{"name": "b-more"}), server.CodeTooManyIndexes)
	require.Contains(t, p.Message, "token two has as many indexes as it may have, 2 (indexes): delete one")
	require.Equal(t, 200, as("root", "POST", "/indices", object{"name": "empty"}).status)
	require.Equal(t, 200, upload("root", "empty").status, "it has a place already")
}

// pausing is a set whose declarations say that they run, and wait.
type pausing struct {
	collection.Catalog
	entered, free chan struct{}
}

func (p pausing) Create(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	p.entered <- struct{}{}
	<-p.free
	return p.Catalog.Create(ctx, name, c)
}

// An index counts from the moment at which a request begins to make it, and no longer than it is
// there.
func TestIndexesThatAreBeingMadeCount(t *testing.T) {
	set := pausing{openStore(t, nil).Catalog(), make(chan struct{}), make(chan struct{})}
	s, err := server.New(set, nil, &server.Options{Limits: server.Limits{Indexes: 1}})
	require.NoError(t, err)
	at := &service{Server: s}
	first := make(chan *reply)
	go func() { first <- at.send(t, "POST", "/indices", object{"name": "one"}) }()
	<-set.entered
	at.refused(t, 403, server.CodeTooManyIndexes, "POST", "/indices", object{"name": "two"})
	again := make(chan *reply)
	go func() { again <- at.send(t, "POST", "/indices", object{"name": "one"}) }() // needs no room more
	<-set.entered
	close(set.free)
	statuses := []int{(<-first).status, (<-again).status}
	require.ElementsMatch(t, []int{200, 409}, statuses)
	at.refused(t, 403, server.CodeTooManyIndexes, "POST", "/indices", object{"name": "two"})
	at.ok(t, 200, "DELETE", "/indices/one", nil, nil)
	bad := make(chan *reply)
	go func() { bad <- at.send(t, "POST", "/indices", object{"name": "two", "config": object{"nbits": 3}}) }()
	<-set.entered
	require.Equal(t, 400, (<-bad).status)
	go func() { bad <- at.send(t, "POST", "/indices", object{"name": "two"}) }() // what failed has no place
	<-set.entered
	require.Equal(t, 200, (<-bad).status)
}
