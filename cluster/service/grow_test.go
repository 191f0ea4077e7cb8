package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/server"
)

type statistics struct {
	Documents  uint64 `json:"documents"`
	Passages   uint64 `json:"passages"`
	Deleted    uint64 `json:"deleted_documents"`
	Tokens     uint64 `json:"tokens"`
	Nbits      int    `json:"nbits"`
	Centroids  int    `json:"centroids"`
	Generation uint64 `json:"generation"`
	Growth     struct {
		Stage    collection.Stage `json:"stage"`
		Training bool             `json:"training"`
		Failed   string           `json:"training_failed"`
		Drift    struct {
			Trained   uint64  `json:"trained_tokens"`
			TrainRMSE float64 `json:"train_rmse"`
			Added     uint64  `json:"added_tokens"`
			AddedRMSE float64 `json:"added_rmse"`
			Ratio     float64 `json:"ratio"`
			Centroids int     `json:"centroids"`
		} `json:"drift"`
	} `json:"growth"`
}

// A collection grows from one document through all stages while it is written to, is trained
// anew when somebody wants that, and keeps its documents, their numbers and their metadata.
func TestGrow(t *testing.T) {
	c := clustertest.New(t, 3)
	f := serveAs(t, c, service.Config{
		Store: c.Store, Create: operate.CreateOptions{Shards: 3, Replicas: 2}, Threads: 1, Dir: t.TempDir(),
		Growth: collection.Growth{Flat: 40, Until: 160, Factor: 2},
	})
	maker := searchtest.New(3, dim, 12)
	const at = "/indices/grown"
	f.do(200, "POST", "/indices", object{"name": "grown", "config": object{"nbits": 2}}, nil)
	f.refused(server.CodeIndexNotFound, 404, "POST", at+"/retrain", nil)
	numbers := map[string]uint64{}
	add := func(i, tokens int) {
		t.Helper()
		var r struct {
			Documents []uint64 `json:"document_ids"`
			IDs       []string `json:"ids"`
		}
		var v [][]float32
		for range tokens {
			v = append(v, maker.Tokens(1))
		}
		f.do(200, "POST", at+"/update", object{"documents": list{object{"embeddings": v}}, "metadata": list{object{"_id": fmt.Sprint("d", i), "n": i}}}, &r)
		numbers[r.IDs[0]] = r.Documents[0]
	}
	stats := func() (st statistics) {
		f.do(200, "GET", at+"/stats", nil, &st)
		require.Empty(t, st.Growth.Failed)
		return st
	}
	reach := func(stage collection.Stage) {
		t.Helper()
		require.Eventually(t, func() bool { return stats().Growth.Stage == stage }, clustertest.Patience, 20*time.Millisecond)
	}
	add(0, 4)
	require.Equal(t, collection.StageFlat, stats().Growth.Stage)
	n := 1
	for ; n < 14; n++ {
		add(n, 4)
	}
	f.do(200, "DELETE", at+"/documents", object{"condition": "n = ?", "parameters": list{3}}, nil)
	delete(numbers, "d3")
	reach(collection.StagePrecise)
	for ; n < 50; n++ { // while trainings run
		add(n, 4)
	}
	reach(collection.StageFinal)
	all := func() {
		t.Helper()
		st := stats()
		require.EqualValues(t, len(numbers), st.Documents)
		var got struct {
			Metadata []object `json:"metadata"`
		}
		f.do(200, "GET", at+"/metadata", nil, &got)
		require.Len(t, got.Metadata, len(numbers))
		for _, m := range got.Metadata {
			id := m["_id"].(string)
			require.EqualValues(t, numbers[id], m["_subset_"], "the number of %s stays", id)
			require.Equal(t, id, fmt.Sprint("d", m["n"]))
		}
	}
	all()
	before := stats()
	require.Equal(t, 2, before.Nbits)
	require.Positive(t, before.Growth.Drift.TrainRMSE)
	for ; n < 70; n++ {
		add(n, 2)
	}
	drifted := stats().Growth.Drift
	require.EqualValues(t, 40+before.Growth.Drift.Added, drifted.Added)
	require.InDelta(t, drifted.AddedRMSE/drifted.TrainRMSE, drifted.Ratio, 1e-6)
	require.Positive(t, drifted.AddedRMSE)

	done := make(chan struct{}) // changes go on while it is trained anew
	go func() {
		defer close(done)
		for i := range 30 {
			add(1000+i, 1)
			if i%10 == 5 {
				f.do(200, "DELETE", at+"/documents", object{"condition": "n = ?", "parameters": list{i}}, nil)
			}
		}
	}()
	var report struct {
		Docs   int `json:"docs"`
		Before struct{ Nbits int }
		After  struct{ Nbits, Centroids int }
	}
	f.do(200, "POST", at+"/retrain", nil, &report)
	<-done
	for _, i := range []int{5, 15, 25} {
		delete(numbers, fmt.Sprint("d", i))
	}
	require.GreaterOrEqual(t, report.Docs, 69-30)
	require.Equal(t, 2, report.After.Nbits)
	now := stats()
	require.Greater(t, now.Generation, before.Generation)
	require.Equal(t, collection.StageFinal, now.Growth.Stage)
	require.Greater(t, now.Growth.Drift.Trained, before.Growth.Drift.Trained)
	all()
	checks, err := c.Op.Verify(c.Ctx, "grown")
	require.NoError(t, err)
	require.Len(t, checks, 3)
	var s searched
	f.do(200, "POST", at+"/search", object{"queries": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "params": object{"top_k": 200, "mode": "exhaustive"}, "metadata": false}, &s)
	require.Len(t, s.Results[0].IDs, len(numbers))

	// A node that comes later begins with what the generation was made of, and the log.
	c.Start("n3")
	_, err = c.Op.Rebalance(c.Ctx, "grown")
	require.NoError(t, err)
	_, err = c.Op.Verify(c.Ctx, "grown")
	require.NoError(t, err)
}

// A shard in which nothing has changed since the collection was declared is trained anew with
// the others, and takes documents afterwards.
func TestRetrainShardWithoutDocuments(t *testing.T) {
	c := clustertest.New(t, 1)
	f := declaring(t, c, operate.CreateOptions{Shards: 3})
	maker := searchtest.New(5, dim, 12)
	const at = "/indices/wiki"
	add := func(n int) {
		t.Helper()
		var docs list
		for range n {
			docs = append(docs, object{"embeddings": [][]float32{maker.Tokens(1)}})
		}
		f.do(200, "POST", at+"/update", object{"documents": docs}, nil)
	}
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	add(1)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	var report struct{ Docs int }
	f.do(200, "POST", at+"/retrain", nil, &report)
	require.Equal(t, 1, report.Docs)
	c.Await(func() bool { // this watcher is not the service's
		now, err := c.Op.Watcher().Map("wiki")
		return err == nil && now.Current.Number > m.Current.Number
	})
	add(30)
	f.do(200, "POST", at+"/retrain", nil, &report)
	require.Equal(t, 31, report.Docs)
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// A training that is given up leaves the collection as it was, also where nobody builds.
func TestRetrainGivenUp(t *testing.T) {
	c := clustertest.New(t, 1)
	f := declaring(t, c, operate.CreateOptions{})
	maker := searchtest.New(4, dim, 12)
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	f.do(200, "POST", "/indices/wiki/update", object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}}, nil)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	c.Stop("n0")
	c.Start("n0", func(cfg *node.Config) { cfg.Builds = false })
	c.Ready("n0")
	c.Await(func() bool { return !c.Op.Watcher().Leases()[0].Builds })
	require.Eventually(t, func() bool { _, err := f.of.Get("wiki"); return err == nil }, clustertest.Patience, time.Millisecond)
	msg := f.refused(server.CodeBusy, 503, "POST", "/indices/wiki/retrain", nil)
	require.Contains(t, msg, "builds")
	c.Stop("n0")
	c.Start("n0")
	c.Ready("n0")
	ctx, stop := context.WithTimeout(c.Ctx, 10*time.Millisecond) // the client goes away
	defer stop()
	ix, err := f.of.Get("wiki")
	require.NoError(t, err)
	if _, err = ix.(collection.Retrainer).Retrain(ctx); err != nil {
		require.ErrorIs(t, err, context.DeadlineExceeded)
		now, err := c.Op.Watcher().Map("wiki")
		require.NoError(t, err)
		require.Equal(t, m.Current.Number, now.Current.Number)
	}
	c.Await(func() bool {
		now, err := c.Op.Watcher().Map("wiki")
		return err == nil && now.Next == nil && len(now.Reserved) == 0
	})
	require.Eventually(t, func() bool { _, err := ix.(collection.Retrainer).Retrain(c.Ctx); return err == nil }, clustertest.Patience, time.Millisecond)
}

// Shards that have nothing yet are trained anew with the others.
func TestRetrainBesideEmptyShards(t *testing.T) {
	c := clustertest.New(t, 1)
	f := declaring(t, c, operate.CreateOptions{Shards: 3})
	maker := searchtest.New(4, dim, 12)
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	f.do(200, "POST", "/indices/wiki/update", object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1), maker.Tokens(1)}}}}, nil)
	var report struct{ Docs int }
	f.do(200, "POST", "/indices/wiki/retrain", nil, &report)
	require.Equal(t, 1, report.Docs)
	f.do(200, "POST", "/indices/wiki/retrain", nil, &report) // also a second time
	require.Equal(t, 1, report.Docs)
	_, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}
