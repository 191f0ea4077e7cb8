// Package modelof is how an index remembers what its vectors were made with, so that
// questions are encoded alike: a folder, a hub's name with the commit, or a server, and its settings.
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

// Folder is what an index keeps of how a folder was used, beside the precision.
type Folder struct {
	modeldir.Override
	// Encoder is what computed, if not the native encoder, and Graph the file of the
	// folder that it took, if not the usual one: the vectors of others differ.
	Encoder string `json:"encoder,omitempty"`
	Graph   string `json:"graph,omitempty"`
}

// Server is what an index keeps of a server, beside its address.
type Server struct {
	API            string `json:"api,omitempty"`
	Model          string `json:"model,omitempty"`
	QueryPrefix    string `json:"query_prefix,omitempty"`
	DocumentPrefix string `json:"document_prefix,omitempty"`
}

// IsServer says whether a name is the address of a server.
func IsServer(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// Of is what an index keeps of an encoder that was opened with options from a folder, or
// "" from a server.
func Of(e *encode.Encoder, dir string, o *encode.Options) (*storage.Model, error) {
	if o.Remote != nil {
		return ofServer(e, o.Remote)
	}
	name := e.Config().Name // which another machine finds, too
	if name == "" {
		var err error
		if name, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
	}
	m := &storage.Model{Name: name, Fingerprint: e.Config().Fingerprint, Precision: e.Config().Precision}
	kept := Folder{Graph: o.Graph}
	if o.Override != nil {
		kept.Override = *o.Override
	}
	if b := e.Config().Backend; b != encode.Native && b != encode.Device {
		kept.Encoder = b // vectors of a device have a precision of their own
	}
	return m, keep(m, kept)
}

func ofServer(e *encode.Encoder, r *remote.Options) (*storage.Model, error) {
	address, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	address.User = nil // a password is not for an index
	m := &storage.Model{Name: address.String(), Fingerprint: e.Config().Fingerprint}
	return m, keep(m, Server{r.API, r.Model, r.QueryPrefix, r.DocumentPrefix})
}

func keep(m *storage.Model, settings any) error {
	b, err := json.Marshal(settings)
	if s := string(b); s != "{}" {
		m.Settings = s
	}
	return err
}

// Settings reads what an index keeps of a model into a [Folder] or a [Server].
func Settings(of *storage.Model, into any) error {
	if of.Settings == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(of.Settings), into); err != nil {
		return fmt.Errorf("settings of %v: %w", *of, err)
	}
	return nil
}

// Precision reads the precision of the model of an index; "" is the usual one.
func Precision(of *storage.Model, name string) (encode.Precision, error) {
	for _, p := range []encode.Precision{encode.F32, encode.Int8, encode.F16} {
		if name == p.String() {
			return p, nil
		}
	}
	if name == "" {
		return encode.F32, nil
	}
	return 0, fmt.Errorf("%v was used in precision %q, which this program does not have", *of, name)
}

// Options are how the encoder of an index is opened, as it was when its vectors were made.
func Options(of *storage.Model) (dir string, o *encode.Options, err error) {
	if IsServer(of.Name) {
		var s Server
		err := Settings(of, &s)
		r := &remote.Options{URL: of.Name, API: s.API, Model: s.Model, QueryPrefix: s.QueryPrefix, DocumentPrefix: s.DocumentPrefix}
		return "", &encode.Options{Backend: encode.Remote, Remote: r}, err
	}
	var kept Folder
	if err := Settings(of, &kept); err != nil {
		return "", nil, err
	}
	o = &encode.Options{Override: &kept.Override, Backend: kept.Encoder, Graph: kept.Graph}
	o.Precision, err = Precision(of, of.Precision)
	return of.Name, o, err
}
