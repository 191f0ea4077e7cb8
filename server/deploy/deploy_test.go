// Package deploy_test checks the files that put plaid serve into operation.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// flags checks that a command line of plaid serve is one.
func flags(t *testing.T, args ...string) {
	t.Helper()
	c := daemon.NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	require.NoError(t, f.Parse(args))
}

func TestSettingsAreRead(t *testing.T) {
	c := daemon.NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	require.NoError(t, f.Parse([]string{"--config", "plaid.yaml", "--data", "d"}))
	require.NoError(t, c.Load(nil, f))
	require.Equal(t, 50., c.Rate)
}

func TestSystemdUnit(t *testing.T) {
	unit := read(t, "plaid.service")
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/plaid serve (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, line)
	flags(t, strings.Fields(line[1])...)
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there")
	}
	// The unit names a program that is not installed here.
	dir := t.TempDir()
	program := filepath.Join(dir, "plaid")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	copied := filepath.Join(dir, "plaid.service")
	require.NoError(t, os.WriteFile(copied, []byte(strings.ReplaceAll(unit, "/usr/local/bin/plaid", program)), 0o644))
	out, err := exec.Command(analyze, "verify", "--man=no", copied).CombinedOutput()
	for l := range strings.Lines(string(out)) {
		// What it says of other units of this machine is not about this one.
		if strings.Contains(l, "plaid.service") {
			t.Errorf("systemd-analyze: %s", l)
		}
	}
	if err != nil && !t.Failed() {
		t.Logf("systemd-analyze ended with %v, and said nothing of this unit: %s", err, out)
	}
}

func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	require.Regexp(t, `(?m)^FROM scratch$`, text)
	require.Regexp(t, `(?m)^USER [1-9][0-9]*:[1-9][0-9]*$`, text)
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))
	require.Contains(t, text, "FROM golang:"+goVersion[1]+" ")
	c := daemon.NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	require.NoError(t, f.Parse(nil))
	require.NoError(t, c.Load(imageEnvironment(t), f))
	require.Equal(t, "/data", c.Data)
}

// imageEnvironment is what the image sets for the program.
func imageEnvironment(t *testing.T) (environ []string) {
	for _, line := range regexp.MustCompile(`(?m)^ENV (.*)$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		environ = append(environ, strings.Fields(line[1])...)
	}
	return environ
}

// The image looks after itself: the command of its health check is one.
func TestHealthcheck(t *testing.T) {
	line := regexp.MustCompile(`(?m)^HEALTHCHECK (?:--\S+ )+CMD (\[.*\])$`).FindStringSubmatch(read(t, "Dockerfile"))
	require.NotNil(t, line)
	var args []string
	require.NoError(t, json.Unmarshal([]byte(line[1]), &args))
	require.Equal(t, []string{"/plaid", "serve", "--ready"}, args)
}

// The file for Docker Compose builds the image that is here, publishes its port, and gives it
// settings that there are.
func TestCompose(t *testing.T) {
	for _, text := range []string{read(t, "compose.yaml"), regexp.MustCompile(`(?m)^( +)# (- \./|PLAID_)`).ReplaceAllString(read(t, "compose.yaml"), "$1$2")} {
		var file struct {
			Services map[string]struct {
				Build       struct{ Context, Dockerfile string }
				Ports       []string
				Environment map[string]string
				Volumes     []string
				StopGrace   string `yaml:"stop_grace_period"`
			}
			Volumes map[string]any
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &file))
		s, ok := file.Services["plaid"]
		require.True(t, ok)
		require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		require.Equal(t, []string{"127.0.0.1:8080:8080"}, s.Ports)
		require.Contains(t, read(t, "Dockerfile"), "\nEXPOSE 8080\n")
		require.Contains(t, s.Volumes, "data:/data")
		require.Contains(t, file.Volumes, "data")
		environ := []string{"PLAID_SERVE_DATA=/data"}
		for name, value := range s.Environment {
			if name == "PLAID_SERVE_TOKENS" {
				value = "me admin a-secret-of-your-own"
			}
			environ = append(environ, name+"="+value)
		}
		c := daemon.NewConfig()
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.Register(f)
		require.NoError(t, f.Parse(nil))
		require.NoError(t, c.Load(environ, f))
		grace, err := time.ParseDuration(s.StopGrace)
		require.NoError(t, err)
		require.Greater(t, grace, c.DrainTimeout)
	}
	docker, err := exec.LookPath("docker")
	if err != nil || exec.Command(docker, "compose", "version").Run() != nil {
		t.Skip("docker compose is not there")
	}
	cmd := exec.Command(docker, "compose", "-f", "compose.yaml", "config", "--quiet")
	cmd.Env = append(os.Environ(), "PLAID_SERVE_TOKENS=me admin a-secret-of-your-own")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// The alert rules are read by Prometheus, and fire when they should.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool, of Debian's package prometheus, is not there")
	}
	for _, args := range [][]string{
		{"check", "rules", "plaid.rules.yaml"}, {"test", "rules", "plaid.rules.test.yaml"},
	} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
