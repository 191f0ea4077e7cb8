package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program prints what the README says, and is as short as it promises to be.
func TestQuickstart(t *testing.T) {
	cmd := exec.Command("go", "run", "./docs/examples/quickstart")
	cmd.Dir = "../../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "8460275  The Utilization of Extracellular Proteins as Nutrients Is Suppressed by mTORC1")
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(source), "\n"), 40)
}
