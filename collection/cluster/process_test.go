//go:build unix

package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/storage/objects"
)

// nodeArgument makes the test program a node: it is followed by the store, the cache and the name.
const nodeArgument = "a-node-of-a-cluster"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == nodeArgument {
		if err := runNode(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runNode is a node that serves until it is killed. Its address is its only line.
func runNode(address, dir, name string) error {
	s, err := objects.Open(address)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	c, err := cluster.Open(context.Background(), cluster.Config{
		Store: s, StoreAddress: address, Dir: dir, Name: name, Address: url, Shards: 2, Replicas: 2, Beat: clustertest.Beat,
		Index: store.Options{Threads: 1},
	})
	if err != nil {
		return err
	}
	front, err := server.New(c, nil, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/cluster/", c.Handler())
	mux.Handle("/", front)
	fmt.Println(url)
	return http.Serve(l, mux)
}

// process is a node that is one.
type process struct {
	cmd *exec.Cmd
	url string
}

func startProcess(t *testing.T, dir, name string) *process {
	p := &process{cmd: exec.Command(os.Args[0], nodeArgument, filepath.Join(dir, "store"), filepath.Join(dir, name),
		name)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	p.url = strings.TrimSpace(line)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// put replaces a document by a version of it.
func (p *process) put(ctx context.Context, id string, version int) error {
	body, err := json.Marshal(object{"documents": list{object{"embeddings": rows(fmt.Sprint(id, " v", version%9))}},
		"metadata": list{object{"_id": id, "v": version}}})
	if err != nil {
		return err
	}
	status, text, err := (&front{url: p.url}).try(ctx, "POST", "/indices/wiki/update?wait=true", "application/json",
		body)
	if err == nil && status != 200 {
		err = fmt.Errorf("%d: %s", status, text)
	}
	return err
}

// Processes are killed at any moment, or stopped and continued, and go on with their caches or
// without: each acknowledged change stays.
func TestKilledProcesses(t *testing.T) {
	if !effort.Long() {
		t.Skip("kills processes for a minute")
	}
	dir := t.TempDir()
	names := []string{"n0", "n1", "n2"}
	var mu sync.RWMutex
	nodes := map[string]*process{}
	for _, name := range names {
		nodes[name] = startProcess(t, dir, name)
	}
	f := &front{t, nodes["n0"].url}
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	time.Sleep(4 * clustertest.Beat)
	const writers, each = 4, 8
	may := [writers]map[string]map[int]bool{} // versions that a document may have
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	for w := range writers {
		may[w] = map[string]map[int]bool{}
		r := rand.New(rand.NewPCG(*seed, uint64(w)))
		working.Go(func() {
			late := map[string][]int{} // versions of unknown outcome
			for version := 1; ctx.Err() == nil; version++ {
				id := fmt.Sprintf("w%d-%d", w, r.IntN(each))
				mu.RLock()
				p := nodes[names[r.IntN(len(names))]]
				mu.RUnlock()
				within, end := context.WithTimeout(ctx, opTime)
				err := p.put(within, id, version)
				end()
				if err != nil {
					late[id] = append(late[id], version)
				} else {
					may[w][id] = map[int]bool{version: true}
				}
				if may[w][id] == nil {
					may[w][id] = map[int]bool{0: true}
				}
				for _, v := range late[id] {
					may[w][id][v] = true
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(*seed, 99))
	for range effort.Cases(5, 40) {
		name := names[r.IntN(len(names))]
		p := nodes[name]
		if r.IntN(3) == 0 {
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(time.Duration(r.IntN(8)) * clustertest.Beat)
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
			continue
		}
		p.kill()
		if r.IntN(3) == 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
		}
		time.Sleep(time.Duration(r.IntN(4)) * clustertest.Beat)
		p = startProcess(t, dir, name)
		mu.Lock()
		nodes[name] = p
		mu.Unlock()
		time.Sleep(time.Duration(r.IntN(4)) * clustertest.Beat)
	}
	stop()
	working.Wait()
	time.Sleep(8 * clustertest.Beat)
	for _, name := range names { // with their caches
		nodes[name].kill()
		nodes[name] = startProcess(t, dir, name)
	}
	judge := startProcess(t, dir, "judge")
	for _, url := range []string{judge.url, nodes["n0"].url, nodes["n2"].url} {
		f := &front{t, url}
		var got struct{ Metadata []object }
		for status := 0; status != 200; time.Sleep(clustertest.Beat) { // it begins
			var text []byte
			if status, text = f.ask("GET", "/indices/wiki/metadata", "", nil); status == 200 {
				require.NoError(t, json.Unmarshal(text, &got))
			}
		}
		there := map[string]int{}
		for _, m := range got.Metadata {
			there[m["_id"].(string)] = int(m["v"].(float64))
		}
		for w := range may {
			for id, versions := range may[w] {
				require.True(t, versions[there[id]], "%s has version %d, it may be one of %v", id, there[id], versions)
			}
		}
		f.do(200, "POST", "/indices/wiki/verify", nil, nil)
	}
}
