package chars

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Item is a character between the steps of a normalization form, with the range
// of the source that it was made from.
type Item struct {
	R          rune
	Class      uint8
	Start, End int32
}

// Hangul syllables are composed by arithmetic, as chapter 3.12 of Unicode describes.
const (
	hangulFirst = 0xAC00
	hangulL     = 0x1100
	hangulV     = 0x1161
	hangulT     = 0x11A7 // one before the first trailing consonant
	hangulLs    = 19
	hangulVs    = 21
	hangulTs    = 28
	hangulCount = hangulLs * hangulVs * hangulTs
)

// normalForms maps characters to their decompositions, and pairs to their compositions.
type normalForms struct {
	canonical, compatible map[rune]string
	composed              map[[2]rune]rune
}

// load reads the forms, and adds their properties to flat.
func (f *normalForms) load(t *tables, flat []Info) {
	f.canonical = decompositions(t.readText())
	f.compatible = decompositions(t.readText())
	f.composed = map[[2]rune]rune{}
	for input := t.readText(); input != ""; {
		var triple [3]rune
		for i := range triple {
			r, n := utf8.DecodeRuneInString(input)
			triple[i], input = r, input[n:]
		}
		f.composed[[2]rune{triple[0], triple[1]}] = triple[2]
		flat[triple[1]] |= Info(Joins)
	}
	for r := rune(hangulV); r < hangulV+hangulVs; r++ {
		flat[r] |= Info(Joins)
	}
	for r := rune(hangulT + 1); r < hangulT+hangulTs; r++ {
		flat[r] |= Info(Joins)
	}
	for r, d := range f.canonical {
		flat[r] |= Info(Decomposes) | flat[firstRune(d)]&Info(Joins)
	}
	for r, d := range f.compatible {
		flat[r] |= Info(DecomposesK) | flat[firstRune(d)]&Info(Joins)
	}
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// decompositions parses a list of characters with their decompositions, each
// ended by NUL.
func decompositions(list string) map[rune]string {
	m := map[rune]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		r, n := utf8.DecodeRuneInString(entry)
		m[r] = entry[n:]
	}
	return m
}

// AppendDecomposed appends the full decomposition of r, whose source is start to end: the canonical
// one or, with compat, the compatible one.
func AppendDecomposed(items []Item, r rune, start, end int32, compat bool) []Item {
	info := InfoOf(r)
	if !info.Is(Decomposes | DecomposesK) {
		return append(items, Item{r, info.Class(), start, end})
	}
	if s := r - hangulFirst; s >= 0 && s < hangulCount {
		items = append(items,
			Item{hangulL + s/(hangulVs*hangulTs), 0, start, end},
			Item{hangulV + s%(hangulVs*hangulTs)/hangulTs, 0, start, end})
		if t := s % hangulTs; t != 0 {
			items = append(items, Item{hangulT + t, 0, start, end})
		}
		return items
	}
	d, ok := "", false
	if compat {
		d, ok = forms.compatible[r]
	}
	if !ok {
		if d, ok = forms.canonical[r]; !ok {
			return append(items, Item{r, info.Class(), start, end})
		}
	}
	for _, c := range d {
		items = append(items, Item{c, InfoOf(c).Class(), start, end})
	}
	return items
}

// Order sorts runs of combining marks by their classes. Sources are not sorted with the marks, as
// in the Python package: the first of the sorted marks has the source of the mark that was
// first before.
func Order(items []Item) {
	for i := 0; i < len(items); {
		if items[i].Class == 0 {
			i++
			continue
		}
		j, sorted := i+1, true
		for ; j < len(items) && items[j].Class != 0; j++ {
			sorted = sorted && items[j-1].Class <= items[j].Class
		}
		if !sorted {
			run, sources := items[i:j], make([]Item, j-i)
			copy(sources, run)
			slices.SortStableFunc(run, func(a, b Item) int { return int(a.Class) - int(b.Class) })
			for k := range run {
				run[k].Start, run[k].End = sources[k].Start, sources[k].End
			}
		}
		i = j
	}
}

// Compose composes decomposed and ordered items, in place, and returns the remaining
// items.
func Compose(items []Item) []Item {
	n, starter, last := 0, -1, uint8(0)
	for _, it := range items {
		// An item is blocked by an item of its class or a higher one between it and the starter.
		if starter >= 0 && (n == starter+1 || last != 0 && last < it.Class) {
			if c, ok := compose(items[starter].R, it.R); ok {
				s := &items[starter]
				s.R, s.Start, s.End = c, min(s.Start, it.Start), max(s.End, it.End)
				continue
			}
		}
		if it.Class == 0 {
			starter = n
		}
		last = it.Class
		items[n] = it
		n++
	}
	return items[:n]
}

// compose returns the composition of two characters, if they have one.
func compose(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; l >= 0 && l < hangulLs && v >= 0 && v < hangulVs {
		return hangulFirst + (l*hangulVs+v)*hangulTs, true
	}
	if s, t := a-hangulFirst, b-hangulT; s >= 0 && s < hangulCount && s%hangulTs == 0 && t > 0 && t < hangulTs {
		return a + t, true
	}
	c, ok := forms.composed[[2]rune{a, b}]
	return c, ok
}
