package realdata

import (
	"os"
	"testing"
)

// TestMini writes colbert-mini with weights as safetensors into the folder that PLAID_MINI
// names, for commands that take a folder.
func TestMini(t *testing.T) {
	to := os.Getenv("PLAID_MINI")
	if to == "" {
		t.Skip("PLAID_MINI names no folder to write")
	}
	if err := os.CopyFS(to, os.DirFS(Mini(t))); err != nil {
		t.Fatal(err)
	}
}
