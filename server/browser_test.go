//go:build unix

package server_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must happen: far longer than it takes on
// a busy machine.
const patience = 3 * time.Minute

// browser is a headless Chromium, which is told what to do by messages of the DevTools
// protocol through two pipes: https://chromedevtools.github.io/devtools-protocol/.
type browser struct {
	to  *os.File
	log bytes.Buffer // its stderr; to be read when it has ended

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	tabs    map[string]*tab
	ended   error
}

// message goes either way: a call, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// updatePictures has the pictures of the page in docs made again.
const updatePictures = "PLAID_UPDATE_PICTURES"

// startBrowser skips a test that has the long form alone. It skips one where there is no
// browser, unless PLAID_REQUIRE_BROWSER says that there must be one.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	if !effort.Long() && os.Getenv(updatePictures) == "" {
		t.Skip("starts a browser")
	}
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		if os.Getenv("PLAID_REQUIRE_BROWSER") != "" {
			t.Fatal("PLAID_REQUIRE_BROWSER is set, and there is no chromium in PATH")
		}
		t.Skip("needs chromium in PATH (Debian: apt-get install chromium)")
	}
	// Not a folder of the test: what the browser leaves there may outlive it by a moment.
	home, err := os.MkdirTemp("", "plaid-browser-")
	require.NoError(t, err)
	theirIn, to, err := os.Pipe()
	require.NoError(t, err)
	from, theirOut, err := os.Pipe()
	require.NoError(t, err)
	b := &browser{to: to, waiting: map[int]chan message{}, tabs: map[string]*tab{}}
	cmd := exec.Command(program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-breakpad",
		"--no-first-run", "--no-default-browser-check", "--mute-audio", "--hide-scrollbars", "--lang=en", "--user-data-dir="+home, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"), "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
	cmd.Stderr = &b.log
	cmd.WaitDelay = 10 * time.Second // children may hold stderr open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, errors.Join(theirIn.Close(), theirOut.Close()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.listen(from)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = to.Close()
		_ = from.Close()
		<-done
		_ = os.RemoveAll(home)
		if t.Failed() {
			t.Logf("the browser said: %s", b.log.String())
		}
	})
	return b
}

func (b *browser) listen(from *os.File) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		switch {
		case err != nil:
			b.ended = fmt.Errorf("the browser is gone: %w", err)
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
		case m.ID != 0:
			if c := b.waiting[m.ID]; c != nil {
				delete(b.waiting, m.ID)
				c <- m
			}
		default:
			if p := b.tabs[m.Session]; p != nil {
				p.heard(m)
			}
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// call calls a method and waits for its answer.
func (b *browser) call(session, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.next++
	m := message{ID: b.next, Session: session, Method: method, Params: text}
	b.waiting[m.ID] = answer
	text, err = json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser is gone", method)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer", method)
	}
}

// tab is a page of the browser, and what was heard of it. Guarded by the browser's mu.
type tab struct {
	t       *testing.T
	b       *browser
	session string
	faults  []string // of scripts, of the console, of the content security policy
	asked   []string // addresses of all requests
}

func (p *tab) heard(m message) {
	var e struct {
		Type  string `json:"type"`
		Entry struct {
			Level  string `json:"level"`
			Source string `json:"source"`
			Text   string `json:"text"`
			URL    string `json:"url"`
		} `json:"entry"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	switch m.Method {
	case "Runtime.exceptionThrown":
		p.faults = append(p.faults, string(m.Params))
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.faults = append(p.faults, string(m.Params))
		}
	case "Log.entryAdded":
		// The browser itself notes each answer that is an error, which no page can keep
		// it from; what the page makes of them is tested.
		if e.Entry.Level != "verbose" && e.Entry.Level != "info" && e.Entry.Source != "network" {
			p.faults = append(p.faults, e.Entry.Source+": "+e.Entry.Text+" "+e.Entry.URL)
		}
	case "Network.requestWillBeSent":
		p.asked = append(p.asked, e.Request.URL)
	}
}

// open opens an address in a new tab.
func (b *browser) open(t *testing.T, url string) *tab {
	t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	require.NoError(t, b.call("", "Target.createTarget", object{"url": "about:blank"}, &target))
	var attached struct {
		Session string `json:"sessionId"`
	}
	require.NoError(t, b.call("", "Target.attachToTarget", object{"targetId": target.ID, "flatten": true}, &attached))
	p := &tab{t: t, b: b, session: attached.Session}
	b.mu.Lock()
	b.tabs[p.session] = p
	b.mu.Unlock()
	t.Cleanup(func() { _ = b.call("", "Target.closeTarget", object{"targetId": target.ID}, nil) })
	for _, domain := range []string{"Runtime", "Log", "Network", "Page"} {
		p.call(domain+".enable", object{}, nil)
	}
	p.call("Emulation.setDeviceMetricsOverride", object{"width": 1180, "height": 860, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.call("Emulation.setFocusEmulationEnabled", object{"enabled": true}, nil)
	p.call("Page.navigate", object{"url": url}, nil)
	return p
}

func (p *tab) call(method string, params, result any) {
	p.t.Helper()
	require.NoError(p.t, p.b.call(p.session, method, params, result))
}

// js evaluates an expression, waits for it if it is a promise, and reads it into v.
func (p *tab) js(expression string, v any) {
	p.t.Helper()
	require.NoError(p.t, p.try(expression, v))
}

func (p *tab) try(expression string, v any) error {
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	if err := p.b.call(p.session, "Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out); err != nil {
		return err
	}
	if out.Exception != nil {
		return fmt.Errorf("%s: %s", expression, out.Exception)
	}
	if v == nil || out.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, v)
}

// text is the text of the first element of a selector; "" if there is none.
func (p *tab) text(selector string) string {
	p.t.Helper()
	var s string
	p.js(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &s)
	return s
}

// until waits for a condition. What fails while a page is on its way is tried again.
func (p *tab) until(condition string) {
	p.t.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var yes bool
		if last = p.try("!!("+condition+")", &yes); last == nil && yes {
			return
		}
	}
	var page string
	_ = p.try("document.body.innerText", &page)
	p.t.Fatalf("it never came: %s (%v); the page has:\n%s", condition, last, page)
}

var keys = map[string]object{
	"Tab":       {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
	"Enter":     {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
	"/":         {"key": "/", "code": "Slash", "windowsVirtualKeyCode": 191, "text": "/"},
	"ArrowDown": {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40},
	"ArrowUp":   {"key": "ArrowUp", "code": "ArrowUp", "windowsVirtualKeyCode": 38},
	"Space":     {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
}

// press presses a key and lets it go.
func (p *tab) press(key string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := object{"type": kind}
		for k, v := range keys[key] {
			if k != "text" || kind == "keyDown" {
				params[k] = v
			}
		}
		p.call("Input.dispatchKeyEvent", params, nil)
	}
}

// tabTo presses Tab until an element that the selector is of has the focus.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 60 {
		p.press("Tab")
		var there bool
		p.js(fmt.Sprintf("!!document.activeElement?.matches(%q)", selector), &there)
		if there {
			return
		}
	}
	p.t.Fatalf("the keyboard does not reach %s", selector)
}

// write replaces what the field of a selector holds.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.js(fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); })()", selector), nil)
	if text == "" {
		p.js("void (document.activeElement.value = '')", nil)
		return
	}
	p.call("Input.insertText", object{"text": text}, nil)
}

func (p *tab) click(selector string) {
	p.t.Helper()
	p.js(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
}

// sound checks that nothing went wrong in the page and that it asked nobody else.
func (p *tab) sound(origin string) {
	p.t.Helper()
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	require.Empty(p.t, p.faults)
	require.NotEmpty(p.t, p.asked)
	for _, url := range p.asked {
		require.Contains(p.t, url, origin)
	}
}

// picture writes what the tab shows as a PNG.
func (p *tab) picture(path string) {
	p.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	p.call("Page.captureScreenshot", object{"format": "png", "optimizeForSpeed": false}, &shot)
	shown, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, inPalette(p.t, shown), 0o666))
}

// inPalette makes a picture small: it keeps the 256 colours that are there most.
func inPalette(t *testing.T, text []byte) []byte {
	whole, err := png.Decode(bytes.NewReader(text))
	require.NoError(t, err)
	seen := map[color.Color]int{}
	for y := range whole.Bounds().Dy() {
		for x := range whole.Bounds().Dx() {
			seen[whole.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] })
	few := image.NewPaletted(whole.Bounds(), most[:min(256, len(most))])
	nearest := map[color.Color]uint8{}
	for _, c := range most {
		nearest[c] = uint8(few.Palette.Index(c))
	}
	for y := range whole.Bounds().Dy() {
		for x := range whole.Bounds().Dx() {
			few.SetColorIndex(x, y, nearest[whole.At(x, y)])
		}
	}
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few))
	return b.Bytes()
}
