// Package realdata finds data that is too large for the repository: models and
// real collections in the folder shared next to the checkout.
package realdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Required names the variable that makes tests fail if data is missing. CI sets it on machines with
// the folder.
const Required = "PLAID_REQUIRE_SHARED"

// Path returns a file or folder in shared. If it is missing, the test is skipped, or fails if
// PLAID_REQUIRE_SHARED is set.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{repositoryRoot(t), "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("%s is set: %v", Required, err)
		}
		t.Skipf("needs data beside the checkout: %v", err)
	}
	return path
}

// repositoryRoot returns the folder of the repository, from any package in it.
func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "CONTRIBUTING.md")); err == nil {
			return dir
		}
	}
	t.Fatal("the test does not run in the repository")
	return ""
}
