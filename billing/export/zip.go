package export

import (
	"archive/zip"
	"context"
	"encoding/json"
	"io"

	"millrace/tenants"
)

// Zip writes an archive of the file and its manifest: what a browser downloads, which reads no trailers.
func (s *Service) Zip(ctx context.Context, by tenants.Actor, in Query, f Format, w io.Writer) error {
	z := zip.NewWriter(w)
	method := zip.Deflate
	if f == Parquet { // compressed as it is
		method = zip.Store
	}
	file, err := z.CreateHeader(&zip.FileHeader{Name: in.FileName(f), Method: method, Modified: s.clock.Now()})
	if err != nil {
		return err
	}
	m, err := s.Write(ctx, by, in, f, file)
	if err != nil {
		return err
	}
	manifest, err := z.CreateHeader(&zip.FileHeader{Name: ManifestFile, Method: zip.Deflate, Modified: s.clock.Now()})
	if err != nil {
		return err
	}
	enc := json.NewEncoder(manifest)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return err
	}
	return z.Close()
}
