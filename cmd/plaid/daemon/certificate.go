package daemon

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/plaid-ir/plaid/internal/files"
)

// certificate is that of the service, read again when its files change. Files that do not fit
// together are logged, as they are for a moment while they are replaced, and the certificate
// before them is used.
type certificate struct {
	*files.Kept[*tls.Certificate]
}

func openCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
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
	return &certificate{kept}, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Get(), nil }, MinVersion: tls.VersionTLS12,
	}
}
