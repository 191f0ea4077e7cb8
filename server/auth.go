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
	"path"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/files"
)

// Permission is the right to use a group of routes. Each includes those before it.
type Permission int

// The permissions.
const (
	Nothing Permission = iota // probes, and the description of the API: they need no token
	Read                      // searches and lookups
	Write                     // changes of documents
	Admin                     // creating, removing, restoring and retraining indexes
)

var permissionNames = []string{"none", "read", "write", "admin"}

func (p Permission) String() string { return permissionNames[p] }

// parsePermission is the inverse of String, except that a token cannot have the permission "none".
func parsePermission(s string) (Permission, error) {
	p := slices.Index(permissionNames, s)
	if p < 1 {
		return 0, fmt.Errorf("permission %q: want read, write or admin", s)
	}
	return Permission(p), nil
}

// Token is a bearer token.
type Token struct {
	// Name is the name of its user in logs.
	Name string
	// Permission holds on all indexes, and Grants hold on some of them. The greatest one counts.
	Permission Permission
	Grants     []Grant
	// Indexes is the largest number of indexes that the token may administer, counted when it creates
	// one. 0 means [Limits.Indexes].
	Indexes int
	// Rate is how many requests a second it may send, in place of [Limits.Rate]; twice as many may
	// come at once. 0 means the rate of all clients.
	Rate   float64
	digest [sha256.Size]byte
}

// Grant is a permission on the indexes whose names match a pattern: * stands for any
// characters, ? for one.
type Grant struct {
	Permission Permission
	Pattern    string
}

// NewToken returns a token with a secret, and without grants.
func NewToken(name string, p Permission, secret string) Token {
	return Token{Name: name, Permission: p, digest: sha256.Sum256([]byte(secret))}
}

// PermissionOn returns the token's permission on an index, which need not exist.
func (t *Token) PermissionOn(index string) Permission {
	return t.maxPermission(func(pattern string) bool { return nameMatches(pattern, index) })
}

// MaxPermission returns the greatest permission that the token has on any index.
func (t *Token) MaxPermission() Permission { return t.maxPermission(func(string) bool { return true }) }

// permissionOnAll returns the permission that the token has on all indexes.
func (t *Token) permissionOnAll() Permission {
	return t.maxPermission(func(pattern string) bool { return strings.Trim(pattern, "*") == "" })
}

// maxPermission returns the greatest among the token's permission and those of the grants whose patterns
// apply.
func (t *Token) maxPermission(applies func(pattern string) bool) Permission {
	p := t.Permission
	for _, g := range t.Grants {
		if applies(g.Pattern) {
			p = max(p, g.Permission)
		}
	}
	return p
}

// nameMatches reports whether the name of an index matches a pattern.
func nameMatches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// checkPattern returns an error if no name of an index can match a pattern.
func checkPattern(pattern string) error {
	if collection.CheckName(strings.NewReplacer("*", "x", "?", "x").Replace(pattern)) != nil {
		return fmt.Errorf("%q is no name of an index, and no pattern of names with * and ?", pattern)
	}
	return nil
}

// A TokenSource returns the tokens that are valid now. The service calls it for every request.
type TokenSource interface {
	Tokens() []Token
}

// Tokens is a TokenSource that does not change.
type Tokens []Token

// Tokens implements TokenSource.
func (t Tokens) Tokens() []Token { return t }

// ErrTokens is the error of a list of tokens that cannot be read.
var ErrTokens = errors.New("bad list of tokens")

// minSecretLength is the minimum length of a secret in bytes.
const minSecretLength = 16

// ParseTokens parses a list with one token on each line:
//
//	NAME read|write|admin SECRET
//	NAME GRANT[,GRANT…] SECRET [indexes=N] [rate=N]
//
// A GRANT is read, write or admin for all indexes, or such a word with a colon and a name or a
// pattern for some: read:*,write:notes-*,admin:tmp. Limits follow the secret. Secrets have at least
// 16 characters and no blanks; "sha256:" and 64 hexadecimal digits stand for a secret that is kept
// out of the list. Empty lines and those that begin with # are skipped. source names the list in
// errors, which do not repeat secrets.
func ParseTokens(r io.Reader, source string) (Tokens, error) {
	var tokens Tokens
	names := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		lineError := func(format string, args ...any) (Tokens, error) {
			return nil, fmt.Errorf("%w: %s: line %d: %s", ErrTokens, source, n, fmt.Sprintf(format, args...))
		}

		// The name, the grants and the limits.
		words := strings.Fields(line)
		if len(words) < 3 {
			return lineError("want a name, a permission and a secret; there are %d words", len(words))
		}
		if names[words[0]] {
			return lineError("the name %q is there twice", words[0])
		}
		names[words[0]] = true
		token := NewToken(words[0], Nothing, words[2])
		if err := token.parseGrants(words[1]); err != nil {
			return lineError("%v", err)
		}
		for i, word := range words[3:] {
			if err := token.parseLimit(word); err != nil {
				return lineError("limit %d: %v", i+1, err)
			}
		}

		// The secret, or its digest.
		if digest, ok := strings.CutPrefix(words[2], "sha256:"); ok {
			sum, err := hex.DecodeString(digest)
			if err != nil || len(sum) != sha256.Size {
				return lineError("sha256: needs 64 hexadecimal digits")
			}
			token.digest = [sha256.Size]byte(sum)
		} else if len(words[2]) < minSecretLength {
			return lineError("the secret has %d characters; at least %d are needed", len(words[2]), minSecretLength)
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

// parseGrants sets the token's permission and grants from the second word of its line.
func (t *Token) parseGrants(text string) error {
	for grant := range strings.SplitSeq(text, ",") {
		word, pattern, hasPattern := strings.Cut(grant, ":")
		p, err := parsePermission(word)
		if err != nil {
			return err
		}
		if !hasPattern {
			t.Permission = max(t.Permission, p)
			continue
		}
		if err := checkPattern(pattern); err != nil {
			return err
		}
		t.Grants = append(t.Grants, Grant{p, pattern})
	}
	return nil
}

// authorize finds the token in a header Authorization, and checks that it permits a route on an index, or
// on no index if that is "". The token is nil if none is needed. All tokens are compared, each in constant
// time, so that the time tells nothing about them.
func authorize(source TokenSource, header string, r *route, index string) (*Token, *Problem) {
	if source == nil || r.permission == Nothing {
		return nil, nil
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return nil, problem(CodeUnauthorized, "send a bearer token: Authorization: Bearer …")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	var found *Token
	tokens := source.Tokens()
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].digest[:]) == 1 {
			found = &tokens[i]
		}
	}
	if found == nil {
		return nil, problem(CodeUnauthorized, "the bearer token is not valid")
	}
	allowed, scope := found.MaxPermission(), ""
	switch {
	case r.onAllIndexes:
		allowed, scope = found.permissionOnAll(), " of all indexes"
	case index != "":
		allowed, scope = found.PermissionOn(index), " of this index"
	}
	if allowed < r.permission {
		if len(found.Grants) == 0 { // it is the same on each index
			scope = ""
		}
		return found, problem(CodeForbidden, "the bearer token allows %s%s; this needs %s", allowed, scope,
			r.permission)
	}
	return found, nil
}

// permitted reports whether the token has a permission on an index, which need not be that of the path.
func (q *request) permitted(needed Permission, index string) bool {
	return q.token == nil || q.token.PermissionOn(index) >= needed
}

// readableIndexes returns the names of the indexes that the request may read, in order.
func (q *request) readableIndexes() []string {
	names := []string{}
	for _, name := range q.server.collections.Names() {
		if q.permitted(Read, name) {
			names = append(names, name)
		}
	}
	return names
}

// accessOut has the permissions of bearer tokens, but neither their secrets nor digests of these.
type accessOut struct {
	Needed bool        `json:"needed" doc:"false: everybody may do everything"`
	Nodes  bool        `json:"nodes,omitempty" doc:"it is a cluster: GET /nodes lists its nodes"`
	Own    *accessOf   `json:"own,omitempty" doc:"the token of the request"`
	Tokens []*accessOf `json:"tokens,omitempty" doc:"all tokens, for one that is admin of all indexes"`
}

// accessOf has the permissions and limits of one token.
type accessOf struct {
	Name       string     `json:"name"`
	Permission string     `json:"permission" enum:"none,read,write,admin" doc:"on all indexes"`
	Grants     []grantOut `json:"grants,omitempty" doc:"on some indexes; the greatest permission holds"`
	Indexes    int        `json:"indexes,omitempty" doc:"how many indexes it may have; none: as many as the service"`
	Rate       float64    `json:"rate,omitempty" doc:"requests a second; none: as all clients"`
}

type grantOut struct {
	Permission string `json:"permission" enum:"read,write,admin"`
	Pattern    string `json:"pattern" doc:"of names: * stands for any characters, ? for one"`
}

func accessRoutes() []route {
	return []route{
		typedRoute(route{
			method:      "GET",
			pattern:     "/tokens",
			operationID: "list_tokens",
			tag:         "service",
			permission:  Read,
			group:       groupLookup,
			summary:     "What the token of the request allows, and for an admin of all indexes what all tokens do",
			doc:         "Names, permissions and limits; never a secret.",
		}, (*request).answerAccess),
		typedRoute(route{
			method:       "GET",
			pattern:      "/nodes",
			operationID:  "list_nodes",
			tag:          "service",
			permission:   Admin,
			onAllIndexes: true,
			group:        groupLookup,
			summary:      "Nodes of a cluster, and the shards that they have",
			codes:        []Code{CodeNotSupported},
			doc:          "A service that keeps its indexes itself answers NOT_SUPPORTED.",
		}, (*request).answerNodes),
	}
}

// answerAccess answers GET /tokens.
func (q *request) answerAccess(*noBody) (accessOut, error) {
	_, isCluster := q.server.collections.(collection.Distributed)
	if q.token == nil {
		return accessOut{Nodes: isCluster}, nil
	}
	out := accessOut{Needed: true, Own: newAccessOf(q.token), Nodes: isCluster}
	if q.token.permissionOnAll() < Admin {
		return out, nil
	}
	tokens := q.server.options.Tokens.Tokens()
	for i := range tokens {
		out.Tokens = append(out.Tokens, newAccessOf(&tokens[i]))
	}
	return out, nil
}

// newAccessOf returns the permissions and limits of a token.
func newAccessOf(t *Token) *accessOf {
	a := &accessOf{
		Name:       t.Name,
		Permission: t.Permission.String(),
		Indexes:    t.Indexes,
		Rate:       t.Rate,
	}
	for _, g := range t.Grants {
		a.Grants = append(a.Grants, grantOut{g.Permission.String(), g.Pattern})
	}
	return a
}

// answerNodes answers GET /nodes.
func (q *request) answerNodes(*noBody) (collection.Layout, error) {
	c, ok := q.server.collections.(collection.Distributed)
	if !ok {
		return collection.Layout{}, problem(CodeNotSupported, "nodes exist in a cluster only")
	}
	return c.Layout(), nil
}

// TokenFile is a TokenSource that reads a file again when it changes.
type TokenFile struct{ tokens *files.WatchedValue[Tokens] }

// OpenTokenFile reads a file in the form of [ParseTokens]. If a later version cannot be parsed, the error
// is logged, and the earlier tokens stay valid.
func OpenTokenFile(ctx context.Context, path string, log *slog.Logger) (*TokenFile, error) {
	read := func() (Tokens, error) {
		tokens, err := files.Parse(ctx, path, ParseTokens)
		if err != nil && !errors.Is(err, ErrTokens) {
			err = fmt.Errorf("%w: %w", ErrTokens, err)
		}
		return tokens, err
	}
	watched, err := files.WatchValue(read, func(tokens Tokens, err error) {
		if err != nil {
			log.Error("tokens stay as they were", "file", path, "error", err)
			return
		}
		log.Info("tokens read again", "file", path, "tokens", len(tokens))
	}, path)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // read uses ctx, and is called again after the caller's ctx has ended
	return &TokenFile{watched}, nil
}

// Tokens implements TokenSource.
func (f *TokenFile) Tokens() []Token { return f.tokens.Get() }

// Reload reads the file now, changed or not.
func (f *TokenFile) Reload() { f.tokens.Reload() }
