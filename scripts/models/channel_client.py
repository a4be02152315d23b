"""A client of the channel that executes what it is offered: the client's half of docs/CHANNEL.md, for one instance.

What is not here: which sessions there are, what the tools do. Needs the package `websockets`.
"""
import json
import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class ChannelClient:
    """Follows sessions and runs their client calls, each (call, attempt) at most once, on a thread of its own."""

    def __init__(self, address, key, name, capabilities, tools):
        self.name, self.capabilities, self.tools = name, capabilities, tools
        self.ran, self.errors, self._outcomes = [], [], {}
        self._socket = connect(f"ws://{address}/v1/channel", subprotocols=["toolgate.v1"],
                               additional_headers={"authorization": f"Bearer {key}"})
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def follow(self, session):
        """Becomes the executor of a session."""
        self._send({"type": "Hello", "protocol": 1, "client_id": self.name, "capabilities": self.capabilities,
                    "sessions": [{"id": session, "last_seq": 0}]})

    def close(self):
        self._socket.close()
        self._thread.join(10)

    def _send(self, frame):
        with self._sending:
            self._socket.send(json.dumps(frame))

    def _run(self):
        try:
            for text in self._socket:
                self._take(json.loads(text))
        except ConnectionClosed as closed:
            self.errors.append(str(closed))
        except Exception as fault:  # The driver must hear of it; a thread's own trace is seen by nobody.
            self.errors.append(f"{type(fault).__name__}: {fault}")

    def _take(self, frame):
        if frame["type"] == "Error":
            self.errors.append(json.dumps(frame))
        if frame["type"] != "ApprovedToolCall":
            return
        place = {"session_id": frame["session_id"], "call_id": frame["call_id"], "attempt": frame["attempt"]}
        mark = (frame["call_id"], frame["attempt"])
        if mark not in self._outcomes:
            self._send({"type": "CallAck", **place})
            self.ran.append({"tool": frame["tool"], "call": frame["call_id"], "session": frame["session_id"]})
            try:
                self._outcomes[mark] = {"status": "ok", "result": self.tools[frame["tool"]](frame["args"])}
            except Exception as fault:  # A tool that fails is an outcome.
                self._outcomes[mark] = {"status": "failed", "detail": f"{type(fault).__name__}: {fault}"}
        self._send({"type": "ToolOutcome", **place, "fence": frame["fence"], "args_hash": frame["args_hash"],
                    **self._outcomes[mark]})
