package server_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// withFeedback is a search that takes documents for good.
func withFeedback(like ...string) object {
	return object{"queries": list{query("owls")}, "feedback": object{"documents": 1, "like": like}, "metadata": false}
}

// A document that was evicted is no example any more, by its name; what feedback finds by itself
// is among those that are left.
func TestFeedbackOfEvicted(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "x", "config": object{"max_documents": 2}}, nil)
	for i, text := range []string{"owls hunt", "cats hunt", "cats sleep"} {
		if i == 2 {
			require.Equal(t, []string{"d0", "d1"}, s.feedbackIDs(t, "d0"))
		}
		s.ok(t, 202, "POST", "/indices/x/update", object{"documents": list{query(text)}, "metadata": list{object{"_id": fmt.Sprint("d", i)}}}, nil)
	}
	p := s.refused(t, 404, server.CodeDocumentNotFound, "POST", "/indices/x/search", withFeedback("d0"))
	require.Contains(t, p.Message, "d0")
	require.Equal(t, []string{"d1", "d2"}, s.feedbackIDs(t, "d1"))
}

func (s *service) feedbackIDs(t *testing.T, like ...string) []string {
	t.Helper()
	var out struct{ Results []struct{ IDs []string } }
	s.ok(t, 200, "POST", "/indices/x/search", withFeedback(like...), &out)
	return out.Results[0].IDs
}

// A document that is replaced all the while is an example in each search: as it was, or as it is.
func TestFeedbackBesideWriter(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "x"}, nil)
	put := func(n int) int {
		var docs, metadata list
		for i := range n%3 + 1 { // passages
			docs = append(docs, query(fmt.Sprint("owls hunt ", n)))
			metadata = append(metadata, object{"_id": fmt.Sprint("book#", i), "_passage": object{"of": "book", "n": i, "start": i, "end": i + 1}})
		}
		return s.send(t, "POST", "/indices/x/update", object{"documents": docs, "metadata": metadata}).status
	}
	require.Equal(t, 202, put(0))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := range 20 {
				if status := put(n); status != 202 {
					t.Errorf("an update is answered by %d", status)
				}
			}
		})
	}
	wg.Go(func() {
		for range 40 {
			body := withFeedback("book")
			body["group"] = "best"
			if r := s.send(t, "POST", "/indices/x/search", body); r.status != 200 {
				t.Errorf("a search is answered by %s", r.body)
			}
		}
	})
	wg.Wait()
}
