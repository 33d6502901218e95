package openai

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"

	"millrace/api/inference"
	"millrace/internal/fault"
	"millrace/serving/batch"
)

// uploadTime is how long an upload may take; the file of one that takes longer would be swept.
const uploadTime = time.Hour

// uploadFile takes a file in. The form's parts may come in any order; the file goes to the database as it comes.
func (a *API) uploadFile(w http.ResponseWriter, r *http.Request) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	if r.ContentLength > batch.MaxFileBytes+formOverhead {
		return batch.TooLarge()
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(a.Door.Clock.Now().Add(uploadTime)) // a writer without deadlines does without
	defer control.SetReadDeadline(time.Time{})
	r.Body = http.MaxBytesReader(nil, r.Body, batch.MaxFileBytes+formOverhead)
	parts, err := r.MultipartReader()
	if err != nil {
		return fault.New(fault.Unsupported, "Send the file as multipart/form-data, with the fields purpose and file.").WithCause(err)
	}
	form := upload{api: a, r: r, owner: ownerOf(&caller), expiry: batch.MaxExpiry}
	f, err := form.read(parts)
	if err != nil {
		if form.file != nil {
			form.file.Abort()
		}
		return uploadError(err)
	}
	inference.Warn(w.Header(), form.ignored)
	return inference.WriteJSON(w, shownFile(f))
}

// uploadError is an error of reading a form: the client's, unless it is known to be something else.
func uploadError(err error) error {
	var known *fault.Fault
	var tooLarge *http.MaxBytesError
	var broken formError
	switch {
	case errors.As(err, &tooLarge):
		return batch.TooLarge()
	case errors.As(err, &known):
		return known
	case errors.As(err, &broken):
		return fault.New(fault.Invalid, "The form could not be read whole: send multipart/form-data that ends with its boundary.").WithCause(err)
	}
	return err
}

// formError is an error of the form itself, not of what keeps it.
type formError struct{ error }

func (e formError) Unwrap() error { return e.error }

// upload is a form being read.
type upload struct {
	api     *API
	r       *http.Request
	owner   batch.Owner
	file    *batch.Upload
	purpose string
	anchor  string
	expiry  time.Duration
	seconds bool
	ignored []string
}

func (u *upload) read(parts *multipart.Reader) (f batch.File, err error) {
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return f, formError{err}
		}
		if n == maxFormParts {
			return f, fault.New(fault.Invalid, "The form has more than %d parts.", maxFormParts)
		}
		if err := u.part(part); err != nil {
			return f, err
		}
	}
	switch {
	case u.file == nil:
		return f, fault.New(fault.Invalid, "The form has no file: send it as the field file.").WithCode("missing_required_parameter").WithParam("file")
	case u.purpose == "":
		return f, fault.New(fault.Invalid, "The form has no purpose.").WithCode("missing_required_parameter").WithParam("purpose")
	case u.seconds != (u.anchor != ""):
		return f, fault.New(fault.Invalid, "expires_after needs both anchor and seconds.").WithParam("expires_after")
	}
	if err := batch.CheckExpiry("expires_after", u.expiry); err != nil {
		return f, err
	}
	return u.file.Finish(u.expiry)
}

// part takes one part of the form.
func (u *upload) part(part *multipart.Part) error {
	name := part.FormName()
	if name == "file" {
		return u.content(part)
	}
	text, err := io.ReadAll(io.LimitReader(part, maxFormField+1))
	if err != nil {
		return formError{err}
	}
	if len(text) > maxFormField {
		return fault.New(fault.Invalid, "The field %s is too long.", inference.Shown(name)).WithParam(inference.Shown(name))
	}
	value := string(text)
	switch name {
	case "purpose":
		if value != batch.Input {
			return fault.New(fault.Invalid, "Files can be uploaded with the purpose %q only.", batch.Input).WithCode("invalid_value").WithParam("purpose")
		}
		u.purpose = value
	case "expires_after[anchor]":
		if value != "created_at" {
			return fault.New(fault.Invalid, `The anchor must be "created_at".`).WithCode("invalid_value").WithParam("expires_after.anchor")
		}
		u.anchor = value
	case "expires_after[seconds]":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return fault.New(fault.Invalid, "seconds must be a whole number.").WithParam("expires_after.seconds")
		}
		u.expiry, u.seconds = time.Duration(n)*time.Second, true
	default:
		u.ignored = append(u.ignored, asciiName(inference.Shown(name)))
	}
	return nil
}

// content takes the file's part.
func (u *upload) content(part *multipart.Part) (err error) {
	switch {
	case u.file != nil:
		return fault.New(fault.Invalid, "The form has more than one file.").WithParam("file")
	case part.FileName() == "":
		return fault.New(fault.Invalid, "The file has no name: send it as a file, not as text.").WithParam("file")
	}
	if u.file, err = u.api.Batches.Begin(u.r.Context(), u.owner, batch.Input, part.FileName()); err != nil {
		u.file = nil
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := part.Read(buf)
		if n > 0 {
			if _, err := u.file.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return formError{err}
		}
	}
}
