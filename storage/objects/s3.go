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

// S3 is a store in a bucket. The service must support conditional writes (If-None-Match), as AWS, MinIO, Ceph and R2
// do.
type S3 struct {
	client         minio.Core
	bucket, prefix string
}

// Open opens the store with an address: a folder, also in the form file:///PATH, or s3://BUCKET/PREFIX, for services
// other than AWS with ?endpoint=http://HOST:PORT and &region=NAME. Credentials come from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, from the user's AWS file, or from the machine's role.
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

// addressForm is the form of an S3 address, for messages.
const addressForm = "s3://BUCKET/PREFIX?endpoint=http://HOST:PORT&region=NAME"

// openS3 opens the store of an S3 address.
func openS3(u *url.URL) (*S3, error) {
	bad := func(problem string) (*S3, error) {
		return nil, fmt.Errorf("%w: %s in %q: use the form %s", ErrAddress, problem, u.Redacted(), addressForm)
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
	base.MaxIdleConnsPerHost = 64 // Fetcher and many shards use connections concurrently
	client, err := minio.New(endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure:    secure,
		Region:    query.Get("region"),
		Transport: &transport{base, 20 * time.Second},
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

// toStoreError turns an error of the client into one of this package, with advice where that helps. A nil err stays
// nil.
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

// putMark is the metadata key of an object whose value says which Put has created it.
const putMark = "Plaid-Put"

const (
	// checkTimeout limits the requests after a Put that has failed.
	checkTimeout = 10 * time.Second
	contentType  = "application/octet-stream"
)

// Put implements [Store]. The service may create the object and its answer may get lost: the client then tries again,
// and is told that the object exists. So each Put gives its object a unique mark, and an object with the mark of this
// Put was created by it, whatever the answer says.
func (s *S3) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	if err := CheckName(name); err != nil {
		return made, err
	}
	mark := rand.Text()
	notes, ctx := withNotes(ctx)
	multipart := size > partSize
	err = s.putIfAbsent(ctx, s.prefix+name, r, size, mark)
	if err == nil && !multipart { // the answer to an upload of parts may begin before they are put together
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
	case status/100 == 4 && !slices.Contains(retryableStatus, status) && (requests == 1 || multipart):
		// The store has refused the only request that can have created the object.
		return made, fmt.Errorf("%w: %w", ErrNotMade, s.toStoreError(name, err))
	}
	return made, s.toStoreError(name, err) // if two Puts conflict, the service may refuse both: no object exists then
}

// retryableStatus are refusals after which the same request may succeed later.
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

// partSize is the size of the largest object that is put in one part.
const partSize = 16 << 20

// putIfAbsent puts an object if the name is free. It uploads large objects in parts itself, because the client's own
// way of doing that drops the condition.
func (s *S3) putIfAbsent(ctx context.Context, key string, r io.Reader, size int64, mark string) (err error) {
	o := minio.PutObjectOptions{ContentType: contentType, UserMetadata: map[string]string{putMark: mark}}
	// The condition belongs to the request that makes the object visible: the only one, or the completion.
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
		if err != nil { // if the abort fails too, RemoveLeftovers removes the parts later
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

// Get implements [Store]. It sends one request.
func (s *S3) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	if err := CheckName(name); err != nil {
		return nil, Entry{}, err
	}
	if length == 0 {
		return s.emptyRange(ctx, name)
	}
	o, ranged := minio.GetObjectOptions{}, from > 0 || length > 0
	if ranged {
		end := int64(0) // means up to the end
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
			err = fmt.Errorf("object %s: the store answered with the invalid range %q", name, sent)
			return nil, Entry{}, errors.Join(err, r.Close())
		}
	} else if ranged { // the service has ignored the range and sent the whole object
		if _, err := io.CopyN(io.Discard, r, from); err != nil && err != io.EOF {
			return nil, Entry{}, errors.Join(s.toStoreError(name, err), r.Close())
		}
		if length > 0 {
			r = &rangeReader{io.LimitReader(r, length), r}
		}
	}
	return r, e, nil
}

// emptyRange returns the result of Get for a range without bytes.
func (s *S3) emptyRange(ctx context.Context, name string) (io.ReadCloser, Entry, error) {
	info, err := s.client.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	return http.NoBody, Entry{name, info.Size, info.LastModified}, s.toStoreError(name, err)
}

// List implements [Store]. It sends a request for each 1,000 objects. The client does not retry an answer whose body
// was cut short, so List does.
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

// listOnce is List without retries.
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
		if after != "" && name <= after { // otherwise a service that repeats a page would be asked forever
			return nil, fmt.Errorf("object %s: the store lists it after %s, which is not in the order of names",
				name, after)
		}
		entries, after = append(entries, Entry{name, o.Size, o.LastModified}), name
		if limit > 0 && len(entries) == limit {
			break
		}
	}
	return entries, ctx.Err()
}

// RemoveLeftovers implements [Store]. Leftovers are the parts of uploads that were never completed.
func (s *S3) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	for upload := range s.client.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) {
		if upload.Err != nil {
			return removed, s.toStoreError(s.prefix, upload.Err)
		}
		if !upload.Initiated.Before(before) {
			continue
		}
		// Abort only this upload: other uploads of the same name may be running.
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
