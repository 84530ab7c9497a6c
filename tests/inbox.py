"""A Slack webhook and a mail server on loopback: what Airflow's own notifiers send arrives here."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "T0/B0/webhook-token"


@dataclass
class Inbox:
    """What has arrived: texts of Slack messages, and mails."""

    slack_port: int = 0
    smtp_port: int = 0
    slack: list[str] = field(default_factory=list)
    mails: list[Message] = field(default_factory=list)

    def connections(self) -> dict[str, str]:
        """Airflow connections that lead here, as environment variables."""
        slack = {"conn_type": "slackwebhook", "host": f"http://127.0.0.1:{self.slack_port}", "password": TOKEN}
        extra = {"disable_ssl": True, "disable_tls": True, "retry_limit": 0}
        smtp = {"conn_type": "smtp", "host": "127.0.0.1", "port": self.smtp_port, "extra": extra}
        return {"AIRFLOW_CONN_SLACK_ALERTS": json.dumps(slack), "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp)}

    def mail_texts(self) -> list[str]:
        """The bodies of all mails, decoded."""
        return [body_of(mail) for mail in self.mails]


def body_of(mail: Message) -> str:
    [part] = [part for part in mail.walk() if not part.is_multipart()]
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode("utf-8")


@contextmanager
def open_inbox() -> Iterator[Inbox]:
    inbox = Inbox()

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_right = self.path == f"/{TOKEN}"
            if is_right:
                inbox.slack.append(body["text"])
            self.send_response(200 if is_right else 403)
            self.end_headers()
            self.wfile.write(b"ok" if is_right else b"invalid_token")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Mailbox(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            """What smtplib says (RFC 5321): ``DATA`` ends with a dot, and a dot that begins a line is doubled."""
            self.wfile.write(b"220 inbox\r\n")
            while line := self.rfile.readline():
                if line.upper().startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    inbox.mails.append(message_from_bytes(b"".join(line.removeprefix(b".") for line in lines)))
                is_last = line.upper().startswith(b"QUIT")
                self.wfile.write(b"221 bye\r\n" if is_last else b"250 ok\r\n")
                if is_last:
                    return

    with (
        _serving(ThreadingHTTPServer(("127.0.0.1", 0), Webhook)) as inbox.slack_port,
        _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox)) as inbox.smtp_port,
    ):
        yield inbox


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
