package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/server"
)

// service is a service in this process, as `plaid serve` runs it: it logs each request to a file.
type service struct {
	store      *store.Store
	collection *store.Collection
	address    string
	stop       func() error
}

// startService starts a service with the collection of the study.
func startService(ctx context.Context, o *loadOptions, in *loadInput) (s *service, err error) {
	parallel.AddSpareProcessors()
	s = &service{}
	if s.store, err = store.Open(ctx, o.data, nil); err != nil {
		return nil, err
	}
	if s.collection, err = in.fillCollection(ctx, s.store); err != nil {
		return nil, errors.Join(err, s.store.Close(ctx))
	}
	log, err := os.Create(filepath.Join(o.data, "log.txt"))
	if err != nil {
		return nil, errors.Join(err, s.store.Close(ctx))
	}
	fail := func(err error) (*service, error) { return nil, errors.Join(err, log.Close(), s.store.Close(ctx)) }
	h, err := server.New(s.store.Catalog(), nil, &server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return fail(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	s.address = l.Addr().String()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, nil) }()
	s.stop = func() error {
		cancel()
		return errors.Join(<-ended, s.store.Close(context.WithoutCancel(ctx)), log.Close())
	}
	return s, nil
}

// clientTimeout is how long a client waits for an answer.
const clientTimeout = 60 * time.Second

// client is one connection that is kept open. It does little more than send and receive bytes,
// since it uses the processors of the service.
type client struct {
	address string
	conn    net.Conn
	r       *bufio.Reader
}

// httpMessage returns a request as it is sent.
func httpMessage(method, path string, body []byte) []byte {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+
		"%d\r\n\r\n", method, path, len(body))
	return append([]byte(head), body...)
}

// roundTrip sends a message and receives the answer. After an error the next call opens a new
// connection.
func (c *client) roundTrip(ctx context.Context, message []byte) (status int, body []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if c.conn == nil {
		var d net.Dialer
		if c.conn, err = d.DialContext(ctx, "tcp", c.address); err != nil {
			return 0, nil, err
		}
		c.r = bufio.NewReader(c.conn)
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return 0, nil, err
	}
	if _, err := c.conn.Write(message); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, nil, err
	}
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	if resp.Close {
		c.close()
	}
	return resp.StatusCode, body, nil
}

// close closes the connection.
func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// answerFault returns "" for a good answer, and otherwise the code of the error, or what went
// wrong.
func answerFault(status int, body []byte, err error) string {
	if err != nil {
		var n net.Error
		if errors.As(err, &n) && n.Timeout() {
			return "no answer in time"
		}
		return "connection lost"
	}
	if status < 300 {
		return ""
	}
	var p struct{ Code string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		p.Code = "no problem details"
	}
	return strconv.Itoa(status) + " " + p.Code
}
