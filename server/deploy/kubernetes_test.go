package deploy_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

// object is what the test reads of the objects of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		ClusterIP string `yaml:"clusterIP"`
		Replicas  int
		Ports     []struct {
			Name string
			Port int
		}
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct {
					Args []string
					Env  []struct{ Name string }
					// Others come from the map and from secrets.
					EnvFrom []struct {
						ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
					} `yaml:"envFrom"`
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					StartupProbe   probe `yaml:"startupProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
					VolumeMounts   []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// The objects for Kubernetes fit each other and the program: flags and settings are some, ports and
// names are the same everywhere, and a pod has time to end.
func TestKubernetes(t *testing.T) {
	all := map[string]object{}
	for d := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes.yaml"))); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all[o.Kind+" "+o.Metadata.Name] = o
	}
	set := all["Deployment plaid"].Spec
	require.Len(t, set.Template.Spec.Containers, 1)
	pod := set.Template.Spec.Containers[0]
	assert.Equal(t, "None", all["Service plaid-nodes"].Spec.ClusterIP)
	assert.Empty(t, all["Service plaid"].Spec.ClusterIP)
	require.Len(t, pod.Ports, 1)
	assert.Equal(t, "http", pod.Ports[0].Name)
	for _, name := range []string{"plaid", "plaid-nodes"} {
		ports := all["Service "+name].Spec.Ports
		require.Len(t, ports, 1)
		assert.Equal(t, pod.Ports[0].ContainerPort, ports[0].Port)
	}
	assert.Equal(t, "/livez", pod.StartupProbe.HTTPGet.Path)
	assert.Equal(t, "/livez", pod.LivenessProbe.HTTPGet.Path, "a pod that waits is not to be killed")
	assert.Equal(t, "/readyz", pod.ReadinessProbe.HTTPGet.Path)

	// The settings, as the program reads them in the image.
	values := map[string]string{"POD_NAME": "plaid-6d5f-x7k2", "POD_IP": "10.0.0.7", "NODE_NAME": "worker-1.example"}
	var pairs []string
	for _, e := range pod.Env {
		require.Contains(t, values, e.Name)
		pairs = append(pairs, "$("+e.Name+")", values[e.Name])
	}
	require.Equal(t, "serve", pod.Args[0])
	var args []string
	for _, arg := range pod.Args[1:] {
		args = append(args, strings.NewReplacer(pairs...).Replace(arg))
		require.NotContains(t, args[len(args)-1], "$(")
	}
	environ := imageEnvironment(t)
	require.Equal(t, "plaid", pod.EnvFrom[0].ConfigMapRef.Name)
	for name, value := range all["ConfigMap plaid"].Data {
		environ = append(environ, name+"="+value)
	}
	c := daemon.NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	require.NoError(t, f.Parse(args))
	require.NoError(t, c.Load(environ, f))
	assert.Equal(t, "http://10.0.0.7:8080", c.Advertise)
	assert.True(t, strings.HasPrefix(c.Store, "s3://"))
	assert.GreaterOrEqual(t, set.Replicas, c.Replicas)
	assert.Greater(t, set.Template.Spec.TerminationGracePeriodSeconds, int(c.DrainTimeout.Seconds()))
	mounts := map[string]bool{}
	for _, m := range pod.VolumeMounts {
		mounts[m.MountPath] = true
	}
	assert.True(t, mounts[c.Data], "the cache is on a volume")
}
