package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

const (
	// methodListen asks for a stream of changes, which would never end. It is refused, as nothing changes.
	methodListen = "subscriptions/listen"
	// methodCancelled is the notification that a call no longer needs an answer.
	methodCancelled = "notifications/cancelled"
	notifications   = "notifications/"
)

// frame is a parsed message of an agent. The library decodes ids as float64, and would answer 1 for 1.5.
// Therefore the library gets another id, and the agent gets its own back, byte for byte.
type frame struct {
	request *jsonrpc.Request // without an id, or nil if the message needs no answer
	id      json.RawMessage  // nil for a notification
}

// refusal is the error that answers a message.
type refusal struct {
	id      json.RawMessage // nil if unknown
	code    int64
	message string
}

// refuse returns a refusal with a formatted message.
func refuse(id json.RawMessage, code int64, format string, args ...any) *refusal {
	return &refusal{id, code, fmt.Sprintf(format, args...)}
}

// encode returns the refusal as a message.
func (r *refusal) encode() []byte {
	text, err := jsontext.MarshalUnescaped(answer{Version: version, ID: idOrNull(r.id),
		Error: &jsonrpc.Error{Code: r.code, Message: r.message}})
	if err != nil { // an id that was read, numbers and texts: cannot happen
		panic(err)
	}
	return text
}

// version is the version of JSON-RPC.
const version = "2.0"

// answer is an answer to an agent, with the agent's id.
type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *jsonrpc.Error  `json:"error,omitempty"`
}

// idOrNull returns an id, or null if it is nil.
func idOrNull(id json.RawMessage) json.RawMessage {
	if id == nil {
		return json.RawMessage("null")
	}
	return id
}

// withID replaces the id in an answer of the library by the one that the agent has sent.
func withID(text []byte, id json.RawMessage) ([]byte, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, err
	}
	a.ID = idOrNull(id)
	if a.Error != nil && a.Error.Code == 0 { // some errors of the library have no code
		a.Error.Code = jsonrpc.CodeInvalidRequest
	}
	return jsontext.MarshalUnescaped(a)
}

// parseFrame parses a message by the rules of JSON-RPC 2.0 and of the protocol, or returns the refusal that
// answers it. It refuses lists of messages: the protocol no longer has them, and one would count as a single
// request.
func parseFrame(text []byte) (frame, *refusal) {
	// JSON, and an object.
	var wrong *jsontext.Error
	if err := jsontext.Check(text, jsontext.Options{}); errors.As(err, &wrong) {
		if wrong.Syntax {
			return frame{}, refuse(nil, jsonrpc.CodeParseError, "no MCP message: it is not JSON: byte %d: %s",
				wrong.Offset, wrong.What)
		}
		code := int64(jsonrpc.CodeInvalidRequest)
		if !utf8.Valid(text) {
			code = jsonrpc.CodeParseError
		}
		return frame{}, refuse(findID(text), code, "no MCP message: %v", wrong)
	}
	switch jsonKind(bytes.TrimLeft(text, " \t\r\n")) {
	case "an object":
	case "a list":
		return frame{}, refuse(nil, jsonrpc.CodeInvalidRequest, "lists of messages are not taken: send one at a time")
	default:
		return frame{}, refuse(nil, jsonrpc.CodeInvalidRequest, "no MCP message: it is no object")
	}

	// Id and version.
	var members map[string]json.RawMessage // a struct would accept "ID" for "id"
	if err := json.Unmarshal(text, &members); err != nil {
		return frame{}, refuse(nil, jsonrpc.CodeParseError, "no MCP message: %v", err)
	}
	id, hasID := members["id"]
	if hasID && !validID(id) {
		return frame{}, refuse(nil, jsonrpc.CodeInvalidRequest, "id is %s; want text or a number", jsonKind(id))
	}
	if tag := members["jsonrpc"]; stringFrom(tag) != version {
		return frame{}, refuse(id, jsonrpc.CodeInvalidRequest, `no MCP message: "jsonrpc" is not "2.0"`)
	}

	// Method.
	if members["method"] == nil && (members["result"] != nil || members["error"] != nil) {
		return frame{}, nil // an answer, although the server never asks
	}
	if jsonKind(members["method"]) != "text" {
		return frame{}, refuse(id, jsonrpc.CodeInvalidRequest, "method is %s; want text", jsonKind(members["method"]))
	}
	method := stringFrom(members["method"])
	switch {
	case method == "":
		return frame{}, refuse(id, jsonrpc.CodeInvalidRequest, "method is empty")
	case !hasID && !strings.HasPrefix(method, notifications):
		return frame{}, refuse(nil, jsonrpc.CodeInvalidRequest, "%.80q has no id", method)
	case method == methodListen:
		return frame{}, refuse(id, jsonrpc.CodeMethodNotFound, "there are no changes to subscribe to")
	}

	// Parameters.
	params := members["params"]
	switch jsonKind(params) {
	case "an object":
		params = withoutNulls(params)
	case "missing", "null":
		params = nil
	default:
		if !hasID { // notifications are not answered
			return frame{}, nil
		}
		return frame{}, refuse(id, jsonrpc.CodeInvalidParams, "params is %s; want an object", jsonKind(params))
	}
	return frame{&jsonrpc.Request{Method: method, Params: params}, id}, nil
}

// jsonKind names the kind of a JSON value, which must not begin with white space.
func jsonKind(value json.RawMessage) string {
	switch {
	case len(value) == 0:
		return "missing"
	case value[0] == '{':
		return "an object"
	case value[0] == '[':
		return "a list"
	case value[0] == '"':
		return "text"
	case value[0] == 'n':
		return "null"
	case value[0] == 't', value[0] == 'f':
		return "a truth value"
	}
	return "a number"
}

// stringFrom returns the text of a JSON string, or "" for another value.
func stringFrom(value json.RawMessage) (text string) {
	if jsonKind(value) != "text" || json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

// validID reports whether a value can be the id of a request. Unlike JSON-RPC the protocol forbids null.
func validID(value json.RawMessage) bool {
	kind := jsonKind(value)
	return (kind == "text" || kind == "a number") && utf8.Valid(value)
}

// findID returns the id of a message that may end too early or be invalid, or nil if it finds none.
func findID(text []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if name == "id" {
			if validID(value) {
				return value
			}
			return nil
		}
	}
	return nil
}

// withoutNulls removes the members of objects that are null, at any depth: some agents send null for
// arguments that they could leave out.
func withoutNulls(value json.RawMessage) json.RawMessage {
	if !bytes.Contains(value, []byte("null")) {
		return value
	}
	var cleaned any
	switch jsonKind(value) {
	case "an object":
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return value
		}
		for name, member := range members {
			if members[name] = withoutNulls(member); jsonKind(member) == "null" {
				delete(members, name)
			}
		}
		cleaned = members
	case "a list":
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return value
		}
		for i := range items {
			items[i] = withoutNulls(items[i])
		}
		cleaned = items
	default:
		return value
	}
	text, err := jsontext.MarshalUnescaped(cleaned)
	if err != nil {
		return value
	}
	return text
}
