package eval

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Measure is a measure with its parameters, made by [ParseMeasure]. Measures are comparable with
// ==. The zero value is invalid, and [Evaluate] refuses it.
type Measure struct {
	family *family
	cutoff int  // 0 means the whole ranking
	rel    int  // lowest relevant grade, 1 or more, or 0 if the family has no such parameter
	exp    bool // gain 2^grade − 1 instead of grade
}

// family is the common part of measures with one name.
type family struct {
	name    string
	aliases []string
	cutoff  cutoffRule
	rel     bool // takes rel=
	dcg     bool // takes dcg=
	score   func(Measure, ranking) float64
}

// cutoffRule is whether measures of a family have a cutoff.
type cutoffRule int

const (
	cutoffNever cutoffRule = iota
	cutoffMaybe
	cutoffAlways
)

var families = []*family{
	{name: "nDCG", cutoff: cutoffMaybe, dcg: true, score: ndcg},
	{name: "AP", aliases: []string{"MAP"}, cutoff: cutoffMaybe, rel: true, score: averagePrecision},
	{name: "RR", aliases: []string{"MRR"}, cutoff: cutoffMaybe, rel: true, score: reciprocalRank},
	{name: "R", aliases: []string{"Recall"}, cutoff: cutoffAlways, rel: true, score: recall},
	{name: "P", aliases: []string{"Precision"}, cutoff: cutoffAlways, rel: true, score: precision},
	{name: "Success", cutoff: cutoffAlways, rel: true, score: success},
	{name: "Rprec", cutoff: cutoffNever, rel: true, score: rPrecision},
	{name: "Bpref", cutoff: cutoffNever, rel: true, score: bpref},
	{name: "Judged", cutoff: cutoffAlways, score: judgedShare},
	{name: "Hole", cutoff: cutoffAlways, score: holeShare},
}

// measureNames returns the names of families, without aliases.
func measureNames() []string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.name
	}
	return names
}

// familyByName finds a family by its name or alias. It returns nil for unknown names.
func familyByName(name string) *family {
	for _, f := range families {
		if strings.EqualFold(name, f.name) {
			return f
		}
		for _, alias := range f.aliases {
			if strings.EqualFold(name, alias) {
				return f
			}
		}
	}
	return nil
}

// ParseMeasure parses the name of a measure in the syntax of ir_measures: a family, parameters in
// parentheses, a cutoff after @.
//
//	nDCG  nDCG@10  nDCG(dcg='exp-log2')@10    gain: the grade, or 2^grade − 1
//	AP  AP@100  RR  RR@10                     also MAP, MRR
//	R@100  P@10  Success@5                    also Recall, Precision
//	Rprec  Bpref
//	Judged@10  Hole@10
//
// All except nDCG, Judged and Hole take rel, the lowest grade that counts as relevant, 1 by default:
// AP(rel=2), P(rel=2)@10. Names ignore case. Errors wrap [ErrMeasure].
func ParseMeasure(s string) (Measure, error) {
	m, err := parseMeasure(strings.TrimSpace(s))
	if err != nil {
		return Measure{}, fmt.Errorf("%w %q: %w", ErrMeasure, shorten(s), err)
	}
	return m, nil
}

// ParseMeasures parses several names with [ParseMeasure].
func ParseMeasures(names ...string) ([]Measure, error) {
	measures := make([]Measure, len(names))
	for i, name := range names {
		m, err := ParseMeasure(name)
		if err != nil {
			return nil, err
		}
		measures[i] = m
	}
	return measures, nil
}

// DefaultMeasures is the list of default measures.
const DefaultMeasures = "nDCG@10,R@100,RR@10,AP,Success@5"

// ParseMeasureList parses names separated by commas or white space, as in "nDCG@10, P(rel=2)@10".
// Separators within parentheses belong to the name. A list without a name, or with a measure twice,
// wraps [ErrMeasure].
func ParseMeasureList(list string) ([]Measure, error) {
	depth := 0
	names := strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth <= 0 && (r == ',' || unicode.IsSpace(r))
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: the list %q has none", ErrMeasure, shorten(list))
	}
	measures, err := ParseMeasures(names...)
	if err != nil {
		return nil, err
	}
	for i, m := range measures {
		if slices.Contains(measures[:i], m) {
			return nil, fmt.Errorf("%w %q: it is given twice", ErrMeasure, m)
		}
	}
	return measures, nil
}

// parseMeasure is ParseMeasure without the name in errors.
func parseMeasure(s string) (Measure, error) {
	head, cutoff, hasCutoff := s, "", false
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		head, cutoff, hasCutoff = s[:i], s[i+1:], true
	}
	name, params, hasParams := strings.Cut(head, "(")
	if hasParams {
		var closed bool
		if params, closed = strings.CutSuffix(strings.TrimSpace(params), ")"); !closed {
			return Measure{}, fmt.Errorf("the parenthesis is not closed")
		}
	}
	f := familyByName(strings.TrimSpace(name))
	if f == nil {
		return Measure{}, fmt.Errorf("no such name; known are %s", strings.Join(measureNames(), ", "))
	}
	m := Measure{family: f}
	if f.rel {
		m.rel = 1
	}
	if hasParams && strings.TrimSpace(params) != "" {
		if err := m.setParams(params); err != nil {
			return Measure{}, err
		}
	}
	switch {
	case !hasCutoff && f.cutoff == cutoffAlways:
		return Measure{}, fmt.Errorf("it needs a cutoff, as in %s@10", f.name)
	case hasCutoff && f.cutoff == cutoffNever:
		return Measure{}, fmt.Errorf("%s has no cutoff", f.name)
	case hasCutoff:
		var err error
		if m.cutoff, err = positive(cutoff); err != nil {
			return Measure{}, fmt.Errorf("cutoff: %w", err)
		}
	}
	return m, nil
}

// setParams parses the parameters in parentheses.
func (m *Measure) setParams(params string) error {
	seen := make(map[string]bool)
	for param := range strings.SplitSeq(params, ",") {
		key, value, ok := strings.Cut(param, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok {
			return fmt.Errorf("parameter %q has no value", shorten(key))
		}
		if seen[key] {
			return fmt.Errorf("parameter %s is given twice", shorten(key))
		}
		seen[key] = true
		switch {
		case key == "rel" && m.family.rel:
			rel, err := positive(value)
			if err != nil {
				return fmt.Errorf("rel: %w", err)
			}
			m.rel = rel
		case key == "dcg" && m.family.dcg:
			switch unquote(value) {
			case "log2":
				m.exp = false
			case "exp-log2":
				m.exp = true
			default:
				return fmt.Errorf("dcg is %q: want 'log2' or 'exp-log2'", shorten(value))
			}
		default:
			return fmt.Errorf("%s has no parameter %q", m.family.name, shorten(key))
		}
	}
	return nil
}

// positive parses a decimal integer from 1 to 2³¹−1.
func positive(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not an integer from 1 to %d", shorten(s), math.MaxInt32)
	}
	return int(n), nil
}

// unquote removes a pair of single or double quotes.
func unquote(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '\'' || s[0] == '"') {
		return s[1 : n-1]
	}
	return s
}

// String returns the name in the syntax of ir_measures, without default parameters. [ParseMeasure]
// parses it. The zero Measure gives "".
func (m Measure) String() string {
	if m.family == nil {
		return ""
	}
	s := m.family.name
	if m.rel > 1 {
		s += fmt.Sprintf("(rel=%d)", m.rel)
	}
	if m.exp {
		s += "(dcg='exp-log2')"
	}
	if m.cutoff > 0 {
		s += fmt.Sprintf("@%d", m.cutoff)
	}
	return s
}

// Cutoff returns the rank after which hits are ignored, or 0 for none.
func (m Measure) Cutoff() int { return m.cutoff }
