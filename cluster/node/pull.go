package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullEntries and pullBytes bound what a request for entries brings: it is in memory.
	pullEntries = 256
	pullBytes   = 32 << 20
	// pullWaits is how long a request waits in the server. The server tells of most that ends
	// it sooner; for the rest there are other signs, see [Node.suspect]. So a log in which
	// nothing happens costs next to nothing: the client of NATS would ask, or be told, every
	// few seconds.
	pullWaits = time.Hour
)

// puller asks for the entries of a log that come next, in one request at a time.
type puller struct {
	conn    *nats.Conn
	sub     *nats.Subscription
	msgs    chan *nats.Msg
	subject string // of requests
	request []byte
	left    int // entries that the request may still bring
}

func pull(conn *nats.Conn, stream, consumer string) (*puller, error) {
	p := &puller{conn: conn, msgs: make(chan *nats.Msg, pullEntries+16), subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer}
	var err error
	if p.request, err = json.Marshal(map[string]any{"batch": pullEntries, "max_bytes": pullBytes, "expires": pullWaits}); err != nil {
		return nil, err
	}
	p.sub, err = conn.ChanSubscribe(conn.NewInbox(), p.msgs) // which has room for a request
	return p, err
}

func (p *puller) close() { _ = p.sub.Unsubscribe() } // the connection may be gone

// ask makes a request, unless there is one.
func (p *puller) ask() error {
	if p.left > 0 {
		return nil
	}
	p.left = pullEntries
	return p.conn.PublishRequest(p.subject, p.sub.Subject, p.request)
}

// take looks at what has come: an entry, or nil for news of the request. An error ends it.
func (p *puller) take(msg *nats.Msg) (*nats.MsgMetadata, error) {
	status := msg.Header.Get("Status")
	if status == "" {
		p.left--
		return msg.Metadata()
	}
	what := msg.Header.Get("Description")
	switch {
	case status == "100": // a sign of life
	case status == "404" || status == "408", strings.HasPrefix(what, "Message Size Exceeds MaxBytes"), strings.HasPrefix(what, "Batch Completed"):
		p.left = 0
	default: // the consumer or its server is gone
		return nil, fmt.Errorf("the request for entries has ended: %s %s", status, what)
	}
	return nil, nil
}
