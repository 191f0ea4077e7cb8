package vectors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// SortNumbered sorts names by their numbers (2 before 10), if they differ in nothing else: all are
// integers, or all have the same text around their numbers. The first numbers that differ decide.
// Otherwise, and if two names have the same numbers (7 and 07), it leaves them unchanged and returns
// false.
func SortNumbered(names []string) bool {
	if len(names) == 0 {
		return true
	}
	// Split the names, and check that their texts are equal.
	split := make([]numberedName, len(names))
	allIntegers := !slices.ContainsFunc(names, func(n string) bool { return !isInteger(n) })
	for i, name := range names {
		s := &split[i]
		s.name = name
		if allIntegers {
			name, s.negative = strings.CutPrefix(name, "-")
		}
		s.text, s.numbers = splitNumbers(name)
		if len(s.numbers) == 0 && len(names) > 1 || !slices.Equal(s.text, split[0].text) {
			return false
		}
	}
	// Sort them, and check that their numbers differ.
	slices.SortFunc(split, numberedName.compare)
	for i := range split[1:] {
		if split[i].compare(split[i+1]) == 0 {
			return false
		}
	}
	for i, s := range split {
		names[i] = s.name
	}
	return true
}

// numberedName is a name, split into its numbers and the text around them.
type numberedName struct {
	name     string
	text     []string
	numbers  []string // digits without leading zeros. "" is zero
	negative bool     // the name is a negative integer
}

// compare compares the numbers of two names.
func (a numberedName) compare(b numberedName) int {
	for i := range a.numbers {
		x, y := a.numbers[i], b.numbers[i]
		order := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
		switch {
		case x == "" && y == "": // -0 is 0
		case a.negative && b.negative:
			order = -order
		case a.negative && (x != "" || y != ""):
			order = -1
		case b.negative:
			order = 1
		}
		if order != 0 {
			return order
		}
	}
	return 0
}

// isInteger reports whether a name is an integer in digits, with an optional minus.
func isInteger(name string) bool {
	name = strings.TrimPrefix(name, "-")
	return name != "" && strings.Trim(name, "0123456789") == ""
}

// splitNumbers returns the texts around the numbers of a name, and the digits of the numbers without
// leading zeros, "" for zero.
func splitNumbers(name string) (text, numbers []string) {
	for {
		i := strings.IndexAny(name, "0123456789")
		if i < 0 {
			return append(text, name), numbers
		}
		text, name = append(text, name[:i]), name[i:]
		end := len(name) - len(strings.TrimLeft(name, "0123456789"))
		numbers, name = append(numbers, strings.TrimLeft(name[:end], "0")), name[end:]
	}
}

// arrayOrder returns the order of arrays that are separate documents, and an error for giving them ids by
// position if their order is not clear. saved is their order in the file; savedInOrder means that the
// format keeps the order in which they were saved.
//
//   - If their names have numbers, these decide, unless they contradict the order that the format keeps.
//   - Without numbers the order is the one that the format keeps.
//   - Otherwise it is not clear.
func arrayOrder(path string, saved []string, savedInOrder bool) (names []string, orderErr error) {
	names = slices.Clone(saved)
	numbered := SortNumbered(names)
	switch {
	case !numbered && savedInOrder, numbered && slices.Equal(names, saved):
	case !numbered:
		orderErr = faultf(path, ErrID, "its arrays (%s) have no order: the format does not keep the one "+
			"in which they were saved, and no number of each tells it; without a file of ids their names are the ids",
			listFirst(saved))
	case savedInOrder:
		names = slices.Clone(saved)
		orderErr = faultf(path, ErrID, "its arrays are in another order (%s) than that of the numbers in their names, "+
			"and ids by position could mean either; without a file of ids their names are the ids", listFirst(saved))
	}
	return names, orderErr
}

// listFirst lists the first names, for messages.
func listFirst(names []string) string {
	const limit = 4
	var b strings.Builder
	for i, name := range names[:min(len(names), limit)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.40q", name)
	}
	if len(names) > limit {
		b.WriteString(", …")
	}
	return b.String()
}
