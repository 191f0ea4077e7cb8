package command

import (
	"context"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/server"
)

// heatMap is where the heat map of an explanation goes, and where its picture is.
type heatMap struct{ path, images string }

//go:embed heatmap.html
var heatMapPage string

var heatMapTemplate = template.Must(template.New("heatmap").Parse(heatMapPage))

// writeHeatMap writes a page that shows which cells of a picture each token of a query found.
// It needs no other file, unless the picture is an address. question is the text of the query; "":
// it is vectors.
func (a *app) writeHeatMap(ctx context.Context, to *heatMap, queries *queries, question string, r *explainReport, index string) error {
	if r.Grid == nil {
		why := r.NoGrid
		if why == "" {
			why = "it has no fields image and grid"
		}
		return flags.Usagef("--html: document %q has no heat map: %s", r.ID, why)
	}
	page := struct {
		Query, ID string
		Score     float64
		Image     template.URL
		Words     []string
		Grid      *search.GridScores
	}{r.Query, r.ID, r.Score, "", make([]string, len(r.Grid.Scores)), r.Grid}
	for i, s := range r.Grid.Scores {
		page.Words[i] = fmt.Sprintf("token %d", s.QueryToken)
	}
	if question != "" && queries.encoder.Config().Backend != encode.Remote {
		asked, err := highlight.Kept(queries.encoder, encode.Query, question)
		if err != nil {
			return err
		}
		for i, s := range r.Grid.Scores {
			if s.QueryToken < len(asked) {
				page.Words[i] = asked[s.QueryToken].Piece
			}
		}
	}
	switch address := strings.HasPrefix(r.Image, "http://") || strings.HasPrefix(r.Image, "https://"); {
	case address:
		page.Image = template.URL(r.Image) // of a scheme that runs nothing; the template escapes it
	case to.images != "":
		var err error
		if page.Image, err = inlineImage(to.images, r.Image); err != nil {
			return err
		}
	}
	return a.writeFile(ctx, "html", to.path, index, func(w io.Writer) error { return heatMapTemplate.Execute(w, page) })
}

// inlineImage is a picture as a data URL.
func inlineImage(dir, name string) (template.URL, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, media, err := server.OpenImage(root, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return template.URL("data:" + media + ";base64," + base64.StdEncoding.EncodeToString(b)), err
}
