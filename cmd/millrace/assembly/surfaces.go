package assembly

import "net/http"

// surfaces makes the control API and the pages.
func (s *Server) surfaces() (control, pages http.Handler, err error) {
	return nil, nil, nil
}
