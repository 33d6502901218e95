"""What a client makes of refusals, and how often it tries."""


class Tries:
    """Counts the requests that a client sends."""

    def __init__(self, client_class):
        self.n = 0
        self.http = client_class(event_hooks={"request": [self.count]})

    def count(self, request):
        self.n += 1


def failures(api, tries, calls):
    """Runs every call, which must fail with a status."""
    saw = {}
    for name, call in calls.items():
        tries.n = 0
        try:
            call()
        except api.APIStatusError as e:
            body = e.body if isinstance(e.body, dict) else {}
            error = body.get("error", body)  # Anthropic's client keeps the envelope, OpenAI's does not
            saw[name] = {
                "class": type(e).__name__,
                "status": e.status_code,
                "code": error.get("code"),
                "type": error.get("type"),
                "param": error.get("param"),
                "message": e.message,
                "request": e.request_id,
                "tries": tries.n,
            }
        else:
            saw[name] = {"class": "", "tries": tries.n}
    return {"failures": saw}
