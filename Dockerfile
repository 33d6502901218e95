# Two static binaries, nothing else, not root. CI runs the same two build lines and starts both in an empty chroot.
FROM golang:1.27.3 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/millrace ./cmd/millrace
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/millrace-agent ./cmd/millrace-agent

FROM scratch AS millrace
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/millrace /millrace
USER 65532:65532
EXPOSE 8080 8443
ENTRYPOINT ["/millrace", "serve"]

FROM scratch AS agent
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/millrace-agent /millrace-agent
USER 65532:65532
ENTRYPOINT ["/millrace-agent"]
