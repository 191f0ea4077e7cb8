package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// askHTTP is the command http of scripts.
func askHTTP(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 || len(args) > 5 {
		ts.Fatalf("usage: http SOCKET|ADDRESS METHOD PATH [BODY [HEADER]]")
	}
	network, socket := "unix", ts.MkAbs(args[0])
	if strings.Contains(args[0], ":") {
		network, socket = "tcp", args[0]
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			for { // until the service listens
				conn, err := d.DialContext(ctx, network, socket)
				if err == nil || ctx.Err() != nil {
					return conn, err
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
	}}
	var body io.Reader
	if len(args) > 3 && args[3] != "" {
		text := []byte(args[3])
		if name, ok := strings.CutPrefix(args[3], "@"); ok {
			var err error
			text, err = os.ReadFile(ts.MkAbs(name))
			ts.Check(err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequest(args[1], "http://localhost"+args[2], body)
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	if len(args) > 4 {
		name, value, _ := strings.Cut(args[4], ": ")
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%d\n%s\n", answer.StatusCode, text)
	ts.Check(err)
}

// freeAddress is the command free of scripts: an address of this machine at which nothing listens.
func freeAddress(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		ts.Setenv(name, l.Addr().String())
		ts.Check(l.Close())
	}
}
