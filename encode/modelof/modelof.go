// Package modelof describes, for an index, the model that encoded its vectors, so that queries are
// encoded in the same way: a folder, a hub's name with the commit, or a server, with its settings.
package modelof

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/storage"
)

// Folder holds the settings of a folder or hub's model that an index stores, except for the precision.
type Folder struct {
	modeldir.Override
	// Encoder is the backend, if it is neither the native one nor a device, and Graph the
	// graph's file in the folder, if it is not the usual one: other backends and graphs compute
	// different vectors.
	Encoder string `json:"encoder,omitempty"`
	Graph   string `json:"graph,omitempty"`
}

// Server holds the settings of a server that an index stores, except for its address.
type Server struct {
	API            string `json:"api,omitempty"`
	Model          string `json:"model,omitempty"`
	QueryPrefix    string `json:"query_prefix,omitempty"`
	DocumentPrefix string `json:"document_prefix,omitempty"`
}

// IsServer reports whether a name is the address of a server.
func IsServer(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// Describe describes an encoder, for an index, that was opened with options from a folder; dir is ""
// for a server.
func Describe(e *encode.Encoder, dir string, o *encode.Options) (*storage.Model, error) {
	if o.Remote != nil {
		return describeServer(e, o.Remote)
	}
	name := e.Config().Name // of a hub's model, which other machines find too
	if name == "" {
		var err error
		if name, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
	}
	m := &storage.Model{Name: name, Fingerprint: e.Config().Fingerprint, Precision: e.Config().Precision}
	settings := Folder{Graph: o.Graph}
	if o.Override != nil {
		settings.Override = *o.Override
	}
	if b := e.Config().Backend; b != encode.Native && b != encode.Device {
		settings.Encoder = b // the precision tells a device from the native encoder
	}
	return m, setSettings(m, settings)
}

// describeServer describes a server, without the password in its address.
func describeServer(e *encode.Encoder, r *remote.Options) (*storage.Model, error) {
	address, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	address.User = nil // an index must not hold a password
	m := &storage.Model{Name: address.String(), Fingerprint: e.Config().Fingerprint}
	return m, setSettings(m, Server{
		API:            r.API,
		Model:          r.Model,
		QueryPrefix:    r.QueryPrefix,
		DocumentPrefix: r.DocumentPrefix,
	})
}

// setSettings stores settings in m as JSON, or "" if all have their zero values.
func setSettings(m *storage.Model, settings any) error {
	b, err := json.Marshal(settings)
	if s := string(b); s != "{}" {
		m.Settings = s
	}
	return err
}

// Settings parses the settings of a model into a [Folder] or a [Server].
func Settings(m *storage.Model, into any) error {
	if m.Settings == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(m.Settings), into); err != nil {
		return fmt.Errorf("settings of %v: %w", *m, err)
	}
	return nil
}

// Precision parses the precision of an index's model. "" means F32. The model is for errors.
func Precision(m *storage.Model, name string) (encode.Precision, error) {
	for _, p := range []encode.Precision{encode.F32, encode.Int8, encode.F16} {
		if name == p.String() {
			return p, nil
		}
	}
	if name == "" {
		return encode.F32, nil
	}
	return 0, fmt.Errorf("%v was used in precision %q, which this program does not have", *m, name)
}

// Options returns the options that open an index's encoder as it was opened for its vectors.
func Options(m *storage.Model) (dir string, o *encode.Options, err error) {
	if IsServer(m.Name) {
		var s Server
		err := Settings(m, &s)
		r := &remote.Options{
			URL:            m.Name,
			API:            s.API,
			Model:          s.Model,
			QueryPrefix:    s.QueryPrefix,
			DocumentPrefix: s.DocumentPrefix,
		}
		return "", &encode.Options{Backend: encode.Remote, Remote: r}, err
	}
	var settings Folder
	if err := Settings(m, &settings); err != nil {
		return "", nil, err
	}
	o = &encode.Options{Override: &settings.Override, Backend: settings.Encoder, Graph: settings.Graph}
	o.Precision, err = Precision(m, m.Precision)
	return m.Name, o, err
}
