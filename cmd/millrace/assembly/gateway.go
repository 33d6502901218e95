package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/anthropic"
	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/api/problem"
	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/billing/usagelog"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/batch"
	"millrace/serving/gate"
	"millrace/serving/media"
	"millrace/serving/responses"
	"millrace/serving/route"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// gateway is the inference surface and everything it keeps in memory.
type gateway struct {
	gate    *gate.Gate
	log     *usagelog.Log
	purse   *credit.Allotments
	batches *batch.Runner
	handler http.Handler
}

// budgets is credit.Allotments as the gate sees it: serving does not import billing.
type budgets struct{ *credit.Allotments }

func (b budgets) Hold(ctx context.Context, p gate.Payer, amount money.Nano) (gate.Hold, error) {
	h, err := b.Allotments.Hold(ctx, credit.Payer{Org: p.Org, Project: p.Project, Key: p.Key, TimeZone: p.TimeZone}, amount)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// openGateway begins a gateway epoch. Ending goes the other way: no new requests, running ones finish, the log is
// flushed, the money goes back with a goodbye.
func (s *Server) openGateway(ctx context.Context) (*gateway, error) {
	c := s.cfg
	log, err := usagelog.Open(ctx, usagelog.Config{Bus: c.Bus, Clock: c.Clock, DiskFree: c.DiskFree, Metrics: s.metrics})
	if err != nil {
		return nil, err
	}
	s.serving.onEnd("usage log", unhurried(log.Close))
	purse, err := credit.Open(ctx, credit.Config{DB: c.DB, Bus: c.Bus, Clock: c.Clock, Process: processName(), LockDir: c.LockDir,
		Validity: c.Validity, RequestMax: gate.MaxLife, Log: log.LastAcked})
	if err != nil {
		return nil, err
	}
	s.serving.onEnd("gateway epoch", unhurried(func(ctx context.Context) error {
		if err := log.Flush(ctx); err != nil {
			return err // no goodbye: the rest of the money returns once this process is proven dead
		}
		incarnation, seq := log.LastAcked()
		return purse.Close(ctx, credit.LogEnd{Incarnation: incarnation, Seq: seq})
	}))
	prices, err := price.OpenBook(ctx, c.DB, c.Bus)
	if err != nil {
		return nil, err
	}
	s.serving.onEnd("price book", func(context.Context) error { prices.Close(); return nil })
	auth := keys.NewAuthenticator(keys.NewStore(c.DB), c.Master, c.Clock, purse.Valid)
	stop, err := auth.Follow(c.Bus)
	if err != nil {
		return nil, err
	}
	s.serving.onEnd("key notices", func(context.Context) error { stop(); return nil })
	s.serving.run("key authentication", auth.Run)
	g := gate.New(gate.Options{Clock: c.Clock, Models: s.Catalogue, Router: s.Router, Limits: limits.New(c.Clock), Prices: prices, Budgets: budgets{purse},
		Log: log, Salts: c.Master, Standing: auth, Images: media.NewFetcher(c.LoopbackHooks)})
	s.serving.onEnd("running requests", unhurried(g.Drain))
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = func(err error, c echo.Context) { // what even the router does not know, such as odd methods
		var h *echo.HTTPError
		if errors.As(err, &h) {
			err = fault.New(fault.Method, "This method is not supported here.").WithCause(err)
		}
		if strings.HasPrefix(c.Request().URL.Path, anthropic.Prefix) {
			problem.Anthropic(c.Response().Writer, c.Request(), err)
			return
		}
		problem.OpenAI(c.Response().Writer, c.Request(), err)
	}
	kept := responses.New(responses.Options{DB: c.DB, Clock: c.Clock, Gate: g, Sealer: c.Master, Frame: problem.OpenAIFrame, Refuse: c.RefuseHosted})
	s.serving.run("kept responses", kept.Run)
	s.serving.onEnd("background responses", kept.Drain)
	messages := &anthropic.API{Gate: g, Door: inference.Door{Auth: auth, Clock: c.Clock}, Models: s.Catalogue, Sealer: c.Master}
	batches, runner := s.openBatches(g, auth, append(openai.BatchEndpoints(kept), messages.BatchEndpoint()))
	api := &openai.API{Gate: g, Door: inference.Door{Auth: auth, Clock: c.Clock}, Models: s.Catalogue, Prices: prices, Responses: kept, Batches: batches}
	s.serving.onEnd("WebSockets", api.Drain)
	api.Register(e)
	messages.Register(e)
	return &gateway{gate: g, log: log, purse: purse, batches: runner, handler: e}, nil
}

// endLimit is how long requests that were cut may take to settle, and the log and the money to end.
const endLimit = 10 * time.Second

// unhurried gives a step of the ending time of its own: when running requests have used up the whole drain and are cut,
// their last events must still reach the log and the money must still go back.
func unhurried(step func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		return step(ctx)
	}
}

// openRouter follows the fleet on a connection of its own.
func (s *Server) openRouter() (*route.Router, error) {
	router := route.New(s.cfg.Clock, nil)
	feed, err := route.Follow(router, s.cfg.Facts, s.cfg.Clock)
	if err != nil {
		return nil, err
	}
	s.life.onEnd("fleet facts", func(context.Context) error { feed.Stop(); return nil })
	return router, nil
}

// How long a new gateway waits to hear of the fleet before it serves: another process's hub answers at once, or is away.
const (
	fleetWait = 2 * time.Second
	fleetPoll = 10 * time.Millisecond
)

// awaitFleet waits until every placed unit has been heard of: until then it would be refused as not ready.
func (s *Server) awaitFleet(ctx context.Context) {
	var placed []ids.ID
	for _, m := range s.Catalogue.Models() {
		for _, u := range m.Units {
			for _, e := range u.Engines() {
				if !e.Attached {
					placed = append(placed, e.ID)
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fleetWait)
	defer cancel()
	tick := time.NewTicker(fleetPoll)
	defer tick.Stop()
	for {
		unheard := s.Router.Unheard(placed)
		if unheard == 0 {
			return
		}
		select {
		case <-ctx.Done():
			slog.Warn("not every unit has been heard of: this gateway begins all the same", "unheard", unheard, "placed", len(placed))
			return
		case <-tick.C:
		}
	}
}

// linked reaches a host through its own link, when this process has the hub that it is linked to.
func (s *Server) linked(host ids.ID) (net.Conn, error) {
	if !s.cfg.Roles.Hub {
		return nil, fmt.Errorf("host %s can be reached through its hub only, and this process plays no hub", host)
	}
	return s.Hub.DialLink(host)
}

func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}
