package eval

// RBO returns the extrapolated rank-biased overlap of two rankings, between 0 (no
// document in common) and 1: equation 32 of Webber, Moffat and Zobel, "A
// similarity measure for indefinite rankings", TOIS 28(4), 2010, which for lists
// of one length is their equation 23. It does not depend on which list is given
// first.
//
// p, above 0 and below 1, is the chance that a reader who compared the lists down
// to some depth goes on by one rank: depth d has the weight (1−p)·p^(d−1), and the
// mean depth is 1/(1−p), 10 for p = 0.9. Another p wraps [ErrParameter].
//
// A document repeated within a list counts at its first rank and those after it
// move up. The paper leaves out empty lists: two of them give 1, one gives 0.
func RBO(a, b []string, p float64) (float64, error) {
	if err := checkPersistence(p); err != nil {
		return 0, err
	}
	short, long := distinct(a), distinct(b)
	if len(short) > len(long) {
		short, long = long, short
	}
	s := len(short)
	if s == 0 {
		if len(long) == 0 {
			return 1, nil
		}
		return 0, nil
	}

	var (
		once           = make(map[string]struct{}, len(long))
		overlap        int // X_d: documents in both lists down to depth d
		atEnd          int // X_s: the overlap where the short list ends
		agreement      float64
		sum, weightSum float64
		weight         = 1 - p
	)
	meet := func(doc string) {
		if _, ok := once[doc]; ok {
			overlap++
		} else {
			once[doc] = struct{}{}
		}
	}
	for d := 1; d <= len(long); d++ {
		meet(long[d-1])
		found := 0.0
		if d <= s {
			meet(short[d-1])
			atEnd = overlap
		} else {
			// The short list is taken to go on with documents of the long one
			// at the rate that it had.
			found = float64(atEnd) * float64(d-s) / float64(s)
		}
		agreement = (float64(overlap) + found) / float64(d)
		sum += weight * agreement
		weightSum += weight
		weight *= p
	}
	// Beyond both lists the agreement stays as it is, with the weight p^l.
	rest := weight / (1 - p)
	// The weights add up to 1. Dividing by them takes out their rounding, so that
	// equal lists give exactly 1.
	return (sum + rest*agreement) / (weightSum + rest), nil
}

func checkPersistence(p float64) error {
	if p > 0 && p < 1 {
		return nil
	}
	return badParameter("p of RBO is %v: want above 0 and below 1", p)
}

// distinct leaves out the documents of a ranking that it had before.
func distinct(docs []string) []string {
	seen := make(map[string]struct{}, len(docs))
	kept := make([]string, 0, len(docs))
	for _, doc := range docs {
		if _, ok := seen[doc]; !ok {
			seen[doc] = struct{}{}
			kept = append(kept, doc)
		}
	}
	return kept
}
