"""What a form of the administration DAG asks for: every fault is found at once, then one request is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms import change
from kafka_ingest.forms.values import FormValues
from kafka_ingest.protocol.dead_letters import DeadLetterAction, DeadLetterChoice, DeadLetterRequest
from kafka_ingest.protocol.decisions import ChangeRequest
from kafka_ingest.protocol.roll_back import RollBackRequest

# A key that means nothing for the chosen kind is a fault, since whoever filled it in expects something of it.


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """Look at everything that a pipeline rests on."""

    pipeline: str
    submit_job: bool


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Look at dead letters."""

    pipeline: str
    choice: DeadLetterChoice


Request: TypeAlias = PreflightRequest | ListRequest | ChangeRequest | RollBackRequest | DeadLetterRequest


@dataclass(frozen=True, slots=True)
class Order:
    """What a form asks for; ``apply``: do it, do not only show it."""

    request: Request
    apply: bool


def read_order(form: Mapping[str, Any], *, zone: str, who: str, request_id: str) -> Order:
    """Return what a form asks for.

    Args:
        form: Values by key; keys that are missing hold their defaults.
        zone: IANA time zone of a time without an offset from UTC.
        who: The person who filled it in.
        request_id: Identity of the request: the same one means the same change.

    Raises:
        ConfigError: Lists every fault.
    """
    values = FormValues(form, change.FIELDS, zone)
    values.check_known_keys()
    read = {key: values.read(key) for key in change.FIELDS}
    for key, expected, found in _faults_between_keys(values, read):
        values.fault(key, expected, found)
    if values.faults:
        raise ConfigError(
            "the form asks for something that cannot be done",
            expected="values as the form describes them",
            found="\n".join(values.faults),
            next_command="start a new run with these values corrected; nothing was changed",
            pipeline=read["pipeline"],
        )
    return Order(_request(read, who, request_id), read["apply"])


def _faults_between_keys(values: FormValues, read: change.Values) -> Iterator[tuple[str, str, str]]:
    if not values.is_given("pipeline"):
        yield "pipeline", "the name of a pipeline", "nothing"
    kind = read["kind"]
    if kind != values.given.get("kind", kind):
        return  # an unknown kind: nobody can say what belongs to it
    way = change.KINDS[kind].ways.get(read["reset_to"])
    needed, possible = _keys_of(kind, way)
    for key in sorted(needed):
        if not values.is_given(key):
            yield key, f"a value: {kind} needs it", "nothing"
    for key in change.FIELDS:
        if key not in needed | possible and values.is_given(key):
            yield key, f"nothing for {kind}" + (f" to {read['reset_to']}" if way else ""), "a value"
    if kind in change.CHANGES and read["only"] and not change.CHANGES[kind].scope.fits(read["only"]):
        yield "only", change.CHANGES[kind].scope.expected, change.CHANGES[kind].scope.found


def _keys_of(name: str, way: change.Kind | None) -> tuple[set[str], set[str]]:
    """Return the keys that a kind needs, and those that it may have; ``way``: the chosen way to do it."""
    kinds = [change.KINDS[name], *([way] if way else [])]
    needed = {key for kind in kinds for key in kind.needs} | ({"reason"} if name not in change.LOOKS else set())
    of_all = {"pipeline", "kind", *(("apply",) if name not in change.LOOKS else ())}
    of_all |= {"supersede"} if name in change.CHANGES or name == change.ROLL_BACK else set()
    return needed, of_all.union(*(kind.takes for kind in kinds))


_ACTIONS = {change.REPLAY: DeadLetterAction.REPLAY, change.DISCARD: DeadLetterAction.DISCARD}


def _request(read: change.Values, who: str, request_id: str) -> Request:
    kind, pipeline = read["kind"], read["pipeline"]
    if kind == change.PREFLIGHT:
        return PreflightRequest(pipeline, read["submit_job"])
    if kind == change.LIST_DEAD_LETTERS:
        return ListRequest(pipeline, _choice_of(read))
    if kind in _ACTIONS:
        return DeadLetterRequest(request_id, pipeline, _ACTIONS[kind], _choice_of(read), who, read["reason"])
    asked = {"who": who, "why": read["reason"], "supersede": read["supersede"]}
    if kind == change.ROLL_BACK:
        more = {key: read[key] for key in ("batches", "allow_compacted")}
        return RollBackRequest(request_id=request_id, pipeline=pipeline, **asked, **more)
    return ChangeRequest(pipeline, request_id, change.CHANGES[kind].make(read), **asked)


def _choice_of(read: change.Values) -> DeadLetterChoice:
    return DeadLetterChoice(
        reasons=read["dead_letter_reasons"] or (),
        places=read["dead_letter_places"] or (),
        generation=read["generation"],
        limit=read["most_dead_letters"],
    )
