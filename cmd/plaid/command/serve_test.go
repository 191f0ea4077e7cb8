package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// askHTTP is the command http of scripts.
func askHTTP(ts *testscript.TestScript, _ bool, args []string) {
	_, err := io.WriteString(ts.Stdout(), answerOf(ts, args))
	ts.Check(err)
}

// answerOf asks what the arguments of http say.
func answerOf(ts *testscript.TestScript, args []string) string {
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
	return fmt.Sprintf("%d\n%s\n", answer.StatusCode, text)
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

// eventually is the command of scripts that asks, as http does, or runs plaid until the answer matches a pattern.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 4 {
		ts.Fatalf("usage: eventually PATTERN {SOCKET|ADDRESS METHOD PATH [BODY [HEADER]] | plaid ARG…}")
	}
	wanted, err := regexp.Compile(args[0])
	ts.Check(err)
	for end := time.Now().Add(time.Minute); ; {
		said, program := "", args[1] == "plaid"
		if program {
			_ = ts.Exec(args[1], args[2:]...) // whose exit code says less
			said = ts.ReadFile("stdout")
		} else {
			said = answerOf(ts, args[1:])
		}
		if wanted.MatchString(said) && program {
			return
		}
		if wanted.MatchString(said) {
			_, err := io.WriteString(ts.Stdout(), said)
			ts.Check(err)
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no match for %s in %s", args[0], said)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
