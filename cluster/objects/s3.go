package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a store in a bucket. The service must know conditional writes (If-None-Match),
// as AWS, MinIO, Ceph and R2 do.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
}

// OpenS3 takes s3://BUCKET/PREFIX, with ?endpoint=http://HOST:PORT and ?region=NAME for
// services other than AWS. Credentials come from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, from the AWS file of the user, or from the machine's role.
func OpenS3(address string, transport http.RoundTripper) (*S3, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		return nil, fmt.Errorf("%w: %q is not s3://BUCKET/PREFIX", ErrName, address)
	}
	endpoint, secure := "s3.amazonaws.com", true
	if e := u.Query().Get("endpoint"); e != "" {
		p, err := url.Parse(e)
		if err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return nil, fmt.Errorf("%w: endpoint %q", ErrName, e)
		}
		endpoint, secure = p.Host, p.Scheme == "https"
	}
	client, err := minio.New(endpoint, &minio.Options{
		Creds:  credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}}),
		Secure: secure, Region: u.Query().Get("region"), Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := CheckName(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	return &S3{client, u.Host, prefix}, nil
}

// Open opens the store of an address: s3://… or a folder.
func Open(address string) (Store, error) {
	if strings.HasPrefix(address, "s3://") {
		return OpenS3(address, nil)
	}
	return OpenFolder(strings.TrimPrefix(address, "file://"))
}

func (s *S3) explain(name string, err error) error {
	if err == nil {
		return nil
	}
	switch r := minio.ToErrorResponse(err); {
	case r.StatusCode == http.StatusPreconditionFailed || r.StatusCode == http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrExists, name)
	case r.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return fmt.Errorf("object %s: %w", name, err)
}

// Put implements [Store].
func (s *S3) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := CheckName(name); err != nil {
		return err
	}
	o := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	o.SetMatchETagExcept("*")
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, r, size, o)
	return s.explain(name, err)
}

// Get implements [Store].
func (s *S3) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	o, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s.explain(name, err)
	}
	if _, err := o.Stat(); err != nil {
		return nil, errors.Join(s.explain(name, err), o.Close())
	}
	return o, nil
}

// List implements [Store].
func (s *S3) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, s.explain(prefix, o.Err)
		}
		names = append(names, strings.TrimPrefix(o.Key, s.prefix))
	}
	slices.Sort(names)
	return names, ctx.Err()
}

// Delete implements [Store].
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return s.explain(name, s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
}
