"""The forms that Airflow shows when somebody triggers a DAG, made from the tables in ``forms``.

The schema keeps the kinds of values apart, so that Airflow shows the right field for each. Times, and what the keys say
about each other, are checked by the task, with every fault in one message.

Airflow's form (3.3.2, ``ui/src/components/FlexibleForm``) marks a field as required, and shows it in red while it is
empty, when its type does not allow null: so types do that have no value from the start. A choice of nothing reads
``null`` unless ``values_display`` has a text for ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from kafka_ingest.forms.values import GREATEST_NUMBER, Choice, Field, Flag, Number, Text, Value


def form_params(fields: Mapping[str, Field], *, zone: str = "") -> dict[str, Param]:
    """Return a form as Airflow shows and checks it.

    Args:
        fields: The form.
        zone: IANA time zone of times without an offset, for the descriptions.
    """
    return {key: _param(field, zone) for key, field in fields.items()}


def _param(field: Field, zone: str) -> Param:
    schema = {**_schema(field.value), **({"section": field.section} if field.section else {})}
    description = field.help.replace("{zone}", zone)
    return Param(field.filled_in, title=field.label, description_md=description, **schema)


def _schema(value: Value) -> dict[str, Any]:
    match value:
        case Text():
            return {"type": ["null", "string"], **({"format": "multiline"} if value.is_multiline else {})}
        case Number():
            least = {} if value.at_least is None else {"minimum": value.at_least}
            return {"type": ["null", "integer"], "maximum": GREATEST_NUMBER, **least}
        case Flag():
            return {"type": ["null", "boolean"]}
        case Choice(texts, _, ""):
            return {"type": "string", "enum": list(texts), "values_display": dict(texts)}
        case Choice(texts, _, nothing):
            shown = {"None": nothing, **texts}
            return {"type": ["null", "string"], "enum": [None, *texts], "values_display": shown}
