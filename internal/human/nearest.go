package human

import (
	"cmp"
	"slices"
	"strings"
)

// maxCompared limits the characters of names that are compared, since the time grows with their
// square.
const maxCompared = 64

// ByDistance returns names sorted by their distance to a name, and then alphabetically.
func ByDistance(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	candidates := make([]candidate, len(names))
	for i, other := range names {
		candidates[i] = candidate{other, Distance(name, other)}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(a.distance-b.distance, strings.Compare(a.name, b.name))
	})
	out := make([]string, len(candidates))
	for i := range candidates {
		out[i] = candidates[i].name
	}
	return out
}

// Nearest returns the name that name is probably a misspelling or another form of: at most a third
// of its characters, or one, differ, or both share more than half of them as a prefix. It returns
// "" if no name is near enough.
func Nearest(name string, names []string) string {
	order := ByDistance(name, names)
	if len(order) == 0 {
		return ""
	}
	x, y := lowerRunes(name), lowerRunes(order[0])
	common := 0
	for common < min(len(x), len(y)) && x[common] == y[common] {
		common++
	}
	if Distance(name, order[0]) > max(1, len(y)/3) && 2*common <= max(len(x), len(y)) {
		return ""
	}
	return order[0]
}

// Distance returns how many characters are missing, extra, replaced or transposed, ignoring case
// (optimal string alignment).
func Distance(a, b string) int {
	x, y := lowerRunes(a), lowerRunes(b)
	var twoRowsUp, previous, row []int
	for j := range len(y) + 1 {
		previous = append(previous, j)
	}
	for i := range x {
		row = append(make([]int, 0, len(y)+1), i+1)
		for j := range y {
			d := previous[j]
			if x[i] != y[j] {
				d = 1 + min(d, previous[j+1], row[j])
			}
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				d = min(d, twoRowsUp[j-1]+1)
			}
			row = append(row, d)
		}
		twoRowsUp, previous = previous, row
	}
	return previous[len(y)]
}

// lowerRunes returns the first characters of a name in lower case.
func lowerRunes(name string) []rune {
	runes := []rune(strings.ToLower(name))
	return runes[:min(len(runes), maxCompared)]
}
