package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// A full disk is said to be one, to clients, probes and metrics; what is there is found;
// and when there is room again everything goes on by itself.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(dir, 0o777))
	if err := syscall.Mount("plaid-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	s := startAt(t, openStoreAt(t, filepath.Join(dir, "data"), nil), words{}, nil)
	s.addPets(t)
	var filler []string
	for size := 8 << 20; size >= 4096; size /= 2 {
		for {
			name := filepath.Join(dir, fmt.Sprint("filler", len(filler)))
			filler = append(filler, name)
			if os.WriteFile(name, make([]byte, size), 0o666) != nil {
				break
			}
		}
	}
	large := object{"documents": list{query("more cats")}, "metadata": list{object{"text": strings.Repeat("x", 500_000)}}}
	r := s.send(t, "POST", "/indices/pets/update", large)
	require.Equal(t, 507, r.status, r.body)
	p := isProblem(t, r, server.CodeDiskFull)
	require.Positive(t, p.RetryAfter)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.NotContains(t, p.Message, dir)
	var ready struct{ Disk string }
	s.ok(t, 200, "GET", "/readyz", nil, &ready)
	require.Equal(t, "full", ready.Disk)
	require.Contains(t, s.send(t, "GET", "/metrics", nil).body, "\nplaid_disk_full 1\n")
	require.Contains(t, s.send(t, "GET", "/metrics", nil).body, "\nplaid_disk_free_bytes ")
	require.Len(t, s.search(t, "", object{"queries": list{query("cats")}}).Results[0].Documents, 3)
	s.refused(t, 507, server.CodeDiskFull, "POST", "/indices/pets/update", large)
	// No route fails for it but those that write, and these say why.
	for _, r := range server.RequestsOf(s.Server) {
		if r.Method == "DELETE" || r.Media != "" && r.Body == "" {
			continue // what deletes would succeed; and uploads are no examples
		}
		a := s.send(t, r.Method, strings.ReplaceAll(r.Pattern, "{name}", "pets"), r.Body, "Content-Type: "+r.Media)
		require.NotEqual(t, 500, a.status, "%s %s: %s", r.Method, r.Pattern, a.body)
		require.NotEmpty(t, s.search(t, "", object{"queries": list{query("cats")}}).Results[0].Documents)
	}
	for _, name := range filler {
		require.NoError(t, os.Remove(name))
	}
	ready.Disk = ""
	s.ok(t, 200, "GET", "/readyz", nil, &ready) // nothing has been written yet
	require.Empty(t, ready.Disk)
	s.ok(t, 202, "POST", "/indices/pets/update", large, nil)
	require.Contains(t, s.send(t, "GET", "/metrics", nil).body, "\nplaid_disk_full 0\n")
}
