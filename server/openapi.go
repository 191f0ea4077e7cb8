package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// openapiVersion is that of the description of the API.
const openapiVersion = "3.1.1"

// object is a JSON object of the description.
type object = map[string]any

// schemer is a type with a JSON form that reflection does not tell.
type schemer interface{ schema() object }

// describeAPI makes the OpenAPI description of routes from the types of their bodies.
func describeAPI(routes []route, version string) ([]byte, error) {
	d := describer{schemas: object{}, types: map[string]describedType{}}
	paths := object{}
	tags := []object{}
	for i := range routes {
		r := &routes[i]
		if r.servesPage {
			continue
		}
		item, _ := paths[r.pattern].(object)
		if item == nil {
			item = object{}
			paths[r.pattern] = item
		}
		op, err := d.operation(r)
		if err != nil {
			return nil, err
		}
		item[strings.ToLower(r.method)] = op
		if !slices.ContainsFunc(tags, func(t object) bool { return t["name"] == r.tag }) {
			tags = append(tags, object{"name": r.tag})
		}
	}
	d.schemaOf(reflect.TypeFor[Problem]())
	if d.clash != nil {
		return nil, d.clash
	}
	problems := object{}
	for _, row := range codeTable {
		problems[string(row.code)] = object{"status": row.status, "title": row.title}
	}
	return json.Marshal(object{
		"openapi": openapiVersion,
		"info": object{
			"title": "plaid", "version": version, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Late-interaction retrieval: documents and queries are matrices of token vectors. Clients of next-plaid use it as it is.",
		},
		"servers":    []object{{"url": "/"}},
		"tags":       tags,
		"paths":      paths,
		"components": object{"schemas": d.schemas, "securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}}},
		"x-problems": problems,
	})
}

type describer struct {
	schemas object
	types   map[string]describedType
	clash   error
	strict  bool // of a body that is refused for fields that are not known
}

// describedType is a type, and how it was described.
type describedType struct {
	reflect.Type
	strict bool
}

// generalCodes can come from any route that is not a probe.
var generalCodes = []Code{CodeUnauthorized, CodeForbidden, CodeRateLimited, CodeBusy, CodeInternal, CodeTimeout, CodeBadRequest}

func (d *describer) operation(r *route) (object, error) {
	op := object{"operationId": r.operationID, "tags": []string{r.tag}, "summary": r.summary}
	if r.doc != "" {
		op["description"] = r.doc
	}
	op["security"] = []object{}
	if r.permission != Nothing {
		op["security"] = []object{{"bearer": []string{}}}
		op["x-permission"] = r.permission.String()
	}
	params := []object{}
	for _, part := range strings.Split(r.pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "description": "name of the index", "schema": object{"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$", "maxLength": 128}})
		}
	}
	for _, p := range r.params {
		params = append(params, object{"name": p.name, "in": p.in, "description": p.doc, "schema": p.schema})
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	if r.in != nil || r.inType != "" {
		media := object{"schema": mediaSchema(r.inType)}
		if r.in != nil {
			d.strict = !allowsUnknownFields(reflect.New(reflect.TypeOf(r.in)).Interface())
			media["schema"] = d.schemaOf(reflect.TypeOf(r.in))
			d.strict = false
		}
		if r.example != "" {
			var example any
			if err := json.Unmarshal([]byte(r.example), &example); err != nil {
				return nil, fmt.Errorf("example of %s: %w", r.operationID, err)
			}
			media["example"] = example
		}
		content := object{r.inType: media}
		if r.tensorNames != nil {
			content[mediaTensors] = binaryContent(tensorsDoc(r.tensorNames))
		}
		op["requestBody"] = object{"required": true, "content": content}
	}
	success := object{"description": "done"}
	if r.outType != "" {
		media := object{"schema": mediaSchema(r.outType)}
		if r.out != nil {
			media["schema"] = d.schemaOf(reflect.TypeOf(r.out))
		}
		content := object{r.outType: media}
		if r.answersTensors {
			content[mediaTensors] = binaryContent(answerTensorsDoc)
		}
		success["content"] = content
	}
	responses := object{strconv.Itoa(r.status): success}
	if r.jsonRPC {
		responses["202"] = object{"description": "done; there is nothing to answer"}
	}
	if r.representation != nil {
		responses["200"] = object{
			"description": "done; where return=representation is preferred",
			"content":     object{mediaJSON: object{"schema": d.schemaOf(reflect.TypeOf(r.representation))}},
		}
	}
	codes := slices.Clone(r.codes)
	if r.group != groupUnlimited {
		codes = append(codes, generalCodes...)
	}
	if r.in != nil || r.inType != "" {
		codes = append(codes, CodeTooLarge, CodeMediaType)
	}
	if strings.Contains(r.pattern, "{name}") {
		codes = append(codes, CodeIndexNotFound, CodeCorrupt)
	}
	byStatus := map[int][]string{}
	for _, c := range codes {
		status, _ := c.statusAndTitle()
		if !slices.Contains(byStatus[status], string(c)) {
			byStatus[status] = append(byStatus[status], string(c))
		}
	}
	for status, names := range byStatus {
		slices.Sort(names)
		content := object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}
		if r.jsonRPC {
			content[mediaJSON] = object{"schema": d.schemaOf(reflect.TypeOf(r.out))}
		}
		responses[strconv.Itoa(status)] = object{"description": strings.Join(names, ", "), "content": content}
	}
	op["responses"] = responses
	return op, nil
}

// mediaSchema is the schema of a body that is no JSON, in the words that generators of clients
// know: since 3.1 binary bodies need none, and without one they make nothing of them.
func mediaSchema(media string) object {
	switch media {
	case mediaJSON:
		return object{}
	case "text/plain":
		return object{"type": "string"}
	}
	return object{"type": "string", "format": "binary"}
}

// schemaOf is the schema of a type. Structs with a name become components.
func (d *describer) schemaOf(t reflect.Type) object {
	if s, ok := reflect.Zero(t).Interface().(schemer); ok && t.Kind() != reflect.Pointer {
		return s.schema()
	}
	switch t {
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[condition.Literal]():
		return object{}
	case reflect.TypeFor[Code]():
		var all []string
		for _, row := range codeTable {
			all = append(all, string(row.code))
		}
		return object{"type": "string", "enum": all}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(d.schemaOf(t.Elem()))
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": d.schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schemaOf(t.Elem())}
	case reflect.Struct:
		name := componentName(t)
		if name == "" {
			return d.structSchema(t)
		}
		is := describedType{t, d.strict}
		if was, there := d.types[name]; !there {
			d.types[name] = is // before its fields, which may lead back here
			d.schemas[name] = d.structSchema(t)
		} else if was != is {
			d.clash = fmt.Errorf("the description has two types named %s: %v and %v (strict: %t and %t)", name, was.Type, t, was.strict, is.strict)
		}
		return object{"$ref": "#/components/schemas/" + name}
	default:
		return object{} // an interface: anything
	}
}

// componentName is the name of a struct in the description: that of the type, with
// a capital, and without the marks of bodies.
func componentName(t reflect.Type) string {
	name := t.Name()
	if name == "" {
		return ""
	}
	name = strings.TrimSuffix(name, "JSON")
	if end, ok := strings.CutSuffix(name, "In"); ok {
		name = end + "Request"
	} else if end, ok := strings.CutSuffix(name, "Out"); ok {
		name = end + "Answer" // a client in Go has a type EncodeResponse of its own for the operation encode
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func nullable(s object) object {
	if kind, ok := s["type"].(string); ok {
		s = maps.Clone(s)
		s["type"] = []string{kind, "null"}
		return s
	}
	if len(s) == 0 {
		return s
	}
	return object{"anyOf": []object{s, {"type": "null"}}}
}

// structSchema is the schema of a struct. A field without omitempty or omitzero is always
// there in answers and required in requests. Requests have no others, and answers may get
// some.
func (d *describer) structSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range jsonFields(t) {
		s := maps.Clone(d.schemaOf(f.Type))
		if strings.Contains(f.options, "string") {
			s = object{"type": "string"}
		}
		optional := strings.Contains(f.options, "omitempty") || strings.Contains(f.options, "omitzero")
		if optional && f.Type.Kind() == reflect.Slice {
			s = nullable(s)
		}
		if doc := f.Tag.Get("doc"); doc != "" {
			s["description"] = doc // beside a $ref, which 3.1 allows
		}
		if values := f.Tag.Get("enum"); values != "" {
			s["enum"] = strings.Split(values, ",")
		}
		properties[f.name] = s
		if !optional {
			required = append(required, f.name)
		}
	}
	s := object{"type": "object", "properties": properties}
	if d.strict {
		s["unevaluatedProperties"] = false // additionalProperties means any others to openapi-generator
	}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	return s
}

// schema implements schemer.
func (rowsJSON) schema() object {
	return object{"type": "array", "items": object{"type": "array", "items": object{"type": "number"}}}
}

// schema implements schemer.
func (floatsJSON) schema() object {
	return object{"type": "string", "contentEncoding": "base64"}
}

// binaryContent describes a body that is not JSON.
func binaryContent(description string) object {
	return object{"schema": object{"type": "string", "format": "binary", "description": description}}
}
