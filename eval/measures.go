package eval

import "math"

// The measures below are those of trec_eval 9 (m_ndcg_cut, m_map, m_recip_rank, m_recall, m_P,
// m_success, m_Rprec, m_bpref), with sums in the same order. Each is 0 for a query without relevant
// documents.

// ndcg is the discounted gain of the ranking divided by that of the best possible ranking of all
// judged documents (Järvelin and Kekäläinen, TOIS 2002).
func ndcg(m Measure, r ranking) float64 {
	if len(r.ideal) == 0 || r.ideal[0] <= 0 {
		return 0
	}
	best := r.ideal
	if m.cutoff > 0 {
		best = best[:min(m.cutoff, len(best))]
	}
	gain := func(grade int) float64 { return float64(grade) }
	if m.exp {
		// Dividing every gain by one power of two does not change the quotient, and avoids
		// the overflow of grades in the thousands.
		shift := 0
		if r.ideal[0] > 50 { // gains below 2⁵³ are exact without it
			shift = r.ideal[0]
		}
		gain = func(grade int) float64 { return math.Ldexp(1, grade-shift) - math.Ldexp(1, -shift) }
	}
	return dcg(r.firstGrades(m.cutoff), gain) / dcg(best, gain)
}

// dcg is the sum of gain / log2(rank + 1). Grades of 0 and less have no gain.
func dcg(grades []int, gain func(int) float64) float64 {
	sum := 0.0
	for i, grade := range grades {
		if grade > 0 {
			sum += gain(grade) / math.Log2(float64(i+2))
		}
	}
	return sum
}

// averagePrecision is the sum of the precisions at each relevant hit, divided by the number of all
// relevant documents, retrieved or not.
func averagePrecision(m Measure, r ranking) float64 {
	relevant := r.relevant(m.rel)
	if relevant == 0 {
		return 0
	}
	sum, found := 0.0, 0
	for i, grade := range r.firstGrades(m.cutoff) {
		if grade >= m.rel {
			found++
			sum += float64(found) / float64(i+1)
		}
	}
	return sum / float64(relevant)
}

// reciprocalRank is 1 / rank of the first relevant hit.
func reciprocalRank(m Measure, r ranking) float64 {
	for i, grade := range r.firstGrades(m.cutoff) {
		if grade >= m.rel {
			return 1 / float64(i+1)
		}
	}
	return 0
}

// recall is the share of the relevant documents among the first k hits.
func recall(m Measure, r ranking) float64 {
	relevant := r.relevant(m.rel)
	if relevant == 0 {
		return 0
	}
	return float64(countFrom(r.firstGrades(m.cutoff), m.rel)) / float64(relevant)
}

// precision is the share of relevant documents among the first k ranks, even if there are fewer
// hits.
func precision(m Measure, r ranking) float64 {
	return float64(countFrom(r.firstGrades(m.cutoff), m.rel)) / float64(m.cutoff)
}

// success is 1 if there is a relevant document among the first k hits.
func success(m Measure, r ranking) float64 {
	if countFrom(r.firstGrades(m.cutoff), m.rel) > 0 {
		return 1
	}
	return 0
}

// rPrecision is the precision at R, the number of relevant documents.
func rPrecision(m Measure, r ranking) float64 {
	relevant := r.relevant(m.rel)
	if relevant == 0 {
		return 0
	}
	return float64(countFrom(r.firstGrades(relevant), m.rel)) / float64(relevant)
}

// bpref averages over relevant documents the share of judged non-relevant documents that rank below
// them; unjudged hits do not count (Buckley and Voorhees, SIGIR 2004, with trec_eval's bound min(R,
// N) on both parts of the fraction).
func bpref(m Measure, r ranking) float64 {
	relevant := r.relevant(m.rel)
	if relevant == 0 {
		return 0
	}
	bound := min(relevant, countFrom(r.ideal, 0)-relevant)
	sum, above := 0.0, 0
	for _, grade := range r.grades {
		switch {
		case grade < 0:
		case grade < m.rel:
			above++
		case above == 0: // bound may be 0
			sum++
		default:
			sum += 1 - float64(min(above, relevant))/float64(bound)
		}
	}
	return sum / float64(relevant)
}

// judgedShare is the share of judged hits, of any grade, among the first k. A shorter ranking is
// divided by its own length, as in ir_measures.
func judgedShare(m Measure, r ranking) float64 {
	top := r.firstGrades(m.cutoff)
	if len(top) == 0 {
		return 0
	}
	return float64(countFrom(top, unjudged+1)) / float64(len(top))
}

// holeShare is the share of unjudged hits among the first k: 1 − judgedShare, or 0 for an empty
// ranking. BEIR's program differs: it counts a judgement for any query.
func holeShare(m Measure, r ranking) float64 {
	top := r.firstGrades(m.cutoff)
	if len(top) == 0 {
		return 0
	}
	return float64(len(top)-countFrom(top, unjudged+1)) / float64(len(top))
}
