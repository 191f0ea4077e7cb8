package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/server/ui"
	"github.com/plaid-ir/plaid/vectors"
)

// pageRoutes returns the routes of the page's files. They need no token; the requests that the page makes
// do.
func pageRoutes() ([]route, error) {
	files, err := ui.Files()
	if err != nil {
		return nil, err
	}
	fileRoute := func(pattern string, handle func(q *request) error) route {
		return route{
			method:     http.MethodGet,
			pattern:    pattern,
			servesPage: true,
			group:      groupUnlimited,
			handle:     handle,
		}
	}
	routes := []route{fileRoute("/ui/", func(q *request) error {
		q.w.Header().Set("Location", "../ui") // relative: a proxy may have the service below a path
		q.w.WriteHeader(http.StatusMovedPermanently)
		return nil
	})}
	for i := range files {
		f := &files[i]
		routes = append(routes, fileRoute(f.Path, func(q *request) error {
			f.ServeHTTP(q.w, q.Request)
			return nil
		}))
	}
	return routes, nil
}

// maxImage is the largest picture that is sent, in bytes.
const maxImage = 64 << 20

// imageTypes are the types of pictures that are sent, detected by the first bytes of a file: browsers draw
// these, and run nothing in them.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"}

func imageRoutes() []route {
	return []route{{
		method:      "GET",
		pattern:     "/indices/{name}/image",
		operationID: "get_image",
		tag:         "documents",
		permission:  Read,
		group:       groupLookup,
		endless:     true,
		summary:     "The picture of a page",
		codes:       []Code{CodeDocumentNotFound, CodeImageNotFound},
		doc: "The file that the field image of the document names, as a path below the folder of the index, " +
			"which is in that of --images. It is PNG, JPEG, GIF, WebP or BMP.",
		params: []param{
			{"id", "query", "_id of the document; or document_id", object{"type": "string"}},
			{"document_id", "query", "document id", object{"type": "integer", "minimum": 0}},
		},
		outType: "image/*",
		status:  http.StatusOK,
		handle:  sendImage,
	}}
}

// sendImage answers GET /indices/{name}/image.
func sendImage(q *request) error {
	// The document.
	query := q.URL.Query()
	var selection collection.Selection
	switch id, number := query["id"], query["document_id"]; {
	case len(id)+len(number) != 1:
		return badRequest("a document is needed, as id or as document_id, and one of them only")
	case len(id) == 1:
		selection.IDs = id
	default:
		n, err := strconv.ParseUint(number[0], 10, 63)
		if err != nil {
			return badRequest("document_id %q is no whole number from 0", number[0])
		}
		selection.Numbers = []uint64{n}
	}
	if err := q.acquireSlot(); err != nil {
		return err
	}

	// The file that it names.
	name := ""
	err := q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		d, err := q.firstDocument(v, selection, collection.ReadOptions{Metadata: true, Limit: 1})
		if err != nil {
			return err
		}
		if d == nil {
			return problem(CodeDocumentNotFound, "there is no such document")
		}
		page, err := vectors.PageFromPayload(d.Metadata)
		if err != nil { // stored by another program
			return problem(CodeImageNotFound, "the document: %w", err)
		}
		if page != nil {
			name = page.Image
		}
		return nil
	})
	if err != nil {
		return err
	}
	return q.sendFile(name)
}

// sendFile sends a picture from the folder of the index of the path. A token for this index may not permit
// the pictures of other indexes.
func (q *request) sendFile(name string) error {
	if q.server.options.Images == nil && name != "" && !isAddress(name) {
		return problem(CodeImageNotFound, "the service has no folder of pictures (--images)")
	}
	f, media, err := openImageFile(q.server.options.Images, q.indexName(), name)
	var refused *Problem
	if err != nil && !errors.As(err, &refused) {
		q.server.log.Warn("a picture cannot be opened", "error", err)
		err = imageProblem("it cannot be opened")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := q.w.Header()
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "private, no-cache") // the browser asks again, and is sent 304
	q.releaseSlot()
	http.ServeContent(q.w, q.Request, "", info.ModTime(), f)
	return nil
}

// imageProblem is the answer if a picture cannot be sent.
func imageProblem(reason string) *Problem {
	return problem(CodeImageNotFound, "the document's image was not found: %s", reason)
}

// isAddress reports whether the image that a document names is on the web.
func isAddress(image string) bool {
	return strings.HasPrefix(image, "http://") || strings.HasPrefix(image, "https://")
}

// openImageFile opens the picture that a document of an index names, and returns its media type. Neither a
// name nor a link leads out of the folder of the index. The file must be PNG, JPEG, GIF, WebP or BMP by its
// first bytes, and have at most maxImage bytes.
func openImageFile(images *os.Root, index, name string) (f *os.File, media string, err error) {
	refuse := func(reason string) (*os.File, string, error) { return nil, "", imageProblem(reason) }

	// The name.
	clean := path.Clean(name)
	switch {
	case name == "":
		return refuse("the document has no field image")
	case isAddress(name):
		return refuse("it is an address: ask there")
	case !fs.ValidPath(clean) || strings.ContainsAny(name, "\\\x00") || len(name) > 4096:
		return refuse("it is no path below the folder")
	}

	// The file.
	folder, err := images.OpenRoot(index)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("the index has no folder of pictures")
	} else if err != nil {
		return nil, "", err
	}
	defer folder.Close()
	info, err := folder.Stat(clean) // before it is opened: opening a pipe would wait for its writer
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxImage) {
		return refuse(fmt.Sprintf("it is no file of up to %d MiB", maxImage>>20))
	}
	if err == nil {
		f, err = folder.Open(clean)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("there is no such file")
	} else if err != nil {
		return nil, "", err
	}

	// Its type.
	head := make([]byte, 512) // DetectContentType reads no more
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	if media = http.DetectContentType(head[:n]); !slices.Contains(imageTypes, media) {
		return nil, "", errors.Join(imageProblem("its file is none: PNG, JPEG, GIF, WebP and BMP are possible"),
			f.Close())
	}
	return f, media, nil
}
