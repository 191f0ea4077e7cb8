package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// openCertificate reads that of the service, again when its files change. Files that do not fit
// together are logged, as they are for a moment while they are replaced, and the certificate
// before them is used.
func openCertificate(cert, key string, log *slog.Logger) (*files.Kept[*tls.Certificate], error) {
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	kept, err := files.Keep(read, func(_ *tls.Certificate, err error) {
		if err != nil {
			log.Error("the certificate stays as it was", "file", cert, "error", err)
			return
		}
		log.Info("certificate read again", "file", cert)
	}, cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s: %w", ErrConfig, cert, err)
	}
	return kept, nil
}

// maxReady bounds what is read of an answer.
const maxReady = 1 << 10

// Ready asks the service that has these settings, on this machine, whether it takes
// requests: the error says why it does not.
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
			ip = "localhost" // it listens on all addresses
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
		// The certificate is for those who come from elsewhere, by another name.
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
