"""The text of a Protobuf schema becomes message types, in a pool of its own."""

from __future__ import annotations

import ast
import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import UnusableSchema
from spark_jobs.decode.values import DecodeError, excerpt, printable

# What registries hold without a reference: Confluent's own files, which its serializers count as built in.
# https://github.com/confluentinc/schema-registry, protobuf-provider/src/main/proto/confluent

_OPTION_KINDS = {"file": "File", "message": "Message", "field": "Field", "enum": "Enum", "enum_value": "EnumValue"}
_OPTIONS = "".join(
    f"extend google.protobuf.{kind}Options {{ Meta {name}_meta = 1088; }}\n" for name, kind in _OPTION_KINDS.items()
)
_BUILT_IN = {
    "confluent/meta.proto": f"""
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {{
          string doc = 1;
          map<string, string> params = 2;
          repeated string tags = 3;
          repeated Rule rules = 4;
        }}
        message Rule {{ string name = 1; string doc = 2; string expr = 3; string sql = 4; }}
        {_OPTIONS}""",
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/type/variant.proto": """
        syntax = "proto3";
        package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }""",
    # Where Decimal was before.
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}

# FieldDescriptorProto.Type, descriptor.proto of Protobuf
TYPE_DOUBLE, TYPE_FLOAT, TYPE_INT32, TYPE_BOOL, TYPE_STRING = 1, 2, 5, 8, 9
TYPE_GROUP, TYPE_MESSAGE, TYPE_BYTES, TYPE_ENUM = 10, 11, 12, 14

_READABLE = {TYPE_STRING: TYPE_BYTES, TYPE_ENUM: TYPE_INT32}

# Linux's limits are 255 bytes and 4,096, with the folder.
_LONGEST_NAME, _LONGEST_PATH = 255, 2_000
#: 64 bits, seven a byte.
_LONGEST_VARINT = 10
_BLANK = r"\ufeff?+(?:\s++|//[^\n]*+|/\*.*?\*/)*+"
_SYNTAX = re.compile(_BLANK + r"(?:syntax|edition)\b", re.DOTALL)
_SERIALIZED = re.compile(rb"AddSerializedFile\((b'.*')\)")
_MOST_FAULTS = 5
#: No .proto text: that has blanks and brackets.
_BASE64 = re.compile(r"[A-Za-z0-9+/]++={0,2}+")


@dataclass(slots=True)
class ProtoFiles:
    """A schema's message types, with those of all its imports.

    The pool's types are made for reading: the same bytes, but text is bytes (so that its UTF-8 is checked field by
    field), an enum is an int32 (so that a number without a name stays where it is, also in proto2, which would drop
    it), and a map is its entries (so that both hold for its keys and values).

    Attributes:
        pool: The ``DescriptorPool``.
        declared: Each message as it is declared, by its full name.
        file_names: The file of each message, by its full name.
        enums: The names of each enum's numbers, by its full name; the one of ``NullValue`` is null.
        inside: The full names of the messages inside each message, in their order; of the schema's own ones under "".
        classes: The class of each message of the pool, by its full name.
        made: The full names of the messages that the compiler makes of maps and groups.
    """

    pool: Any
    declared: dict[str, Any] = field(default_factory=dict)
    file_names: dict[str, str] = field(default_factory=dict)
    enums: dict[str, dict[int, str | None]] = field(default_factory=dict)
    inside: dict[str, list[str]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    classes: dict[str, Any] = field(default_factory=dict)
    _known_indexes: dict[str, Mapping[int, str]] = field(default_factory=dict)

    @classmethod
    def compile(cls, text: str, references: Mapping[str, str]) -> ProtoFiles:
        """Compile a schema.

        Args:
            text: Its .proto text.
            references: The text of each file that it imports, directly or not, by the name of the import.

        Raises:
            UnusableSchema: It does not compile: what the compiler says, with lines and columns.
        """
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        compiled = cls(DescriptorPool())
        for serialized in _serialized_files(text, references):
            file = FileDescriptorProto.FromString(serialized)
            compiled._declare(file)
            compiled._add(FileDescriptorProto.FromString(serialized))
        return compiled

    def named(self, payload: bytes) -> tuple[str, int]:
        """Return the full name of the message that a payload's indexes name, and where it begins.

        Raises:
            DecodeError: They name none.
        """
        if payload[:1] == b"\0" and self.inside[""]:
            return self.inside[""][0], 1  # the usual case, quickly: 0 stands for the one index 0
        count, at = _varint(payload, 0)
        if not 0 <= count <= len(payload) - at:
            raise malformed("a count of message indexes, and as many", f"the count {count}")
        name, index = "", 0  # the schema itself
        for _ in range(count or 1):
            if count:
                index, at = _varint(payload, at)
            found = self._indexes(name).get(index)
            if found is None:
                place = f" in {name}" if name else ""
                raise malformed("message indexes that name a message of the schema", f"the index {index}{place}")
            name = found
        return name, at

    def _indexes(self, outer: str) -> Mapping[int, str]:
        """Return the full name of each message inside another (``""``: in the schema) by its index.

        Java's serializer counts the messages that the text declares; others also count those that the compiler makes,
        at their places. Where the two ways name two messages, neither is taken.
        """
        if outer not in self._known_indexes:
            by_place = {place: name for place, name in enumerate(self.inside[outer]) if name not in self.made}
            by_text = dict(enumerate(by_place.values()))
            self._known_indexes[outer] = {
                index: name for index, name in (by_text | by_place).items() if by_text.get(index, name) == name
            }
        return self._known_indexes[outer]

    def _declare(self, file: Any) -> None:
        package = f"{file.package}." if file.package else ""
        self.inside[""] = [package + message.name for message in file.message_type]
        self._declare_enums(package, file.enum_type)
        if file.name == "google/protobuf/struct.proto":
            self.enums["google.protobuf.NullValue"] = {0: None}
        for name, message in _messages(package, file.message_type):
            self.declared[name] = message
            self.file_names[name] = file.name
            self.inside[name] = [f"{name}.{nested.name}" for nested in message.nested_type]
            self._declare_enums(f"{name}.", message.enum_type)
            self.made.update(member.type_name[1:] for member in message.field if member.type == TYPE_GROUP)
            if message.options.map_entry:
                self.made.add(name)

    def _declare_enums(self, scope: str, enums: Sequence[Any]) -> None:
        for enum in enums:
            # Of two names of one number the first counts, as in Protobuf's own JSON.
            self.enums[scope + enum.name] = {value.number: value.name for value in reversed(enum.value)}

    def _add(self, file: Any) -> None:
        # Nothing refers to them any more.
        for unused in (file.enum_type, file.extension, file.service):
            del unused[:]
        for name, message in _messages(f"{file.package}." if file.package else "", file.message_type):
            _make_readable(name, message)
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise UnusableSchema(f"expected a Protobuf schema that can be read, found: {_short(str(error))}") from None
        for message in self.pool.FindFileByName(file.name).message_types_by_name.values():
            self._make_classes(message)

    def _make_classes(self, descriptor: Any) -> None:
        """Make the classes of a message and of those inside it, and keep them: the library would forget them.

        Its own ``GetMessageClass`` goes on to the types of the fields, and on: a long chain is too deep for the stack.
        """
        from google.protobuf.message import Message
        from google.protobuf.reflection import GeneratedProtocolMessageType

        members = {"DESCRIPTOR": descriptor, "__module__": None}
        self.classes[descriptor.full_name] = GeneratedProtocolMessageType(descriptor.name, (Message,), members)
        for nested in descriptor.nested_types:
            self._make_classes(nested)


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return the signed number at a position (zigzag), and the position behind it."""
    number = 0
    for shift, byte in enumerate(payload[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + shift + 1
    raise malformed("message indexes as varints", excerpt(payload) or "no bytes")


def malformed(expected: str, found: str) -> DecodeError:
    """Report bytes that their schema does not read."""
    return DecodeError(DeadLetterReason.MALFORMED, f"expected {expected}, found {found}")


def _messages(scope: str, messages: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield all messages, also those inside others, with their full names."""
    for message in messages:
        yield scope + message.name, message
        yield from _messages(f"{scope}{message.name}.", message.nested_type)


def _make_readable(name: str, message: Any) -> None:
    del message.enum_type[:]
    del message.extension[:]
    message.options.ClearField("map_entry")
    renamed = {}
    for nested in message.nested_type:
        # Of a map _1 the compiler makes 1Entry, a name that the pool refuses.
        if nested.options.map_entry and not nested.name[0].isalpha():
            renamed[f".{name}.{nested.name}"] = f".{name}.Map{nested.name}"
            nested.name = f"Map{nested.name}"
    for member in message.field:
        member.ClearField("default_value")  # an unset field is missing
        if member.type == TYPE_ENUM:
            member.ClearField("type_name")
        if member.type_name in renamed:
            member.type_name = renamed[member.type_name]
        member.type = _READABLE.get(member.type, member.type)


# The compiler, which reads files.


def _serialized_files(text: str, references: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the compiled files, each behind those that it imports; the schema itself is the last."""
    compiled = {name: found for name, of in references.items() if (found := _compiled(name, of))}
    texts = {name: of for name, of in references.items() if name not in compiled}
    if (schema := _compiled(_free_name(references), text)) is None:
        yield from _compiled_texts(text, references)
        return
    # What is not compiled yet is compiled as the imports of a file that holds nothing else.
    needed = {name for file in (*compiled.values(), schema) for name in file.dependency} - {*compiled}
    imports = "".join(f'import "{name}";' for name in sorted(needed))
    *others, _ = _compiled_texts(f'syntax = "proto3"; {imports}', texts)
    yield from (*others, *(file.SerializeToString() for file in (*compiled.values(), schema)))


def _compiled(name: str, text: str) -> Any:
    """Return the file descriptor that confluent-kafka for Python registers in the place of a text, in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError as ParseError

    if not _BASE64.fullmatch(text):
        return None
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ParseError, ValueError):
        return None
    file.name = name
    return file


def _free_name(references: Mapping[str, str]) -> str:
    name = "schema.proto"
    while name in references:
        name = f"_{name}"
    return name


def _compiled_texts(text: str, references: Mapping[str, str]) -> Iterator[bytes]:
    from grpc_tools import _protoc_compiler as protoc  # protoc.main() writes faults and warnings to stderr

    name = _free_name(references)
    with TemporaryDirectory(prefix="proto-") as folder:
        for path, content in {**_BUILT_IN, **references, name: text}.items():
            _write(Path(folder), path, content)
        try:
            modules = protoc.get_protos(name.encode(), [os.fsencode(path) for path in _folders(folder)])
        except protoc.ProtocErrors as errors:
            raise UnusableSchema(f"expected a Protobuf schema, found: {_faults(errors.errors())}") from None
    for _, source in modules:
        yield _descriptor(source)


def _folders(folder: str) -> list[str]:
    """Return where imports are looked for: Protobuf's own files, those of the schema, and Google's common ones."""
    common = find_spec("google.type")
    places = (common and common.submodule_search_locations) or ()
    return [str(files("grpc_tools") / "_proto"), folder, *(str(Path(place).parent.parent) for place in places)]


def _write(folder: Path, name: str, text: str) -> None:
    parts = name.split("/")
    is_path = name.isprintable() and "\\" not in name and len(name.encode()) <= _LONGEST_PATH
    if not is_path or any(part in ("", ".", "..") or len(part.encode()) > _LONGEST_NAME for part in parts):
        raise UnusableSchema(f"expected the relative path of an imported file, found {excerpt(name)}")
    text = text.removeprefix("\ufeff")
    if not _SYNTAX.match(text):
        text = f'syntax = "proto2"; {text}'  # what it means; without it the compiler warns on stderr
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", "replace")
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise UnusableSchema(f"expected a file or a folder, found both at the import {excerpt(name)}") from None


def _faults(errors: Sequence[Any]) -> str:
    """Say what the compiler found, which counts lines and columns from 0."""
    found = [
        f"{_short(error.filename.decode(errors='replace'))} line {error.line + 1}, column {error.column + 1}:"
        f" {_short(error.message.decode(errors='replace'))}"
        for error in errors[:_MOST_FAULTS]
    ]
    more = [f"{len(errors) - _MOST_FAULTS} more"] if len(errors) > _MOST_FAULTS else []
    return "; ".join(found + more)


def _short(text: str) -> str:
    return printable(text[:_LONGEST_NAME])


def _descriptor(source: bytes) -> bytes:
    """Return the serialized file descriptor that a generated Python module holds, as a literal on a line."""
    found = _SERIALIZED.search(source)
    if not found:
        raise RuntimeError("expected a module with a file descriptor, found none: another version of grpcio-tools?")
    serialized: bytes = ast.literal_eval(found[1].decode())
    return serialized
