package main

import (
	"net/http"
	"strings"
	"sync"
)

// roundTripperFunc is shown each request with its answer.
type roundTripperFunc func(request *http.Request, answer *http.Response)

func (spy roundTripperFunc) around(inner http.RoundTripper) http.RoundTripper {
	return spiedOn{inner, spy}
}

type spiedOn struct {
	inner http.RoundTripper
	spy   roundTripperFunc
}

func (s spiedOn) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := s.inner.RoundTrip(request)
	if err == nil {
		s.spy(request, answer)
	}
	return answer, err
}

// mediaTypes counts in which type bodies went and came.
type mediaTypes struct {
	sync.Mutex
	sent, received map[string]int
}

func (m *mediaTypes) note(request *http.Request, answer *http.Response) {
	m.Lock()
	defer m.Unlock()
	// The types of patches are their own.
	if request.Body != nil && request.Method != http.MethodPatch {
		m.sent[request.Header.Get("Content-Type")]++
	}
	mediaType, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	m.received[mediaType]++
}
