package server

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/infile"
)

// Permission is what a token allows. Each includes those before it.
type Permission int

const (
	// Nothing: probes and the description of the API need no token.
	Nothing Permission = iota
	// Read searches and looks.
	Read
	// Write changes documents.
	Write
	// Admin declares and drops indexes, restores backups and trains anew.
	Admin
)

var permissionNames = []string{"none", "read", "write", "admin"}

func (p Permission) String() string { return permissionNames[p] }

// ParsePermission is the inverse of String; "none" is no permission of a token.
func ParsePermission(s string) (Permission, error) {
	for p, name := range permissionNames[1:] {
		if s == name {
			return Permission(p + 1), nil
		}
	}
	return 0, fmt.Errorf("permission %q: there is read, write and admin", s)
}

// Token is a bearer token.
type Token struct {
	// Name is what logs call whoever has it.
	Name       string
	Permission Permission
	sum        [sha256.Size]byte
}

// NewToken makes a token of its secret.
func NewToken(name string, p Permission, secret string) Token {
	return Token{Name: name, Permission: p, sum: sha256.Sum256([]byte(secret))}
}

// A TokenSource has the tokens that are valid now. It is asked at every request.
type TokenSource interface {
	Tokens() []Token
}

// Tokens is a TokenSource that does not change.
type Tokens []Token

// Tokens implements TokenSource.
func (t Tokens) Tokens() []Token { return t }

// ErrTokens: a list of tokens that cannot be read.
var ErrTokens = errors.New("bad list of tokens")

// minSecret is the least number of characters of a secret.
const minSecret = 16

// ParseTokens reads a token a line:
//
//	NAME read|write|admin SECRET
//
// Secrets are of at least 16 characters without blanks; "sha256:" and 64 hexadecimal
// digits stand for a secret that the list does not tell. Empty lines and those that
// begin with # are passed over. source is for errors, which do not repeat secrets.
func ParseTokens(r io.Reader, source string) (Tokens, error) {
	var tokens Tokens
	names := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		failed := func(format string, args ...any) (Tokens, error) {
			return nil, fmt.Errorf("%w: %s: line %d: %s", ErrTokens, source, n, fmt.Sprintf(format, args...))
		}
		words := strings.Fields(line)
		if len(words) != 3 {
			return failed("want a name, a permission and a secret; there are %d words", len(words))
		}
		p, err := ParsePermission(words[1])
		if err != nil {
			return failed("%v", err)
		}
		if names[words[0]] {
			return failed("the name %q is there twice", words[0])
		}
		names[words[0]] = true
		token := NewToken(words[0], p, words[2])
		if digest, ok := strings.CutPrefix(words[2], "sha256:"); ok {
			sum, err := hex.DecodeString(digest)
			if err != nil || len(sum) != sha256.Size {
				return failed("sha256: needs 64 hexadecimal digits")
			}
			token.sum = [sha256.Size]byte(sum)
		} else if len(words[2]) < minSecret {
			return failed("the secret has %d characters; %d are the least", len(words[2]), minSecret)
		}
		tokens = append(tokens, token)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTokens, source, err)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w: %s: there are none", ErrTokens, source)
	}
	return tokens, nil
}

// TokenFile is a TokenSource that reads a file again when it changes.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   fileState
	tokens Tokens
}

// tokenFileLook is how long a change of the file may go unseen.
const tokenFileLook = time.Second

// OpenTokenFile reads the file; its form is that of [ParseTokens]. A later version
// that cannot be read is logged, and the tokens before it stay valid.
func OpenTokenFile(ctx context.Context, path string, log *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path, log: log, looked: time.Now(), seen: stateOf(path)}
	var err error
	if f.tokens, err = f.read(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *TokenFile) read(ctx context.Context) (Tokens, error) {
	tokens, err := infile.Parse(ctx, f.path, ParseTokens)
	if err != nil && !errors.Is(err, ErrTokens) {
		err = fmt.Errorf("%w: %w", ErrTokens, err)
	}
	return tokens, err
}

// Tokens implements TokenSource.
func (f *TokenFile) Tokens() []Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= tokenFileLook {
		f.looked = now
		f.reload(false)
	}
	return f.tokens
}

// Reload reads the file now, changed or not.
func (f *TokenFile) Reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reload(true)
}

func (f *TokenFile) reload(force bool) {
	is := stateOf(f.path)
	if is == f.seen && !force {
		return
	}
	f.seen = is
	tokens, err := f.read(context.Background())
	if err != nil {
		f.log.Error("tokens stay as they were", "file", f.path, "error", err)
		return
	}
	f.tokens = tokens
	f.log.Info("tokens read again", "file", f.path, "tokens", len(tokens))
}

// fileState is by what a changed file is known.
type fileState struct {
	size int64
	time time.Time
	fail bool
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{fail: true}
	}
	return fileState{size: info.Size(), time: info.ModTime()}
}

// authorize finds who sends the request, and whether that is enough. All tokens are
// compared, in constant time.
func authorize(source TokenSource, header string, need Permission) (who string, p *Problem) {
	if source == nil || need == Nothing {
		return "", nil
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", problem(CodeUnauthorized, "send a bearer token: Authorization: Bearer …")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	var found *Token
	tokens := source.Tokens()
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:]) == 1 {
			found = &tokens[i]
		}
	}
	switch {
	case found == nil:
		return "", problem(CodeUnauthorized, "the bearer token is not valid")
	case found.Permission < need:
		return found.Name, problem(CodeForbidden, "the bearer token allows %s; this needs %s", found.Permission, need)
	}
	return found.Name, nil
}
