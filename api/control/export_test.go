package control

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/ids"
)

// A file arrives with trailers that describe it, for one organization and for all.
func TestExportsTellWhatTheySent(t *testing.T) {
	f := setup(t)
	org, project := f.org("Acme")
	at := f.clock.Now().Add(-time.Hour)
	id := ids.ID{}
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	err := f.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT ensure_day($1)", ids.Day(id)); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, ending, status, estimated, streamed, dialect, started_at, ended_at)
			VALUES ($1, $2, $3, $4, $3, $3, $3, $3, 7, 0, 0, 5, 0, 0, 0, 1, 1500000001, 'complete', 200, false, false, 'chat', $5, $5)`, org.ID, ids.Day(id), id, project.ID, at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/orgs/" + ids.Format(ids.Org, org.ID) + "/exports/usage", "/exports/usage"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path+"?format=jsonl", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+f.token)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		sum := sha256.Sum256(b)
		if err != nil || a.StatusCode != http.StatusOK || !strings.Contains(string(b), `"charged_usd":"1.500000001"`) {
			t.Fatalf("%s: %d %s (%v)", path, a.StatusCode, b, err)
		}
		if a.Trailer.Get(trailerRows) != "1" || a.Trailer.Get(trailerSHA256) != hex.EncodeToString(sum[:]) ||
			!strings.Contains(a.Trailer.Get(trailerSums), `"input_tokens":"7"`) || a.Trailer.Get(trailerNext) == "" {
			t.Fatalf("%s: trailers %v", path, a.Trailer)
		}
		if more := f.send(http.MethodGet, path+"?format=jsonl&after="+a.Trailer.Get(trailerNext), "", "Authorization", "Bearer "+f.token); more.status != http.StatusOK || len(more.body) != 0 {
			t.Fatalf("behind the last row: %d %s", more.status, more.body)
		}
	}
	if a := f.send(http.MethodGet, "/exports/usage?format=xls", "", "Authorization", "Bearer "+f.token); a.status != http.StatusBadRequest {
		t.Fatalf("a format that is not there: %d", a.status)
	}
}
