package e2e

import (
	"net/http"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

// enforced is the bound on a revoked key or a lowered cap with the bus up.
const enforced = time.Second

func TestARevokedKeyIsRefusedWithinASecond(t *testing.T) {
	mine := newCustomer(t, sharedUp(t), "1")
	mine.must(t, trial.Ask{Prompt: "a warm cache", MaxTokens: 3})
	mine.call(t, http.MethodDelete, "/orgs/"+mine.org+"/keys/"+mine.key.ID, nil, nil)
	within(t, enforced, "a revoked key is refused", func() bool {
		return mine.chat(trial.Ask{Prompt: "still me?", MaxTokens: 3}).Status == http.StatusUnauthorized
	})
}

func TestASuspendedCustomerIsRefusedWithinASecond(t *testing.T) {
	mine := newCustomer(t, sharedUp(t), "1")
	mine.must(t, trial.Ask{Prompt: "a warm cache", MaxTokens: 3})
	mine.call(t, http.MethodPut, "/orgs/"+mine.org+"/suspension", nil, nil)
	within(t, enforced, "a suspended customer is refused", func() bool {
		return mine.chat(trial.Ask{Prompt: "still me?", MaxTokens: 3}).Status == http.StatusForbidden
	})
	mine.call(t, http.MethodDelete, "/orgs/"+mine.org+"/suspension", nil, nil)
	within(t, enforced, "a restored customer is served", func() bool {
		return mine.chat(trial.Ask{Prompt: "me again", MaxTokens: 3}).Whole
	})
}

func TestALoweredCapHoldsWithinASecond(t *testing.T) {
	mine := newCustomer(t, sharedUp(t), "100")
	path := "/orgs/" + mine.org + "/caps/key/" + mine.key.ID + "/day"
	mine.call(t, http.MethodPut, path, map[string]string{"cap_usd": "50"}, nil)
	first := mine.must(t, trial.Ask{Prompt: "plenty", MaxTokens: 50})
	mine.bill(t, first.Request)
	mine.call(t, http.MethodPut, path, map[string]string{"cap_usd": "0.000000001"}, nil)
	within(t, enforced, "a lowered cap holds", func() bool {
		return mine.chat(trial.Ask{Prompt: "too much", MaxTokens: 50}).Status == http.StatusPaymentRequired
	})
	mine.call(t, http.MethodPut, path, map[string]string{"cap_usd": "50"}, nil)
	within(t, enforced, "a raised cap serves", func() bool { return mine.chat(trial.Ask{Prompt: "again", MaxTokens: 5}).Whole })
}
