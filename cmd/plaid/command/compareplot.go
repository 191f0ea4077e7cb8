package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval/plot"
)

// svg draws a line for each run but the first: how much better each query fares than in the
// first, the best to the worst. Without judgements it is how alike the rankings are.
func (c *compareFlags) svg(baseline string, others []compared) ([]byte, error) {
	chart := plot.Chart{
		Title:    "Runs against " + filepath.Base(baseline),
		Subtitle: fmt.Sprintf("%s, each run by its own order", out.Queries(len(others[0].agreement.Queries))),
		X:        plot.Axis{Label: "query"},
		Y:        plot.Axis{Label: fmt.Sprintf("overlap@%d of the rankings", c.agree.K)},
	}
	for _, o := range others {
		s := plot.Series{Name: filepath.Base(o.name), Line: true}
		add := func(query string, value float64) {
			s.Points = append(s.Points, plot.Point{Y: value, Title: fmt.Sprintf("%s: %.4f", out.ID(query), value)})
		}
		if len(o.measures) == 0 {
			for _, q := range o.agreement.Queries {
				add(q.Query, q.Overlap)
			}
		} else {
			first := o.measures[0]
			chart.Y.Label = fmt.Sprintf("%v: run less first", first.Measure)
			chart.Subtitle = fmt.Sprintf("%s, each run by its own order; above 0 it is better", out.Queries(o.queries))
			for _, q := range first.Queries {
				add(q.Query, q.Difference)
			}
		}
		slices.SortStableFunc(s.Points, func(a, b plot.Point) int { return cmp.Compare(b.Y, a.Y) })
		for i := range s.Points {
			s.Points[i].X = float64(i + 1)
		}
		chart.Series = append(chart.Series, s)
	}
	return chart.SVG()
}

// writePlot draws the comparison into a file.
func (a *app) writePlot(ctx context.Context, c *compareFlags, paths []string, others []compared) error {
	drawn, err := c.svg(paths[0], others)
	if err != nil {
		return err
	}
	return a.writeFile(ctx, "svg", c.plot, "", func(w io.Writer) error {
		_, err := w.Write(drawn)
		return err
	})
}
