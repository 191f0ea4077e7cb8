package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/storage/objects"
)

// StoreUsage is the help text for the address of an object store.
const StoreUsage = "`ADDRESS` of an object store, a folder that machines share or " +
	"s3://BUCKET/PREFIX?endpoint=URL&region=NAME"

// peerRoutes is the path below which services of one store send requests to each other, with a secret of
// their own.
const peerRoutes = "/cluster/v1/"

// checkStore returns an error for settings of a store that do not go together, or that need one.
func (c *Config) checkStore() error {
	if c.Store == "" {
		for name, changed := range map[string]bool{
			"node": c.Node != "", "zone": c.Zone != "", "advertise": c.Advertise != "",
			"shards": c.Shards != 1, "replicas": c.Replicas != 2, "partial": c.Partial != "refuse",
		} {
			if changed {
				return fmt.Errorf("%s is for services that share a store, and store is not set", name)
			}
		}
		return nil
	}
	switch u, err := url.Parse(c.Advertise); {
	case c.ReadOnly:
		return errors.New("read-only is for a folder: a service of a store keeps a cache")
	case c.Shards > cluster.MaxShards:
		return fmt.Errorf("shards is %d; the maximum is %d", c.Shards, cluster.MaxShards)
	case c.Replicas > cluster.MaxReplicas:
		return fmt.Errorf("replicas is %d; the maximum is %d", c.Replicas, cluster.MaxReplicas)
	case c.Node != "" && c.Node != nodeName(c.Node):
		return fmt.Errorf("node is %q; letters, digits and -_. are possible, and no dot at the beginning", c.Node)
	case c.Advertise == "":
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" ||
		u.Fragment != "":
		return fmt.Errorf("advertise is %q; want a URL such as http://10.0.0.7:8080", c.Advertise)
	}
	return nil
}

// notInNames matches the characters that a node's name cannot have.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// nodeName turns a text into the name of a node.
func nodeName(text string) string {
	return strings.TrimLeft(notInNames.ReplaceAllString(text, "-"), ".")
}

// openStore opens the indexes of a store. With a listener it joins the services of the store, as a
// node that is reached there; if l is nil, it only asks them. data is the folder for files of this
// process, which it locks.
func (c *Config) openStore(
	ctx context.Context, o *store.Options, l net.Listener, log *slog.Logger, closing *closers,
) (nodes *cluster.Cluster, data string, err error) {
	config := cluster.Config{
		StoreAddress: c.Store,
		Zone:         c.Zone,
		Shards:       c.Shards,
		Replicas:     c.Replicas,
		Index:        *o,
		Deadline:     c.WorkTimeout / 10,
		Partial:      c.Partial == "allow",
		Logger:       log,
	}
	if l == nil {
		if data, err = os.MkdirTemp("", "plaid-"); err != nil {
			return nil, "", err
		}
		closing.add(func() error { return os.RemoveAll(data) })
	} else {
		if config.Address, err = c.advertisedURL(l); err != nil {
			return nil, "", err
		}
		if config.Name, err = c.serviceNodeName(l); err != nil {
			return nil, "", err
		}
		if data, err = c.cacheDir(config.Name); err != nil {
			return nil, "", err
		}
		unlock, err := store.Lock(ctx, data, c.LockTimeout)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", data, err)
		}
		closing.add(unlock)
	}
	// Join the services, or ask them.
	config.Dir = filepath.Join(data, ".cluster") // not a valid name of an index
	openObjects := objects.Open
	if l == nil {
		openObjects = OpenStore
	}
	if config.Store, err = openObjects(c.Store); err != nil {
		return nil, "", err
	}
	nodes, err = cluster.Open(ctx, config)
	if err == nil && l != nil {
		log.Info("joined", "node", config.Name, "address", config.Address, "cache", data)
	}
	return nodes, data, err
}

// OpenStore opens a store for a client, which does not create one: a folder must exist.
func OpenStore(address string) (objects.Store, error) {
	folder := address
	if u, err := url.Parse(address); err == nil && u.Scheme == "file" {
		folder = filepath.FromSlash(u.Path)
	} else if strings.Contains(address, "://") || strings.HasPrefix(address, "s3:") {
		return objects.Open(address)
	}
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (plaid serve --store makes the folder of a store)", err)
	}
	return objects.Open(address)
}

// serviceNodeName returns the name of this node: the one of the settings, or else host and port.
func (c *Config) serviceNodeName(l net.Listener) (string, error) {
	if c.Node != "" {
		return c.Node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("%w: set node: %w", ErrConfig, err)
	}
	port := filepath.Base(l.Addr().String()) // the name of a Unix socket
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		port = fmt.Sprint(a.Port)
	}
	return nodeName(host + "-" + port), nil
}

// cacheDir creates and returns the folder of a node's cache.
func (c *Config) cacheDir(node string) (string, error) {
	data := c.Data
	if data == "" {
		caches, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w: set data, the folder of the cache: %w", ErrConfig, err)
		}
		data = filepath.Join(caches, "plaid", node)
	}
	return data, os.MkdirAll(data, 0o777)
}

// advertisedURL returns the URL under which other services reach this one.
func (c *Config) advertisedURL(l net.Listener) (string, error) {
	if c.Advertise != "" {
		return strings.TrimSuffix(c.Advertise, "/"), nil
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("%w: others do not reach a Unix socket: "+
			"set advertise, the URL under which they reach this service", ErrConfig)
	}
	ip := address.IP
	if ip.IsUnspecified() {
		if ip = outboundIP(); ip == nil {
			return "", fmt.Errorf("%w: this machine has no address by which it reaches others: "+
				"set advertise, the URL under which they reach this service", ErrConfig)
		}
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(ip.String(), fmt.Sprint(address.Port)), nil
}

// outboundIP returns the address that this machine uses towards other networks, or nil if it has none.
// It sends nothing.
func outboundIP() net.IP {
	// Reserved for documentation: they take the default route.
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		if conn, err := net.Dial("udp", to); err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP
		}
	}
	return nil
}

// routePeers sends requests below [peerRoutes] to peers and all others to service. The tokens and limits of
// the service do not apply to requests of peers, which have their own.
func routePeers(peers, service http.Handler) http.Handler {
	if peers == nil {
		return service
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, peerRoutes) {
			peers.ServeHTTP(w, r)
			return
		}
		service.ServeHTTP(w, r)
	})
}
