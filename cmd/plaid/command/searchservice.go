package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/server/mcp"
	"github.com/plaid-ir/plaid/vectors"
)

// parseServiceAddress splits the address of an index, http://HOST/NAME or http://HOST/indices/NAME,
// into the service and the name.
func parseServiceAddress(address string) (service *mcp.Service, name string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", flags.UsageError{Err: err}
	}
	segments := strings.Split(strings.Trim(u.Path, "/"), "/")
	name, segments = segments[len(segments)-1], segments[:len(segments)-1]
	if n := len(segments); n > 0 && segments[n-1] == "indices" {
		segments = segments[:n-1]
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, "", flags.Usagef("%s: an address of an index ends in its name", address)
	}
	u.Path = strings.Join(append([]string{""}, segments...), "/")
	service, err = mcp.NewRemote(u.String(), os.Getenv(EnvToken))
	if err != nil {
		return nil, "", flags.UsageError{Err: err}
	}
	return service, name, nil
}

// searchService asks a service for the best documents of each question.
func (a *app) searchService(ctx context.Context, f *pflag.FlagSet, args []string, s *flags.Search, words *flags.Words,
	printed *resultFlags, write hitWriter) error {
	texts, err := s.Queries.AreTexts(args[1:])
	if err != nil {
		return err
	}
	if !texts {
		return flags.Usagef("a service needs questions as texts: give them as arguments, or with --questions")
	}
	if _, err := s.Where.Condition(); err != nil {
		return err
	}
	// Refuse flags that a service does not support.
	_, allowed := s.RequestBody()
	allowed = append(allowed, words.AddToRequest(map[string]any{}, "")...)
	allowed = append(allowed, "json", "format", "show-metadata", "highlight", "quiet", "verbose", "help")
	unsupported := ""
	f.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(allowed, flag.Name) {
			unsupported = flag.Name
		}
	})
	if unsupported != "" {
		return flags.Usagef("--%s is for an index file: a running service has its own settings", unsupported)
	}
	// Find the service and the index.
	service, name, err := parseServiceAddress(args[0])
	if err != nil {
		return err
	}
	if name == "" {
		return flags.Usagef("%s: which index? %s", args[0], serviceIndexNames(ctx, service, ""))
	}
	row := 0
	for q, err := range s.Queries.Texts(ctx, args[1:], a.in) {
		if err != nil {
			return err
		}
		text := q.Full()
		if strings.TrimSpace(text) == "" {
			return fmt.Errorf("%s: text %d: %w", s.Queries.Name(), row, errEmptyQuery)
		}
		set := &querySet{ids: []string{q.ID}, questions: []string{text},
			serviceSpans: map[*search.Hit][]highlight.Span{}}
		if q.ID == "" {
			set.ids[0] = strconv.Itoa(row)
		}
		if err := printed.checkID("query", set.ids[0]); err != nil {
			return err
		}
		if len(args) > 1 {
			set.questionArgs = []string{text}
		}
		results, notes, err := askService(ctx, service, name, text, s, words, printed, set)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], explainRefusal(ctx, service, name, err))
		}
		switch further := len(notes) - 1; {
		case further == 0:
			a.printWarning("%s", notes[0])
		case further > 0:
			a.printWarning("%s (and %s)", notes[0], out.Plural(further, "more note"))
		}
		if err := write(set, results); err != nil {
			return err
		}
		row++
	}
	if row == 0 {
		return noQueriesError(s.Queries.Name())
	}
	return nil
}

// explainRefusal adds to an error of a service what the user can do about it.
func explainRefusal(ctx context.Context, service *mcp.Service, name string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
		return fmt.Errorf("no service answers there (plaid serve starts one): %w", op)
	}
	var r *mcp.RefusedError
	if !errors.As(err, &r) {
		return err
	}
	switch {
	case r.Code == "INDEX_NOT_FOUND" || r.Code == "INDEX_NOT_DECLARED":
		return fmt.Errorf("%w: %w: %s", errNotFound, err, serviceIndexNames(ctx, service, name))
	case r.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w; set %s to a valid token", err, EnvToken)
	}
	return err
}

// serviceIndexNames says which indexes a service has; typed is the name that it does not have, or
// "".
func serviceIndexNames(ctx context.Context, service *mcp.Service, typed string) string {
	var names []string
	_ = service.Ask(ctx, http.MethodGet, "/indices", nil, &names) // its error says less than the first one
	return availableIndexes(names, typed)
}

// availableIndexes lists the names of indexes in a sentence, or suggests the one that is similar to
// typed.
func availableIndexes(names []string, typed string) string {
	if len(names) == 0 {
		return "it has no indexes"
	}
	if near := human.Nearest(typed, names); typed != "" && near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	const maxNames = 20
	if len(names) == 1 {
		return "there is " + names[0]
	}
	return "there are " + strings.Join(names[:min(len(names), maxNames)], ", ")
}

// askService asks one question. It returns the hits and the notes of the service.
func askService(ctx context.Context, service *mcp.Service, name, text string, s *flags.Search, words *flags.Words,
	printed *resultFlags, set *querySet) (results []search.Result, notes []string, err error) {
	// Send the request.
	body, _ := s.RequestBody()
	words.AddToRequest(body, text)
	body["queries"] = []string{text}
	if printed.highlight {
		body["highlight"] = true
	}
	path := "/indices/" + url.PathEscape(name) + "/search_with_encoding"
	if body["filter_condition"] != nil {
		path = "/indices/" + url.PathEscape(name) + "/search/filtered_with_encoding"
	}
	var answer struct {
		Results []struct {
			Scores   []float64
			Metadata []json.RawMessage
			Passages [][]servicePassage
			Spans    [][]highlight.Span
			Notes    []string
		}
	}
	if err := service.Ask(ctx, http.MethodPost, path, body, &answer); err != nil {
		return nil, nil, err
	}
	// Check the response, and convert its hits.
	if len(answer.Results) != 1 {
		return nil, nil, fmt.Errorf("the service returned %d results for one question", len(answer.Results))
	}
	r := &answer.Results[0]
	if len(r.Metadata) != len(r.Scores) {
		return nil, nil, fmt.Errorf("the service returned %d scores, and metadata of %d documents", len(r.Scores),
			len(r.Metadata))
	}
	result := search.Result{Hits: make([]search.Hit, len(r.Scores)), Offset: s.Offset()}
	for i := range result.Hits {
		h := &result.Hits[i]
		h.Score = float32(r.Scores[i])
		h.ID, h.Payload = splitMetadata(r.Metadata[i])
		if i < len(r.Spans) {
			set.serviceSpans[h] = r.Spans[i]
		}
		if i >= len(r.Passages) {
			continue
		}
		h.Passages = make([]search.Hit, len(r.Passages[i]))
		for j := range h.Passages {
			passage, hit := &r.Passages[i][j], &h.Passages[j]
			hit.ID, hit.Score = passage.ID, float32(passage.Score)
			_, hit.Payload = splitMetadata(passage.Metadata)
			if passage.Number != nil && *passage.Number >= 0 {
				hit.Passage = &vectors.Passage{
					ParentID: h.ID,
					Number:   *passage.Number,
					Start:    passage.Start,
					End:      passage.End,
				}
			}
			set.serviceSpans[hit] = passage.Spans
		}
	}
	return []search.Result{result}, r.Notes, nil
}

// servicePassage is a passage in the response of a service.
type servicePassage struct {
	ID         string
	Score      float64
	Number     *int `json:"n"`
	Start, End int
	Metadata   json.RawMessage
	Spans      []highlight.Span
}

// splitMetadata splits the metadata that a service returns into the id and the payload as it was
// stored.
func splitMetadata(metadata json.RawMessage) (id string, payload search.Payload) {
	var withID struct {
		ID string `json:"_id"`
	}
	_ = json.Unmarshal(metadata, &withID) // an error leaves the id empty
	stored, err := condition.Fields{"_id": json.RawMessage("null"),
		"_subset_": json.RawMessage("null")}.WithNullRemoving().Merge(metadata)
	if err != nil {
		return withID.ID, search.Payload(metadata)
	}
	return withID.ID, stored
}
