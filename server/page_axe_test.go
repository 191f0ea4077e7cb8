//go:build unix

package server_test

import (
	"crypto/sha512"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/stretchr/testify/require"
)

// axeVersion is that of axe-core (https://github.com/dequelabs/axe-core, MPL-2.0), which npm
// fetches into the user's cache: no copy of it is kept here. axeSum is the integrity of its
// package.
const (
	axeVersion = "4.14.1"
	axeSum     = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

var axeSource = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "plaid-test", "axe-core-"+axeVersion)
	pack := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(pack); err != nil {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", err
		}
		cmd := exec.Command("npm", "pack", "--silent", "--pack-destination", dir, "axe-core@"+axeVersion)
		if err := cmd.Run(); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(pack)
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(text); base64.StdEncoding.EncodeToString(sum[:]) != axeSum {
		return "", os.ErrInvalid
	}
	script, err := exec.Command("tar", "-xzOf", pack, "package/axe.min.js").Output()
	return string(script), err
})

// axe lets axe-core look for what people with screen readers, with the keyboard alone or
// with weak sight cannot use. It is passed over where npm cannot fetch it, unless
// PLAID_REQUIRE_BROWSER says that it must be there.
func (p *tab) axe() {
	p.t.Helper()
	script, err := axeSource()
	if err != nil {
		require.Empty(p.t, os.Getenv("PLAID_REQUIRE_BROWSER"), "axe-core: %v", err)
		p.t.Logf("axe-core is not there: %v", err)
		return
	}
	var there bool
	if p.js("!!window.axe", &there); !there {
		p.js(script, nil)
	}
	var found []string
	p.js(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 300) + " " + (n.any[0] || n.all[0] || n.none[0] || {}).message)))`, &found)
	require.Empty(p.t, found)
}
