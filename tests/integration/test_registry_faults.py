"""The proxy that plays a bad registry does what tests of registry faults rely on."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.registry_faults import (
    CLOSED,
    CUT_JSON,
    LOGIN_PAGE,
    OTHER_JSON,
    SILENT,
    Answer,
    Request,
    refusal,
    registry_faults,
)


def get(url: str, *, context: ssl.SSLContext | None = None, seconds: float = 30.0) -> tuple[int, bytes, str]:
    request = urllib.request.Request(f"{url}/schemas/types", headers={"Authorization": "Bearer t"})
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
            return answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers["Content-Type"]


def test_a_proxied_registry_answers_itself_until_told_otherwise_and_again_afterwards(registry_url: str) -> None:
    told: list[Answer] = [refusal(status) for status in (401, 403, 429, 500, 503)]
    with registry_faults(registry_url) as registry:
        own = get(registry.url)
        assert own == get(registry_url)
        for answer in (*told, CUT_JSON, OTHER_JSON, LOGIN_PAGE):
            registry.answer = answer
            assert get(registry.url) == (answer.status, answer.body, answer.content_type)
        registry.answer = SILENT
        with pytest.raises(TimeoutError):
            get(registry.url, seconds=0.2)
        registry.answer = CLOSED
        with pytest.raises((HTTPException, ConnectionError)):
            get(registry.url)
        registry.answer = None
        assert get(registry.url) == own
        assert registry.requests == [Request("GET", "/apis/ccompat/v7/schemas/types", "Bearer t")] * 12


@pytest.mark.parametrize("asks_for_certificate", [False, True])
def test_a_proxied_registry_speaks_tls(registry_url: str, tmp_path: Path, asks_for_certificate: bool) -> None:
    with registry_faults(registry_url, certificates=tmp_path, asks_for_certificate=asks_for_certificate) as registry:
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            get(registry.url)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        if asks_for_certificate:
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                get(registry.url, context=trusting)
            trusting.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
        assert get(registry.url, context=trusting) == get(registry_url)
