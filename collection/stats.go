package collection

import (
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// Stats describes a collection, at little cost.
type Stats struct {
	Documents uint64 `json:"documents"`         // live ones
	Deleted   uint64 `json:"deleted_documents"` // whose ordinals are not used again
	Tokens    uint64 `json:"tokens"`            // of live documents
	// Metadata is how many documents have some.
	Metadata   uint64         `json:"metadata"`
	Dim        int            `json:"dim"`             // 0: no documents yet, as the next three
	Nbits      int            `json:"nbits"`           // as they are kept now
	Centroids  int            `json:"centroids"`       // of the codec
	Generation uint64         `json:"generation"`      // counts how often all was coded anew
	Model      *storage.Model `json:"model,omitempty"` // what made the vectors; nil: nobody said
	FileBytes  int64          `json:"file_bytes"`      // of the index
	Growth     GrowthStats    `json:"growth"`          // from one codec to the next
	Queue      QueueStats     `json:"queue"`           // what waits to be written
	Counts     Counts         `json:"counts"`          // since the collection was opened
}

// GrowthStats say how a collection is kept.
type GrowthStats struct {
	Stage Stage `json:"stage"` // how it is coded now
	// Training: a training runs because the collection has grown. Failed is why the last
	// one was given up.
	Training bool        `json:"training"`
	Failed   string      `json:"training_failed,omitempty"`
	Drift    index.Drift `json:"drift"` // how well the codec fits
	// Advice says why training anew would pay; "": it would not.
	Advice string `json:"advice,omitempty"`
}

// Counts are what the writer of a collection has done since it was opened.
type Counts struct {
	Updates   uint64 `json:"updates"` // requests
	Documents uint64 `json:"documents"`
	Deletions uint64 `json:"deletions"` // requests
	Deleted   uint64 `json:"deleted"`   // documents
	Failed    uint64 `json:"failed"`    // requests
	Groups    uint64 `json:"groups"`    // transactions, about
	Trainings uint64 `json:"trainings"`
	// Writing is the time of all that.
	Writing time.Duration `json:"writing_ns"`
}

// QueueStats says what waits to be written.
type QueueStats struct {
	Requests  int   `json:"requests"`  // that wait
	Documents int   `json:"documents"` // in them
	Bytes     int64 `json:"bytes"`     // of memory that they hold
}
