// Package realdata finds what tests need and the repository is too small for: models and
// real collections in the folder shared beside the checkout.
package realdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Required names the variable that makes a failure of what is missing. CI sets it where
// the folder is.
const Required = "PLAID_REQUIRE_SHARED"

// Path is a file or folder in shared. Without it a test is skipped, or fails where
// PLAID_REQUIRE_SHARED is set.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{root(t), "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("%s is set: %v", Required, err)
		}
		t.Skipf("needs data beside the checkout: %v", err)
	}
	return path
}

// root is the folder of the repository, however deep a test's package lies in it.
func root(t testing.TB) string {
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
