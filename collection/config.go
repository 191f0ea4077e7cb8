package collection

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/search/keywords"
)

// Config is what a collection was declared with. Its JSON is that of next-plaid's
// index configuration.
type Config struct {
	// Nbits is the residual bits a component once the collection is trained, see [Growth];
	// 1, 2, 4 or 8; 0: 4.
	Nbits int `json:"nbits"`
	// BatchSize and StartFromScratch are kept and given back. The writer groups what
	// waits, and a collection is trained anew by its growth.
	BatchSize int `json:"batch_size"`
	// Seed of trainings; nil: 42.
	Seed             *uint64 `json:"seed"`
	StartFromScratch int     `json:"start_from_scratch"`
	// MaxDocuments is how many documents are kept; nil: all. An update beyond it deletes the
	// oldest, in its own transaction if it does not bring more than all by itself.
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
		return Config{}, fmt.Errorf("%w: nbits is %d; 1, 2, 4 and 8 are possible", ErrConfig, c.Nbits)
	case c.BatchSize < 0:
		return Config{}, fmt.Errorf("%w: batch_size is %d", ErrConfig, c.BatchSize)
	case c.StartFromScratch < 0:
		return Config{}, fmt.Errorf("%w: start_from_scratch is %d", ErrConfig, c.StartFromScratch)
	case c.MaxDocuments != nil && *c.MaxDocuments == 0:
		return Config{}, fmt.Errorf("%w: max_documents is 0; null is no limit", ErrConfig)
	case c.Tokenizer != TokenizerUnicode && c.Tokenizer != TokenizerTrigram:
		return Config{}, fmt.Errorf("%w: fts_tokenizer is %q; unicode61 and trigram are possible", ErrConfig, c.Tokenizer)
	}
	return c, nil
}

// Keywords are the settings of searches by words.
func (c *Config) Keywords() *keywords.Settings {
	return &keywords.Settings{Tokenizer: cmp.Or(c.Tokenizer, TokenizerUnicode), IDs: true}
}

// finalBits is how many a component has in the end.
func (c *Config) finalBits() int {
	if c.Binary {
		return 1
	}
	return c.Nbits
}

func (c *Config) seedOrDefault() uint64 {
	if c.Seed == nil {
		return defaultSeed
	}
	return *c.Seed
}

// CheckName says whether a name can be one of a collection: 1 to 128 bytes of
// A-Z a-z 0-9 . _ -, neither beginning nor ending with a dot. The error is [ErrName].
func CheckName(name string) error {
	const maxBytes = 128
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(name) > maxBytes:
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrName, len(name), maxBytes)
	}
	for i := range len(name) {
		if b := name[i]; (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') && b != '.' && b != '_' && b != '-' {
			return fmt.Errorf("%w: %q has %q; only A-Z a-z 0-9 . _ - are possible", ErrName, name, b)
		}
	}
	if name[0] == '.' || name[len(name)-1] == '.' {
		return fmt.Errorf("%w: %q begins or ends with a dot", ErrName, name)
	}
	return nil
}
