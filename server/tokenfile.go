package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/plaid-ir/plaid/internal/files"
)

// TokenFile is a TokenSource that reads a file again when it changes.
type TokenFile struct{ kept *files.Kept[Tokens] }

// OpenTokenFile reads the file; its form is that of [ParseTokens]. A later version
// that cannot be read is logged, and the tokens before it stay valid.
func OpenTokenFile(ctx context.Context, path string, log *slog.Logger) (*TokenFile, error) {
	read := func() (Tokens, error) {
		tokens, err := files.Parse(ctx, path, ParseTokens)
		if err != nil && !errors.Is(err, ErrTokens) {
			err = fmt.Errorf("%w: %w", ErrTokens, err)
		}
		return tokens, err
	}
	kept, err := files.Keep(read, func(tokens Tokens, err error) {
		if err != nil {
			log.Error("tokens stay as they were", "file", path, "error", err)
			return
		}
		log.Info("tokens read again", "file", path, "tokens", len(tokens))
	}, path)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // of later readings
	return &TokenFile{kept}, nil
}

// Tokens implements TokenSource.
func (f *TokenFile) Tokens() []Token { return f.kept.Get() }

// Reload reads the file now, changed or not.
func (f *TokenFile) Reload() { f.kept.Reload() }
