package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/serving/engine"
	"millrace/serving/measure"
	"millrace/serving/recipe"
)

// RecipeCmd measures one endpoint: how fast it reads and writes, what workloads cost on it, and the cost model that fits.
type RecipeCmd struct {
	URL        string        `arg:"" help:"Root URL of the engine, such as http://127.0.0.1:8000."`
	Model      string        `help:"The name that the engine serves the model under; empty takes the first that it lists."`
	Engine     string        `help:"Whose dialect it speaks." default:"vllm"`
	Key        string        `help:"Bearer key for the endpoint." env:"MILLRACE_ENDPOINT_KEY"`
	MaxPrompt  int           `help:"Longest prompt tried, in tokens." default:"8192"`
	MaxBatch   int           `help:"Most requests at once." default:"32"`
	Clients    int           `help:"Clients that keep up a workload." default:"16"`
	During     time.Duration `help:"How long each workload is kept up." default:"10s"`
	TimeLimit  time.Duration `help:"The whole run ends by then." default:"30m"`
	GPUs       int           `name:"gpus" help:"GPUs behind the endpoint; with --gpu-hour, workloads get a cost."`
	GPUHour    float64       `name:"gpu-hour" help:"Dollars for an hour of one GPU."`
	RecipeFile string        `name:"recipe" help:"Recipe whose cost model this is; with --out it is written anew with what was measured." placeholder:"FILE" type:"existingfile"`
	Out        string        `help:"Where the recipe with its measured cost model is written." placeholder:"FILE"`
	Store      string        `help:"Control API where the measurement is stored under the recipe's name, such as http://127.0.0.1:8080; its token is in MILLRACE_TOKEN." placeholder:"URL"`
	Seed       uint64        `help:"Of the prompts; another one avoids what an earlier run left in the cache. 0 = the time."`
	JSON       bool          `name:"json" help:"Print the report as JSON."`
}

// RecipeReport is what one run measured.
type RecipeReport struct {
	At       time.Time        `json:"at"`
	Endpoint string           `json:"endpoint"`
	Model    string           `json:"model"`
	Engine   string           `json:"engine"`
	Cost     recipe.Cost      `json:"cost"`
	Prefills int              `json:"prefill_samples"`
	Decodes  int              `json:"decode_samples"`
	Prompt   float64          `json:"prompt_tokens_per_second"`
	Output   float64          `json:"output_tokens_per_second"`
	GPUs     int              `json:"gpus,omitempty"`
	GPUHour  float64          `json:"usd_per_gpu_hour,omitempty"`
	Served   []measure.Served `json:"workloads"`
	Errors   []string         `json:"errors,omitempty"`
}

// Run is the command.
func (c *RecipeCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.TimeLimit)
	defer cancel()
	r, err := c.read()
	if err != nil {
		return err
	}
	report, err := c.Measure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := c.keep(ctx, r, report); err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	return report.Print(os.Stdout)
}

// read reads the recipe before anything is measured: a mistake in it is told at once.
func (c *RecipeCmd) read() (*recipe.Recipe, error) {
	if c.RecipeFile == "" {
		if c.Out != "" || c.Store != "" {
			return nil, errors.New("--out and --store need --recipe: say whose cost model this is")
		}
		return nil, nil
	}
	text, err := os.ReadFile(c.RecipeFile)
	if err != nil {
		return nil, err
	}
	return recipe.Parse(text)
}

// Measure makes the sweep and the workloads, telling of their progress.
func (c *RecipeCmd) Measure(ctx context.Context, progress io.Writer) (*RecipeReport, error) {
	target, err := c.target(ctx)
	if err != nil {
		return nil, err
	}
	if c.Clients < 1 || c.Clients > measure.MaxBatch || c.During <= 0 {
		return nil, fmt.Errorf("want 1 to %d clients and a time that is kept up", measure.MaxBatch)
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	sweep, err := target.Run(ctx, measure.Plan{MaxPrompt: c.MaxPrompt, MaxBatch: c.MaxBatch}, c.Seed, progress)
	if err != nil {
		return nil, err
	}
	report := &RecipeReport{At: time.Now().UTC(), Endpoint: target.Base, Model: target.Model, Engine: c.Engine, GPUs: c.GPUs, GPUHour: c.GPUHour,
		Prefills: len(sweep.Prefill), Decodes: len(sweep.Decode), Prompt: sweep.Prompt, Output: sweep.Output, Errors: sweep.Errors}
	if report.Cost, err = recipe.Fit(sweep.Prefill, sweep.Decode); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.Join(sweep.Errors, "; "))
	}
	report.Cost.From = "measured " + report.At.Format(time.DateOnly) + " at " + target.Base
	for _, w := range measure.Workloads {
		if w.Prompt > c.MaxPrompt {
			fmt.Fprintf(progress, "workload %s: left out, its prompts are longer than --max-prompt\n", w.Name)
			continue
		}
		report.Served = append(report.Served, target.Serve(ctx, w, c.Clients, c.During, c.Seed+uint64(len(report.Served)+1)<<32))
		fmt.Fprintf(progress, "workload %s: done\n", w.Name)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the time limit came before the end: %w", ctx.Err())
		}
	}
	return report, nil
}

func (c *RecipeCmd) target(ctx context.Context) (*measure.Target, error) {
	base, err := engine.CleanBase(c.URL)
	if err != nil {
		return nil, err
	}
	driver, err := engine.Lookup(engine.Family(c.Engine))
	if err != nil {
		return nil, err
	}
	t := &measure.Target{Base: base, Model: c.Model, Driver: driver, Client: engine.Keyed(c.Key)}
	if t.Model == "" {
		offers, err := engine.Offers(ctx, t.Client, base)
		if err != nil {
			return nil, err
		}
		if len(offers) == 0 {
			return nil, errors.New("the endpoint lists no model: name one by --model")
		}
		t.Model = offers[0].Model
	}
	return t, nil
}

// keep writes what was measured where it was asked to.
func (c *RecipeCmd) keep(ctx context.Context, r *recipe.Recipe, report *RecipeReport) error {
	if r == nil {
		return nil
	}
	r.Cost = &report.Cost
	if c.Out != "" {
		text, err := r.YAML()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.Out, text, 0o644); err != nil {
			return err
		}
	}
	if c.Store == "" {
		return nil
	}
	return storeMeasurement(ctx, c.Store, os.Getenv("MILLRACE_TOKEN"), r, report)
}

// Print is the report for people.
func (r *RecipeReport) Print(w io.Writer) error {
	c := r.Cost
	fmt.Fprintf(w, "%s, model %s, engine %s, at %s\n\n", r.Endpoint, r.Model, r.Engine, r.At.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(w, "prefill of s tokens   %.2f ms + %.2f us x s\n", c.A0/1e3, c.A1)
	fmt.Fprintf(w, "step of n requests    %.2f ms + %.2f us x n + %.4f us x tokens in the cache\n", c.B0/1e3, c.B1, c.B2)
	fmt.Fprintf(w, "mean relative error   %.1f %% over %d prefills and %d batches\n", c.Error*100, r.Prefills, r.Decodes)
	fmt.Fprintf(w, "fastest               %.0f prompt tokens/s, %.0f output tokens/s\n\n", r.Prompt, r.Output)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "workload\trequests/s\tprompt tok/s\toutput tok/s\tcached\tTTFT p50\tp99\tTPOT p50\tp99\tfailed\t$/M tokens\t\n")
	for _, s := range r.Served {
		cost := "-"
		if r.GPUs > 0 && r.GPUHour > 0 {
			cost = fmt.Sprintf("%.3f", s.CostPerMillion(r.GPUs, r.GPUHour))
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.0f\t%.0f\t%.0f %%\t%s\t%s\t%s\t%s\t%d\t%s\t\n", s.Name, s.PerSecond, s.PromptRate, s.OutputRate, s.HitShare*100,
			millis(s.FirstP50), millis(s.FirstP99), millis(s.TokenP50), millis(s.TokenP99), s.Failed, cost)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range r.Errors {
		fmt.Fprintf(w, "error: %s\n", e)
	}
	return nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }
