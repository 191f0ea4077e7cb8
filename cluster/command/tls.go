package command

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
)

// tlsFlags name the certificate of a process and the authority that it trusts.
type tlsFlags struct{ cert, key, ca string }

func (t *tlsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&t.cert, "tls-cert", "", "`FILE` with the certificate to show")
	f.StringVar(&t.key, "tls-key", "", "`FILE` with its key")
	f.StringVar(&t.ca, "tls-ca", "", "`FILE` with the authority that certificates of others must be from")
}

// config is nil where no flag is given.
func (t *tlsFlags) config() (*tls.Config, error) {
	if t.cert == "" && t.key == "" && t.ca == "" {
		return nil, nil
	}
	if t.cert == "" || t.key == "" || t.ca == "" {
		return nil, flags.Usagef("--tls-cert, --tls-key and --tls-ca go together")
	}
	cert, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cert, err)
	}
	pem, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate is in it", t.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}
