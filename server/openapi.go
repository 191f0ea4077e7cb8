package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// openapiVersion is the version of OpenAPI in which the API is described.
const openapiVersion = "3.1.1"

// object is a JSON object of the description.
type object = map[string]any

// schemer is a type that returns its JSON schema itself, because reflection would not find it.
type schemer interface{ schema() object }

// describeAPI returns the OpenAPI description of routes, made from the types of their bodies.
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

	// The body of errors, and their codes.
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
			"description": "Late-interaction retrieval: documents and queries are matrices of token vectors. " +
				"Clients of next-plaid use it as it is.",
		},
		"servers": []object{{"url": "/"}},
		"tags":    tags,
		"paths":   paths,
		"components": object{"schemas": d.schemas,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}}},
		"x-problems": problems,
	})
}

// describer collects the schemas of the types that routes use.
type describer struct {
	schemas object                   // by name of the component
	types   map[string]describedType // the same names
	clash   error                    // of two types with one name
	strict  bool                     // while a request body is described that refuses unknown fields
}

// describedType is a type in the description. One type may be described in two ways.
type describedType struct {
	reflect.Type
	strict bool
}

// generalCodes can come from any route that is not a probe.
var generalCodes = []Code{
	CodeUnauthorized, CodeForbidden, CodeRateLimited, CodeBusy, CodeInternal, CodeTimeout, CodeBadRequest,
}

// indexNameParam describes the {name} of a path.
var indexNameParam = object{
	"name":        "name",
	"in":          "path",
	"required":    true,
	"description": "name of the index",
	"schema":      object{"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$", "maxLength": 128},
}

// operation describes a route.
func (d *describer) operation(r *route) (object, error) {
	// What it does, and who may call it.
	op := object{"operationId": r.operationID, "tags": []string{r.tag}, "summary": r.summary}
	if r.doc != "" {
		op["description"] = r.doc
	}
	op["security"] = []object{}
	if r.permission != Nothing {
		op["security"] = []object{{"bearer": []string{}}}
		op["x-permission"] = r.permission.String()
	}
	// Parameters.
	params := []object{}
	if strings.Contains(r.pattern, "{name}") {
		params = append(params, indexNameParam)
	}
	for _, p := range r.params {
		params = append(params, object{"name": p.name, "in": p.in, "description": p.doc, "schema": p.schema})
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	// The body of the request.
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
	// The answers of success.
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
	// Errors, by their status.
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

// mediaSchema returns the schema of a body that is not JSON. Since 3.1 binary bodies need none, but
// generators of clients ignore a body without one.
func mediaSchema(media string) object {
	switch media {
	case mediaJSON:
		return object{}
	case "text/plain":
		return object{"type": "string"}
	}
	return object{"type": "string", "format": "binary"}
}

// schemaOf returns the schema of a type. Structs with a name become components.
func (d *describer) schemaOf(t reflect.Type) object {
	if s, ok := reflect.Zero(t).Interface().(schemer); ok && t.Kind() != reflect.Pointer {
		return s.schema()
	}
	switch t {
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[condition.Literal]():
		return object{}
	case reflect.TypeFor[Code]():
		var codes []string
		for _, row := range codeTable {
			codes = append(codes, string(row.code))
		}
		return object{"type": "string", "enum": codes}
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
		now := describedType{t, d.strict}
		if before, found := d.types[name]; !found {
			d.types[name] = now // before its fields, which may lead back here
			d.schemas[name] = d.structSchema(t)
		} else if before != now {
			d.clash = fmt.Errorf("the description has two types named %s: %v and %v (strict: %t and %t)",
				name, before.Type, t, before.strict, now.strict)
		}
		return object{"$ref": "#/components/schemas/" + name}
	default:
		return object{} // an interface: anything
	}
}

// componentName returns the name of a struct in the description: that of the type with a capital, and
// with "Request" for "In" and "Answer" for "Out". "" means that the struct has no name.
func componentName(t reflect.Type) string {
	name := t.Name()
	if name == "" {
		return ""
	}
	name = strings.TrimSuffix(name, "JSON")
	if base, ok := strings.CutSuffix(name, "In"); ok {
		name = base + "Request"
	} else if base, ok := strings.CutSuffix(name, "Out"); ok {
		// not "Response": a client in Go has its own type EncodeResponse for the operation encode
		name = base + "Answer"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// nullable returns a schema that also allows null.
func nullable(s object) object {
	if kind, ok := s["type"].(string); ok {
		s = maps.Clone(s)
		s["type"] = []string{kind, "null"}
		return s
	}
	if len(s) == 0 { // it allows any value already
		return s
	}
	return object{"anyOf": []object{s, {"type": "null"}}}
}

// structSchema returns the schema of a struct. A field without omitempty or omitzero is always in
// answers and required in requests. Strict requests allow no other fields; answers may get some in later
// versions.
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
		if doc := cmp.Or(f.Tag.Get("doc"), longDocs[f.owner+"."+f.name]); doc != "" {
			s["description"] = doc // also next to a $ref, which 3.1 allows
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
