package server_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/server"
)

// elsewhere are the collections of a folder, of which the service does not know that they are.
type elsewhere struct {
	collection.Set
	fault error
}

func (e *elsewhere) Ready() error { return e.fault }

func (e *elsewhere) Get(name string) (collection.Collection, error) {
	c, err := e.Set.Get(name)
	if err != nil {
		return nil, err
	}
	return bare{c}, nil
}

// bare is a collection that does what all do, and nothing beside that.
type bare struct{ collection.Collection }

func (b bare) View(ctx context.Context) (collection.View, error) {
	v, err := b.Collection.View(ctx)
	return struct{ collection.View }{v}, err
}

// A service over any collections does what their interface has, and says of the rest that it
// does not.
func TestCollectionsElsewhere(t *testing.T) {
	e := &elsewhere{Set: openStore(t, nil).Set()}
	h, err := server.New(e, words{}, nil)
	require.NoError(t, err)
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	s := &service{Server: h, URL: web.URL}
	s.addPets(t)
	contract := readContract(t, s)
	found := s.search(t, "", object{"queries": list{query("dogs bark")}, "subset": list{0, 1, 7}, "filter_condition": "year > ?", "filter_parameters": list{2019}})
	require.Equal(t, []uint32{1}, found.Results[0].Documents)
	require.Equal(t, "dogs", found.Results[0].Metadata[0]["title"])
	found = s.search(t, "_with_encoding", object{"queries": list{"cats sleep"}, "params": object{"top_k": 1}})
	require.Equal(t, []uint32{0}, found.Results[0].Documents)
	for _, no := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/indices/pets/search", object{"text_query": list{"cats"}}},
		{"POST", "/indices/pets/search", object{"queries": list{query("cats")}, "text_query": list{"cats"}}},
		{"POST", "/indices/pets/explain", object{"text": "cats", "id": "a"}},
		{"POST", "/indices/pets/facets", object{"fields": list{"year"}}},
		{"POST", "/indices/pets/recall", object{"queries": list{query("cats")}}},
		{"GET", "/indices/pets/backup", nil},
		{"POST", "/indices/pets/retrain", nil},
		{"POST", "/indices/pets/verify", nil},
	} {
		r := s.send(t, no.method, no.path, no.body)
		require.Equal(t, 400, r.status, no.path)
		isProblem(t, r, server.CodeNotSupported)
		contract.answers(t, no.method, no.path, r)
	}
	r := s.send(t, "PUT", "/indices/pets/backup", "bytes", "Content-Type: application/octet-stream")
	isProblem(t, r, server.CodeNotSupported)
	contract.answers(t, "PUT", "/indices/pets/backup", r)
	r = s.send(t, "PUT", "/indices/pets/import", "bytes", "Content-Type: application/x-tar")
	isProblem(t, r, server.CodeNotSupported)
	contract.answers(t, "PUT", "/indices/pets/import", r)

	s.ok(t, 200, "GET", "/readyz", nil, nil)
	e.fault = errors.New("out of reach")
	s.refused(t, 503, server.CodeBusy, "GET", "/readyz", nil)
	s.ok(t, 200, "GET", "/livez", nil, nil)
}
