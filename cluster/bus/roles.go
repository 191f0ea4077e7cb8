package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Role is what a user of the cluster may do, and no more.
type Role string

// The roles.
const (
	// RoleFront asks nodes, writes to logs, and hears only what is answered to it.
	RoleFront Role = "front"
	// RoleNode answers as the node that it is, follows logs, and builds.
	RoleNode Role = "node"
	// RoleOperator changes maps, logs and queues.
	RoleOperator Role = "operator"
)

// ErrRole: the certificate of a connection does not have the role that something takes.
var ErrRole = errors.New("the certificate does not have the role")

// CheckOperator tells whether the connection may do what an operator does: the error is
// [ErrRole] if not.
func (b *Bus) CheckOperator(ctx context.Context) error {
	// Nothing has this name. Whoever may not publish there is told so before the flush ends.
	const subject = "$JS.API.STREAM.PURGE.PLAID_NONE"
	if err := b.Conn.Publish(subject, nil); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, Attempt)
	defer stop()
	if err := b.Conn.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := b.Conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), subject) {
		return fmt.Errorf("%w %s", ErrRole, RoleOperator)
	}
	return nil
}

// ParseRole reads a role.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case RoleFront, RoleNode, RoleOperator:
		return r, nil
	}
	return "", fmt.Errorf("%w: role %q is none of front, node and operator", ErrServer, s)
}

// User is the owner of a certificate: Name is its subject (CN=front-1) or one of the
// DNS names in it. The common name of a node's certificate is the name of the node.
type User struct {
	Name string
	Role Role
}

func (u User) node() string {
	name := strings.TrimPrefix(u.Name, "CN=")
	name, _, _ = strings.Cut(name, ",")
	return name
}

// permissions of a role. The requests of JetStream name a stream, and a wildcard stands
// for a whole name: a node may read every stream, and write to none but what is named.
func (r Role) permissions(node string) *server.Permissions {
	watch := []string{"$JS.API.INFO"}
	for _, bucket := range []string{MapBucket, NodeBucket} {
		watch = append(watch, consumer("KV_"+bucket)...)
	}
	reply := &server.ResponsePermission{MaxMsgs: 1, Expires: 10 * time.Second}
	switch r {
	case RoleFront:
		return &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: append(watch, nodePrefix+"*.q", nodePrefix+"*.look", nodePrefix+"*.cancel", logPrefix+">")},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
	case RoleNode:
		return &server.Permissions{
			Publish: &server.SubjectPermission{Allow: append(append(watch, consumer("*")...),
				"$KV."+NodeBucket+"."+node, "$KV."+MapBucket+".>", ackPrefix+">", "$JS.ACK.>", "_INBOX.>")},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", nodePrefix + node + ".>"}},
			Response:  reply,
		}
	}
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{Prefix + ">", "$JS.API.>", "$KV.>", "$JS.ACK.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		Response:  reply,
	}
}

// consumer is what reading a stream takes.
func consumer(stream string) []string {
	var s []string
	for _, api := range []string{"STREAM.INFO.%s", "STREAM.MSG.GET.%s", "DIRECT.GET.%s", "DIRECT.GET.%s.>", "CONSUMER.CREATE.%s", "CONSUMER.CREATE.%s.>",
		"CONSUMER.INFO.%s.*", "CONSUMER.DELETE.%s.*", "CONSUMER.MSG.NEXT.%s.*"} {
		s = append(s, "$JS.API."+fmt.Sprintf(api, stream))
	}
	return append(s, "$JS.FC."+stream+".>")
}
