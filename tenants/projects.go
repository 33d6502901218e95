package tenants

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Project is a team or application inside an organization. Keys belong to one.
type Project struct {
	ID         ids.ID     `json:"id"`
	Org        ids.ID     `json:"org_id"`
	Name       string     `json:"name"`
	CreatedAt  time.Time  `json:"created_at"`
	ArchivedAt *time.Time `json:"archived_at,omitempty"` // its keys are refused
}

func projectOf(r q.Project) Project {
	return Project{ID: r.ID, Org: r.OrgID, Name: r.Name, CreatedAt: r.CreatedAt, ArchivedAt: r.ArchivedAt}
}

// CreateProject makes a project. Its name must be free in the organization.
func (s *Service) CreateProject(ctx context.Context, by Actor, org ids.ID, name string) (p Project, err error) {
	if err := by.Require(ProjectsManage, org); err != nil {
		return Project{}, err
	}
	if name, err = Name("name", name, maxProjectName); err != nil {
		return Project{}, err
	}
	err = s.inOrg(ctx, org, func(tx pgx.Tx, rows *q.Queries) error {
		if _, err := rows.GetOrg(ctx, org); err != nil {
			return Found(err, "organization")
		}
		p, err = s.insertProject(ctx, tx, rows, by, org, name)
		return err
	})
	return p, err
}

func (s *Service) insertProject(ctx context.Context, tx pgx.Tx, rows *q.Queries, by Actor, org ids.ID, name string) (Project, error) {
	row, err := rows.InsertProject(ctx, q.InsertProjectParams{OrgID: org, ID: ids.New(), Name: name, CreatedAt: s.now()})
	if err != nil {
		return Project{}, Taken(err, "A project named %q exists.", name)
	}
	p := projectOf(row)
	return p, s.audit(ctx, tx, by, org, "project.create", ids.Format(ids.Project, p.ID), nil, p)
}

// Project gives one project.
func (s *Service) Project(ctx context.Context, by Actor, org, id ids.ID) (p Project, err error) {
	if err := by.Require(OrgRead, org); err != nil {
		return Project{}, err
	}
	err = s.inOrg(ctx, org, func(_ pgx.Tx, rows *q.Queries) error {
		row, err := rows.GetProject(ctx, q.GetProjectParams{OrgID: org, ID: id})
		p = projectOf(row)
		return Found(err, "project")
	})
	return p, err
}

// Projects lists an organization's projects, archived ones too, the oldest first.
func (s *Service) Projects(ctx context.Context, by Actor, org ids.ID) (projects []Project, err error) {
	if err := by.Require(OrgRead, org); err != nil {
		return nil, err
	}
	err = s.inOrg(ctx, org, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListProjects(ctx, org)
		projects = each(found, projectOf)
		return err
	})
	return projects, err
}

// RenameProject gives a project another name.
func (s *Service) RenameProject(ctx context.Context, by Actor, org, id ids.ID, name string) (p Project, err error) {
	if name, err = Name("name", name, maxProjectName); err != nil {
		return Project{}, err
	}
	return s.changeProject(ctx, by, org, id, "project.rename", func(rows *q.Queries, old q.Project) (q.Project, error) {
		row, err := rows.RenameProject(ctx, q.RenameProjectParams{OrgID: org, ID: id, Name: name})
		return row, Taken(err, "A project named %q exists.", name)
	})
}

// ArchiveProject refuses the project's keys from now on; its usage stays. The last project cannot be archived.
func (s *Service) ArchiveProject(ctx context.Context, by Actor, org, id ids.ID) (Project, error) {
	p, err := s.changeProject(ctx, by, org, id, "project.archive", func(rows *q.Queries, old q.Project) (q.Project, error) {
		if old.ArchivedAt != nil {
			return old, nil
		}
		left, err := rows.CountProjects(ctx, org)
		if err != nil {
			return q.Project{}, err
		}
		if left <= 1 {
			return q.Project{}, fault.New(fault.Conflict, "An organization keeps at least one project.").WithCode("last_project")
		}
		now := s.now()
		return rows.ArchiveProject(ctx, q.ArchiveProjectParams{OrgID: org, ID: id, ArchivedAt: &now})
	})
	if err == nil {
		s.noticeOrg(ctx, org)
	}
	return p, err
}

func (s *Service) changeProject(ctx context.Context, by Actor, org, id ids.ID, action string, change func(*q.Queries, q.Project) (q.Project, error)) (p Project, err error) {
	if err := by.Require(ProjectsManage, org); err != nil {
		return Project{}, err
	}
	err = s.inOrg(ctx, org, func(tx pgx.Tx, rows *q.Queries) error {
		// All of them, so that two archivings of the last two projects meet.
		locked, err := rows.LockProjects(ctx, org)
		if err != nil {
			return err
		}
		for _, old := range locked {
			if old.ID != id {
				continue
			}
			row, err := change(rows, old)
			if err != nil {
				return err
			}
			p = projectOf(row)
			return s.audit(ctx, tx, by, org, action, ids.Format(ids.Project, id), projectOf(old), p)
		}
		return notFound("project")
	})
	return p, err
}
