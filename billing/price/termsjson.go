package price

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/money"
	"millrace/internal/usage"
)

// termsJSON is how terms are kept: prices by class in pico-USD, days and times in words.
type termsJSON struct {
	Tiers    []tierJSON   `json:"tiers,omitempty"`
	Windows  []windowJSON `json:"windows,omitempty"`
	Batch    int64        `json:"batch_percent,omitempty"`
	Priority int64        `json:"priority_percent,omitempty"`
}

type tierJSON struct {
	Above  int64                 `json:"above"`
	Prices map[string]money.Pico `json:"pico"`
}

type windowJSON struct {
	Days    []string `json:"days,omitempty"` // none = every day
	From    string   `json:"from"`
	To      string   `json:"to"`
	Percent int64    `json:"percent"`
}

// MarshalJSON implements json.Marshaler.
func (t Terms) MarshalJSON() ([]byte, error) {
	j := termsJSON{Batch: t.Batch, Priority: t.Priority}
	for _, tier := range t.Tiers {
		prices := make(map[string]money.Pico, len(tier.Prices))
		for c, p := range tier.Prices {
			prices[usage.Class(c).String()] = p
		}
		j.Tiers = append(j.Tiers, tierJSON{tier.Above, prices})
	}
	for _, w := range t.Windows {
		j.Windows = append(j.Windows, windowJSON{w.Days.Names(), Clock(w.From), Clock(w.To), w.Percent})
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler, strictly: a member that is not known would be a price that is not charged.
func (t *Terms) UnmarshalJSON(text []byte) error {
	var j termsJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("price: terms: %w", err)
	}
	out := Terms{Batch: j.Batch, Priority: j.Priority}
	for _, tier := range j.Tiers {
		next := Tier{Above: tier.Above}
		for name, p := range tier.Prices {
			c, known := usage.ClassOf(name)
			if !known {
				return fmt.Errorf("price: terms: there is no class %q", name)
			}
			next.Prices[c] = p
		}
		out.Tiers = append(out.Tiers, next)
	}
	for _, w := range j.Windows {
		window, err := ParseWindow(w.Days, w.From, w.To, w.Percent)
		if err != nil {
			return err
		}
		out.Windows = append(out.Windows, window)
	}
	*t = out
	return nil
}

// dayNames by time.Weekday.
var dayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Names lists the days as APIs name them, from Monday; none for every day.
func (d Days) Names() (names []string) {
	if d == 0 {
		return nil
	}
	for i := range 7 {
		if day := time.Weekday((i + 1) % 7); d.Has(day) {
			names = append(names, dayNames[day])
		}
	}
	return names
}

// ParseWindow reads a window's words: days "mon" to "sun" (none = every day), times "HH:MM", the end up to "24:00".
func ParseWindow(days []string, from, to string, percent int64) (w Window, err error) {
	w.Percent = percent
	for _, name := range days {
		i := slices.Index(dayNames[:], strings.ToLower(name))
		if i < 0 {
			return w, fmt.Errorf("price: %q is no day: use mon, tue, wed, thu, fri, sat, sun", name)
		}
		w.Days |= 1 << i
	}
	if w.From, err = parseClock(from); err != nil {
		return w, err
	}
	w.To, err = parseClock(to)
	return w, err
}

func parseClock(s string) (minute int, err error) {
	hours, minutes, _ := strings.Cut(s, ":")
	h, err := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint(minutes, 10, 8)
	if minute = int(h*60 + m); err != nil || err2 != nil || len(hours) != 2 || len(minutes) != 2 || m > 59 || minute > minuteOfDay {
		return 0, fmt.Errorf("price: %q is no time of day: use HH:MM, 00:00 to 24:00", s)
	}
	return minute, nil
}
