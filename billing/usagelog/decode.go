package usagelog

import (
	"encoding/json"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Decode reads an event that Append wrote. The way it is written leaves little to chance, so what is in the usual order
// and without escapes is read in one pass, several times faster; anything else goes through encoding/json. Both give the
// same. The event keeps no part of line.
func Decode(line []byte, e *usage.Event) error {
	s := scan{rest: line, good: true}
	s.event(e)
	if s.good && len(s.rest) == 0 {
		return nil
	}
	*e = usage.Event{}
	return json.Unmarshal(line, e)
}

// scan reads what is written in exactly one way. The first surprise makes it bad, and everything after is nothing.
type scan struct {
	rest []byte
	good bool
}

func (s *scan) event(e *usage.Event) {
	s.want(`{"id":`)
	e.ID = s.id()
	if s.skip(`,"progress":`) {
		e.Progress = s.number()
	}
	for _, f := range [...]struct {
		key string
		to  *ids.ID
	}{{`,"org":`, &e.Org}, {`,"project":`, &e.Project}, {`,"key":`, &e.Key}, {`,"model":`, &e.Model}, {`,"price":`, &e.PriceVersion}, {`,"epoch":`, &e.Epoch}} {
		s.want(f.key)
		*f.to = s.id()
	}
	s.want(`,"budgets":[`)
	e.Budgets = make([]ids.ID, 0, 4)
	for more := true; more && s.good; more = s.skip(",") {
		e.Budgets = append(e.Budgets, s.id())
	}
	s.want(`],"org_budget":`)
	e.OrgBudget = s.id()
	if s.skip(`,"attempts":[`) {
		for more := true; more && s.good; more = s.skip(",") {
			e.Attempts = append(e.Attempts, s.attempt())
		}
		s.want("]")
	}
	s.want(`,"usage":`)
	for c := range e.Usage {
		s.want("[,"[min(c, 1):][:1])
		e.Usage[c] = s.number()
	}
	s.want("]")
	if s.skip(`,"raw":`) {
		e.Raw = s.object()
	}
	if s.skip(`,"doubt":`) {
		e.Doubt = s.text()
	}
	s.ending(e)
}

// ending reads the second half of an event.
func (s *scan) ending(e *usage.Event) {
	s.want(`,"charge":`)
	e.Charge = money.Nano(s.number())
	s.want(`,"ending":`)
	e.Ending = usage.Ending(s.text())
	e.Estimated = s.skip(`,"estimated":true`)
	e.Streamed = s.skip(`,"streamed":true`)
	if s.skip(`,"service":`) {
		e.Service = usage.Service(s.text())
	}
	s.want(`,"dialect":`)
	e.Dialect = s.text()
	s.want(`,"status":`)
	e.Status = int(s.number())
	s.want(`,"started_ms":`)
	e.StartedMS = s.number()
	if s.skip(`,"first_token_ms":`) {
		e.FirstTokenMS = s.number()
	}
	s.want(`,"ended_ms":`)
	e.EndedMS = s.number()
	s.want("}")
}

func (s *scan) attempt() (a usage.Attempt) {
	s.want(`{"id":`)
	a.ID = s.id()
	s.want(`,"unit":`)
	a.Unit = s.id()
	if s.skip(`,"note":`) {
		a.Note = s.text()
	}
	s.want("}")
	return a
}

func (s *scan) skip(what string) bool {
	if !s.good || len(s.rest) < len(what) || string(s.rest[:len(what)]) != what {
		return false
	}
	s.rest = s.rest[len(what):]
	return true
}

func (s *scan) want(what string) {
	if !s.skip(what) {
		s.good = false
	}
}

// hexValue of a lower-case digit; 0xff for anything else.
var hexValue = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range "0123456789abcdef" {
		table[c] = byte(i)
	}
	return table
}()

// idText is where the bytes of an id are in its quoted text.
var idText = [16]int{1, 3, 5, 7, 10, 12, 15, 17, 20, 22, 25, 27, 29, 31, 33, 35}

func (s *scan) id() (id ids.ID) {
	t := s.rest
	if !s.good || len(t) < 38 || t[0] != '"' || t[9] != '-' || t[14] != '-' || t[19] != '-' || t[24] != '-' || t[37] != '"' {
		s.good = false
		return id
	}
	for i, at := range idText {
		high, low := hexValue[t[at]], hexValue[t[at+1]]
		if high|low > 0xf {
			s.good = false
			return ids.Nil
		}
		id[i] = high<<4 | low
	}
	s.rest = t[38:]
	return id
}

// number reads an integer of at most 18 digits.
func (s *scan) number() (n int64) {
	negative := s.skip("-")
	i := 0
	for ; i < len(s.rest) && s.rest[i]-'0' <= 9; i++ {
		n = n*10 + int64(s.rest[i]-'0')
		if i >= 18 {
			s.good = false
			return 0
		}
	}
	if i == 0 || i > 1 && s.rest[0] == '0' {
		s.good = false
		return 0
	}
	s.rest = s.rest[i:]
	if negative {
		n = -n
	}
	return n
}

// text reads a string of plain ASCII.
func (s *scan) text() string {
	if !s.skip(`"`) {
		s.good = false
		return ""
	}
	for i, c := range s.rest {
		if c == '"' {
			t := string(s.rest[:i])
			s.rest = s.rest[i+1:]
			return t
		}
		if c < ' ' || c == '\\' || c > '~' {
			break
		}
	}
	s.good = false
	return ""
}

// object reads a JSON object as it is.
func (s *scan) object() json.RawMessage {
	if !s.good || len(s.rest) == 0 || s.rest[0] != '{' {
		s.good = false
		return nil
	}
	depth, quoted := 0, false
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				raw := append(json.RawMessage(nil), s.rest[:i+1]...)
				s.rest = s.rest[i+1:]
				s.good = json.Valid(raw)
				return raw
			}
		}
	}
	s.good = false
	return nil
}
