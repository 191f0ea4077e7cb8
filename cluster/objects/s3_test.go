package objects

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var timeZero time.Time

// unchunked is the body of a request without the signatures of its chunks
// (docs.aws.amazon.com, "Signature calculations: transferring payload in multiple chunks").
func unchunked(r *http.Request) io.Reader {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return r.Body
	}
	return &chunks{r: bufio.NewReader(r.Body)}
}

type chunks struct {
	r    *bufio.Reader
	left int64
	end  bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.end {
		return 0, io.EOF
	}
	if c.left == 0 {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		if c.left, err = strconv.ParseInt(size, 16, 64); err != nil {
			return 0, err
		}
		if c.left == 0 {
			c.end = true
			_, err := io.Copy(io.Discard, c.r)
			if err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.left == 0 && err == nil {
		_, err = c.r.Discard(2) // the end of the line
	}
	return n, err
}
