// Package chars has the properties of characters as the Python package "tokenizers"
// sees them: categories, lower case, normalization forms and
// grapheme clusters.
//
// Its tables are generated from that package's behavior (gen.py), not from a version
// of Unicode, because the package's parts follow different versions: the categories
// of the Bert normalizer are of about Unicode 8, combining classes of about 12,
// lower case of 16 or later. golang.org/x/text and Go's own tables have one
// version, which changes with the release, and x/text inserts U+034F into long runs
// of marks. So neither is used, and results do not depend on the Go release.
//
// Call [Load] before anything else.
package chars

import (
	_ "embed"
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// Prop is a set of properties, in the low bits of what [InfoOf] returns.
type Prop uint32

// Properties of a character, the first of them in the order of tables.bin.
const (
	BertRemoved Prop = 1 << iota // dropped by clean_text
	BertBlank                    // made a blank by clean_text
	CJK                          // surrounded by blanks by handle_chinese_chars
	BertMark                     // dropped by the Bert normalizer's strip_accents
	Mark                         // dropped by the normalizer StripAccents
	Space                        // white space to Strip, WhitespaceSplit and the like
	Punct                        // punctuation to BertPreTokenizer and Punctuation
	Numeric                      // a digit to Digits
	Word                         // \w of Whitespace and of single_word
	Letter                       // \p{L} of regular expressions
	Number                       // \p{N} of regular expressions
	Blank                        // \s of regular expressions
	InConsonant                  // of an Indic conjunct
	InExtend                     // may be within an Indic conjunct
	InLinker                     // joins the consonants of an Indic conjunct

	Decomposes  // has a canonical decomposition
	DecomposesK // has another compatible one
	Lowers      // has a lower case
	Joins       // may compose with, or be ordered among, what precedes it
)

const (
	clusterShift = 20
	classShift   = 24
)

// Cluster is the class of a character that determines the bounds of grapheme clusters.
type Cluster uint8

// Cluster classes. Regional indicators have none: a pair of them is
// eight bytes, and the tokenizers treat such clusters character by character.
// After Other, the classes are in the order of tables.bin.
const (
	Other Cluster = iota
	Control
	Extend
	ZWJ
	SpacingMark
	Prepend
	Pictographic
	HangulL
	HangulV
	HangulT
	HangulLV
	HangulLVT
)

// Info holds the properties, the cluster class and the canonical combining class of a
// character.
type Info uint32

// Is reports whether the character has any of the properties.
func (i Info) Is(p Prop) bool { return Prop(i)&p != 0 }

// Cluster returns the class for grapheme clusters.
func (i Info) Cluster() Cluster { return Cluster(i >> clusterShift & 15) }

// Class returns the canonical combining class, or 0 for characters other than combining marks.
func (i Info) Class() uint8 { return uint8(i >> classShift) }

const maxRune = 0x10FFFF

var (
	index [(maxRune + 1) >> 8]uint16
	pages [][256]Info
	forms normalForms
	lower map[rune]rune
	once  sync.Once
)

// Load builds the tables, once. It takes a few milliseconds, which programs
// without a tokenizer do not spend.
func Load() { once.Do(load) }

// InfoOf returns the properties of r, which must be a code point.
func InfoOf(r rune) Info { return pages[index[r>>8]][r&255] }

// Lower returns the lower case of r: one character, and second is 0, except for U+0130, which has
// two.
func Lower(r rune) (first, second rune) {
	if r == 0x130 {
		return 'i', 0x307
	}
	if l, ok := lower[r]; ok {
		return l, 0
	}
	return r, 0
}

// tablesBin is the output of gen.py, in these parts: for each property, and then for each class
// of clusters, pairs of first and last code points; first, last and canonical combining
// class; first, last, step and the difference to the lower case; each character with
// its full canonical decomposition, ended by NUL; the same for characters whose NFKD differs from
// NFD; triples of two characters and their composition in NFC.
//
//go:embed tables.bin
var tablesBin string

// tables is the part of tablesBin that is not read yet. Lists and texts follow their lengths.
type tables string

// number reads a number.
func (t *tables) number() rune {
	n, size := binary.Varint([]byte((*t)[:min(len(*t), binary.MaxVarintLen32)]))
	*t = (*t)[size:]
	return rune(n)
}

// numbers reads a list of numbers.
func (t *tables) numbers() []rune {
	list := make([]rune, t.number())
	for i := range list {
		list[i] = t.number()
	}
	return list
}

// readText reads a text.
func (t *tables) readText() string {
	size := t.number()
	text := (*t)[:size]
	*t = (*t)[size:]
	return string(text)
}

// load builds the tables.
func load() {
	// Collect the properties of all characters.
	input := tables(tablesBin)
	flat := make([]Info, maxRune+1)
	mark := func(bounds []rune, info Info) {
		for i := 0; i < len(bounds); i += 2 {
			for r := bounds[i]; r <= bounds[i+1]; r++ {
				flat[r] |= info
			}
		}
	}
	for p := BertRemoved; p <= InLinker; p <<= 1 {
		mark(input.numbers(), Info(p))
	}
	for c := Control; c <= HangulT; c++ {
		mark(input.numbers(), Info(c)<<clusterShift)
	}
	for c := input.numbers(); len(c) > 0; c = c[3:] {
		mark(c[:2], Info(c[2])<<classShift|Info(Joins))
	}
	lower = map[rune]rune{}
	for l := input.numbers(); len(l) > 0; l = l[4:] {
		for r := l[0]; r <= l[1]; r += l[2] {
			lower[r] = r + l[3]
			flat[r] |= Info(Lowers)
		}
	}
	flat[0x130] |= Info(Lowers) // becomes two characters, which the differences cannot say; see Lower
	for r := rune(hangulFirst); r < hangulFirst+hangulCount; r++ {
		c := HangulLVT
		if (r-hangulFirst)%hangulTs == 0 {
			c = HangulLV
		}
		flat[r] |= Info(Decomposes) | Info(c)<<clusterShift
	}
	forms.load(&input, flat)
	// Store equal pages of 256 characters once.
	seen := map[[256]Info]uint16{}
	for i := range index {
		page := [256]Info(flat[i<<8 : i<<8+256])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(pages))
			seen[page] = n
			pages = append(pages, page)
		}
		index[i] = n
	}
}

// ClusterEnd returns the end of the grapheme cluster that begins at from, by the rules of Unicode's
// UAX 29. The text must be valid UTF-8 and longer than from.
func ClusterEnd(text []byte, from int) int {
	r, n := utf8.DecodeRune(text[from:])
	end := from + n
	info := InfoOf(r)
	prev, prevRune := info.Cluster(), r
	pictograph := prev == Pictographic               // the cluster ends with a pictograph and only Extend after it
	joined := false                                  // it ends with such a pictograph and a joiner
	consonant, linked := info.Is(InConsonant), false // it ends within an Indic conjunct, after a linker
	for end < len(text) {
		r, n = utf8.DecodeRune(text[end:])
		info = InfoOf(r)
		c := info.Cluster()
		switch {
		case prevRune == '\r' && r == '\n':
		case prev == Control || c == Control:
			return end
		case c == Extend || c == ZWJ || c == SpacingMark || prev == Prepend:
		case prev == HangulL && (c == HangulL || c == HangulV || c == HangulLV || c == HangulLVT):
		case (prev == HangulLV || prev == HangulV) && (c == HangulV || c == HangulT):
		case (prev == HangulLVT || prev == HangulT) && c == HangulT:
		case joined && c == Pictographic:
		case consonant && linked && info.Is(InConsonant):
		default:
			return end
		}
		joined = pictograph && c == ZWJ
		pictograph = c == Pictographic || pictograph && c == Extend
		switch {
		case info.Is(InConsonant):
			consonant, linked = true, false
		case info.Is(InLinker):
			linked = consonant
		case !info.Is(InExtend):
			consonant, linked = false, false
		}
		prev, prevRune = c, r
		end += n
	}
	return end
}
