"""A stand-in for Kubernetes: the part of its API that Spark's driver uses in client mode, and pods as processes here.

What runs for real is Spark's side: its driver asks for pods, watches them and deletes them, and the executors are
Spark's own, started from the pods' specifications as the entry point of Spark's image does it. No image is pulled, no
network policy is kept, and nothing is scheduled. What the API server admits is a Role's rules, as in Kubernetes.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark

from sandbox.java import java
from tests.documented_kubernetes import Thing

HOST = "127.0.0.1"
STOP_SECONDS = 10.0
_SPARK_HOME = Path(pyspark.__file__).parent
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>\w+)(/(?P<name>[^/]+))?")
#: Verbs of RBAC for requests to a thing, and to all things of a kind (Kubernetes, "Authorization Overview").
_VERBS = {
    "GET": ("get", "list"),
    "POST": ("", "create"),
    "PATCH": ("patch", ""),
    "DELETE": ("delete", "deletecollection"),
}


class Nodes(Enum):
    """What becomes of a new pod."""

    RUN = "it is started at once"
    FULL = "it stays Pending, since no node has room for it"
    OVER_QUOTA = "it is refused, since the namespace's quota is used up"


@dataclass(frozen=True)
class Request:
    """A request that came, whatever was answered: ``verb`` and ``kind`` are what a Role speaks of."""

    verb: str
    namespace: str
    kind: str
    text: str
    status: int


@dataclass
class _Watcher:
    kind: str
    selector: str
    events: queue.SimpleQueue[Thing | None] = field(default_factory=queue.SimpleQueue)


class KubernetesStandIn:
    """The API server of one cluster, on loopback, and the pods that it was told to run.

    Args:
        folder: Where pods keep their files and logs.
        roles: What the caller may do; a Role is of one namespace.

    Attributes:
        nodes: What becomes of new pods from now on.
        requests: All requests so far, in their order.
        created: Every pod as it was asked for, in their order.
    """

    def __init__(self, folder: Path, roles: Sequence[Thing]) -> None:
        self.nodes = Nodes.RUN
        self.requests: list[Request] = []
        self.created: list[Thing] = []
        self._folder, self._roles = folder, roles
        self._things: dict[tuple[str, str], Thing] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[_Watcher] = []
        self._lock = threading.RLock()
        self._server = _Server((HOST, 0), _Handler)
        self._server.cluster = self

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> None:
        """Answer requests from now on."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop answering, and end all pods."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for watcher in self._watchers:
                watcher.events.put(None)
        for process in self._processes.values():
            process.kill()
            process.wait(STOP_SECONDS)

    def things(self, kind: str) -> list[Thing]:
        """Return all things of a kind, such as ``pods``."""
        with self._lock:
            return [thing for (of, _), thing in self._things.items() if of == kind]

    def put(self, kind: str, thing: Thing) -> None:
        """Put a thing there, as somebody else would: the pod of an Airflow worker."""
        with self._lock:
            self._things[kind, thing["metadata"]["name"]] = thing

    @property
    def pids(self) -> list[int]:
        """The processes of all pods that run, in the order in which they were started."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def answer(self, method: str, target: str, body: str) -> tuple[int, Thing | _Watcher]:
        """Return what the API server answers: a status with a thing, or a watcher whose events are to be sent."""
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        found = _PATH.fullmatch(url.path)
        place: Thing = found.groupdict() if found else {"namespace": "", "kind": url.path, "name": None}
        verb = "watch" if query.get("watch") == "true" else _VERBS.get(method, ("", ""))[0 if place["name"] else 1]
        selector = ",".join(filter(None, [query.get("labelSelector"), query.get("fieldSelector")]))
        status, answer = self._answered(verb, place, selector, body)
        self.requests.append(Request(verb, place["namespace"], place["kind"], f"{target}\n{body}", status))
        return status, answer

    def forget(self, watcher: _Watcher) -> None:
        """Send a watcher no more events."""
        with self._lock:
            self._watchers.remove(watcher)

    def _answered(self, verb: str, place: Mapping[str, Any], selector: str, body: str) -> tuple[int, Thing | _Watcher]:
        kind, name = place["kind"], place["name"]
        if not self._may(verb, place["namespace"], kind):
            return _refusal(403, f'{kind} is forbidden: User "loader" cannot {verb} resource "{kind}"', "Forbidden")
        with self._lock:
            if verb == "watch":
                self._watchers.append(_Watcher(kind, selector))
                return 200, self._watchers[-1]
            if verb == "create":
                return self._create(kind, place["namespace"], json.loads(body))
            chosen = [self._things[kind, name]] if (kind, name) in self._things else []
            if name and not chosen:
                return _refusal(404, f'{kind} "{name}" not found', "NotFound")
            if not name:
                chosen = [thing for (of, _), thing in self._things.items() if of == kind and _fits(thing, selector)]
            for thing in chosen if verb in ("delete", "deletecollection") else []:
                self._delete(kind, thing)
            return 200, chosen[0] if name else {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": chosen}

    def _may(self, verb: str, namespace: str, kind: str) -> bool:
        rules = [rule for role in self._roles if role["metadata"]["namespace"] == namespace for rule in role["rules"]]
        return any(verb in rule["verbs"] and kind in rule["resources"] for rule in rules)

    def _create(self, kind: str, namespace: str, thing: Thing) -> tuple[int, Thing]:
        if kind == "pods":
            if self.nodes is Nodes.OVER_QUOTA:
                name = thing["metadata"]["name"]
                return _refusal(403, f'pods "{name}" is forbidden: exceeded quota: loads, used: pods=0', "Forbidden")
            self.created.append(json.loads(json.dumps(thing)))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        thing["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now}
        self.put(kind, thing)
        if kind == "pods":
            self._say(thing, "ADDED", "Pending")
            if self.nodes is Nodes.RUN:
                self._run(thing)
        return 201, thing

    def _delete(self, kind: str, thing: Thing) -> None:
        name = thing["metadata"]["name"]
        del self._things[kind, name]
        if kind == "pods":
            if name in self._processes:
                self._processes[name].terminate()
            thing["metadata"]["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            # What deletes Pending or ended pods is told at once; here running ones, too, end without a grace period.
            self._say(thing, "DELETED", "Failed")

    def _run(self, pod: Thing) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        folder = self._folder / name
        folder.mkdir()
        # Each pod has an address of its own, as in Kubernetes.
        pod["status"]["podIP"] = f"127.0.0.{len(self._processes) + 2}"
        environment = {entry["name"]: _value(entry, pod) for entry in container["env"]}
        command = _entry_point(environment, container["args"])
        # Volumes of a pod are folders of its node.
        inside = {
            **environment,
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_HOME": str(_SPARK_HOME),
            "PATH": os.environ["PATH"],
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=inside, stdout=log, stderr=subprocess.STDOUT)
        self._processes[name] = process
        self._say(pod, "MODIFIED", "Running", {"running": {}})
        threading.Thread(target=self._until_ended, args=(pod, process), daemon=True).start()

    def _until_ended(self, pod: Thing, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            if ("pods", pod["metadata"]["name"]) in self._things:
                exit_code = 128 - code if code < 0 else code
                ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
                self._say(pod, "MODIFIED", "Failed" if exit_code else "Succeeded", {"terminated": ended})

    def _say(self, pod: Thing, kind: str, phase: str, state: Thing | None = None) -> None:
        """Give a pod its new phase, and tell all who watch it."""
        name = pod["spec"]["containers"][0]["name"]
        statuses = [{"name": name, "state": state, "image": "", "imageID": "", "ready": True, "restartCount": 0}]
        pod["status"] = {**pod.get("status", {}), "phase": phase, "containerStatuses": statuses if state else []}
        event = {"type": kind, "object": json.loads(json.dumps(pod))}
        for watcher in self._watchers:
            if watcher.kind == "pods" and _fits(pod, watcher.selector):
                watcher.events.put(event)


@contextmanager
def kubernetes_stand_in(folder: Path, roles: Sequence[Thing]) -> Iterator[KubernetesStandIn]:
    """Run a cluster for the block."""
    cluster = KubernetesStandIn(folder, roles)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def _refusal(code: int, message: str, reason: str) -> tuple[int, Thing]:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, {**status, "message": message, "reason": reason, "code": code}


def _fits(thing: Thing, selector: str) -> bool:
    """Tell whether a thing has the labels and the name of a selector: ``a=b``, ``a!=b`` and ``a in (b, c)``."""
    labels = {"metadata.name": thing["metadata"]["name"], **thing["metadata"].get("labels", {})}
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        if found := re.fullmatch(r"(\S+) in \((.*)\)", term):
            if labels.get(found[1]) not in found[2].split(","):
                return False
        else:
            name, is_not, value = re.fullmatch(r"([^!=]+)(!?)=(.*)", term).groups()  # type: ignore[union-attr]
            if (labels.get(name) == value) is bool(is_not):
                return False
    return True


def _value(entry: Thing, pod: Thing) -> str:
    if "valueFrom" not in entry:
        return str(entry.get("value", ""))
    section, _, name = entry["valueFrom"]["fieldRef"]["fieldPath"].partition(".")
    return str(pod[section][name])


def _entry_point(environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """Return what ``/opt/entrypoint.sh executor`` of Spark's image runs (apache/spark-docker, 4.2)."""
    assert arguments == ["executor"]
    names = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    options = [value for name, value in environment.items() if name.startswith("SPARK_JAVA_OPT_")]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    command = [java(), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{_SPARK_HOME / 'jars'}/*", _BACKEND]
    return command + [word for option, name in names.items() for word in (option, environment[name])]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cluster: KubernetesStandIn


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.headers.get("Upgrade"):
            # A client that may not watch by WebSocket takes a response that does not end (fabric8 7.6).
            self._send(200, {})
            return
        status, answer = self.server.cluster.answer(self.command, self.path, body)
        if isinstance(answer, _Watcher):
            self._stream(answer)
        else:
            self._send(status, answer)

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 (names that http.server looks for)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class calls it so)
        """Say nothing: the cluster keeps all requests."""

    def _send(self, status: int, thing: Thing) -> None:
        content = json.dumps(thing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, watcher: _Watcher) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while (event := watcher.events.get()) is not None:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # who watched has gone
            pass
        finally:
            self.server.cluster.forget(watcher)
