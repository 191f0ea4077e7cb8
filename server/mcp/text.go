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

// Keys that the service adds to metadata.
const (
	idKey      = "_id"
	ordinalKey = "_subset_"
)

// textFields are the fields that may have the text of a document, and titleFields those that may have its
// title. The first one that a document has counts.
var (
	textFields  = []string{"text", "page_content", "content", "body", "abstract"}
	titleFields = []string{"title", "name", "heading"}
)

const (
	// shortField is the longest value of a field, in bytes, that is shown with a hit.
	shortField = 120
	// maxShortFields is the largest number of such fields.
	maxShortFields = 12
	// documentBytes is the size of a document in an answer without its fields and its id.
	documentBytes = 32
)

// parseMetadata returns the id and the fields of a document's metadata. A text is a string; any other value
// is JSON as it was written.
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

// watchFields are fields that plaid watch adds for its own use.
var watchFields = []string{"digest", "root"}

// newHitOut returns a hit as agents see it: its title, its short fields, and about maxText bytes of its text.
// The bytes are those around the spans that the service has found or, without spans, around words.
func newHitOut(h *searchHit, words string, maxText int) (hitOut, error) {
	// The fields.
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

	// The title, and the text.
	for _, name := range titleFields {
		if title, ok := fields[name].(string); ok && title != "" {
			hit.Title, _ = cutText(title, 0, 2*shortField)
			delete(fields, name)
			break
		}
	}
	if hit.Field = textField(fields); hit.Field != "" {
		text := fields[hit.Field].(string)
		matches := matchesFromSpans(h.spans, hit.Field, text)
		if len(matches) == 0 {
			matches = matchesOfWords(words, text)
		}
		hit.Text, hit.Start = snippet(text, matches, maxText)
		hit.Length = len(text)
		delete(fields, hit.Field)
	}

	// The short ones of the other fields.
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

// textField returns the name of the field with the text: the first of textFields or else the longest text,
// if it is longer than shortField. "" means that the document has no text.
func textField(fields map[string]any) string {
	for _, name := range textFields {
		if text, ok := fields[name].(string); ok && text != "" {
			return name
		}
	}
	longest, length := "", shortField
	for name, value := range fields {
		text, _ := value.(string)
		if len(text) > length || len(text) == length && longest != "" && name < longest {
			longest, length = name, len(text)
		}
	}
	return longest
}

// textMatch is a position in a text that matches a question.
type textMatch struct {
	offset int
	word   string // of the question; matches of one word count once in a snippet
	weight float64
}

// matchesFromSpans returns the matches that the service has found in a field, in order of their offsets. Each
// span counts as a word of its own.
func matchesFromSpans(spans []span, field, text string) (matches []textMatch) {
	for i, s := range spans {
		if s.Field == field && s.Start >= 0 && s.Start < len(text) {
			matches = append(matches, textMatch{s.Start, strconv.Itoa(i), s.Score})
		}
	}
	slices.SortFunc(matches, func(a, b textMatch) int { return a.offset - b.offset })
	return matches
}

// matchesOfWords returns the positions of the words of a question in a text, in order.
func matchesOfWords(words, text string) (matches []textMatch) {
	for offset, word := range human.QuestionWords(words).Find(text) {
		matches = append(matches, textMatch{offset, word, 1})
	}
	return matches
}

// snippet returns the part of a text, of about maxBytes, with the heaviest matches, and its offset. matches
// must be in order.
func snippet(text string, matches []textMatch, maxBytes int) (part string, start int) {
	if len(text) <= maxBytes {
		return text, 0
	}
	// Find the first window of three quarters of maxBytes in which the weights of the different words have
	// the largest sum. The snippet begins an eighth before it, so that the matches are in its middle.
	counts := map[string]int{} // of the words in the window
	first := 0                 // the index of the window's first match
	sum, best := 0., 0.
	for _, m := range matches {
		if counts[m.word]++; counts[m.word] == 1 {
			sum += m.weight
		}
		for matches[first].offset+maxBytes*3/4 < m.offset {
			removed := matches[first]
			if counts[removed.word]--; counts[removed.word] == 0 {
				sum -= removed.weight
			}
			first++
		}
		if sum > best {
			best, start = sum, max(0, matches[first].offset-maxBytes/8)
		}
	}

	// Begin at a whole character, and behind a blank if one is near.
	start = min(start, len(text)-maxBytes)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	if start > 0 {
		if i := strings.IndexFunc(text[start:min(start+64, len(text))], unicode.IsSpace); i >= 0 {
			start += i + 1
		}
	}
	part, _ = cutText(text, start, maxBytes)
	return part, start
}

// cutText returns the part of a text from start on, with at most maxBytes of whole characters, and the offset
// of its end.
func cutText(text string, start, maxBytes int) (part string, end int) {
	start = min(start, len(text))
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start--
	}
	end = min(start+maxBytes, len(text))
	for end > start && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[start:end], end
}

// fitDocument returns a document with as much of its fields as the budget of bytes allows, which it reduces.
// Long texts begin at start. Even without a budget it returns some fields, and the beginning of the text.
func fitDocument(m json.RawMessage, start int, budget *int) (documentOut, error) {
	id, fields, err := parseMetadata(m)
	if err != nil {
		return documentOut{}, err
	}
	doc := documentOut{ID: id, Fields: fields}
	main := textField(fields)
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		// Leave the field out.
		noRoom := *budget <= 0 && i >= maxShortFields && name != main
		if noRoom || len(name) > max(*budget, shortField) {
			delete(fields, name)
			doc.Left++
			continue
		}

		// Show a short text, or another value, as a whole.
		text, ok := fields[name].(string)
		if !ok || len(text) <= shortField {
			value, err := jsontext.MarshalUnescaped(fields[name])
			if err != nil {
				return documentOut{}, err
			}
			if len(value) > max(*budget, shortField) {
				value = fmt.Appendf(nil, "(%d bytes, which are left out)", len(value))
				fields[name] = string(value)
			}
			*budget -= len(name) + len(value)
			continue
		}

		// Show a part of a long text.
		part, end := cutText(text, start, max(*budget, shortField))
		fields[name] = part
		*budget -= len(name) + len(part)
		if end < len(text) && (doc.Next == 0 || end < doc.Next) {
			doc.Next = end
		}
	}
	return doc, nil
}
