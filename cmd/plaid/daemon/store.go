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

// StoreUsage says what the address of an object store is.
const StoreUsage = "`ADDRESS` of an object store, a folder that machines share or " +
	"s3://BUCKET/PREFIX?endpoint=URL&region=NAME"

// innerRoutes is where services of one store ask each other, with a secret of their own.
const innerRoutes = "/cluster/v1/"

// checkStore finds what does not go together.
func (c *Config) checkStore() error {
	if c.Store == "" {
		for name, given := range map[string]bool{
			"node": c.Node != "", "zone": c.Zone != "", "advertise": c.Advertise != "",
			"shards": c.Shards != 1, "replicas": c.Replicas != 2, "partial": c.Partial != "refuse",
		} {
			if given { // than its default
				return fmt.Errorf("%s is of services that share a store, and store is not given", name)
			}
		}
		return nil
	}
	switch u, err := url.Parse(c.Advertise); {
	case c.ReadOnly:
		return errors.New("read-only is for a folder: a service of a store keeps a cache")
	case c.Shards > cluster.MaxShards:
		return fmt.Errorf("shards is %d; %d are possible", c.Shards, cluster.MaxShards)
	case c.Replicas > cluster.MaxReplicas:
		return fmt.Errorf("replicas is %d; %d are possible", c.Replicas, cluster.MaxReplicas)
	case c.Node != "" && c.Node != nodeName(c.Node):
		return fmt.Errorf("node is %q; letters, digits and -_. are possible, and no dot at the beginning", c.Node)
	case c.Advertise == "":
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" ||
		u.Fragment != "":
		return fmt.Errorf("advertise is %q; want a URL such as http://10.0.0.7:8080", c.Advertise)
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// nodeName makes the name of a node of a text.
func nodeName(text string) string {
	return strings.TrimLeft(notInNames.ReplaceAllString(text, "-"), ".")
}

// openStore joins the services of a store as a node that is reached where l listens, or, where l is
// nil, asks them. data is the folder for files of this process, which is locked.
func (c *Config) openStore(ctx context.Context, o *store.Options, l net.Listener, log *slog.Logger, closing *closers) (
	nodes *cluster.Cluster, data string, err error) {
	config := cluster.Config{
		Place:    c.Store,
		Zone:     c.Zone,
		Shards:   c.Shards,
		Replicas: c.Replicas,
		Index:    *o,
		Deadline: c.WorkTimeout / 10,
		Partial:  c.Partial == "allow",
		Logger:   log,
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
	config.Dir = filepath.Join(data, ".cluster") // no index of a folder has such a name
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

// OpenStore opens a store for a client, which makes none: a folder has to be there.
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

// serviceNodeName is the name of this service: that of its machine and its port, unless it is given.
func (c *Config) serviceNodeName(l net.Listener) (string, error) {
	if c.Node != "" {
		return c.Node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("%w: set node: %w", ErrConfig, err)
	}
	port := filepath.Base(l.Addr().String()) // of a Unix socket
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		port = fmt.Sprint(a.Port)
	}
	return nodeName(host + "-" + port), nil
}

// cacheDir is the folder of a node.
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

// advertisedURL is the URL under which others reach this service.
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

// outboundIP is the address of this machine on the way to others; nil if there is none. Nothing is sent.
func outboundIP() net.IP {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // of documentation: whatever has the default route
		if conn, err := net.Dial("udp", to); err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP
		}
	}
	return nil
}

// routeInner lets the inner routes past a service, which has tokens and limits of its own.
func routeInner(inner, service http.Handler) http.Handler {
	if inner == nil {
		return service
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, innerRoutes) {
			inner.ServeHTTP(w, r)
			return
		}
		service.ServeHTTP(w, r)
	})
}
