package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
)

// openCertificate reads the certificate of the service, and reads it again when its files change.
// While the files do not match, as happens for a moment when they are replaced, it logs that and
// keeps the last certificate.
func openCertificate(cert, key string, log *slog.Logger) (*files.WatchedValue[*tls.Certificate], error) {
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	certificate, err := files.WatchValue(read, func(_ *tls.Certificate, err error) {
		if err != nil {
			log.Error("the certificate could not be read again and stays as it was", "file", cert, "error", err)
			return
		}
		log.Info("certificate read again", "file", cert)
	}, cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s: %w", ErrConfig, cert, err)
	}
	return certificate, nil
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix:"

// listen opens the listener of an address. It removes the Unix socket of a service that was killed.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
			// The socket is in use if a service answers there, and left over if none does.
			if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
				return nil, errors.Join(fmt.Errorf("listen: %s: another service answers there", path), conn.Close())
			}
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
		return lc.Listen(ctx, "unix", path)
	}
	l, err := lc.Listen(ctx, "tcp", address)
	if wrong := (*net.AddrError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("%w: listen is %q: %s; want HOST:PORT, such as 127.0.0.1:8080, or :8080",
			ErrConfig, address, wrong.Err)
	}
	return l, err
}

// publicAddress returns the URL of a listener, or the path of a Unix socket with its prefix.
func publicAddress(l net.Listener, c *Config) string {
	if l.Addr().Network() == "unix" {
		return unixPrefix + l.Addr().String()
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	return scheme + l.Addr().String() + c.BasePath
}

// isLoopback reports whether only programs of this machine reach a listener.
func isLoopback(l net.Listener) bool {
	a, err := netip.ParseAddrPort(l.Addr().String())
	return err == nil && a.Addr().IsLoopback()
}

// maxReady is the number of bytes that Ready reads of a response.
const maxReady = 1 << 10

// Ready asks the service that runs on this machine with these settings whether it is ready to take
// requests. The error says why it is not.
func Ready(ctx context.Context, c *Config) error {
	dial := new(net.Dialer)
	var network, address string
	if path, ok := strings.CutPrefix(c.Listen, unixPrefix); ok {
		network, address = "unix", path
	} else {
		network = "tcp"
		ip, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return fmt.Errorf("%w: listen: %w", ErrConfig, err)
		}
		if parsed := net.ParseIP(ip); ip == "" || parsed != nil && parsed.IsUnspecified() {
			ip = "localhost" // the service listens on all addresses
		}
		address = net.JoinHostPort(ip, port)
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, network, address)
		},
		// The certificate is for the names that clients use, and not for localhost.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost"+c.BasePath+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReady))
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
