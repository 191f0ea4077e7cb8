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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a store in a bucket. The service must know conditional writes (If-None-Match),
// as AWS, MinIO, Ceph and R2 do.
type S3 struct {
	client         minio.Core
	bucket, prefix string
}

// Open opens the store of an address: a folder, which may be written as file:///PATH, or
// s3://BUCKET/PREFIX, with ?endpoint=http://HOST:PORT and &region=NAME for services other than AWS.
// Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from the AWS file of the user, or
// from the machine's role.
func Open(address string) (Store, error) {
	scheme, _, found := strings.Cut(address, "://")
	mistyped := strings.HasPrefix(address, "s3:") || strings.HasPrefix(address, "file:") // without both slashes
	if !found && address != "" && !mistyped {
		return OpenFolder(address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	switch {
	case scheme == "s3":
		return openS3(u)
	case scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "" && u.RawQuery == "":
		return OpenFolder(filepath.FromSlash(u.Path))
	}
	return nil, fmt.Errorf("%w: %q: a folder, or %s, is one", ErrAddress, address, addressForm)
}

// addressForm is that of the address of a bucket, for messages.
const addressForm = "s3://BUCKET/PREFIX?endpoint=http://HOST:PORT&region=NAME"

func openS3(u *url.URL) (*S3, error) {
	bad := func(what string) (*S3, error) {
		return nil, fmt.Errorf("%w: %s in %q, which is to be like %s", ErrAddress, what, u.Redacted(), addressForm)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return bad("no bucket, or credentials")
	}
	for key, values := range query {
		if key != "endpoint" && key != "region" || len(values) > 1 {
			return bad(fmt.Sprintf("%.40q", key))
		}
	}
	endpoint, secure := "s3.amazonaws.com", true
	if e := query.Get("endpoint"); e != "" {
		p, err := url.Parse(e)
		if err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" ||
			strings.Trim(p.Path, "/") != "" || p.RawQuery != "" {
			return bad(fmt.Sprintf("endpoint %.100q", e))
		}
		endpoint, secure = p.Host, p.Scheme == "https"
	}
	base, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	base.MaxIdleConnsPerHost = 64 // Fetcher, and many shards
	client, err := minio.New(endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: secure, Region: query.Get("region"), Transport: &transport{base, 20 * time.Second},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := CheckName(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	return &S3{minio.Core{Client: client}, u.Host, prefix}, nil
}

func (s *S3) toStoreError(name string, err error) error {
	if err == nil {
		return nil
	}
	switch code := minio.ToErrorResponse(err).Code; code {
	case minio.NoSuchKey:
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	case minio.NoSuchBucket:
		return fmt.Errorf("object %s: %w (make the bucket %s first)", name, err, s.bucket)
	case minio.AccessDenied, "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch": // X… is versitygw's
		return fmt.Errorf("object %s: %w (%s: keys are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
			"of the AWS file, or of the machine's role)", name, err, code)
	}
	return fmt.Errorf("object %s: %w", name, err)
}

// putMark is metadata of an object that says which Put has made it.
const putMark = "Plaid-Put"

const (
	// checkTimeout bounds the requests after a Put that has failed.
	checkTimeout = 10 * time.Second
	contentType  = "application/octet-stream"
)

// Put implements [Store]. The service may have made the object and its answer may be lost:
// the client then asks again and hears that the object is there. So the object bears a
// mark, and one that bears the mark of this Put was made by it, whatever the answer.
func (s *S3) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	if err := CheckName(name); err != nil {
		return made, err
	}
	mark := rand.Text()
	notes, ctx := withNotes(ctx)
	parts := size > partSize
	err = s.putIfAbsent(ctx, s.prefix+name, r, size, mark)
	if err == nil && !parts { // parts may be put together after the answer has begun
		return notes.lastAnswer(), nil
	}
	requests := notes.requests.Load()
	checkCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer stop()
	existing, checkErr := s.client.StatObject(checkCtx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	status := minio.ToErrorResponse(err).StatusCode
	refused := status == http.StatusPreconditionFailed || status == http.StatusConflict
	switch {
	case err == nil && checkErr != nil:
		return made, s.toStoreError(name, checkErr)
	case checkErr == nil && existing.UserMetadata[putMark] == mark:
		return notes.lastAnswer(), nil
	case checkErr == nil && refused:
		return made, fmt.Errorf("%w: %s", ErrExists, name)
	case status/100 == 4 && !slices.Contains(retryableStatus, status) && (requests == 1 || parts):
		return made, fmt.Errorf("%w: %w", ErrNotMade, s.toStoreError(name, err))
	}
	return made, s.toStoreError(name, err) // two at a time may both be refused: neither is there
}

// retryableStatus are refusals after which another try may succeed.
var retryableStatus = []int{
	http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests, 499,
}

// Replace implements [Store].
func (s *S3) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	if err := CheckName(name); err != nil {
		return made, err
	}
	notes, ctx := withNotes(ctx)
	o := minio.PutObjectOptions{ContentType: contentType, DisableMultipart: true}
	_, err = s.client.Client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(body), int64(len(body)), o)
	return notes.lastAnswer(), s.toStoreError(name, err)
}

// partSize is how large an object may be that is put in one part.
const partSize = 16 << 20

// putIfAbsent makes an object on the condition that there is none of the name. The client's own
// way of putting in parts drops the condition.
func (s *S3) putIfAbsent(ctx context.Context, key string, r io.Reader, size int64, mark string) (err error) {
	o := minio.PutObjectOptions{ContentType: contentType, UserMetadata: map[string]string{putMark: mark}}
	condition := minio.PutObjectOptions{}
	condition.SetMatchETagExcept("*")
	if size <= partSize {
		o.SetMatchETagExcept("*")
		o.DisableMultipart = true
		_, err := s.client.Client.PutObject(ctx, s.bucket, key, r, size, o)
		return err
	}
	parts, length, _, err := minio.OptimalPartInfo(size, 0)
	if err != nil {
		return err
	}
	upload, err := s.client.NewMultipartUpload(ctx, s.bucket, key, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // if this fails too, RemoveLeftovers removes the parts
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer stop()
			_ = s.client.AbortMultipartUpload(ctx, s.bucket, key, upload)
		}
	}()
	buf := make([]byte, length)
	put := make([]minio.CompletePart, parts)
	for i := range put {
		part := buf[:min(length, size-int64(i)*length)]
		if _, err := io.ReadFull(r, part); err != nil {
			return fmt.Errorf("%d bytes were announced: %w", size, err)
		}
		done, err := s.client.PutObjectPart(ctx, s.bucket, key, upload, i+1, bytes.NewReader(part), int64(len(part)),
			minio.PutObjectPartOptions{})
		if err != nil {
			return err
		}
		put[i] = minio.CompletePart{PartNumber: i + 1, ETag: done.ETag}
	}
	_, err = s.client.CompleteMultipartUpload(ctx, s.bucket, key, upload, put, condition)
	return err
}

// Get implements [Store]: one request.
func (s *S3) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	if err := CheckName(name); err != nil {
		return nil, Entry{}, err
	}
	if length == 0 {
		return s.emptyRange(ctx, name)
	}
	o, part := minio.GetObjectOptions{}, from > 0 || length > 0
	if part {
		end := int64(0) // up to its end
		if length > 0 {
			end = from + length - 1
		}
		if err := o.SetRange(from, end); err != nil {
			return nil, Entry{}, err
		}
	}
	r, info, header, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, o)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return s.emptyRange(ctx, name)
	}
	if err != nil {
		return nil, Entry{}, s.toStoreError(name, err)
	}
	e := Entry{name, info.Size, info.LastModified}
	if sent := header.Get("Content-Range"); sent != "" { // bytes FROM-TO/SIZE
		_, size, _ := strings.Cut(sent, "/")
		if e.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
			err = fmt.Errorf("object %s: the store answers with the range %q", name, sent)
			return nil, Entry{}, errors.Join(err, r.Close())
		}
	} else if part { // the service has sent the whole object
		if _, err := io.CopyN(io.Discard, r, from); err != nil && err != io.EOF {
			return nil, Entry{}, errors.Join(s.toStoreError(name, err), r.Close())
		}
		if length > 0 {
			r = &rangeReader{io.LimitReader(r, length), r}
		}
	}
	return r, e, nil
}

// emptyRange returns the answer of Get for a range without bytes.
func (s *S3) emptyRange(ctx context.Context, name string) (io.ReadCloser, Entry, error) {
	info, err := s.client.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	return http.NoBody, Entry{name, info.Size, info.LastModified}, s.toStoreError(name, err)
}

// List implements [Store]: a request for each 1,000 objects. The client does not ask again where the
// body of an answer was cut.
func (s *S3) List(ctx context.Context, prefix, after string, limit int) (entries []Entry, err error) {
	for try := range maxReadTries {
		if try > 0 {
			waitBeforeRetry(ctx, try)
		}
		entries, err = s.listOnce(ctx, prefix, after, limit)
		if err == nil || ctx.Err() != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
	}
	return entries, err
}

func (s *S3) listOnce(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	var entries []Entry
	owner := false
	o := minio.ListObjectsOptions{
		Prefix: s.prefix + prefix, Recursive: true, FetchOwner: &owner, MaxKeys: min(limit, 1000),
	}
	if after != "" {
		o.StartAfter = s.prefix + after
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, o) {
		if o.Err != nil {
			return nil, s.toStoreError(prefix, o.Err)
		}
		name := strings.TrimPrefix(o.Key, s.prefix)
		if after != "" && name <= after { // else a service that repeats a page is asked for ever
			return nil, fmt.Errorf("object %s: the store lists it after %s, and not in the order of names", name, after)
		}
		entries, after = append(entries, Entry{name, o.Size, o.LastModified}), name
		if limit > 0 && len(entries) == limit {
			break
		}
	}
	return entries, ctx.Err()
}

// RemoveLeftovers implements [Store]: parts of uploads that were never completed.
func (s *S3) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	for upload := range s.client.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) {
		if upload.Err != nil {
			return removed, s.toStoreError(s.prefix, upload.Err)
		}
		if !upload.Initiated.Before(before) {
			continue
		}
		// This upload alone: others of the name may be under way.
		if err := s.client.AbortMultipartUpload(ctx, s.bucket, upload.Key, upload.UploadID); err != nil {
			return removed, s.toStoreError(strings.TrimPrefix(upload.Key, s.prefix), err)
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
	return s.toStoreError(name, s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
}
