package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Keys of the service's answers that are no fields.
const (
	idKey      = "_id"
	ordinalKey = "_subset_"
)

// textFields may have the text of a document, and titleFields its title, in this order.
var (
	textFields  = []string{"text", "page_content", "content", "body", "abstract"}
	titleFields = []string{"title", "name", "heading"}
)

const (
	// shortField is the longest value in bytes that is shown beside a hit.
	shortField = 120
	// maxShortFields is how many are.
	maxShortFields = 12
	// documentBytes is what a document of an answer takes beside its fields and its id.
	documentBytes = 32
)

// parseMetadata splits a document's metadata into fields: a text is a string, and any other value is as
// it was written.
func parseMetadata(m json.RawMessage) (id string, fields map[string]any, err error) {
	if len(m) == 0 || string(m) == "null" {
		return "", map[string]any{}, nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(m, &values); err != nil {
		return "", nil, fmt.Errorf("metadata: %w", err)
	}
	fields = make(map[string]any, len(values))
	for name, value := range values {
		fields[name] = value
		if value[0] == '"' {
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return "", nil, fmt.Errorf("metadata: %w", err)
			}
			fields[name] = text
		}
	}
	id, _ = fields[idKey].(string)
	delete(fields, idKey)
	delete(fields, ordinalKey)
	return id, fields, nil
}

// watchFields are those that plaid watch keeps for itself.
var watchFields = []string{"digest", "root"}

// newHitOut is a hit as it is shown: title, about so many bytes of its text, those that the
// question has found or else that have most of its words, and fields that are short.
func newHitOut(h *searchHit, words string, maxText int) (hitOut, error) {
	_, fields, err := parseMetadata(h.metadata)
	if err != nil {
		return hitOut{}, err
	}
	hit := hitOut{ID: h.id, Score: h.score, Passage: h.passage}
	if _, ok := fields["path"].(string); ok {
		for _, name := range watchFields {
			delete(fields, name)
		}
	}
	for _, name := range titleFields {
		if title, ok := fields[name].(string); ok && title != "" {
			hit.Title, _ = cutText(title, 0, 2*shortField)
			delete(fields, name)
			break
		}
	}
	if hit.Field = textField(fields); hit.Field != "" {
		text := fields[hit.Field].(string)
		places := matchesFromSpans(h.spans, hit.Field, text)
		if len(places) == 0 {
			places = matchesOfWords(words, text)
		}
		hit.Text, hit.Start = snippet(text, places, maxText)
		hit.Length = len(text)
		delete(fields, hit.Field)
	}
	names := make([]string, 0, len(fields))
	for name, value := range fields {
		text, err := json.Marshal(value)
		if err == nil && len(text) <= shortField && len(name) <= shortField {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxShortFields)] {
		if hit.Fields == nil {
			hit.Fields = map[string]any{}
		}
		hit.Fields[name] = fields[name]
	}
	return hit, nil
}

// textField names the field with the text: one of the usual names, or else the longest
// text that is too long to be shown whole.
func textField(fields map[string]any) string {
	for _, name := range textFields {
		if text, ok := fields[name].(string); ok && text != "" {
			return name
		}
	}
	best, most := "", shortField
	for name, value := range fields {
		text, _ := value.(string)
		if len(text) > most || len(text) == most && best != "" && name < best {
			best, most = name, len(text)
		}
	}
	return best
}

// textMatch is where a text has something of a question: what of it, and how much it counts.
type textMatch struct {
	offset int
	word   string
	weight float64
}

// matchesFromSpans are the places that the service has found in a field, in order.
func matchesFromSpans(spans []span, field, text string) (places []textMatch) {
	for i, s := range spans {
		if s.Field == field && s.Start >= 0 && s.Start < len(text) {
			places = append(places, textMatch{s.Start, strconv.Itoa(i), s.Score})
		}
	}
	slices.SortFunc(places, func(a, b textMatch) int { return a.offset - b.offset })
	return places
}

// matchesOfWords are those of the words of a question. Each word counts once.
func matchesOfWords(words, text string) (places []textMatch) {
	for at, word := range human.WordsOf(words).In(text) {
		places = append(places, textMatch{at, word, 1})
	}
	return places
}

// snippet is a part of a text of about so many bytes, with what counts most of places that
// are in order, and where it begins.
func snippet(text string, places []textMatch, maxBytes int) (part string, start int) {
	if len(text) <= maxBytes {
		return text, 0
	}
	// The window with the largest sum of different words, and of those the first.
	counts, from := map[string]int{}, 0
	sum, best := 0., 0.
	for _, p := range places {
		if counts[p.word]++; counts[p.word] == 1 {
			sum += p.weight
		}
		for places[from].offset+maxBytes*3/4 < p.offset {
			first := places[from]
			if counts[first.word]--; counts[first.word] == 0 {
				sum -= first.weight
			}
			from++
		}
		if sum > best {
			best, start = sum, max(0, places[from].offset-maxBytes/8)
		}
	}
	start = min(start, len(text)-maxBytes)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	if start > 0 { // not within a word
		if i := strings.IndexFunc(text[start:min(start+64, len(text))], unicode.IsSpace); i >= 0 {
			start += i + 1
		}
	}
	part, _ = cutText(text, start, maxBytes)
	return part, start
}

// cutText is a part of a text, of whole characters, and where it ends.
func cutText(text string, start, most int) (part string, end int) {
	start = min(start, len(text))
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start--
	}
	end = min(start+most, len(text))
	for end > start && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[start:end], end
}

// fitDocument is a document with so much of its texts as there is room for. Where there is none, some
// fields are shown, and the beginning of its text.
func fitDocument(m json.RawMessage, start int, room *int) (documentOut, error) {
	id, fields, err := parseMetadata(m)
	if err != nil {
		return documentOut{}, err
	}
	doc := documentOut{ID: id, Fields: fields}
	of := textField(fields)
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if *room <= 0 && i >= maxShortFields && name != of || len(name) > max(*room, shortField) {
			delete(fields, name)
			doc.Left++
			continue
		}
		text, ok := fields[name].(string)
		if !ok || len(text) <= shortField {
			value, err := jsontext.Plain(fields[name])
			if err != nil {
				return documentOut{}, err
			}
			if len(value) > max(*room, shortField) {
				value = fmt.Appendf(nil, "(%d bytes, which are left out)", len(value))
				fields[name] = string(value)
			}
			*room -= len(name) + len(value)
			continue
		}
		part, end := cutText(text, start, max(*room, shortField))
		fields[name] = part
		*room -= len(name) + len(part)
		if end < len(text) && (doc.Next == 0 || end < doc.Next) {
			doc.Next = end
		}
	}
	return doc, nil
}
