package main

import (
	"fmt"
	"net/http"
)

// tries counts the requests that a client sends.
type tries struct{ n int }

func (t *tries) RoundTrip(r *http.Request) (*http.Response, error) {
	t.n++
	return http.DefaultTransport.RoundTrip(r)
}

// refusal is a request that must fail with a status.
type refusal struct {
	name string
	call func(*http.Client) error
}

// failures makes requests that must fail; explain reads the client's error.
func failures(all []refusal, explain func(error) (failure, error)) (saw, error) {
	got := saw{Failures: map[string]failure{}}
	for _, one := range all {
		t := &tries{}
		err := one.call(&http.Client{Transport: t})
		if err == nil {
			got.Failures[one.name] = failure{Tries: t.n}
			continue
		}
		f, err := explain(err)
		if err != nil {
			return saw{}, fmt.Errorf("%s: %w", one.name, err)
		}
		f.Class, f.Tries = "Error", t.n
		got.Failures[one.name] = f
	}
	return got, nil
}
