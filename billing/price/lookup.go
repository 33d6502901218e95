package price

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// At is the version in effect for a model at a moment, in the named book, else in Standard; by the database, for the rater
// and for pages. None is a fault of kind NotFound.
func At(ctx context.Context, tx q.DBTX, model ids.ID, book string, at time.Time) (Version, error) {
	row, err := q.New(tx).PriceAt(ctx, q.PriceAtParams{ModelID: model, Book: book, At: at})
	return found(row, err)
}

// ByID is a version, cancelled or not. None is a fault of kind NotFound.
func ByID(ctx context.Context, tx q.DBTX, id ids.ID) (Version, error) {
	row, err := q.New(tx).PriceVersion(ctx, id)
	return found(row, err)
}

// OfModels gives every version of the models, cancelled ones too, ordered by model, book and effective_at: what the rater
// compares events with.
func OfModels(ctx context.Context, tx q.DBTX, models []ids.ID) ([]Version, error) {
	rows, err := q.New(tx).PriceVersionsOfModels(ctx, models)
	if err != nil {
		return nil, fmt.Errorf("price: versions of models: %w", err)
	}
	return versions(rows)
}

func found(row q.PriceVersion, err error) (Version, error) {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Version{}, unpriced()
	case err != nil:
		return Version{}, fmt.Errorf("price: %w", err)
	}
	return version(row)
}

// unpriced is what a caller of a model without prices is told: nothing unpriced is served.
func unpriced() *fault.Fault {
	return fault.New(fault.NotFound, "This model has no price in effect, so it cannot be called yet.").WithCode("model_not_found").WithParam("model")
}

func versions(rows []q.PriceVersion) (list []Version, err error) {
	list = make([]Version, len(rows))
	for i, r := range rows {
		if list[i], err = version(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}
