"""HTTP tools with a journal: what was asked for and what was done, one entry each, kept outside of whoever asks.

`POST /NAME` runs the function NAME of the table. A function says what the effect is (None for tools that only read) and what
is answered. A call whose `idempotency-key` was seen before has no second effect where the tool honours keys. Whoever holds
a stub can keep a request from going on, before or after its effect. Standard library only.
"""
import http.server
import json
import threading
import time


class Reply:
    """What a tool answers; `effect` is what it did to the world."""

    def __init__(self, body, status=200, effect=None, honours_keys=False, after_s=0, media="application/json"):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.effect, self.honours_keys, self.after_s, self.media = status, effect, honours_keys, after_s, media


class StubTools:
    """The tools, served on a free port until the process ends."""

    def __init__(self, tools):
        self.tools, self.asked, self.done = tools, [], []
        self._change, self._hold, self._held = threading.Condition(), None, 0
        handler = type("Handler", (_Handler,), {"stub": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def hold(self, where, name):
        """From now on each request for a tool stands still `before` or `after` its effect."""
        with self._change:
            self._hold, self._held = (where, name), 0

    def wait_held(self, bound_s):
        """Waits until a request stands still; whether one does."""
        with self._change:
            return self._change.wait_for(lambda: self._held > 0, bound_s)

    def abandon(self):
        """Lets nothing more happen to the requests that stand still: whoever sent them is gone."""
        with self._change:
            self._hold = None
            self._change.notify_all()

    def effects(self, about):
        """What was done for a session or case."""
        with self._change:
            return [entry for entry in self.done if entry["about"] == about]

    def wait_done(self, about, count, bound_s):
        """Waits until so many effects of a case are there: a tool may go on although nobody waits for it any more."""
        with self._change:
            return self._change.wait_for(lambda: sum(e["about"] == about for e in self.done) >= count, bound_s)

    def _stands(self, where, name):
        """Stands still if asked to; whether the request must be dropped."""
        with self._change:
            if self._hold != (where, name):
                return False
            self._held += 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._hold is None)
            return True

    def run(self, name, args, headers):
        entry = {"tool": name, "args": args, "about": headers.get("x-about") or headers.get("toolgate-session"),
                 "call": headers.get("toolgate-call-id"), "key": headers.get("idempotency-key")}
        with self._change:
            self.asked.append(entry)
        if self._stands("before", name):
            return None
        reply = self.tools[name](args)
        if reply.after_s:
            # A slow tool: it works on although its caller may have given up.
            time.sleep(reply.after_s)
        with self._change:
            seen = reply.honours_keys and entry["key"] and any(e["key"] == entry["key"] for e in self.done)
            if reply.effect is not None and not seen:
                self.done.append({**entry, "effect": reply.effect})
                self._change.notify_all()
        if self._stands("after", name):
            return None
        return reply


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub = None

    def log_message(self, *_):
        pass

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        reply = self.stub.run(self.path.strip("/"), json.loads(raw), self.headers)
        if reply is None:
            self.close_connection = True
            return
        try:
            self.send_response(reply.status)
            self.send_header("content-type", reply.media)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
        except OSError:
            # The caller has given up; what was done is in the journal.
            self.close_connection = True
