package daemon

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is that of the service, read again when its files change.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   [2]time.Time
	now    *tls.Certificate
}

// certificateLook is how long a change of the files may go unseen.
const certificateLook = time.Second

func openCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log, looked: time.Now()}
	c.seen = c.times()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s: %w", ErrConfig, cert, err)
	}
	c.now = &pair
	return c, nil
}

func (c *certificate) times() (t [2]time.Time) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

// get is for tls.Config. Files that do not fit together are logged, as they are for a
// moment while they are replaced, and the certificate before them is used.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificateLook {
		c.looked = now
		if is := c.times(); is != c.seen {
			pair, err := tls.LoadX509KeyPair(c.cert, c.key)
			if err != nil {
				c.log.Error("the certificate stays as it was", "file", c.cert, "error", err)
			} else {
				c.now, c.seen = &pair, is
				c.log.Info("certificate read again", "file", c.cert)
			}
		}
	}
	return c.now, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
}
