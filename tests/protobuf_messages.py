"""Protobuf messages of a .proto text, as a producer's generated code has them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc


def message_classes(name: str, text: str, **imports: str) -> dict[str, Any]:
    """Compile a .proto text and return its message classes by their full names.

    Args:
        name: Name of the file, by which other files import it.
        text: Its text.
        imports: Texts of files that it imports, by name.
    """
    with tempfile.TemporaryDirectory() as folder:
        for path, content in {**imports, name: text}.items():
            Path(folder, path).write_text(content, encoding="utf-8")
        built_in = Path(protoc.__file__).parent / "_proto"
        out = Path(folder, "out")
        options = [f"-I{folder}", f"-I{built_in}", f"--descriptor_set_out={out}", "--include_imports"]
        assert protoc.main(["protoc", *options, str(Path(folder, name))]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    found: dict[str, Any] = {}
    waiting = list(pool.FindFileByName(name).message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        waiting += message.nested_types
        found[message.full_name] = message_factory.GetMessageClass(message)
    return found
