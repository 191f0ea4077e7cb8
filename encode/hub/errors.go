package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Errors; test with errors.Is.
var (
	// ErrRepository: the hub has no model of that name, or does not show it to the token.
	ErrRepository = errors.New("the hub has no such model")
	// ErrRevision: the model has no such revision.
	ErrRevision = errors.New("the model has no such revision")
	// ErrFile: the model has no such file.
	ErrFile = errors.New("the model has no such file")
	// ErrGated: the hub wants terms to be accepted, or gives the model to some accounts only.
	ErrGated = errors.New("the model is gated")
	// ErrToken: the hub does not accept the token.
	ErrToken = errors.New("the hub does not accept the token")
	// ErrOffline: the cache lacks something, or is to be brought up to date, and nothing may be fetched.
	ErrOffline = errors.New("nothing is fetched")
	// ErrUnreachable: the same, and the hub does not answer.
	ErrUnreachable = errors.New("the hub cannot be reached")
	// ErrEndpoint: the address of the hub cannot be one.
	ErrEndpoint = errors.New("not the address of a hub")
	// ErrStatus: the hub answers with another status than was expected.
	ErrStatus = errors.New("status of the hub")
	// ErrAnswer: an answer of the hub that is not understood.
	ErrAnswer = errors.New("answer of the hub is not understood")
	// ErrDamaged: a file that was fetched has another size or hash than the hub says.
	ErrDamaged = errors.New("what was fetched is damaged")
	// ErrTooLarge: a file is larger than any of its kind is.
	ErrTooLarge = errors.New("too large")
)

// Error is a fault of a model of a hub, with a cure.
type Error struct {
	Name Name
	File string // of the model; "" means the whole model
	Hub  string // the address of the hub
	// Cache is the folder where the model was looked for.
	Cache string
	Err   error
	token bool // one was sent
	// commit is the one that the cache has, where a newer one was asked for; "": the cache lacks something.
	commit string
}

// fault is an error about a model, or one of its files.
func (h *Hub) fault(n Name, file string, err error) error {
	if e := (*Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Name: n, File: file, Hub: h.Endpoint, Cache: h.Cache, Err: err, token: h.Token != ""}
}

// Error reads like: org/name: config.json: the hub has no such model: … .
func (e *Error) Error() string {
	s := e.Name.String() + ": "
	if e.File != "" {
		s += e.File + ": "
	}
	switch {
	case !e.noNetwork():
	case e.commit != "":
		s += "the newest commit is asked for, and "
	default:
		s += "the cache lacks it, and "
	}
	s += e.Err.Error()
	if help := e.help(); help != "" {
		s += " (" + help + ")"
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// noNetwork reports whether the hub was not asked, or does not answer.
func (e *Error) noNetwork() bool {
	return errors.Is(e.Err, ErrOffline) || errors.Is(e.Err, ErrUnreachable)
}

// Is says that a model which is nowhere is a file that does not exist.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist &&
		(errors.Is(e.Err, ErrRepository) || errors.Is(e.Err, ErrRevision) || errors.Is(e.Err, ErrOffline) && e.commit == "")
}

// help is a cure of the error.
func (e *Error) help() string {
	is := func(target error) bool { return errors.Is(e.Err, target) }
	page := e.Hub + "/" + e.Name.Repo
	switch {
	case is(ErrGated) && e.token:
		return "the account of the token has to accept the terms at " + page +
			", and the token to allow reading gated models"
	case is(ErrGated):
		return "accept the terms at " + page + " and set " + envToken + " to a token of that account"
	case is(ErrToken):
		return envToken + ", or the file that hf auth login wrote, has it"
	case is(ErrRepository):
		help := fmt.Sprintf("there is no folder %s here, and no such model at %s", e.Name, e.Hub)
		if !e.token {
			help += ", or a private one, for which " + envToken + " has to be set"
		} else {
			help += ", or a private one that the token may not read"
		}
		return help
	case is(ErrRevision):
		return fmt.Sprintf("%s is neither branch, tag nor commit of %s at %s", e.Name.revision(), e.Name.Repo, e.Hub)
	case is(ErrEndpoint):
		return envEndpoint + " is to be http:// or https:// and a host"
	case e.noNetwork() && e.commit != "":
		return "the cache has commit " + e.commit + ", which is used where the newest is not asked for"
	case e.noNetwork():
		return fmt.Sprintf("there is no folder %s here; looked in %s; where there is network, %s fetches it: "+
			"bring its folder %s there", e.Name, e.Cache, e.Name.download(), e.Name.folder())
	case is(syscall.ENOSPC):
		return "what was fetched is kept in " + e.Cache + ", and the same command continues; " + envCache +
			" names another place"
	case is(syscall.EROFS), is(fs.ErrPermission):
		return "models are fetched into " + e.Cache + "; " + envCache + " names another place"
	case is(ErrDamaged):
		return "nothing of it is kept; the same command fetches it again"
	}
	return ""
}

// said is the message of an answer about an error, on one line.
func said(s string) string {
	if s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " "); s == "" {
		return ""
	}
	return ": " + s[:min(len(s), 300)]
}
