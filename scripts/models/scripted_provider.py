"""An OpenAI-style provider that answers from a script and is no better than real ones: it cuts, breaks, refuses, repeats.

`POST /SYSTEM/CASE/v1/chat/completions`: the answer follows from the conversation alone, as with a real model: the n-th
answer of the case, n being the assistant messages that the request shows. A process that starts again and shows the same
conversation gets the same answer. Standard library only.
"""
import collections
import http.server
import json
import socket
import threading


class Answer:
    """One answer. `wants` is how many calls it asks for, in whatever form; nothing in it is counted by the provider."""

    def __init__(self, text="", wants=0, finish="stop", native=(), breaks=None):
        self.text, self.wants, self.finish, self.native, self.breaks = text, wants, finish, list(native), breaks
        self.is_fault = breaks is not None


class Problem:
    """A refusal by HTTP status."""

    wants, is_fault = 0, True

    def __init__(self, status, body=None, headers=()):
        self.status, self.body, self.headers = status, body or {"error": {"message": f"status {status}"}}, dict(headers)


class ScriptedProvider:
    """The scripts of all cases, served on a free port until the process ends.

    `scripts[CASE]` is a list; an entry is an answer, or a list of answers for the first, second, … time that this place of
    the conversation is asked about. The last entry, and the last of an inner list, repeat.
    """

    def __init__(self, scripts):
        self.scripts = scripts
        self.given = collections.defaultdict(list)
        self._asked, self._lock = collections.Counter(), threading.Lock()
        handler = type("Handler", (_Handler,), {"provider": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def base_url(self, system, case):
        return f"{self.url}/{system}/{case}/v1"

    def answer(self, system, case, request):
        at = sum(message["role"] == "assistant" for message in request["messages"])
        script = self.scripts[case]
        at = min(at, len(script) - 1)
        with self._lock:
            turn = self._asked[(system, case, at)]
            self._asked[(system, case, at)] += 1
            answer = script[at]
            if isinstance(answer, list):
                answer = answer[min(turn, len(answer) - 1)]
            self.given[(system, case)].append(answer)
        return answer


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider = None

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        _, system, case, *_ = self.path.split("/")
        answer = self.provider.answer(system, case, request)
        try:
            if isinstance(answer, Problem):
                self._whole(answer.status, answer.body, answer.headers)
            elif request.get("stream"):
                self._streamed(answer)
            else:
                self._whole(200, _completion(answer))
        except OSError:
            # Whoever asked has given up.
            self.close_connection = True

    def _whole(self, status, body, headers=()):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _streamed(self, answer):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        pieces = [answer.text[at:at + 9] for at in range(0, len(answer.text), 9)]
        if answer.breaks == "half":
            pieces = pieces[:len(pieces) // 2]
        for piece in pieces:
            self._event({"delta": {"content": piece}, "finish_reason": None})
        if answer.breaks == "half":
            # The connection is lost: not even the body ends.
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if answer.breaks != "no_end":
            self._event({"delta": {}, "finish_reason": answer.finish})
            self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, choice):
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [{"index": 0, **choice}]}
        self._chunk(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _completion(answer):
    message = {"role": "assistant", "content": answer.text or None}
    if answer.native:
        message["tool_calls"] = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for at, (name, args) in enumerate(answer.native)]
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}
