package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// Look asks a node for documents of one of its shards, or for what it says of the shard.
// Unlike queries it has the form of JSON: it is asked for seldom, and lists of payloads
// are most of an answer.
type Look struct {
	Collection string `json:"collection"`
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
	// Applied is the entry of the shard's log that must have been applied.
	Applied uint64 `json:"applied"`
	// Left is the time until the answer is of no use.
	Left time.Duration `json:"left_ns"`
	// The documents: those of a list of ids or of ordinals, in its order, those that a filter
	// lets through, in the order of their ordinals, or all of them (All). Those that are not
	// there are passed over. For Facet and Words, ids stand for all passages of their documents,
	// too.
	IDs      []string        `json:"ids,omitempty"`
	Ordinals []uint32        `json:"ordinals,omitempty"`
	Filter   json.RawMessage `json:"filter,omitempty"`
	All      bool            `json:"all,omitempty"`
	// Whole, of All, has passages of one document count as one, which has the id of that.
	Whole bool `json:"whole,omitempty"`
	// From is where to begin: a place in the list, or an ordinal.
	From uint32 `json:"from,omitempty"`
	// Limit is how many documents the answer has at most, Bytes about how large it is.
	Limit int `json:"limit"`
	Bytes int `json:"bytes"`
	// Payload and Vectors say what comes with the documents, Stats that the shard is described.
	Payload bool `json:"payload,omitempty"`
	Vectors bool `json:"vectors,omitempty"`
	Stats   bool `json:"stats,omitempty"`
	// Explain, where set, is a [Query] of the shard: the answer says what became of the
	// document of the only id in it.
	Explain []byte `json:"explain,omitempty"`
	// Facet, where set, counts the values of a field over the documents that all of IDs, Filter
	// and All let through, in place of reading these.
	Facet *FacetLook `json:"facet,omitempty"`
	// Words, where set, finds documents by their words among those that all of IDs and the
	// filters of Words let through; From is how many of the best are passed over.
	Words *WordsLook `json:"words,omitempty"`
	// Feedback, where set, asks for what feedback takes of documents, in place of these.
	Feedback *FeedbackLook `json:"feedback,omitempty"`
}

// FeedbackLook asks for one thing at a time: the documents that IDs stand for; the centroids
// of Ordinals, and in how many of these each is; the sums of their tokens with some Centroids; or
// without documents, in how many documents of all these centroids are.
type FeedbackLook struct {
	IDs       []string `json:"ids,omitempty"`
	Ordinals  []uint32 `json:"ordinals,omitempty"`
	Tokens    int      `json:"tokens,omitempty"` // of each document that count
	Centroids []uint32 `json:"centroids,omitempty"`
}

// FeedbackFound answers that.
type FeedbackFound struct {
	Ordinals  []uint32 `json:"ordinals,omitempty"`
	Missing   []string `json:"missing,omitempty"` // ids that stand for nothing
	Centroids []uint32 `json:"centroids,omitempty"`
	Docs      []uint64 `json:"docs,omitempty"` // of each centroid
	Of        int      `json:"of,omitempty"`   // documents that the ordinals are of: passages of one are one
	Live      int64    `json:"live,omitempty"` // documents
	// Sums is [centroids, dimension] as little-endian float32.
	Sums []byte `json:"sums,omitempty"`
}

// WordsLook is a [keywords.Query]. Without statistics it asks for those of the shard, and for
// no documents.
type WordsLook struct {
	Text       string               `json:"text"`
	Mode       keywords.Mode        `json:"mode,omitempty"`
	K          int                  `json:"k,omitempty"`
	Filters    []json.RawMessage    `json:"filters,omitempty"`
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
}

// WordsFound are statistics, or the best documents.
type WordsFound struct {
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
	Hits       []WordsHit           `json:"hits,omitempty"`
	More       bool                 `json:"more,omitempty"`
}

// WordsHit is a document.
type WordsHit struct {
	Ordinal uint32  `json:"ordinal"` // in the shard
	ID      string  `json:"id"`      // its name
	Score   float32 `json:"score"`   // above 0
}

// FacetLook asks for the values of a field, of which there may be more than an answer has
// room for: After are those that follow a value, in the order of values.
type FacetLook struct {
	Field  string      `json:"field"`
	Memory int64       `json:"memory"`
	After  *FacetValue `json:"after,omitempty"`
}

// FacetFound are values of a field, in their order, and how many documents have them. More
// says that others follow. Docs, Missing and Null are those of an [index.Facet].
type FacetFound struct {
	Docs    uint64       `json:"docs"`
	Missing uint64       `json:"missing,omitempty"`
	Null    uint64       `json:"null,omitempty"`
	Values  []FacetValue `json:"values,omitempty"`
	More    bool         `json:"more,omitempty"`
}

// FacetValue is a [condition.Literal], and how many documents have it.
type FacetValue struct {
	Kind condition.Kind `json:"kind"`
	Form condition.Form `json:"form,omitempty"`
	Int  int64          `json:"int,omitempty"`
	Real float64        `json:"real,omitempty"`
	Text string         `json:"text,omitempty"`
	Docs uint64         `json:"docs,omitempty"`
}

// NewFacetValue is the value of a literal.
func NewFacetValue(l condition.Literal, docs uint64) FacetValue {
	return FacetValue{l.Kind, l.Form, l.Int, l.Real, l.Text, docs}
}

// Literal is the value.
func (v *FacetValue) Literal() condition.Literal {
	return condition.Literal{Value: condition.Value{Kind: v.Kind, Int: v.Int, Real: v.Real, Text: v.Text}, Form: v.Form}
}

// Found is the answer to a Look.
type Found struct {
	// Status, Code and Text are as in an [Answer].
	Status Status `json:"status"`
	Code   Code   `json:"code,omitempty"`
	Text   string `json:"text,omitempty"`
	// Applied is the last entry of the shard's log that was applied.
	Applied uint64 `json:"applied,omitempty"`
	// Documents are those that fit; More says that there are others, from Next on.
	Documents []FoundDocument `json:"documents,omitempty"`
	More      bool            `json:"more,omitempty"`
	Next      uint32          `json:"next,omitempty"`
	// Unknown as in an [Answer].
	Unknown []string    `json:"unknown,omitempty"`
	Stats   *ShardStats `json:"stats,omitempty"`
	// Explanation of a search of this shard alone.
	Explanation *search.Explanation `json:"explanation,omitempty"`
	Facet       *FacetFound         `json:"facet,omitempty"`
	Words       *WordsFound         `json:"words,omitempty"`
	Feedback    *FeedbackFound      `json:"feedback,omitempty"`
}

// FoundDocument is a document of a shard.
type FoundDocument struct {
	Ordinal uint32 `json:"ordinal"`
	ID      string `json:"id"`
	Payload []byte `json:"payload,omitempty"`
	// Vectors is [tokens, dimension] as little-endian float32.
	Vectors []byte `json:"vectors,omitempty"`
}

// ShardStats describes a shard.
type ShardStats struct {
	Documents uint64 `json:"documents"`  // live
	Passages  uint64 `json:"passages"`   // in which some of them are stored
	Deleted   uint64 `json:"deleted"`    // whose ordinals are not used again
	Tokens    uint64 `json:"tokens"`     // of live documents
	Payloads  uint64 `json:"payloads"`   // documents that have one
	Nbits     int    `json:"nbits"`      // a component
	Centroids int    `json:"centroids"`  // of the codec
	FileBytes int64  `json:"file_bytes"` // of the replica that answers
	Normalize bool   `json:"normalize"`  // vectors, those of queries too, are scaled to unit length
	// What is known of the training of the codec, and how well it fits what was added since, as
	// in [storage.Build] and [storage.State].
	Source      string  `json:"source,omitempty"`
	Trained     uint64  `json:"trained_tokens,omitempty"` // that the codec was trained for
	TrainRMSE   float64 `json:"train_rmse,omitempty"`     // of their sample
	Added       uint64  `json:"added_tokens,omitempty"`   // since
	AddedErrors float64 `json:"added_sum_sq,omitempty"`   // sum of the squared errors of these
}

// ReadJSON reads a Look or a Found. What is none is [ErrMessage].
func ReadJSON(msg []byte, into any) error {
	if err := json.Unmarshal(msg, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}
