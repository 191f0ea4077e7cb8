package store

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/internal/atomicfile"
)

// Config is what a collection was declared with. Its JSON is that of next-plaid's
// index configuration.
type Config struct {
	// Nbits is the residual bits a component from the size on at which the
	// collection is kept precisely no longer; 1, 2, 4 or 8; 0: 4.
	Nbits int `json:"nbits"`
	// BatchSize and StartFromScratch are kept and given back. The writer groups what
	// waits, and a collection is trained anew by its growth.
	BatchSize int `json:"batch_size"`
	// Seed of trainings; nil: 42.
	Seed             *uint64 `json:"seed"`
	StartFromScratch int     `json:"start_from_scratch"`
	// MaxDocuments is how many documents are kept; nil: all. After an update beyond it the
	// oldest are deleted, before the update is answered.
	MaxDocuments *uint64 `json:"max_documents"`
	// Tokenizer of keyword searches: "unicode61" or "trigram"; "": the first.
	Tokenizer string `json:"fts_tokenizer"`
	// Binary keeps one bit a component, whatever Nbits says.
	Binary bool `json:"binary,omitempty"`
}

const (
	defaultNbits            = 4
	defaultBatchSize        = 50_000
	defaultStartFromScratch = 999
	defaultSeed             = 42
)

// The tokenizers.
const (
	TokenizerUnicode = "unicode61"
	TokenizerTrigram = "trigram"
)

// Completed is the configuration with what is not set filled in. The error is
// [ErrConfig].
func (c Config) Completed() (Config, error) {
	err := c.complete()
	return c, err
}

// complete fills in what is not set, and checks. The error is [ErrConfig].
func (c *Config) complete() error {
	if c.Nbits == 0 {
		c.Nbits = defaultNbits
	}
	if c.BatchSize == 0 {
		c.BatchSize = defaultBatchSize
	}
	if c.StartFromScratch == 0 {
		c.StartFromScratch = defaultStartFromScratch
	}
	if c.Tokenizer == "" {
		c.Tokenizer = TokenizerUnicode
	}
	switch {
	case !slices.Contains([]int{1, 2, 4, 8}, c.Nbits):
		return fmt.Errorf("%w: nbits is %d; 1, 2, 4 and 8 are possible", ErrConfig, c.Nbits)
	case c.BatchSize < 0:
		return fmt.Errorf("%w: batch_size is %d", ErrConfig, c.BatchSize)
	case c.StartFromScratch < 0:
		return fmt.Errorf("%w: start_from_scratch is %d", ErrConfig, c.StartFromScratch)
	case c.MaxDocuments != nil && *c.MaxDocuments == 0:
		return fmt.Errorf("%w: max_documents is 0; null is no limit", ErrConfig)
	case c.Tokenizer != TokenizerUnicode && c.Tokenizer != TokenizerTrigram:
		return fmt.Errorf("%w: fts_tokenizer is %q; unicode61 and trigram are possible", ErrConfig, c.Tokenizer)
	}
	return nil
}

// bits is how many a component has in the end.
func (c *Config) bits() int {
	if c.Binary {
		return 1
	}
	return c.Nbits
}

func (c *Config) seed() uint64 {
	if c.Seed == nil {
		return defaultSeed
	}
	return *c.Seed
}

func (c *Config) fill(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

func readConfig(path string) (c Config, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: %w: %w", path, ErrConfig, err)
	}
	if err := c.complete(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func writeConfig(ctx context.Context, path string, c Config) error {
	return atomicfile.Write(ctx, path, c.fill)
}
