package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// Values of fields are counted over what a search with the same restriction could return.
func TestFacets(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("eels"), query("newts")}, "metadata": list{
		object{"_id": "d", "year": 2020, "tags": list{"wet", true}}, object{"_id": "e", "year": nil, "at": object{"home": 1}}}}, nil)
	type value struct {
		Value any
		Docs  int
	}
	type facet struct {
		Field               string
		Docs, Missing, Null int
		Values              []value
		Others              int
	}
	for name, c := range map[string]struct {
		body object
		want []facet
	}{
		"all":   {object{"fields": list{"year"}}, []facet{{"year", 5, 0, 1, []value{{2020., 2}, {2019., 1}, {2021., 1}}, 0}}},
		"fewer": {object{"fields": list{"year"}, "values": 1}, []facet{{"year", 5, 0, 1, []value{{2020., 2}}, 2}}},
		"several": {object{"fields": list{"tags", "at.home"}, "ids": list{"d", "e", "nobody"}}, []facet{
			{"tags", 2, 1, 0, []value{{true, 1}, {"wet", 1}}, 0}, {"at.home", 2, 1, 0, []value{{1., 1}}, 0}}},
		"condition": {object{"fields": list{"title"}, "filter_condition": "year > ?", "filter_parameters": list{2019}}, []facet{{"title", 3, 1, 0, []value{{"birds", 1}, {"dogs", 1}}, 0}}},
		"both":      {object{"fields": list{"title"}, "filter_condition": "year > 2019", "subset": list{0, 1}}, []facet{{"title", 1, 0, 0, []value{{"dogs", 1}}, 0}}},
		"none":      {object{"fields": list{"title"}, "subset": list{}}, []facet{{"title", 0, 0, 0, []value{}, 0}}},
	} {
		var got struct{ Facets []facet }
		s.ok(t, 200, "POST", "/indices/pets/facets", c.body, &got)
		require.Equal(t, c.want, got.Facets, name)
	}
	for says, body := range map[string]object{
		"fields is empty": {}, "nearest first: year": {"fields": list{"yaer"}}, "_id": {"fields": list{"_id"}}, "fields[1]": {"fields": list{"year", "a b"}},
		"values is 0": {"fields": list{"year"}, "values": 0}, "filter_parameters": {"fields": list{"year"}, "filter_parameters": list{1}},
		"100 are the most": {"fields": make(list, 101)},
	} {
		if fields := body["fields"]; says == "100 are the most" {
			for i := range fields.(list) {
				fields.(list)[i] = "year"
			}
		}
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/facets", body)
		require.Contains(t, p.Message, says)
	}
}

// What is returned of many fields takes no more memory together than the values of one may.
func TestFacetsOfManyFieldsAreBounded(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "long"}, nil)
	var docs, metadata list
	for i := range 12 {
		docs = append(docs, query("cats"))
		metadata = append(metadata, object{"text": fmt.Sprint(i, strings.Repeat("x", 1e6))})
	}
	s.ok(t, 202, "POST", "/indices/long/update", object{"documents": docs, "metadata": metadata}, nil)
	fields := slices.Repeat(list{"text"}, 4)
	s.ok(t, 200, "POST", "/indices/long/facets", object{"fields": fields[:2], "values": 12}, nil)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/long/facets", object{"fields": fields, "values": 12})
	require.Contains(t, p.Message, "too many distinct values")
	s.ok(t, 200, "POST", "/indices/long/facets", object{"fields": fields, "values": 1}, nil)

	small := startAt(t, s.store, words{}, &server.Options{Limits: server.Limits{Answers: 8 << 20}})
	small.ok(t, 200, "POST", "/indices/long/facets", object{"fields": list{"text"}, "values": 1, "subset": list{1}}, nil)
	small.refused(t, 400, server.CodeBadRequest, "POST", "/indices/long/facets", object{"fields": list{"text"}, "values": 1})
}
