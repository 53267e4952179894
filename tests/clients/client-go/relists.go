package main

import (
	"bytes"
	"io"
	"net/http"
	"path"
	"sync"
)

// relists notes when informers list, and when a server refuses their watches or ends them with an error: either
// makes them list anew, and only the first is their own choice.
type relists struct {
	sync.Mutex
	lists   map[string]int
	refused string
}

func (r *relists) note(request *http.Request, answer *http.Response) {
	if request.Method != http.MethodGet {
		return
	}
	if request.URL.Query().Get("watch") == "" {
		r.Lock()
		defer r.Unlock()
		if r.lists == nil {
			r.lists = map[string]int{}
		}
		r.lists[path.Base(request.URL.Path)]++
		return
	}
	if answer.StatusCode != http.StatusOK {
		r.refuse(answer.Status + " to " + request.URL.String())
		return
	}
	answer.Body = &watchBody{ReadCloser: answer.Body, relists: r, of: request.URL.String()}
}

func (r *relists) of(plural string) int {
	r.Lock()
	defer r.Unlock()
	return r.lists[plural]
}

func (r *relists) refuse(what string) {
	r.Lock()
	defer r.Unlock()
	r.refused = what
}

func (r *relists) refusedSoFar() string {
	r.Lock()
	defer r.Unlock()
	return r.refused
}

// watchBody looks for the event that ends a watch, in the bytes as they pass.
type watchBody struct {
	io.ReadCloser
	relists *relists
	of      string
	// The end of what passed before, in which an event may have begun.
	tail []byte
}

var endsWatch = []byte(`"type":"ERROR"`)

func (w *watchBody) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	passed := append(w.tail, into[:n]...)
	if bytes.Contains(passed, endsWatch) {
		w.relists.refuse("an error in the stream of " + w.of)
	}
	w.tail = append([]byte(nil), passed[max(0, len(passed)-len(endsWatch)+1):]...)
	return n, err
}
