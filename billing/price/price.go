// Package price holds what a token costs: immutable versions per model and price book, each from a moment on.
//
// It owns price_versions and the rules for making one. It does not own what a request consumed (internal/usage), rounding
// (internal/money) or which book a customer has (tenants). A correction is a new version and, where money moved, a credit
// note; never an update.
//
// Words. Book: a named list of prices; every model has prices in "standard", and a customer's own book may say less.
// Contract: a book that an organization has for a while, instead of its own.
// Version: prices of one model in one book from effective_at on. Terms: how they depend on the prompt's length, the time of
// the week and the service tier. Quote: a version as a request pins it at its start, terms worked in.
// Schedule: the versions that stand, past and future.
//
// Invariants: a version is never changed or deleted, only cancelled, and not later than CancelNotice before it takes
// effect, so that every gateway drops it in time; a model without a version in effect cannot be called, and a free model
// has a version of zeros, so that every event names the version it was charged by.
package price

import (
	"fmt"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Standard is the book that every other falls back to.
const Standard = "standard"

// CancelNotice is how long before it takes effect a version can be cancelled: longer than a gateway may keep an old
// schedule while the bus is down.
const CancelNotice = time.Minute

// Version is the prices of one model in one book from EffectiveAt on.
type Version struct {
	ID          ids.ID
	Model       ids.ID
	Book        string
	EffectiveAt time.Time
	Prices      usage.Prices
	Terms       Terms
	Note        string
	CreatedBy   string
	CreatedAt   time.Time
	CancelledAt *time.Time // nil = it stands
}

// Free reports whether nothing of it costs anything.
func (v *Version) Free() bool {
	for _, tier := range v.Terms.Tiers {
		if tier.Prices != (usage.Prices{}) {
			return false
		}
	}
	return v.Prices == usage.Prices{}
}

// version reads a row. Terms that cannot be read are an error: what they would have charged is not known.
func version(r q.PriceVersion) (Version, error) {
	v := Version{ID: r.ID, Model: r.ModelID, Book: r.Book, EffectiveAt: r.EffectiveAt, Note: r.Note, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt, CancelledAt: r.CancelledAt}
	v.Prices[usage.Input] = money.Pico(r.InputPico)
	v.Prices[usage.Cached] = money.Pico(r.CachedPico)
	v.Prices[usage.CacheWrite] = money.Pico(r.CacheWritePico)
	v.Prices[usage.Output] = money.Pico(r.OutputPico)
	v.Prices[usage.Reasoning] = money.Pico(r.ReasoningPico)
	v.Prices[usage.Image] = money.Pico(r.ImagePico)
	v.Prices[usage.Audio] = money.Pico(r.AudioPico)
	v.Prices[usage.Requests] = money.Pico(r.RequestPico)
	if err := v.Terms.UnmarshalJSON(r.Terms); err != nil {
		return Version{}, fmt.Errorf("price: version %s: %w", ids.Format(ids.Price, r.ID), err)
	}
	return v, nil
}

func insertParams(v Version) (q.InsertPriceVersionParams, error) {
	terms, err := v.Terms.MarshalJSON()
	return q.InsertPriceVersionParams{ID: v.ID, ModelID: v.Model, Book: v.Book, EffectiveAt: v.EffectiveAt,
		InputPico: int64(v.Prices[usage.Input]), CachedPico: int64(v.Prices[usage.Cached]),
		CacheWritePico: int64(v.Prices[usage.CacheWrite]), OutputPico: int64(v.Prices[usage.Output]),
		ReasoningPico: int64(v.Prices[usage.Reasoning]), ImagePico: int64(v.Prices[usage.Image]),
		AudioPico: int64(v.Prices[usage.Audio]), RequestPico: int64(v.Prices[usage.Requests]),
		Note: v.Note, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, Terms: terms}, err
}
