package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Errors. Test for them with errors.Is.
var (
	// ErrRepository reports a name that the hub has no model of, or does not show to the token.
	ErrRepository = errors.New("the hub has no such model")
	// ErrRevision reports a revision that the model does not have.
	ErrRevision = errors.New("the model has no such revision")
	// ErrFile reports a file that the model does not have.
	ErrFile = errors.New("the model has no such file")
	// ErrGated reports a model whose terms have to be accepted, or that only some accounts may read.
	ErrGated = errors.New("the model is gated")
	// ErrToken reports a token that the hub does not accept.
	ErrToken = errors.New("the hub does not accept the token")
	// ErrOffline reports that a request is needed, since the cache lacks a file or a refresh was
	// requested, and that requests are switched off.
	ErrOffline = errors.New("nothing is fetched")
	// ErrUnreachable reports that a request is needed, and that the hub does not answer.
	ErrUnreachable = errors.New("the hub cannot be reached")
	// ErrEndpoint reports an address that cannot be that of a hub.
	ErrEndpoint = errors.New("not the address of a hub")
	// ErrStatus reports an answer with an unexpected status.
	ErrStatus = errors.New("status of the hub")
	// ErrAnswer reports an answer that cannot be parsed.
	ErrAnswer = errors.New("answer of the hub is not understood")
	// ErrDamaged reports a fetched file whose size or hash differs from the hub's.
	ErrDamaged = errors.New("the fetched file is damaged")
	// ErrTooLarge reports a file that is larger than any valid file of its kind.
	ErrTooLarge = errors.New("too large")
)

// Error is an error of a model of a hub. Its message includes a cure.
type Error struct {
	Name Name
	File string // of the model. "" means the whole model
	Hub  string // the address of the hub
	// Cache is the folder where the model was looked for.
	Cache     string
	Err       error
	tokenSent bool // a token was sent
	// cachedCommit is the commit in the cache, if a newer one was requested. "" means that the cache
	// lacks a file.
	cachedCommit string
}

// modelError wraps an error in an [Error] about a model, or about one of its files.
func (h *Hub) modelError(n Name, file string, err error) error {
	if e := (*Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Name: n, File: file, Hub: h.Endpoint, Cache: h.Cache, Err: err, tokenSent: h.Token != ""}
}

// Error reads like: org/name: config.json: the hub has no such model: … .
func (e *Error) Error() string {
	s := e.Name.String() + ": "
	if e.File != "" {
		s += e.File + ": "
	}
	switch {
	case !e.noNetwork():
	case e.cachedCommit != "":
		s += "the newest commit is asked for, and "
	default:
		s += "the cache lacks it, and "
	}
	s += e.Err.Error()
	if help := e.cure(); help != "" {
		s += " (" + help + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// noNetwork reports whether no request was allowed, or the hub did not answer.
func (e *Error) noNetwork() bool {
	return errors.Is(e.Err, ErrOffline) || errors.Is(e.Err, ErrUnreachable)
}

// Is makes a model that neither cache nor hub has an [fs.ErrNotExist].
func (e *Error) Is(target error) bool {
	missing := errors.Is(e.Err, ErrRepository) || errors.Is(e.Err, ErrRevision) ||
		errors.Is(e.Err, ErrOffline) && e.cachedCommit == ""
	return target == fs.ErrNotExist && missing
}

// cure returns advice for the user about the error. "" means that it has none.
func (e *Error) cure() string {
	is := func(target error) bool { return errors.Is(e.Err, target) }
	page := e.Hub + "/" + e.Name.Repo
	switch {
	case is(ErrGated) && e.tokenSent:
		return "the account of the token has to accept the terms at " + page +
			", and the token to allow reading gated models"
	case is(ErrGated):
		return "accept the terms at " + page + " and set " + envToken + " to a token of that account"
	case is(ErrToken):
		return envToken + ", or the file that hf auth login wrote, has it"
	case is(ErrRepository):
		help := fmt.Sprintf("there is no folder %s here, and no such model at %s", e.Name, e.Hub)
		if !e.tokenSent {
			help += ", or a private one, for which " + envToken + " has to be set"
		} else {
			help += ", or a private one that the token may not read"
		}
		return help
	case is(ErrRevision):
		return fmt.Sprintf("%s is neither branch, tag nor commit of %s at %s", e.Name.revision(), e.Name.Repo, e.Hub)
	case is(ErrEndpoint):
		return envEndpoint + " must be http:// or https:// and a host"
	case e.noNetwork() && e.cachedCommit != "":
		return "the cache has commit " + e.cachedCommit + ", which is used where the newest is not asked for"
	case e.noNetwork():
		return fmt.Sprintf("there is no folder %s here; looked in %s; where there is network, %s fetches it: "+
			"bring its folder %s there", e.Name, e.Cache, e.Name.downloadCommand(), e.Name.folder())
	case is(syscall.ENOSPC):
		return "the fetched part is kept in " + e.Cache + ", and the same command continues; " + envCache +
			" names another place"
	case is(syscall.EROFS), is(fs.ErrPermission):
		return "models are fetched into " + e.Cache + "; " + envCache + " names another place"
	case is(ErrDamaged):
		return "nothing of it is kept; the same command fetches it again"
	}
	return ""
}

// messageSuffix returns the message of an answer, after a colon and on one line, at most 300 bytes.
func messageSuffix(s string) string {
	if s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " "); s == "" {
		return ""
	}
	return ": " + s[:min(len(s), 300)]
}
