// Package objectstest has an S3 service for tests, with the faults of real services.
package objectstest

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket is the part of an S3 service that the client of package objects uses, with the bucket
// "shelf".
type Bucket struct {
	Faulty
	// Now is the clock of the service. A nil Now means time.Now.
	Now     func() time.Time
	mu      sync.Mutex
	objects map[string]*object
}

type object struct {
	body []byte
	mark string
	made time.Time
}

// Open starts a service for the time of a test, and returns the bucket
// and its address. It sets credentials in the environment.
func Open(t testing.TB) (b *Bucket, address string) {
	b = &Bucket{objects: map[string]*object{}}
	b.Next = http.HandlerFunc(b.answer)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return b, "s3://shelf/some/where?region=us-east-1&endpoint=" + server.URL
}

// Flip flips a bit of an object, in the byte at offset.
func (b *Bucket) Flip(key string, offset int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[key].body[offset] ^= 1
}

// answer answers a request without faults.
func (b *Bucket) answer(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.Now != nil {
		now = b.Now()
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name != "shelf" {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	stored := b.objects[key]
	switch {
	case r.Method == http.MethodGet && key == "" && r.URL.Query().Has("location"):
		fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case r.Method == http.MethodGet && key == "":
		b.listObjects(w, r.URL.Query())
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(unchunked(r))
		if err != nil {
			refuse(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		if stored != nil && r.Header.Get("If-None-Match") == "*" {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		b.objects[key] = &object{body, r.Header.Get("X-Amz-Meta-Plaid-Put"), now}
		w.Header().Set("ETag", `"e"`)
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case stored == nil:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("X-Amz-Meta-Plaid-Put", stored.mark)
		http.ServeContent(w, r, "", stored.made, bytes.NewReader(stored.body))
	}
}

// listObjects answers ListObjectsV2. The token of the next page is its first key.
func (b *Bucket) listObjects(w http.ResponseWriter, query url.Values) {
	type entry struct {
		Key          string
		Size         int
		LastModified string
	}
	list := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []entry
	}{}
	limit, err := strconv.Atoi(query.Get("max-keys"))
	if err != nil || limit <= 0 || limit > 1000 {
		limit = 1000
	}
	after, from := query.Get("start-after"), query.Get("continuation-token")
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if !strings.HasPrefix(k, query.Get("prefix")) || k <= after || k < from {
			continue
		}
		if len(list.Contents) == limit {
			list.IsTruncated, list.NextContinuationToken = true, k
			break
		}
		o := b.objects[k]
		list.Contents = append(list.Contents, entry{k, len(o.body), o.made.UTC().Format("2006-01-02T15:04:05.000Z")})
	}
	_ = xml.NewEncoder(w).Encode(list)
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

// unchunked returns the body of a request without the signatures of its chunks
// (docs.aws.amazon.com, "Signature calculations: transferring payload in multiple chunks").
func unchunked(r *http.Request) io.Reader {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return r.Body
	}
	return &chunks{r: bufio.NewReader(r.Body)}
}

// chunks reads a body of signed chunks.
type chunks struct {
	r         *bufio.Reader
	remaining int64 // bytes of the current chunk
	end       bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.end {
		return 0, io.EOF
	}
	if c.remaining == 0 {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		if c.remaining, err = strconv.ParseInt(size, 16, 64); err != nil {
			return 0, err
		}
		if c.remaining == 0 {
			c.end = true
			_, err := io.Copy(io.Discard, c.r)
			if err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.remaining)])
	c.remaining -= int64(n)
	if c.remaining == 0 && err == nil {
		_, err = c.r.Discard(2) // the end of the line
	}
	return n, err
}
