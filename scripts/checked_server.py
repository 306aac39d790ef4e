"""A server to be checked, and what the checks found: for check-server and check-server-peers."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class Server:
    """`coppice serve` as a process."""

    def __init__(self, binary, *options, port=0, log=os.devnull, environment=None):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            [binary, "serve", "--port", str(port), *options], stdout=subprocess.PIPE, stderr=self.log,
            text=True, env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline()
        if "http://" not in line:
            sys.exit(f"{Path(sys.argv[0]).name}: the server did not start: {line!r}")
        self.url = line.split("listening on ")[1].split()[0]
        self.port = int(self.url.rsplit(":", 1)[1])

    def end(self, seconds=600):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)  # texts under way end first


def check(what, holds, seen=""):
    print(("ok      " if holds else "FAILED  ") + what + (f": {seen}" if not holds else ""), flush=True)
    check.failed += not holds


check.failed = 0
