"""Pins the images of Docker Compose and of its Dockerfiles by digest: ``make pin-images``.

A tag can be moved to other content, a digest cannot. Docker's client asks the registries, which needs the plugin buildx
and no engine; the tag stays beside the digest, so that people see the version. Nothing is written unless every image
was found. Run it again after a tag was changed: each digest is replaced by that of its tag.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FILES = ("docker-compose.yaml", "compose/Dockerfile", "compose/executor.Dockerfile")
#: Images that are built here have no registry, and no digest before they are built.
_BUILT_HERE = "kafka-ingest"
IMAGE = re.compile(r"(?m)^(?P<place> +image: |FROM )(?P<tagged>[\w./-]+:[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?")


def images() -> list[re.Match[str]]:
    """Return every place that names an image of a registry."""
    texts = ((CHECKOUT / file).read_text(encoding="utf-8") for file in FILES)
    return [found for text in texts for found in IMAGE.finditer(text) if not found["tagged"].startswith(_BUILT_HERE)]


def digest_of(image: str) -> str:
    """Return the digest of an image's index, which names the image of each platform.

    Raises:
        LookupError: Docker's client has no answer; the first line of its own words is in the message.
    """
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LookupError(f"{image}: there is no docker on PATH") from None
    if done.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", done.stdout.strip()):
        first_line = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise LookupError(f"{image}: {first_line}")
    return done.stdout.strip()


def pin(digests: dict[str, str]) -> None:
    """Write the digests into the files."""
    for file in FILES:
        path = CHECKOUT / file
        text = path.read_text(encoding="utf-8")
        path.write_text(IMAGE.sub(lambda found: _pinned(found, digests), text), encoding="utf-8")


def _pinned(found: re.Match[str], digests: dict[str, str]) -> str:
    digest = digests.get(found["tagged"])
    return f"{found['place']}{found['tagged']}@{digest}" if digest else found[0]


def main() -> int:
    """Pin the images; return 1 when a registry cannot be asked."""
    try:
        digests = {image: digest_of(image) for image in sorted({found["tagged"] for found in images()})}
    except LookupError as error:
        print(
            f"error: no digest of {error}\n"
            "  expected: docker with the plugin buildx, and a way to the image's registry\n"
            "  next: make pin-images on a machine that has both; nothing was changed",
            file=sys.stderr,
        )
        return 1
    pin(digests)
    for image, digest in digests.items():
        print(f"{image}@{digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
