package deploy_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// goreleaser is compiled by go run: some minutes where it is not in the cache.
const goreleaser = "github.com/goreleaser/goreleaser/v2@v2.15.4"

// releaseConfig is what the tests look at in .goreleaser.yaml.
type releaseConfig struct {
	Builds []struct {
		ID, Dir, Main string
		Tags          []string
		Targets       []string
	}
	Archives []struct {
		IDs   []string
		Files []yaml.Node
	}
	NFPMs []struct {
		IDs      []string
		Contents []struct{ Src string }
	}
}

// What the release is configured to take is there, and static programs are built in one
// way everywhere.
func TestReleaseConfiguration(t *testing.T) {
	var c releaseConfig
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../../.goreleaser.yaml")), &c))
	var taken []string
	for _, a := range c.Archives {
		for _, f := range a.Files {
			var file struct{ Src string }
			if f.Kind == yaml.ScalarNode {
				file.Src = f.Value
			} else {
				require.NoError(t, f.Decode(&file))
			}
			taken = append(taken, file.Src)
		}
	}
	for _, p := range c.NFPMs {
		for _, f := range p.Contents {
			taken = append(taken, f.Src)
		}
	}
	require.Greater(t, len(taken), 10)
	for _, f := range taken {
		if !strings.HasPrefix(f, "extras/") { // made by extras.sh
			require.FileExists(t, filepath.Join("..", "..", f))
		}
	}
	static := "nocuda,noonnxruntime"
	require.Contains(t, read(t, "Dockerfile"), "-tags "+static+" ")
	require.Contains(t, read(t, "../../python/build.py"), `STATIC = "`+static+`"`)
	var ids []string
	for _, b := range c.Builds {
		require.DirExists(t, filepath.Join("..", "..", b.Dir, b.Main))
		ids = append(ids, b.ID)
		if b.ID == "static" || b.ID == "windows" {
			require.Equal(t, static, strings.Join(b.Tags, ","), b.ID)
		}
	}
	require.Equal(t, []string{"static", "cuda", "darwin", "windows"}, ids)
}

func TestReleaseNotes(t *testing.T) {
	notes := func(version string) (string, error) {
		out, err := exec.Command("release/notes.sh", version).Output()
		return string(out), err
	}
	version := regexp.MustCompile(`"(.*)"`).FindStringSubmatch(read(t, "../../python/src/plaid_ir/_version.py"))[1]
	out, err := notes(version)
	require.NoError(t, err, "the version of the Python package has no section")
	require.Regexp(t, `(?m)^- \*\*`, out)
	require.NotRegexp(t, `(?m)^(## \[|\[.*\]: )`, out, "of other versions, and links")
	_, err = notes("99.0.0")
	require.Error(t, err)
}

var usesAction = regexp.MustCompile(`(?m)uses: *(\S+)(.*)$`)

// Actions of others are named by commit; a change passes .ci/run, every night .ci/long, and a
// release both.
func TestWorkflows(t *testing.T) {
	const dir = "../../.github/workflows/"
	checks := map[string][]string{"ci.yml": {".ci/run"}, "nightly.yml": {".ci/long"}, "release.yml": {".ci/run", ".ci/long"}}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, len(checks))
	for f, scripts := range checks {
		text := read(t, dir+f)
		var w map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &w), f)
		require.Contains(t, w, "permissions", f)
		for _, script := range scripts {
			require.Contains(t, text, "- run: "+script, f)
		}
		uses := usesAction.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, uses, f)
		for _, u := range uses {
			require.Regexp(t, `^[\w-]+/[\w-]+@[0-9a-f]{40}$`, u[1], f)
			require.Regexp(t, `^ # v\d`, u[2], f)
		}
	}
	require.Contains(t, read(t, dir+"release.yml"), goreleaser)
}

// A snapshot of a release has what it should have, and its programs run. It takes
// minutes, so only .ci/long asks for it.
func TestReleaseSnapshot(t *testing.T) {
	if os.Getenv("PLAID_RELEASE_CHECK") == "" {
		t.Skip("PLAID_RELEASE_CHECK is not set")
	}
	tool := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
		defer cancel()
		began := time.Now()
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", goreleaser}, args...)...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("goreleaser %s: %v", args[0], time.Since(began).Round(time.Second))
	}
	tool("check")
	skip := "publish"
	_, noSyft := exec.LookPath("syft")
	if noSyft != nil {
		t.Log("syft is not there: no lists of components")
		skip += ",sbom"
	}
	t.Cleanup(func() { require.NoError(t, errors.Join(os.RemoveAll("../../dist"), os.RemoveAll("../../extras"))) })
	tool("release", "--snapshot", "--clean", "--skip="+skip)

	sums := map[string]string{}
	for line := range strings.Lines(read(t, "../../dist/SHA256SUMS")) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, line)
		sums[name] = sum
		if strings.HasPrefix(name, "plaid_ir-") {
			continue // where it is from is not in dist
		}
		data, err := os.ReadFile(filepath.Join("../../dist", name))
		require.NoError(t, err)
		got := sha256.Sum256(data)
		require.Equal(t, sum, hex.EncodeToString(got[:]), name)
	}
	one := func(pattern string) string {
		t.Helper()
		found, err := filepath.Glob("../../dist/" + pattern)
		require.NoError(t, err)
		require.Len(t, found, 1, pattern)
		require.Contains(t, sums, filepath.Base(found[0]))
		return found[0]
	}
	for _, name := range []string{"plaid_*_linux_amd64.tar.gz", "plaid_*_linux_arm64.tar.gz", "plaid-cuda_*_linux_amd64.tar.gz", "plaid_*_darwin_amd64.tar.gz", "plaid_*_darwin_arm64.tar.gz"} {
		dir := unpack(t, one(name))
		if noSyft == nil {
			require.Contains(t, read(t, one(name+".sbom.json")), `"go.etcd.io/bbolt"`)
		}
		for _, f := range []string{"LICENSE", "README.md", "CHANGELOG.md", "completions/plaid.bash", "completions/_plaid", "completions/plaid.fish", "completions/plaid.ps1", "man/plaid.1", "man/plaid-search.1", "man/plaid-cluster-status.1", "systemd/plaid.service", "systemd/plaid.yaml"} {
			require.FileExists(t, filepath.Join(dir, f), name)
		}
		program := filepath.Join(dir, "plaid")
		if !strings.Contains(name, "linux") {
			require.FileExists(t, program)
			continue
		}
		f, err := elf.Open(program)
		require.NoError(t, err)
		dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		require.NoError(t, f.Close())
		require.Equal(t, strings.Contains(name, "cuda"), dynamic, "%s is linked dynamically: %v", name, dynamic)
		if (map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"})[f.Machine] != runtime.GOARCH || runtime.GOOS != "linux" {
			continue
		}
		if !dynamic {
			t.Run("first minute of "+name, func(t *testing.T) { firstMinute(t, program) })
		}
		out, err := exec.Command(program, "version", "--json").Output()
		require.NoError(t, err)
		var v struct {
			Version, Revision string
			Tags              []string
			Devices           map[string][]string
		}
		require.NoError(t, json.Unmarshal(out, &v))
		require.Contains(t, filepath.Base(dir), "_"+strings.TrimPrefix(v.Version, "v")+"_linux_")
		require.Regexp(t, `^[0-9a-f]{40}$`, v.Revision)
		require.Equal(t, !dynamic, slices.Contains(v.Tags, "nocuda"), "%s", out)
		require.Equal(t, dynamic, len(v.Devices["cuda"]) > 0, "%s", out)
	}
	z, err := zip.OpenReader(one("plaid_*_windows_amd64.zip"))
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/plaid.exe") }))
	require.NoError(t, z.Close())
	for name, programs := range map[string]int{ // plaid, plaid-cuda
		"plaid_*_amd64.deb": 1, "plaid_*_arm64.deb": 1, "plaid-cuda_*_amd64.deb": 1,
		"plaid-*.x86_64.rpm": 2, "plaid-*.aarch64.rpm": 1,
	} {
		found, err := filepath.Glob("../../dist/" + name)
		require.NoError(t, err)
		require.Len(t, found, programs, name)
		for _, f := range found {
			require.Contains(t, sums, filepath.Base(f))
		}
	}
	if dpkg, err := exec.LookPath("dpkg-deb"); err == nil {
		out, err := exec.Command(dpkg, "--contents", one("plaid_*_amd64.deb")).Output()
		require.NoError(t, err)
		for _, f := range []string{
			"./usr/bin/plaid\n", "./usr/share/man/man1/plaid-search.1\n", "./usr/share/bash-completion/completions/plaid\n",
			"./usr/lib/systemd/system/plaid.service\n", "./etc/plaid/plaid.yaml\n",
		} {
			require.Contains(t, string(out), f)
		}
	}
}

// unpack unpacks a tar.gz archive and returns the one folder that is in it.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	dir, top := t.TempDir(), ""
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		top, _, _ = strings.Cut(h.Name, "/")
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, h.FileInfo().Mode())
		require.NoError(t, err)
		_, err = io.Copy(out, r)
		require.NoError(t, errors.Join(err, out.Close()))
	}
	return filepath.Join(dir, top)
}
