package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a store in a bucket. The service must know conditional writes (If-None-Match),
// as AWS, MinIO, Ceph and R2 do.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
}

func openS3(address string) (*S3, error) {
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
		Secure: secure, Region: u.Query().Get("region"),
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

// Open opens the store of an address: a folder, or s3://BUCKET/PREFIX, with
// ?endpoint=http://HOST:PORT and ?region=NAME for services other than AWS. Credentials come from
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from the AWS file of the user, or from the
// machine's role.
func Open(address string) (Store, error) {
	if strings.HasPrefix(address, "s3://") {
		return openS3(address)
	}
	return OpenFolder(strings.TrimPrefix(address, "file://"))
}

func (s *S3) explain(name string, err error) error {
	if err == nil {
		return nil
	}
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return fmt.Errorf("object %s: %w", name, err)
}

// putMark is metadata of an object that says which Put has made it.
const putMark = "Plaid-Put"

// lookTime bounds the look at what became of a Put that has failed.
const lookTime = 30 * time.Second

// Put implements [Store]. The service may have made the object and its answer may be lost:
// the client then asks again and hears that the object is there. So the object bears a
// mark, and one that bears the mark of this Put was made by it, whatever the answer.
func (s *S3) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	if err := CheckName(name); err != nil {
		return made, err
	}
	mark := rand.Text()
	err = s.put(ctx, s.prefix+name, r, size, mark)
	if err == nil {
		return time.Now(), nil
	}
	look, stop := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer stop()
	there, lookErr := s.client.StatObject(look, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	status := minio.ToErrorResponse(err).StatusCode
	refused := status == http.StatusPreconditionFailed || status == http.StatusConflict
	switch {
	case lookErr == nil && there.UserMetadata[putMark] == mark:
		return there.LastModified, nil
	case lookErr == nil && refused:
		return made, fmt.Errorf("%w: %s", ErrExists, name)
	}
	return made, s.explain(name, err) // two at a time may both be refused: neither is there
}

// Replace implements [Store].
func (s *S3) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	if err := CheckName(name); err != nil {
		return made, err
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{DisableMultipart: true})
	return time.Now(), s.explain(name, err)
}

// partSize is how large an object may be that is put in one part.
const partSize = 16 << 20

// put makes an object on the condition that there is none of the name. The client's own
// way of putting in parts drops the condition.
func (s *S3) put(ctx context.Context, key string, r io.Reader, size int64, mark string) (err error) {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", UserMetadata: map[string]string{putMark: mark}}
	condition := minio.PutObjectOptions{}
	condition.SetMatchETagExcept("*")
	if size <= partSize {
		o.SetMatchETagExcept("*")
		o.DisableMultipart = true
		_, err := s.client.PutObject(ctx, s.bucket, key, r, size, o)
		return err
	}
	parts, length, _, err := minio.OptimalPartInfo(size, 0)
	if err != nil {
		return err
	}
	core := minio.Core{Client: s.client}
	upload, err := core.NewMultipartUpload(ctx, s.bucket, key, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // what is left of it, if this fails too, tidying finds
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
			defer stop()
			_ = core.AbortMultipartUpload(ctx, s.bucket, key, upload)
		}
	}()
	buf := make([]byte, length)
	put := make([]minio.CompletePart, parts)
	for i := range put {
		part := buf[:min(length, size-int64(i)*length)]
		if _, err := io.ReadFull(r, part); err != nil {
			return fmt.Errorf("%d bytes were announced: %w", size, err)
		}
		done, err := core.PutObjectPart(ctx, s.bucket, key, upload, i+1, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{})
		if err != nil {
			return err
		}
		put[i] = minio.CompletePart{PartNumber: i + 1, ETag: done.ETag}
	}
	_, err = core.CompleteMultipartUpload(ctx, s.bucket, key, upload, put, condition)
	return err
}

// Get implements [Store].
func (s *S3) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	if err := CheckName(name); err != nil {
		return nil, Entry{}, err
	}
	o := minio.GetObjectOptions{}
	if from > 0 || length >= 0 {
		end := from + length - 1
		if length < 0 {
			end = 0
		}
		if err := o.SetRange(from, end); err != nil {
			return nil, Entry{}, err
		}
	}
	r, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, o)
	if err != nil {
		return nil, Entry{}, s.explain(name, err)
	}
	info, err := r.Stat()
	if err != nil {
		return nil, Entry{}, errors.Join(s.explain(name, err), r.Close())
	}
	return r, Entry{name, info.Size, info.LastModified}, nil
}

// List implements [Store].
func (s *S3) List(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	var entries []Entry
	o := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
	if after != "" {
		o.StartAfter = s.prefix + after
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, o) {
		if o.Err != nil {
			return nil, s.explain(prefix, o.Err)
		}
		entries = append(entries, Entry{strings.TrimPrefix(o.Key, s.prefix), o.Size, o.LastModified})
		if limit > 0 && len(entries) == limit {
			break
		}
	}
	slices.SortFunc(entries, compareEntries)
	return entries, ctx.Err()
}

// RemoveLeftovers implements [Store]: parts of uploads that were never completed.
func (s *S3) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	core := minio.Core{Client: s.client}
	for upload := range s.client.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) {
		if upload.Err != nil {
			return removed, s.explain(s.prefix, upload.Err)
		}
		if !upload.Initiated.Before(before) {
			continue
		}
		// This upload alone: others of the name may be under way.
		if err := core.AbortMultipartUpload(ctx, s.bucket, upload.Key, upload.UploadID); err != nil {
			return removed, s.explain(strings.TrimPrefix(upload.Key, s.prefix), err)
		}
		removed++
	}
	return removed, ctx.Err()
}

// Delete implements [Store].
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return s.explain(name, s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
}
