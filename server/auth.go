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
		return 0, fmt.Errorf("permission %q: there is read, write and admin", s)
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
	// one; 0 means [Limits.Indexes].
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

// NewToken makes a token of its secret. It has no grants.
func NewToken(name string, p Permission, secret string) Token {
	return Token{Name: name, Permission: p, digest: sha256.Sum256([]byte(secret))}
}

// PermissionOn is what the token allows on an index, there or not.
func (t *Token) PermissionOn(index string) Permission {
	return t.maxPermission(func(pattern string) bool { return nameMatches(pattern, index) })
}

// MaxPermission is what the token allows somewhere.
func (t *Token) MaxPermission() Permission { return t.maxPermission(func(string) bool { return true }) }

// permissionOnAll is what the token allows on all indexes.
func (t *Token) permissionOnAll() Permission {
	return t.maxPermission(func(pattern string) bool { return strings.Trim(pattern, "*") == "" })
}

// maxPermission is what the token allows with those of its grants whose patterns count.
func (t *Token) maxPermission(counts func(pattern string) bool) Permission {
	p := t.Permission
	for _, g := range t.Grants {
		if counts(g.Pattern) {
			p = max(p, g.Permission)
		}
	}
	return p
}

// nameMatches tells whether the name of an index is one of a pattern.
func nameMatches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// checkPattern refuses what no name can match.
func checkPattern(pattern string) error {
	if collection.CheckName(strings.NewReplacer("*", "x", "?", "x").Replace(pattern)) != nil {
		return fmt.Errorf("%q is no name of an index, and no pattern of names with * and ?", pattern)
	}
	return nil
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

// minSecretLength is the least number of characters of a secret.
const minSecretLength = 16

// ParseTokens reads a token a line:
//
//	NAME read|write|admin SECRET
//	NAME GRANT[,GRANT…] SECRET [indexes=N] [rate=N]
//
// A GRANT is read, write or admin for all indexes, or such a word with a colon and a name or a
// pattern for some: read:*,write:notes-*,admin:tmp. Limits follow the secret. Secrets are of at
// least 16 characters without blanks; "sha256:" and 64 hexadecimal digits stand for a secret that
// the list does not tell. Empty lines and those that begin with # are passed over. source is for
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
		failed := func(format string, args ...any) (Tokens, error) {
			return nil, fmt.Errorf("%w: %s: line %d: %s", ErrTokens, source, n, fmt.Sprintf(format, args...))
		}
		words := strings.Fields(line)
		if len(words) < 3 {
			return failed("want a name, a permission and a secret; there are %d words", len(words))
		}
		if names[words[0]] {
			return failed("the name %q is there twice", words[0])
		}
		names[words[0]] = true
		token := NewToken(words[0], Nothing, words[2])
		if err := token.parseGrants(words[1]); err != nil {
			return failed("%v", err)
		}
		for i, word := range words[3:] {
			if err := token.parseLimit(word); err != nil {
				return failed("limit %d: %v", i+1, err)
			}
		}
		if digest, ok := strings.CutPrefix(words[2], "sha256:"); ok {
			sum, err := hex.DecodeString(digest)
			if err != nil || len(sum) != sha256.Size {
				return failed("sha256: needs 64 hexadecimal digits")
			}
			token.digest = [sha256.Size]byte(sum)
		} else if len(words[2]) < minSecretLength {
			return failed("the secret has %d characters; at least %d are needed", len(words[2]), minSecretLength)
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

// parseGrants reads grants.
func (t *Token) parseGrants(text string) error {
	for grant := range strings.SplitSeq(text, ",") {
		word, pattern, some := strings.Cut(grant, ":")
		p, err := parsePermission(word)
		if err != nil {
			return err
		}
		if !some {
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

// authorize finds who sends a request of a route, of an index or of none, and whether that
// is enough; the token is nil where none is needed. All tokens are compared, in constant
// time.
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
	allows, scope := found.MaxPermission(), ""
	switch {
	case r.onAllIndexes:
		allows, scope = found.permissionOnAll(), " of all indexes"
	case index != "":
		allows, scope = found.PermissionOn(index), " of this index"
	}
	if allows < r.permission {
		if len(found.Grants) == 0 {
			scope = ""
		}
		return found, problem(CodeForbidden, "the bearer token allows %s%s; this needs %s", allows, scope, r.permission)
	}
	return found, nil
}

// permitted tells whether the request may do something with an index that is not that of its
// path.
func (q *request) permitted(do Permission, index string) bool {
	return q.token == nil || q.token.PermissionOn(index) >= do
}

// readableIndexes are the names of the indexes that the request may read, in order.
func (q *request) readableIndexes() []string {
	names := []string{}
	for _, name := range q.server.collections.Names() {
		if q.permitted(Read, name) {
			names = append(names, name)
		}
	}
	return names
}

// accessOut says what bearer tokens allow. Neither a secret nor the digest of one is in it.
type accessOut struct {
	Needed bool        `json:"needed" doc:"false: everybody may do everything"`
	Nodes  bool        `json:"nodes,omitempty" doc:"it is a cluster: GET /nodes lists its nodes"`
	Own    *accessOf   `json:"own,omitempty" doc:"the token of the request"`
	Tokens []*accessOf `json:"tokens,omitempty" doc:"all tokens, for one that is admin of all indexes"`
}

// accessOf is what one token allows.
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

func (q *request) answerAccess(*noBody) (accessOut, error) {
	_, spread := q.server.collections.(collection.Spread)
	if q.token == nil {
		return accessOut{Nodes: spread}, nil
	}
	out := accessOut{Needed: true, Own: newAccessOf(q.token), Nodes: spread}
	if q.token.permissionOnAll() < Admin {
		return out, nil
	}
	all := q.server.options.Tokens.Tokens()
	for i := range all {
		out.Tokens = append(out.Tokens, newAccessOf(&all[i]))
	}
	return out, nil
}

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

func (q *request) answerNodes(*noBody) (collection.Layout, error) {
	c, ok := q.server.collections.(collection.Spread)
	if !ok {
		return collection.Layout{}, problem(CodeNotSupported, "nodes exist in a cluster only")
	}
	return c.Layout(), nil
}

// TokenFile is a TokenSource that reads a file again when it changes.
type TokenFile struct{ tokens *files.Kept[Tokens] }

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
func (f *TokenFile) Tokens() []Token { return f.tokens.Get() }

// Reload reads the file now, changed or not.
func (f *TokenFile) Reload() { f.tokens.Reload() }
