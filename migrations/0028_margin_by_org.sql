-- +goose Up
-- What serving some customers cost is read by customer.
CREATE INDEX margin_orgs_of_org ON margin_orgs (org_id, hour);
