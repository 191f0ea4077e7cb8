package main

import (
	"math"

	"github.com/plaid-ir/plaid/eval"
)

type compareJSON struct {
	First       string            `json:"first"`
	Ties        string            `json:"ties"`
	ExcludeSelf bool              `json:"exclude_self"`
	Judged      *judgedJSON       `json:"judged,omitempty"` // with judgements
	Runs        []comparedRunJSON `json:"runs"`
}

type judgedJSON struct {
	Qrels      string  `json:"qrels"`
	Average    string  `json:"average"`
	Queries    int     `json:"queries"`
	Seed       uint64  `json:"seed"`
	Samples    int     `json:"samples"`
	Confidence float64 `json:"confidence"`
	Holm       string  `json:"holm"`
}

type comparedRunJSON struct {
	Run       string           `json:"run"`
	Measures  []differenceJSON `json:"measures,omitempty"`
	Agreement agreementJSON    `json:"agreement"`
}

type differenceJSON struct {
	Measure    string     `json:"measure"`
	First      float64    `json:"first"`
	Run        float64    `json:"run"`
	Difference float64    `json:"difference"`
	Interval   [2]float64 `json:"interval"`
	Wins       int        `json:"wins"`
	Ties       int        `json:"ties"`
	Losses     int        `json:"losses"`

	TTest         testJSON `json:"t_test"`
	Randomisation testJSON `json:"randomisation"`
	Bootstrap     testJSON `json:"bootstrap"`

	Differing []pairJSON `json:"differing"`
}

type testJSON struct {
	T     *float64 `json:"t,omitempty"` // absent if infinite
	Exact bool     `json:"exact,omitempty"`
	P     float64  `json:"p"`
	Holm  float64  `json:"p_holm"`
}

type pairJSON struct {
	Query      string  `json:"query"`
	First      float64 `json:"first"`
	Run        float64 `json:"run"`
	Difference float64 `json:"difference"`
}

type agreementJSON struct {
	Queries    int         `json:"queries"` // of the first run
	Missing    int         `json:"missing"`
	Unmatched  int         `json:"unmatched"`
	Depth      int         `json:"depth"`
	Overlap    float64     `json:"overlap"`
	P          float64     `json:"rbo_p"`
	RBO        float64     `json:"rbo"`
	Tau        *float64    `json:"tau"` // null where undefined
	TauQueries int         `json:"tau_queries"`
	Least      []alikeJSON `json:"least"`
}

type alikeJSON struct {
	Query   string   `json:"query"`
	InRun   bool     `json:"in_run"`
	Overlap float64  `json:"overlap"`
	RBO     float64  `json:"rbo"`
	Tau     *float64 `json:"tau"`
}

func (c *compareFlags) object(baseline string, others []compared) compareJSON {
	x := compareJSON{First: baseline, Ties: c.ties.String(), ExcludeSelf: c.excludeSelf}
	if c.qrels != "" {
		x.Judged = &judgedJSON{c.qrels, c.average.String(), others[0].queries, c.tests.Seed, c.tests.Samples, c.tests.Confidence, c.family}
	}
	for _, o := range others {
		run := comparedRunJSON{Run: o.name, Agreement: agreementObject(o.agreement, c.shown)}
		for _, m := range o.measures {
			run.Measures = append(run.Measures, differenceObject(m))
		}
		x.Runs = append(x.Runs, run)
	}
	return x
}

func differenceObject(m eval.SystemComparison) differenceJSON {
	x := differenceJSON{
		Measure: m.Measure.String(), First: m.MeanB, Run: m.MeanA, Difference: m.Difference,
		Interval: [2]float64{m.Bootstrap.Low, m.Bootstrap.High},
		Wins:     m.Wins, Ties: m.Ties, Losses: m.Losses,
		TTest:         testJSON{P: m.TTest.P, Holm: m.HolmTTest},
		Randomisation: testJSON{Exact: m.Randomisation.Exact, P: m.Randomisation.P, Holm: m.HolmRandomisation},
		Bootstrap:     testJSON{P: m.Bootstrap.P, Holm: m.HolmBootstrap},
		Differing:     []pairJSON{},
	}
	if !math.IsInf(m.TTest.T, 0) {
		x.TTest.T = &m.TTest.T
	}
	for _, q := range m.Differing {
		x.Differing = append(x.Differing, pairJSON{q.Query, q.B, q.A, q.Difference})
	}
	return x
}

func agreementObject(a *eval.Agreement, shown int) agreementJSON {
	x := agreementJSON{
		Queries: len(a.Queries), Missing: len(a.Queries) - a.Shared(), Unmatched: a.Unmatched,
		Depth: a.K, Overlap: a.Overlap, P: a.P, RBO: a.RBO, TauQueries: a.TauQueries, Least: []alikeJSON{},
	}
	if a.TauQueries > 0 {
		x.Tau = &a.Tau
	}
	for _, q := range a.Least(shown) {
		y := alikeJSON{Query: q.Query, InRun: q.InRun, Overlap: q.Overlap, RBO: q.RBO}
		if q.TauOK {
			y.Tau = &q.Tau
		}
		x.Least = append(x.Least, y)
	}
	return x
}
