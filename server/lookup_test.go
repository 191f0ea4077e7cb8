package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// A long document is read in parts, and with as much of its metadata as there is room for.
func TestDocumentsInParts(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "a"}, nil)
	var docs, metadata list
	for _, name := range []string{"plain", "page"} {
		for i := range 2500 {
			id := fmt.Sprintf("%s#%d", name, i)
			m := object{"_id": id, "text": strings.Repeat("x", 100)}
			if name == "page" {
				m["_passage"] = object{"of": name, "n": i, "start": i, "end": i + 1}
			} else if i > 0 {
				break
			} else {
				m["_id"] = name
			}
			docs, metadata = append(docs, object{"embeddings": list{list{1, i}}}), append(metadata, m)
		}
	}
	s.ok(t, 202, "POST", "/indices/a/update", object{"documents": docs, "metadata": metadata}, nil)
	type answer struct {
		Documents []struct {
			ID       string
			Metadata object
			Shape    []int
		}
		Count, Total, Next int
	}
	read := func(query string) (a answer) {
		s.ok(t, 200, "GET", "/indices/a/documents?id=plain&id=page&"+query, nil, &a)
		require.Equal(t, len(a.Documents), a.Count)
		require.Equal(t, 2501, a.Total)
		return a
	}
	all := 0
	for offset, done := 0, false; !done; {
		a := read(fmt.Sprintf("offset=%d", offset))
		require.LessOrEqual(t, a.Count, 1000)
		for _, d := range a.Documents {
			want := "plain"
			if all > 0 {
				want = fmt.Sprintf("page#%d", all-1)
			}
			require.Equal(t, want, d.ID)
			require.Equal(t, want, d.Metadata["_id"])
			all++
		}
		offset, done = a.Next, a.Next == 0
	}
	require.Equal(t, 2501, all)
	require.Equal(t, 2501, read("limit=10000").Count)
	for query, with := range map[string]int{"metadata_bytes=0": 0, "metadata_bytes=1": 1, "metadata_bytes=850": 5, "metadata_bytes=0&vectors=base64": 0, "metadata_bytes=850&vectors=base64": 5} {
		a := read("limit=20&offset=3&" + query)
		require.Equal(t, 23, a.Next)
		require.Equal(t, 20, a.Count)
		for i, d := range a.Documents {
			require.Equal(t, fmt.Sprintf("page#%d", i+2), d.ID)
			require.Equal(t, i < with, d.Metadata != nil, "%s: %d", query, i)
			require.Equal(t, strings.Contains(query, "vectors"), d.Shape != nil)
		}
	}
	require.Empty(t, read("offset=2501").Documents)
	require.Empty(t, read("limit=0").Documents)
	for _, query := range []string{"limit=-1", "limit=10001", "offset=x", "metadata_bytes=-1", "offset=99999999999999999999"} {
		s.refused(t, 400, server.CodeBadRequest, "GET", "/indices/a/documents?id=page&"+query, nil)
	}
}

// The names of fields are read without their values.
func TestNamesOfFields(t *testing.T) {
	s := start(t, nil, nil)
	s.addPets(t)
	var with, without struct{ Metadata []object }
	s.ok(t, 200, "POST", "/indices/pets/metadata/get", object{}, &with)
	s.ok(t, 200, "POST", "/indices/pets/metadata/get", object{"values": false}, &without)
	require.NotEmpty(t, with.Metadata)
	require.Len(t, without.Metadata, len(with.Metadata))
	for i, m := range with.Metadata {
		for name := range m {
			m[name] = nil
		}
		require.Equal(t, m, without.Metadata[i])
	}
}
