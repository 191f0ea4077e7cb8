package server

import "github.com/plaid-ir/plaid/collection"

// accessOut says what bearer tokens allow. Neither a secret nor the digest of one is in it.
type accessOut struct {
	Needed bool        `json:"needed" doc:"false: everybody may do everything"`
	Own    *accessOf   `json:"own,omitempty" doc:"the token of the request"`
	Tokens []*accessOf `json:"tokens,omitempty" doc:"all tokens, for one that is admin of all indexes"`
}

// accessOf is what one token allows.
type accessOf struct {
	Name       string     `json:"name"`
	Permission string     `json:"permission" enum:"none,read,write,admin" doc:"on all indexes"`
	Grants     []grantOut `json:"grants,omitempty" doc:"on some indexes; the greatest permission holds"`
	Documents  uint64     `json:"documents,omitempty" doc:"quota of all indexes together that it may write; none: no limit"`
	Bytes      int64      `json:"bytes,omitempty" doc:"the same, of index files"`
	Rate       float64    `json:"rate,omitempty" doc:"requests a second"`
}

type grantOut struct {
	Permission string `json:"permission" enum:"read,write,admin"`
	Pattern    string `json:"pattern" doc:"of names: * stands for any characters, ? for one"`
}

func accessRoutes() []route {
	return []route{
		typed(route{method: "GET", pattern: "/tokens", id: "list_tokens", tag: "service", need: Read, group: looking,
			summary: "What the token of the request allows, and for an admin of all indexes what all tokens do",
			doc:     "Names, permissions and quotas; secrets are told nobody."}, (*request).access),
		typed(route{method: "GET", pattern: "/nodes", id: "list_nodes", tag: "service", need: Admin, everywhere: true, group: looking,
			summary: "Nodes of a cluster, and the shards that they have", fails: []Code{CodeNotSupported},
			doc: "A service that keeps its indexes itself answers NOT_SUPPORTED."}, (*request).nodes),
	}
}

func (q *request) access(*nothing) (accessOut, error) {
	if q.token == nil {
		return accessOut{}, nil
	}
	out := accessOut{Needed: true, Own: accessOfToken(q.token)}
	if q.token.everywhere() < Admin {
		return out, nil
	}
	all := q.s.o.Tokens.Tokens()
	for i := range all {
		out.Tokens = append(out.Tokens, accessOfToken(&all[i]))
	}
	return out, nil
}

func accessOfToken(t *Token) *accessOf {
	a := &accessOf{Name: t.Name, Permission: t.Permission.String(), Documents: t.Quota.Documents, Bytes: t.Quota.Bytes, Rate: t.Quota.Rate}
	for _, g := range t.Grants {
		a.Grants = append(a.Grants, grantOut{g.Permission.String(), g.Pattern})
	}
	return a
}

func (q *request) nodes(*nothing) (collection.Layout, error) {
	c, ok := q.s.collections.(collection.Spread)
	if !ok {
		return collection.Layout{}, collection.Unsupported("a list of nodes")
	}
	return c.Layout(), nil
}
