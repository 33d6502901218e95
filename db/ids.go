package db

import (
	"github.com/jackc/pgx/v5/pgtype"

	"millrace/internal/ids"
)

// registerIDs makes pgx write ids.ID as the 16 bytes it is. Without it each goes through its text form, which costs a
// microsecond an id: the rater writes ten of them an event.
func registerIDs(m *pgtype.Map) {
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapID}, m.TryWrapEncodePlanFuncs...)
	m.TryWrapScanPlanFuncs = append([]pgtype.TryWrapScanPlanFunc{wrapScanID}, m.TryWrapScanPlanFuncs...)
}

// idValue is an ids.ID as pgx's codec wants it.
type idValue ids.ID

func (v idValue) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: v, Valid: true}, nil }

func (v *idValue) ScanUUID(u pgtype.UUID) error {
	*v = u.Bytes // NULL is ids.Nil, as it was through the text form
	return nil
}

type encodeID struct{ next pgtype.EncodePlan }

func (p *encodeID) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *encodeID) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(idValue(value.(ids.ID)), buf)
}

func wrapID(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	id, ok := value.(ids.ID)
	if !ok {
		return nil, nil, false
	}
	return &encodeID{}, idValue(id), true
}

type scanID struct{ next pgtype.ScanPlan }

func (p *scanID) SetNext(next pgtype.ScanPlan) { p.next = next }

func (p *scanID) Scan(src []byte, dst any) error {
	return p.next.Scan(src, (*idValue)(dst.(*ids.ID)))
}

func wrapScanID(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
	id, ok := target.(*ids.ID)
	if !ok {
		return nil, nil, false
	}
	return &scanID{}, (*idValue)(id), true
}
