package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/server"
)

// setting is one value of the configuration. Flags, environment and file all set it by its Set, so
// that they accept the same values and fail with the same words.
type setting struct {
	name, usage string
	value       pflag.Value
	// list says that a file may give the value as a list.
	list bool
	// from is where the value was set last. "" means that it is the default.
	from string
}

// envPrefix begins the names of environment variables: --max-body is PLAID_SERVE_MAX_BODY.
const envPrefix = "PLAID_SERVE_"

// envName returns the name of the environment variable.
func (s *setting) envName() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// ErrConfig reports a configuration that is not valid.
var ErrConfig = errors.New("bad configuration")

// set sets the value; from says where it comes from.
func (s *setting) set(text, from string) error {
	if err := s.value.Set(text); err != nil {
		return fmt.Errorf("%w: %s: %s: %q: %w", ErrConfig, from, s.name, text, err)
	}
	s.from = from
	return nil
}

// isSet reports whether a setting was set, and is not just the default.
func (c *Config) isSet(name string) bool {
	return slices.ContainsFunc(c.settings, func(s *setting) bool { return s.name == name && s.from != "" })
}

// readEnv applies environment variables. An unknown variable with the prefix is an error: its name
// must be misspelled.
func (c *Config) readEnv(environ []string) error {
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envTokens {
			continue
		}
		i := slices.IndexFunc(c.settings, func(s *setting) bool { return s.envName() == name })
		if i < 0 {
			return fmt.Errorf("%w: environment: there is no setting %s", ErrConfig, name)
		}
		if err := c.settings[i].set(value, "environment"); err != nil {
			return err
		}
	}
	return nil
}

// readFile applies a file: YAML, or JSON, which is a subset of it. The keys are the names of the
// flags.
func (c *Config) readFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%w: %s: want names and values", ErrConfig, path)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		from := fmt.Sprintf("%s, line %d", path, key.Line)
		settingIndex := slices.IndexFunc(c.settings, func(s *setting) bool { return s.name == key.Value })
		switch {
		case settingIndex < 0 || key.Value == "config":
			return fmt.Errorf("%w: %s: there is no setting %q", ErrConfig, from, key.Value)
		case seen[key.Value]:
			return fmt.Errorf("%w: %s: %s is set twice", ErrConfig, from, key.Value)
		}
		seen[key.Value] = true
		s := c.settings[settingIndex]
		text, err := yamlText(value, s.list)
		if err != nil {
			return fmt.Errorf("%w: %s: %s: %w", ErrConfig, from, s.name, err)
		}
		if err := s.set(text, from); err != nil {
			return err
		}
	}
	return nil
}

// yamlText returns a plain value of YAML, or a list of them with commas in between, as the flag
// takes it.
func yamlText(n *yaml.Node, list bool) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return n.Value, nil
	case n.Kind == yaml.SequenceNode && list:
		var items []string
		for _, item := range n.Content {
			text, err := yamlText(item, false)
			if err != nil || strings.Contains(text, ",") {
				return "", errors.New("want a list of plain values")
			}
			items = append(items, text)
		}
		return strings.Join(items, ","), nil
	case list:
		return "", errors.New("want a value or a list of values")
	}
	return "", errors.New("want a value")
}

// Print writes the configuration as a file that can be read back, with a comment on where each
// value comes from.
func (c *Config) Print(w io.Writer) error {
	top := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range c.settings {
		if s.name == "config" {
			continue
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: s.name, HeadComment: strings.ReplaceAll(s.usage, "`", "")}
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: s.value.String()}
		if s.value.String() == "" {
			value.Style = yaml.DoubleQuotedStyle
		}
		if s.from != "" {
			value.LineComment = "from " + s.from
		}
		top.Content = append(top.Content, key, value)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(top); err != nil {
		return err
	}
	return e.Close()
}

// The following values are of kinds that commands do not have. Flags, environment and file read
// them the same way.
//
// textValue is the value of a setting for any text.
func textValue(p *string, def string) pflag.Value {
	same := func(s string) string { return s }
	return flags.Value(p, def, "string", func(s string) (string, error) { return s, nil }, same)
}

// sizeValue is the value of a setting for a number of bytes, which is printed without rounding.
func sizeValue(p *int64, def int64) pflag.Value {
	return flags.Value(p, def, "SIZE", human.ParseSize, func(n int64) string {
		for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
			if bytes := int64(1) << (40 - 10*i); n != 0 && n%bytes == 0 {
				return strconv.FormatInt(n/bytes, 10) + unit
			}
		}
		return strconv.FormatInt(n, 10)
	})
}

// rateValue is the value of a setting for requests a second.
func rateValue(p *float64) pflag.Value {
	return flags.Value(p, 0, "N", func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !(x >= 0) || x > 1e9 { // !(x >= 0) includes NaN
			return 0, errors.New("want a number of requests a second, 0 for no limit")
		}
		return x, nil
	}, out.Float)
}

// shareValue is the value of a setting for a share, from 0 to 1.
func shareValue(p *float64, def float64) pflag.Value {
	return flags.Value(p, def, "SHARE", func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !(x >= 0 && x <= 1) { // also for NaN
			return 0, errors.New("want a number from 0 to 1")
		}
		return x, nil
	}, out.Float)
}

// listValue is the value of a setting for a list with commas in between; check returns an error for
// a bad element.
func listValue(p *[]string, check func(string) error) pflag.Value {
	return flags.Value(p, nil, "LIST", func(s string) (values []string, err error) {
		if s == "" {
			return nil, nil
		}
		for part := range strings.SplitSeq(s, ",") {
			part = strings.TrimSpace(part)
			if err := check(part); err != nil {
				return nil, err
			}
			values = append(values, part)
		}
		return values, nil
	}, func(values []string) string { return strings.Join(values, ",") })
}

// repeated is the type of a flag that is given once for each of its values.
const repeated = "stringArray"

// nextOption matches the beginning of KEY=VALUE.
var nextOption = regexp.MustCompile(`^ *[a-z-]+=`)

// optionsValue is the value of a setting for a list of KEY=VALUE with commas in between. A comma
// without a KEY= after it is part of a value.
func optionsValue(p *[]string) pflag.Value {
	return flags.Value(p, nil, repeated, func(s string) (options []string, err error) {
		for part := range strings.SplitSeq(s, ",") {
			switch n := len(options); {
			case nextOption.MatchString(part):
				options = append(options, strings.TrimLeft(part, " "))
			case n > 0:
				options[n-1] += "," + part
			case s != "":
				return nil, fmt.Errorf("%q: want KEY=VALUE", s)
			}
		}
		return options, nil
	}, func(options []string) string { return strings.Join(options, ",") })
}

// checkPrefix returns an error for a text that parsePrefix cannot read.
func checkPrefix(s string) error {
	_, err := parsePrefix(s)
	return err
}

// parsePrefix reads a network such as 10.0.0.0/8, or one address.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", s)
	}
	return p.Masked(), nil
}

// checkHost returns an error for a text that is neither the name of a host, nor a pattern *.NAME,
// nor "*".
func checkHost(s string) error {
	if s == "*" {
		return nil
	}
	if s == "" || strings.ContainsAny(s, "/: ") || strings.Contains(strings.TrimPrefix(s, "*."), "*") {
		return fmt.Errorf("%q is neither a name such as search.example.org or *.example.org, nor *", s)
	}
	return nil
}

// checkIndexRate returns an error for a text that is not PATTERN=N.
func checkIndexRate(s string) error {
	_, err := server.ParseIndexRate(s)
	return err
}

// checkOrigin returns an error for a text that is neither the origin of a web page nor "*".
func checkOrigin(s string) error {
	if s == "*" || strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") {
		return nil
	}
	return fmt.Errorf("%q is neither an origin such as https://example.org nor *", s)
}
