package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
)

// What sampled questions have found is in the metrics, in the statistics and in what is told of the
// index, as these are described; vectors and texts are asked alike, filters are left out.
func TestSampled(t *testing.T) {
	st := openStore(t, &store.Options{
		Sampling: collection.Sampling{Rate: 1, Busy: 1}, Derive: store.DeriveKeywords(nil),
	})
	s := startAt(t, st, words{}, nil)
	c := readContract(t, s)
	s.addPets(t)
	require.NotContains(t, s.send(t, "GET", "/metrics", nil).body, "plaid_index_sampled")
	s.search(t, "", object{"queries": list{query("cats"), query("dogs bark")}})
	s.search(t, "_with_encoding", object{"queries": list{"cats", object{"text": "dogs", "subset": list{1}}}})
	s.search(t, "", object{"queries": list{query("cats")}, "subset": list{0}})
	s.search(t, "", object{"queries": list{query("cats")}, "params": object{"mode": "exhaustive"}})
	s.ok(t, 200, "POST", "/indices/pets/recall", object{"queries": list{query("cats")}, "params": object{"top_k": 2}}, nil)
	var info struct{ Sampled *collection.Sampled }
	for _, path := range []string{"/indices/pets", "/indices/pets/stats"} {
		require.Eventually(t, func() bool {
			s.ok(t, 200, "GET", path, nil, &info)
			return info.Sampled != nil && info.Sampled.Measured == 3
		}, time.Minute, time.Millisecond)
		require.EqualValues(t, 3, info.Sampled.Offered)
		require.Len(t, info.Sampled.Classes, 2)
		require.Nil(t, info.Sampled.Classes[0].Promised)
		c.answers(t, "GET", path, s.send(t, "GET", path, nil))
	}
	page := s.send(t, "GET", "/metrics", nil).body
	for _, line := range []string{
		`plaid_index_sampled_questions{index="pets",k="10"} 3`,
		`plaid_index_sampled_recall{index="pets",k="100"} 1`,
		`plaid_index_sampled_recall_worst{index="pets",k="10"} 1`,
		`plaid_index_sampled_recall_error{index="pets",k="10"} 0.0`,
		`plaid_index_sampled_total{index="pets",result="measured"} 3`,
		`plaid_index_sampled_total{index="pets",result="failed"} 0`,
	} {
		require.Contains(t, page, "\n"+line)
	}
	require.NotContains(t, page, "sampled_recall_promised", "nothing was")
	s.ok(t, 200, "DELETE", "/indices/pets", nil, nil)
	require.NotContains(t, s.send(t, "GET", "/metrics", nil).body, "plaid_index_sampled")
	require.Equal(t, 404, s.send(t, "GET", "/indices/pets", nil).status)
}
