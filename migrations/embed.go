// Package migrations holds the schema as goose files, in the order they are applied. A file that has been released is
// never edited: a change is a new file. db.Migrate applies them; sqlc reads the same files.
package migrations

import "embed"

// FS is every migration.
//
//go:embed *.sql
var FS embed.FS
