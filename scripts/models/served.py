"""A Toolgate server of one's own: started, killed, started again, asked over REST, its logs verified.

What is not here: what is asked of it (real_model.py, side_by_side.py). Standard library only.
"""
import atexit
import http.client
import json
import pathlib
import queue
import signal
import subprocess
import threading
import urllib.parse

START_S = 60
STOP_S = 60


class Refused(Exception):
    """A request that was answered with a problem."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


class Served:
    """`toolgate serve` over SQLite in a folder; tools on this machine are allowed."""

    def __init__(self, program, folder):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process, self.address, self.key, self.starts = None, None, None, 0

    def start(self):
        """Starts it and waits until it says that it listens."""
        self.starts += 1
        lines = queue.Queue()
        with open(self.folder / f"stderr-{self.starts}.log", "wb") as errors:
            self.process = subprocess.Popen(
                [self.program, "serve", "--bind", "127.0.0.1:0", "--data-dir", str(self._data()), "--allow-private-tools"],
                stdout=subprocess.PIPE, stderr=errors, text=True)
        # Whatever becomes of the driver, no server outlives it.
        atexit.register(_end, self.process)
        threading.Thread(target=_drain, args=(self.process.stdout, lines), daemon=True).start()
        self.address = self._said(lines, "listening on http://").rsplit("/", 1)[1]
        if self.key is None:
            # Printed once, at the first start of a database.
            self.key = self._said(lines, "first API key").rsplit(" ", 1)[1]
        return self

    def _said(self, lines, begin):
        while True:
            try:
                line = lines.get(timeout=START_S)
            except queue.Empty:
                raise RuntimeError(f"the server did not say `{begin}` within {START_S} s") from None
            if line is None:
                raise RuntimeError(f"the server ended before it said `{begin}`: {self.errors()[-2000:]}")
            if line.startswith(begin):
                return line.strip()

    def kill(self):
        """SIGKILL: nothing is told to anybody."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """SIGTERM; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def errors(self):
        """Everything that it wrote to its log, over all starts."""
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("stderr-*.log")))

    def panics(self):
        """Lines of its log that speak of a panic."""
        return [line for line in self.errors().splitlines() if "panic" in line.lower()]

    def request(self, method, path, body=None, headers=(), timeout=90):
        """One request; the JSON of its answer."""
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        head = {"authorization": f"Bearer {self.key}", **dict(headers)}
        if body is not None:
            body, head["content-type"] = json.dumps(body), "application/json"
        try:
            connection.request(method, path, body, head)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return json.loads(text) if text else None

    def put_bundle(self, bundle):
        return self.request("PUT", "/v1/bundle", bundle)

    def open(self, profile, prompt, **more):
        """Starts a session; its id."""
        return self.request("POST", "/v1/sessions", {"profile": profile, "prompt": prompt, **more})["id"]

    def events(self, session, until=lambda event: False, patience=60):
        """The session's events from the first on; waits up to `patience` seconds at a time for the one that `until` names."""
        found, after = [], 0
        while True:
            query = urllib.parse.urlencode({"after_seq": after, "limit": 1000, "wait": patience})
            page = self.request("GET", f"/v1/sessions/{session}/events?{query}", timeout=patience + 30)
            found += page["items"]
            after = page["last_seq"]
            if any(until(event) for event in page["items"]):
                # What stands behind it in the log is read, too.
                patience = 0
            if not page["items"] or (patience == 0 and after >= page["head_seq"]):
                return found

    def ended(self, session, patience=60):
        """The events of a session whose run is over, and the last `run_ended`; None where it was not over in time."""
        events = self.events(session, lambda event: event["type"] == "run_ended", patience)
        ends = [event for event in events if event["type"] == "run_ended"]
        return events, (ends[-1] if ends else None)

    def verify(self, session):
        """`toolgate verify` reads the log from the database itself; whether it is good, and the line it says."""
        done = subprocess.run([self.program, "verify", "--data-dir", str(self._data()), "--session", session],
                              capture_output=True, text=True, timeout=300)
        return done.returncode == 0, (done.stdout + done.stderr).strip()

    def _data(self):
        return self.folder / "data"


def _end(process):
    if process.poll() is None:
        process.kill()


def _drain(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put(None)
