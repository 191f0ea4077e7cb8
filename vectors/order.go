package vectors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// SortNumbered puts names in the order of their numbers (2 before 10) if nothing else tells them
// apart: all are integers, or all have the same text around their numbers, and the first numbers that
// differ decide. Else, and where two have the same numbers (7 and 07), it leaves them alone and
// reports false.
func SortNumbered(names []string) bool {
	if len(names) == 0 {
		return true
	}
	type split struct {
		name        string
		text, digit []string
		negative    bool
	}
	all := make([]split, len(names))
	integers := !slices.ContainsFunc(names, func(n string) bool { return !isInteger(n) })
	for i, name := range names {
		s := &all[i]
		s.name = name
		if integers {
			name, s.negative = strings.CutPrefix(name, "-")
		}
		s.text, s.digit = splitNumbers(name)
		if len(s.digit) == 0 && len(names) > 1 || !slices.Equal(s.text, all[0].text) {
			return false
		}
	}
	compare := func(a, b split) int {
		for i := range a.digit {
			x, y := a.digit[i], b.digit[i]
			c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
			switch {
			case x == "" && y == "": // -0 is 0
			case a.negative && b.negative:
				c = -c
			case a.negative && (x != "" || y != ""):
				c = -1
			case b.negative:
				c = 1
			}
			if c != 0 {
				return c
			}
		}
		return 0
	}
	slices.SortFunc(all, compare)
	for i := range all[1:] {
		if compare(all[i], all[i+1]) == 0 {
			return false
		}
	}
	for i, s := range all {
		names[i] = s.name
	}
	return true
}

// isInteger reports whether a name is a number in digits, perhaps with a minus.
func isInteger(name string) bool {
	name = strings.TrimPrefix(name, "-")
	return name != "" && strings.Trim(name, "0123456789") == ""
}

// splitNumbers is the text around the numbers of a name, and the numbers without leading zeros: ""
// is zero.
func splitNumbers(name string) (text, digits []string) {
	for {
		at := strings.IndexAny(name, "0123456789")
		if at < 0 {
			return append(text, name), digits
		}
		text, name = append(text, name[:at]), name[at:]
		end := len(name) - len(strings.TrimLeft(name, "0123456789"))
		digits, name = append(digits, strings.TrimLeft(name[:end], "0")), name[end:]
	}
}

// arrayOrder is the order of the arrays of a container that are documents each, and the error of
// giving them ids by position. Numbers decide where there are any. A format that keeps the order in
// which arrays were saved (kept) has that order; the header of another says nothing, and neither do two
// orders that differ.
func arrayOrder(path string, saved []string, kept bool) (names []string, positional error) {
	names = slices.Clone(saved)
	numbered := SortNumbered(names)
	switch {
	case !numbered && kept, numbered && slices.Equal(names, saved):
	case !numbered:
		positional = faultf(path, ErrID, "its arrays (%s) have no order: the format does not keep the one "+
			"in which they were saved, and no number of each tells it; without a file of ids their names are the ids", someOf(saved))
	case kept:
		names = slices.Clone(saved)
		positional = faultf(path, ErrID, "its arrays are in another order (%s) than that of the numbers in their names, "+
			"and ids by position could mean either; without a file of ids their names are the ids", someOf(saved))
	}
	return names, positional
}

func someOf(names []string) string {
	const most = 4
	var b strings.Builder
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.40q", name)
	}
	if len(names) > most {
		b.WriteString(", …")
	}
	return b.String()
}
