package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"millrace/serving/engine"
	"millrace/serving/recipe"
)

const (
	storeTimeout   = 30 * time.Second
	maxStoreAnswer = 4 << 10 // bytes of it that are read
)

// storeMeasurement tells a control plane what was measured of a recipe that it knows.
func storeMeasurement(ctx context.Context, control, token string, r *recipe.Recipe, report *RecipeReport) error {
	if token == "" {
		return errors.New("--store needs a control token in MILLRACE_TOKEN")
	}
	base, err := engine.CleanBase(control)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"name": r.Name, "digest": r.Digest(), "cost": report.Cost, "report": report})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/recipe-measurements", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := engine.Keyed(token).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxStoreAnswer))
		return fmt.Errorf("the measurement was not stored: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
