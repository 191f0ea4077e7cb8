package conditiontest

import "encoding/json"

// ListDocs holds metadata with lists and nested fields, by ids, for tests of packages that evaluate
// conditions.
var ListDocs = map[string]json.RawMessage{
	"l1": json.RawMessage(`{"tags": ["red", "big"], "sizes": [1, 9], "author": {"name": "Ann"}, "list": true}`),
	"l2": json.RawMessage(`{"tags": ["red"], "sizes": [5, null], "author.name": "Ann", "list": true}`),
	"l3": json.RawMessage(`{"tags": [], "author": [{"name": "Ann"}, {"name": ["Bo", "Ann"]}], "list": true}`),
	"l4": json.RawMessage(`{"tags": "red", "sizes": null, "list": true}`),
}

// ListCases maps conditions to the ids of ListDocs that they are true for.
var ListCases = map[string][]string{
	"tags = 'red'":                        {"l1", "l2", "l4"},
	"tags = 'red' AND tags = 'big'":       {"l1"},
	"tags IN ('big', 'blue')":             {"l1"},
	"tags != 'big' AND list = TRUE":       {"l2", "l3", "l4"},
	"NOT tags LIKE 'b%' AND list = TRUE":  {"l2", "l3", "l4"},
	`tags LIKE '%"red"%'`:                 {"l1", "l2"},
	"tags IS NULL AND list = TRUE":        {},
	"sizes > 5":                           {"l1"},
	"sizes BETWEEN 4 AND 6":               {"l2"},
	"sizes IS NULL AND list = TRUE":       {"l3", "l4"},
	"author.name = 'Ann'":                 {"l1", "l2", "l3"},
	`"author.name" = 'Bo'`:                {"l3"},
	"author.name <> 'Bo' AND list = TRUE": {"l1", "l2"},
}

// ListFacets holds the number of ListDocs with each value of a field.
var ListFacets = map[string]map[string]uint64{
	"tags": {`"red"`: 3, `"big"`: 1}, "sizes": {"1": 1, "9": 1, "5": 1}, "author.name": {`"Ann"`: 3, `"Bo"`: 1},
}
