package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNoObject = errors.New("it is no JSON object")

// Members calls visit with the members of an object in their order, their values as they
// are written. An error of visit ends it.
func Members(object []byte, visit func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(object))
	t, err := d.Token()
	if err == nil && t != json.Delim('{') {
		err = errNoObject
	}
	for err == nil && d.More() {
		if t, err = d.Token(); err != nil {
			break
		}
		var value json.RawMessage
		if err = d.Decode(&value); err == nil {
			err = visit(t.(string), value)
		}
	}
	if err == nil {
		_, err = d.Token() // the end of the object
	}
	return err
}
