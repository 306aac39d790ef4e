"""A server that answers as coppice's does, from a script: for tests of the page."""
import http.server
import json
import pathlib
import threading
import time

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "page.html"
ANSWER = ["Trees ", "are <b>grown</b>", " & <img src=x onerror=window.harmed=1>", " judged.\n", "</script>", " Done."]


def tree(step):
    """Nine drafted tokens, of which some are accepted."""
    nodes, texts = [], ANSWER + ["<svg onload=window.harmed=1>", "\n", " the"]
    for i in range(9):
        parent = -1 if i in (0, 5) else i - 1 if i < 5 else 5 if i < 8 else 1
        depth = 1 if parent < 0 else nodes[parent]["depth"] + 1
        nodes.append({"token": 100 + i, "text": texts[(i + step) % len(texts)], "parent": parent,
                      "depth": depth, "draft_prob": 0.9 / (i + 1), "target_prob": 0.5,
                      "accepted": i < 3, "looked_up": i >= 5})
    return {"nodes": nodes, "bonus": {"token": 7, "text": "!", "target_prob": 0.25},
            "accepted_length": 3}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/":
            self.answer(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif self.path == "/v1/models":
            models = {"object": "list", "data": [{"id": "a<b>model", "object": "model"}]}
            self.answer(200, "application/json", json.dumps(models).encode())
        else:
            self.answer(404, "application/json", b'{"error": {"message": "no such path"}}')

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        said = request["messages"][-1]["content"]
        if said == "refuse":
            error = {"error": {"message": "temperature: must be <at most> 2", "type": "invalid_request_error"}}
            self.answer(400, "application/json", json.dumps(error).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        pieces = ["on and "] * 400 if said == "long" else ANSWER
        try:
            self.send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            if said == "think":
                self.send({"choices": [{"index": 0, "delta": {"reasoning_content": "Well, <i>hm</i>"}}]})
            for step, piece in enumerate(pieces):
                chunk = {"choices": [{"index": 0, "delta": {"content": piece}}]}
                if request.get("speculation", {}).get("trees"):
                    chunk["coppice"] = {"tree": tree(step), "tokens_per_second": 40 + step}
                self.send(chunk)
                time.sleep(0.02)
            self.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.server.left += 1

    def send(self, chunk):
        # An event, cut within a line as a network may.
        data = f"data: {json.dumps(chunk)}\n\n".encode()
        for part in (data[:17], data[17:]):
            self.wfile.write(part)
            self.wfile.flush()


class FakeServer:
    """Serves on a free port for as long as the block lasts."""

    def __enter__(self):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.requests, self.http.left = [], 0
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}/"
