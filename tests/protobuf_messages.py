"""Message classes of a .proto text as Protobuf's own compiler and library make them, and payloads as producers do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import DecodeError


def message_class(text: str, name: str, references: Mapping[str, str] | None = None) -> Any:
    """Compile a schema with protoc and return the class of one of its messages."""
    with TemporaryDirectory() as folder:
        for path, content in {**(references or {}), "main.proto": text}.items():
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_text(content)
        out = Path(folder, "set")
        flags = [f"-I{folder}", f"-I{files('grpc_tools') / '_proto'}", f"--descriptor_set_out={out}"]
        assert protoc.main(["protoc", *flags, "--include_imports", "main.proto"]) == 0
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def document(schema: ProtobufSchema, payload: bytes) -> bytes:
    """Return the document of one payload, which must have one."""
    (found,) = schema.documents([payload])
    assert isinstance(found, bytes), found
    return found


def fault(schema: ProtobufSchema, payload: bytes) -> DecodeError:
    """Return why one payload has no document."""
    (found,) = schema.documents([payload])
    assert isinstance(found, DecodeError), found
    return found


def varint(number: int) -> bytes:
    """Write a number that is not negative as Protobuf does."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
