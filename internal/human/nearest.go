package human

import (
	"cmp"
	"slices"
	"strings"
)

// longest bounds the characters of names that are compared, since that takes time with
// their square.
const longest = 64

// ByDistance returns names, the nearest to a name first; of those as near as each other the
// first of the alphabet.
func ByDistance(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	all := make([]candidate, len(names))
	for i, other := range names {
		all[i] = candidate{other, Distance(name, other)}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.distance-b.distance, strings.Compare(a.name, b.name))
	})
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].name
	}
	return out
}

// Nearest is the one of names that a name is a misspelling or another form of: a third of its
// characters at most, or one, are others, or more than half of them is how both begin. ""
// if there is none.
func Nearest(name string, names []string) string {
	order := ByDistance(name, names)
	if len(order) == 0 {
		return ""
	}
	x, y := letters(name), letters(order[0])
	begin := 0
	for begin < min(len(x), len(y)) && x[begin] == y[begin] {
		begin++
	}
	if Distance(name, order[0]) > max(1, len(y)/3) && 2*begin <= max(len(x), len(y)) {
		return ""
	}
	return order[0]
}

// Distance is how many characters are missing, too many, others, or have changed places,
// whatever their case.
func Distance(a, b string) int {
	x, y := letters(a), letters(b)
	var before, last, row []int
	for j := range len(y) + 1 {
		last = append(last, j)
	}
	for i := range x {
		row = append(make([]int, 0, len(y)+1), i+1)
		for j := range y {
			d := last[j]
			if x[i] != y[j] {
				d = 1 + min(d, last[j+1], row[j])
			}
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				d = min(d, before[j-1]+1)
			}
			row = append(row, d)
		}
		before, last = last, row
	}
	return last[len(y)]
}

func letters(name string) []rune {
	runes := []rune(strings.ToLower(name))
	return runes[:min(len(runes), longest)]
}
