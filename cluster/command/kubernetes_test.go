package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// object is what the test reads of the objects of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		MaxUnavailable           int    `yaml:"maxUnavailable"`
		Selector                 yaml.Node
		ServiceName              string `yaml:"serviceName"`
		Replicas                 int
		PodManagementPolicy      string `yaml:"podManagementPolicy"`
		Ports                    []struct {
			Name string
			Port int
		}
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct {
					Args  []string
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					StartupProbe   probe `yaml:"startupProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct {
		Path string
		Port string
	} `yaml:"httpGet"`
}

// The objects for Kubernetes fit each other and the program: flags and settings are some, ports
// and names are the same everywhere, and one node may be away at a time.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("../../server/deploy/kubernetes.yaml")
	require.NoError(t, err)
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all[o.Kind+" "+o.Metadata.Name] = o
	}
	set, headless := all["StatefulSet plaid"].Spec, all["Service plaid-nodes"].Spec
	require.Len(t, set.Template.Spec.Containers, 1)
	pod := set.Template.Spec.Containers[0]
	assert.Equal(t, "plaid-nodes", set.ServiceName)
	assert.Equal(t, "None", headless.ClusterIP)
	assert.True(t, headless.PublishNotReadyAddresses, "nodes have to find each other before they are ready")
	assert.Equal(t, "Parallel", set.PodManagementPolicy)
	assert.Equal(t, 1, all["PodDisruptionBudget plaid"].Spec.MaxUnavailable)
	ports := map[string]int{}
	for _, p := range pod.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range headless.Ports {
		assert.Equal(t, ports[p.Name], p.Port, p.Name)
	}
	assert.Equal(t, "/livez", pod.StartupProbe.HTTPGet.Path)
	assert.Equal(t, "/livez", pod.LivenessProbe.HTTPGet.Path, "a node that waits is not to be killed")
	assert.Equal(t, "/readyz", pod.ReadinessProbe.HTTPGet.Path)

	require.Equal(t, []string{"cluster", "node"}, pod.Args[:2])
	x := &cli{}
	cmd := x.nodeCommand()
	args := slices.Clone(pod.Args[2:])
	for i := range args {
		args[i] = strings.NewReplacer("$(POD_NAME)", "plaid-0", "$(PLAID_STORE)", all["ConfigMap plaid"].Data["PLAID_STORE"]).Replace(args[i])
	}
	require.NoError(t, cmd.ParseFlags(args))
	require.Empty(t, cmd.Flags().Args())
	value := func(name string) string { return cmd.Flag(name).Value.String() }
	for name, port := range map[string]int{"listen": ports["clients"], "cluster-listen": ports["nodes"], "metrics": ports["metrics"], "http": ports["http"]} {
		assert.Regexp(t, regexp.MustCompile(`^:`), value(name))
		assert.Contains(t, value(name), string(rune('0'+port/1000)), name)
	}
	joined := strings.Split(strings.Trim(value("join"), "[]"), ",")
	assert.Len(t, joined, set.Replicas)
	for i, j := range joined {
		assert.Equal(t, "plaid-"+string(rune('0'+i))+".plaid-nodes:6222", j)
	}
	grace, err := cmd.Flags().GetDuration("grace")
	require.NoError(t, err)
	assert.Greater(t, set.Template.Spec.TerminationGracePeriodSeconds, int(grace.Seconds()))

	// The settings of the front, as the node reads them, in the image.
	t.Setenv("PLAID_SERVE_DATA", "/data")
	t.Setenv("PLAID_SERVE_LISTEN", "0.0.0.0:8080")
	file := t.TempDir() + "/front.yaml"
	require.NoError(t, os.WriteFile(file, []byte(all["ConfigMap plaid"].Data["front.yaml"]), 0o644))
	h := httpFlags{value("http"), file}
	c, front, err := h.load("", "")
	require.NoError(t, err)
	assert.Equal(t, "/etc/plaid/tokens/tokens", c.TokensFile)
	assert.Equal(t, 3, front.create.Replicas)
	front.store = "set"
	asked, err := front.Check()
	require.NoError(t, err)
	assert.True(t, asked)
}
