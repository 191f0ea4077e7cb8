package service_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/collectiontest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/server"
)

// declaring is a front that declares and removes collections.
func declaring(t *testing.T, c *clustertest.Cluster, o operate.CreateOptions) *front {
	t.Helper()
	return serveAs(t, c, service.Config{Store: c.Store, Create: o, Threads: 1})
}

// A collection is declared, gets documents, is removed and declared anew as an index of a
// folder: every answer is compared with that of a service over a folder.
func TestDeclareAsAFolder(t *testing.T) {
	c := clustertest.New(t, 3)
	cluster := declaring(t, c, operate.CreateOptions{Shards: 3, Replicas: 2})
	st, err := store.Open(c.Ctx, filepath.Join(t.TempDir(), "data"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(c.Ctx)) })
	folder := serveOver(t, st.Set())
	maker := searchtest.New(7, dim, 12)
	var bodies, metadata list
	for i := range 12 {
		bodies = append(bodies, object{"embeddings": [][]float32{maker.Tokens(1), maker.Tokens(1)}})
		metadata = append(metadata, object{"_id": fmt.Sprint("d", i), "n": i})
	}
	both := func(status int, code server.Code, method, path string, body any, fields ...string) {
		t.Helper()
		var answers [2]object
		for i, f := range []*front{folder, cluster} {
			var a any
			f.do(status, method, path, body, &a)
			answers[i], _ = a.(object)
			if code != "" {
				require.EqualValues(t, code, answers[i]["code"], "%v", a)
			}
			if l, ok := a.(list); ok {
				answers[i] = object{"list": l}
			}
		}
		for _, field := range fields {
			require.Equal(t, answers[0][field], answers[1][field], "%s of %s %s", field, method, path)
		}
		require.ElementsMatch(t, keys(answers[0]), keys(answers[1]), "%s %s", method, path)
	}
	const at = "/indices/papers"
	for range 2 {
		both(200, "", "DELETE", at, nil, "deleted", "name")
		both(404, server.CodeIndexNotFound, "GET", at, nil)
		both(404, server.CodeIndexNotFound, "GET", at+"/stats", nil)
		both(404, server.CodeIndexNotDeclared, "POST", at+"/update", object{"documents": bodies[:1]})
		both(200, "", "POST", "/indices", object{"name": "papers", "config": object{"nbits": 2, "seed": 7}}, "name", "config", "message")
		both(409, server.CodeIndexExists, "POST", "/indices", object{"name": "papers"})
		both(200, "", "GET", "/indices", nil, "list")
		both(404, server.CodeIndexNotFound, "GET", at, nil)
		both(200, "", "GET", at+"/stats", nil, "config", "documents", "generation")
		both(404, server.CodeIndexNotFound, "POST", at+"/search", object{"queries": list{bodies[0]}})
		both(400, server.CodeDimension, "POST", at+"/update", object{"documents": list{bodies[0], object{"embeddings": [][]float32{{1}}}}})
		both(404, server.CodeIndexNotFound, "GET", at, nil)
		both(200, "", "POST", at+"/update", object{"documents": bodies[:5], "metadata": metadata[:5]}, "ids", "count")
		both(200, "", "POST", at+"/update", object{"documents": bodies[5:], "metadata": metadata[5:]}, "ids")
		both(200, "", "GET", at, nil, "name", "num_documents", "num_embeddings", "num_partitions", "dimension", "metadata_count")
		both(200, "", "GET", at+"/stats", nil, "config", "documents", "tokens", "nbits")
		var found [2]searched
		for i, f := range []*front{folder, cluster} {
			f.do(200, "POST", at+"/search", object{"queries": list{bodies[3]}, "params": object{"top_k": 12}, "metadata": false}, &found[i])
			require.Len(t, found[i].Results[0].IDs, 12)
		}
		require.Equal(t, found[0].Results[0].IDs, found[1].Results[0].IDs)
		require.Equal(t, found[0].Results[0].Scores, found[1].Results[0].Scores, "the same codec")
		both(200, "", "DELETE", at+"/documents", object{"condition": "n >= ?", "parameters": list{10}}, "deleted")
	}
	both(200, "", "DELETE", at, nil, "deleted", "name")
	for _, bad := range []string{"", ".x", "a/b", "with space"} {
		both(400, server.CodeBadRequest, "POST", "/indices", object{"name": bad})
	}
	both(400, server.CodeBadRequest, "POST", "/indices", object{"name": "x", "config": object{"nbits": 3}})
	// What a cluster has other rules for.
	msg := cluster.refused(server.CodeBadRequest, 400, "POST", "/indices", object{"name": "Papers"})
	require.Contains(t, msg, "a-z")
	cluster.do(200, "DELETE", "/indices/Papers", nil, nil)
}

func keys(o object) (all []string) {
	for k := range o {
		all = append(all, k)
	}
	return all
}

// Two fronts: what one has removed and declared anew is another index for the other too,
// and what is under way there ends with an error that says to try again, or that there is
// no such index.
func TestDeclareAnewElsewhere(t *testing.T) {
	c := clustertest.New(t, 2)
	one, other := declaring(t, c, operate.CreateOptions{}), declaring(t, c, operate.CreateOptions{Shards: 2})
	maker := searchtest.New(8, dim, 12)
	doc := func(id string) object {
		return object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "metadata": list{object{"_id": id}}}
	}
	const at = "/indices/wiki"
	one.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	c.Await(func() bool { _, err := other.of.Get("wiki"); return err == nil })
	var wg sync.WaitGroup // both give it its first documents
	for i, f := range []*front{one, other} {
		first := doc(fmt.Sprint("old", i))
		wg.Go(func() { f.do(200, "POST", at+"/update", first, nil) })
	}
	wg.Wait()
	stale, err := other.of.Get("wiki")
	require.NoError(t, err)
	one.do(200, "DELETE", at, nil, nil)
	one.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	one.do(200, "POST", at+"/update", doc("new"), nil)
	c.Await(func() bool {
		ix, err := other.of.Get("wiki")
		return err == nil && ix != stale
	})
	_, err = stale.Update(c.Ctx, []collection.Document{{ID: "stale", Dim: dim, Vectors: maker.Tokens(1)}}, collection.UpdateOptions{})
	var p *server.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, server.CodeBusy, p.Code)
	require.NotZero(t, p.RetryAfter)
	var names []string
	for _, f := range []*front{one, other} {
		var s searched
		require.Eventually(t, func() bool { // until the other front knows of the new codec
			ix, err := f.of.Get("wiki")
			if err != nil {
				return false
			}
			st, err := ix.Stats(c.Ctx)
			return err == nil && st.Documents == 1
		}, clustertest.Patience, 10*time.Millisecond)
		f.do(200, "POST", at+"/search", object{"queries": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "params": object{"top_k": 9}, "metadata": false}, &s)
		require.Equal(t, []string{"new"}, s.Results[0].IDs)
		f.do(200, "GET", "/indices", nil, &names)
		require.True(t, slices.Equal([]string{"wiki"}, names))
	}
}

// A collection that an operator is building takes no documents until that is promoted.
func TestFirstDocumentsDuringABuild(t *testing.T) {
	c := clustertest.New(t, 1)
	f := declaring(t, c, operate.CreateOptions{})
	maker := searchtest.New(9, dim, 12)
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	docs := maker.Docs("d", 20, 4)
	_, err := c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.NoError(t, err)
	one := object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}}
	f.refused(server.CodeBusy, 503, "POST", "/indices/wiki/update", one)
	m, err := c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ix, err := f.of.Get("wiki")
		require.NoError(t, err)
		st, err := ix.Stats(c.Ctx)
		return err == nil && st.Generation == m.Current.Number
	}, clustertest.Patience, 10*time.Millisecond)
	f.do(200, "POST", "/indices/wiki/update", one, nil)

	wide := declaring(t, c, operate.CreateOptions{Replicas: 2})
	msg := wide.refused(server.CodeBusy, 503, "POST", "/indices", object{"name": "wide"})
	require.Contains(t, msg, "too few nodes")
}

// The collections of a cluster are what those of a folder are.
func TestSet(t *testing.T) {
	collectiontest.Run(t, declaring(t, clustertest.New(t, 3), operate.CreateOptions{Shards: 2, Replicas: 3}).of)
}
