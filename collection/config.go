package collection

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/search/keywords"
)

// Config is the configuration of a collection. Its JSON is that of next-plaid's index configuration.
type Config struct {
	// Nbits is the number of residual bits a component once the collection is trained, see [Growth]: 1, 2, 4 or 8; 0
	// means 4.
	Nbits int `json:"nbits"`
	// BatchSize and StartFromScratch are stored and returned, and have no effect: the writer groups waiting changes,
	// and growth decides about trainings.
	BatchSize int `json:"batch_size"`
	// Seed is the seed of trainings. A nil Seed means 42.
	Seed             *uint64 `json:"seed"`
	StartFromScratch int     `json:"start_from_scratch"`
	// MaxDocuments limits the documents. A nil MaxDocuments means no limit. An update beyond it deletes the oldest
	// documents, in the same transaction unless the update alone exceeds the limit.
	MaxDocuments *uint64 `json:"max_documents"`
	// Tokenizer of keyword searches is "unicode61" or "trigram". "" means the first.
	Tokenizer string `json:"fts_tokenizer"`
	// Binary means one bit a component, whatever Nbits says.
	Binary bool `json:"binary,omitempty"`
}

const (
	defaultNbits            = 4
	defaultBatchSize        = 50_000
	defaultStartFromScratch = 999
	defaultSeed             = 42
)

// Tokenizers of keyword searches.
const (
	TokenizerUnicode = "unicode61"
	TokenizerTrigram = "trigram"
)

// Completed returns the configuration with defaults for fields that are not set. The error is [ErrConfig].
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
		return Config{}, fmt.Errorf("%w: fts_tokenizer is %q; unicode61 and trigram are possible",
			ErrConfig, c.Tokenizer)
	}
	return c, nil
}

// Keywords returns the settings of keyword searches.
func (c *Config) Keywords() *keywords.Settings {
	return &keywords.Settings{Tokenizer: cmp.Or(c.Tokenizer, TokenizerUnicode), IDs: true}
}

// finalBits returns the bits a component in [StageFinal].
func (c *Config) finalBits() int {
	if c.Binary {
		return 1
	}
	return c.Nbits
}

// seedOrDefault returns the seed of trainings.
func (c *Config) seedOrDefault() uint64 {
	if c.Seed == nil {
		return defaultSeed
	}
	return *c.Seed
}

// CheckName returns an error if a collection cannot have a name: 1 to 128 bytes of A-Z a-z 0-9 . _ -, neither beginning
// nor ending with a dot. The error is [ErrName].
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
