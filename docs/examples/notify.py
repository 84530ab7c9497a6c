"""An example: tell Slack and a mailbox what is wrong with pipelines, with Airflow's own notifiers.

Copy it to ``$AIRFLOW_HOME/config/notify.py``, change the four names below, and write ``from notify import task_policy``
into ``airflow_local_settings.py`` beside it. Then a task of a pipeline tells when it has failed and no retry follows.
``watch_pipelines.py`` beside this file tells of pipelines that are late, behind, or close to losing records.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk._shared.secrets_masker import redact  # Airflow 3.1 to 3.3 have no public name for it

if TYPE_CHECKING:
    from collections.abc import Callable

#: Airflow connections: of type ``slackwebhook``, its password is the webhook's token; of type ``smtp``.
SLACK, SMTP = "slack_alerts", "smtp_default"
FROM, TO = "airflow@example.com", "data-platform@example.com"

_KILLED = "The task was killed, or gave no sign of life. Next: its log, and the log of the scheduler"


@dataclass(frozen=True)
class Notice:
    """What people are told: one line, what was found and what to do, and where to look."""

    title: str
    text: str
    link: str


def page_of(pipeline: str) -> str:
    """Return the address of a pipeline's page in Airflow (``[api] base_url``)."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/kafka-ingest/pipelines/{pipeline}"


def tell_slack(notice: Notice, context: Any) -> None:
    """Send a message to the webhook's channel. What stands in the notice is shown and never acted on."""
    from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

    # Slack knows these three escapes; a notice must neither link, call @channel, nor end the block.
    title, text = (escape(part, quote=False).replace("```", "'''") for part in (notice.title, notice.text))
    told = f"*{title}*\n```{text}```\n<{notice.link}|Open the pipeline>"
    # The notifier renders its own template, and not what a variable brings: records can appear in a message.
    SlackWebhookNotifier(slack_webhook_conn_id=SLACK, text="{{ told }}", timeout=30)({**context, "told": told})


def tell_mailbox(notice: Notice, context: Any) -> None:
    """Send a mail."""
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    body = f"<pre>{escape(notice.text)}</pre><p><a href='{escape(notice.link)}'>{escape(notice.link)}</a></p>"
    notifier = SmtpNotifier(smtp_conn_id=SMTP, from_email=FROM, to=TO, subject="{{ title }}", html_content="{{ body }}")
    notifier({**context, "title": notice.title, "body": body})


CHANNELS: dict[str, Callable[[Notice, Any], None]] = {"slack": tell_slack, "mailbox": tell_mailbox}


def failure_notice(context: Any) -> Notice:
    """Return what a failed task has to say: its error's message, as in docs/runbook.md, without secrets."""
    ti = context["ti"]
    pipeline = ti.dag_id.removeprefix("kafka_to_postgres__")
    text = str(redact(str(context.get("exception") or _KILLED)))
    return Notice(f"{pipeline}: {ti.task_id} failed in {ti.run_id}", text, page_of(pipeline))


def slack_failure(context: Any) -> None:
    """Tell Slack that a task has failed."""
    tell_slack(failure_notice(context), context)


def mailbox_failure(context: Any) -> None:
    """Tell the mailbox; a callback of its own, so that it is called also where Slack does not answer."""
    tell_mailbox(failure_notice(context), context)


def task_policy(task: Any) -> None:
    """Airflow calls this for every task of every DAG that it parses; callbacks that a task has stay."""
    if "kafka-ingest" in task.dag.tags:
        task.on_failure_callback = [*task.on_failure_callback, slack_failure, mailbox_failure]
