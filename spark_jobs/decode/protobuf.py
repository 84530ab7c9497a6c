"""Protobuf records become JSON documents, which the rules of JSON columns then read.

Fields have the names of the .proto. Integers of 64 bits are numbers, like all others, and bytes are base64. A field
with presence that is unset is missing; one without has its value. A ``float`` is written as the shortest decimal of the
double that equals it: a double precision column then holds the same value, and a real column takes that spelling for
the float that it was made from. The shorter decimal of the float itself would be another number for a double.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode.documents import encode_document
from spark_jobs.decode.numbers import float_number
from spark_jobs.decode.proto_files import (
    TYPE_BOOL,
    TYPE_BYTES,
    TYPE_DOUBLE,
    TYPE_ENUM,
    TYPE_FLOAT,
    TYPE_GROUP,
    TYPE_INT32,
    TYPE_MESSAGE,
    TYPE_STRING,
    ProtoFiles,
    malformed,
)
from spark_jobs.decode.proto_values import OF_MESSAGES, Read, decimal_number
from spark_jobs.decode.values import DecodeError, excerpt

# Single values, and values of fields.


def _same(value: Any) -> Any:
    return value


_PLAIN: Mapping[int, Read] = {
    TYPE_BOOL: _same,
    TYPE_BYTES: _same,
    TYPE_STRING: bytes.decode,
    TYPE_FLOAT: float_number,
    TYPE_DOUBLE: float_number,
}
_KEYS: Mapping[int, Read] = {TYPE_STRING: bytes.decode, TYPE_BOOL: lambda key: "true" if key else "false"}


def _enum(names: Mapping[int, str | None]) -> Read:
    return lambda number: names.get(number, number)


def _repeated(read: Read) -> Read:
    if read is _same:
        return list
    return lambda values: list(map(read, values))


def _map(read_key: Read, read: Read) -> Read:
    """Read entries; of a repeated key the last one counts."""

    def members(pairs: Any) -> dict[str, Any]:
        found = {}
        for entry in pairs:
            found[read_key(entry.key)] = read(entry.value)
        return found

    return members


def _wrapper(member: Any) -> Read:
    read = _PLAIN.get(member.type, _same)
    return lambda message: read(message.value)


#: Each is read from its bytes, so that more of them would take quadratic time, and nest deeper than the stack allows.
_MOST_ANYS = 2


# Messages of a schema.


class MessageReader:
    """Reads messages of one type as dicts. Its fields are looked at when the first message comes.

    Args:
        descriptor: The type, of the pool.
        readers: Those of the schema.
    """

    def __init__(self, descriptor: Any, readers: Readers) -> None:
        self._descriptor = descriptor
        self._readers = readers
        self._has = readers.files.classes[descriptor.full_name].HasField  # a field may have this name, too
        self._values_of: Read = self._first_values
        self._names: Sequence[str] = ()
        self._converted: Sequence[tuple[str, Read]] = ()
        self._with_presence: Sequence[tuple[str, Read]] = ()
        self._required: Sequence[str] = ()

    def read(self, message: Any) -> dict[str, Any]:
        """Return the members of the message's document."""
        values = self._values_of(message)
        document = dict(zip(self._names, values, strict=True))
        name = ""
        try:
            for name, read in self._converted:
                document[name] = read(document[name])
            for name, read in self._with_presence:
                if self._has(message, name):
                    document[name] = read(getattr(message, name))
        except UnicodeDecodeError as error:
            raise self._not_utf8(name, error) from None
        for name in self._required:
            if name not in document:
                raise malformed(f"the required field {self._descriptor.full_name}.{name}", "nothing there")
        return document

    def _not_utf8(self, name: str, error: UnicodeDecodeError) -> DecodeError:
        byte = f"byte {error.object[error.start]:#04x} at position {error.start}"
        found = f"{byte} in the field {self._descriptor.full_name}.{name}"
        return DecodeError(DeadLetterReason.NOT_UTF8, f"expected UTF-8, found {found}")

    def _first_values(self, message: Any) -> Any:
        reads = self._readers.of_fields(self._descriptor)
        has_presence = {member.name: member.has_presence for member in self._descriptor.fields}
        self._names = [name for name in reads if not has_presence[name]]
        self._converted = [(name, reads[name]) for name in self._names if reads[name] is not _same]
        self._with_presence = [(name, read) for name, read in reads.items() if has_presence[name]]
        self._required = self._readers.required(self._descriptor)
        self._values_of = _values_of(self._names)
        return self._values_of(message)


def _values_of(names: Sequence[str]) -> Read:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: [getattr(message, name) for name in names]


class Readers:
    """The readers of a schema's messages, each made when it is needed.

    Args:
        files: The schema.
        anys: How many messages of type Any lie around these.
    """

    def __init__(self, files: ProtoFiles, anys: int = 0) -> None:
        from google.protobuf.message import DecodeError as ParseError

        self.files = files
        self._parse_error = ParseError
        self._anys = anys
        self._known: dict[str, Read] = {}
        self._inner: Readers | None = None

    def message(self, descriptor: Any, data: bytes) -> Any:
        """Read the message that bytes hold.

        Raises:
            DecodeError: They hold none of this type.
        """
        try:
            message = self.files.classes[descriptor.full_name].FromString(data)
        except self._parse_error:
            found = f"{len(data)} bytes that are none: {excerpt(data)}"
            raise malformed(f"a Protobuf message {descriptor.full_name}", found) from None
        return self.of(descriptor)(message)

    def of(self, descriptor: Any) -> Read:
        """Return the reader of a type's messages."""
        name = descriptor.full_name
        if name not in self._known:
            self._known[name] = self.special(descriptor) or MessageReader(descriptor, self).read
        return self._known[name]

    def special(self, descriptor: Any) -> Read | None:
        """Return the reader of a type that is no object of its fields; ``None`` for all others."""
        name, members = descriptor.full_name, self.files.declared[descriptor.full_name].field
        if name == "confluent.type.Decimal":
            types = {member.name: member.type for member in members}
            return decimal_number if types.get("value") == TYPE_BYTES and types.get("scale") == TYPE_INT32 else None
        package, _, short = name.rpartition(".")
        folder, _, file = self.files.file_names[name].removesuffix(".proto").rpartition("/")
        if package != "google.protobuf" or folder != "google/protobuf":
            return None
        if file == "wrappers":
            return _wrapper(members[0])
        return self._any if (file, short) == ("any", "Any") else OF_MESSAGES.get((file, short))

    def of_fields(self, descriptor: Any) -> dict[str, Read]:
        """Return how each field of a type is read, by its name, in the order of the .proto."""
        declared = self.files.declared[descriptor.full_name].field
        return {member.name: self._of_field(member, descriptor.fields_by_name[member.name]) for member in declared}

    def _of_field(self, declared: Any, member: Any) -> Read:
        if declared.label == declared.LABEL_REPEATED:
            message = self.files.declared.get(declared.type_name[1:])
            if message and message.options.map_entry:
                key, value = message.field
                of_value = self._of_one(value, member.message_type.fields_by_name["value"])
                return _map(_KEYS.get(key.type, str), of_value)
            return _repeated(self._of_one(declared, member))
        return self._of_one(declared, member)

    def _of_one(self, declared: Any, member: Any) -> Read:
        if declared.type in (TYPE_MESSAGE, TYPE_GROUP):
            return self.of(member.message_type)
        if declared.type == TYPE_ENUM:
            return _enum(self.files.enums[declared.type_name[1:]])
        return _PLAIN.get(declared.type, _same)

    def required(self, descriptor: Any) -> list[str]:
        """Return the names of the required fields of a type."""
        return [
            member.name
            for member in self.files.declared[descriptor.full_name].field
            if member.label == member.LABEL_REQUIRED
            or member.options.features.field_presence == member.options.features.LEGACY_REQUIRED
        ]

    def _any(self, message: Any) -> dict[str, Any]:
        """Write the message inside, as Protobuf's JSON has it; its bytes where the schema does not know its type."""
        url = message.type_url.decode()
        if not url and not message.value:
            return {}
        try:
            descriptor = self.files.pool.FindMessageTypeByName(url.rpartition("/")[2])
        except KeyError:
            return {"@type": url, "value": message.value}
        if self._anys == _MOST_ANYS:
            raise malformed(f"at most {_MOST_ANYS} messages of type Any in one another", "more")
        self._inner = self._inner or Readers(self.files, self._anys + 1)
        inner = self._inner.message(descriptor, message.value)
        if self.special(descriptor):
            return {"@type": url, "value": inner}
        return {"@type": url, **inner}


# Records.


class ProtobufSchema:
    """One registered schema, compiled once a worker process.

    Args:
        text: Its .proto text.
        references: The text of each file that it imports, directly or not, by the name of the import.

    Raises:
        UnusableSchema: It does not compile.
    """

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self.files = ProtoFiles.compile(text, references)
        self.readers = Readers(self.files)
        self._descriptors: dict[str, Any] = {}

    def documents(self, payloads: Sequence[bytes]) -> list[bytes | DecodeError]:
        """Return the document of each payload, or why it has none.

        Args:
            payloads: What follows the schema's id: the indexes of the message type, then the message.
        """
        return [self._document(payload) for payload in payloads]

    def _document(self, payload: bytes) -> bytes | DecodeError:
        try:
            name, start = self.files.named(payload)
            if name not in self._descriptors:
                self._descriptors[name] = self.files.pool.FindMessageTypeByName(name)
            return encode_document(self.readers.message(self._descriptors[name], payload[start:]))
        except DecodeError as decode_error:
            return decode_error
