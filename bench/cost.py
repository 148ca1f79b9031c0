"""What an agent on AWS costs: idle, and for a thousand slices; writes docs/cost.md.

The round trips of a slice are those that tests/aws counts; the prices are list prices, and what cannot be counted
without an account is an assumption that the table names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "cost.md"

PRICED_AT = "November 2026"
REGION = "us-east-1"

# Dollars, without free tiers.
SQS_FIFO = 0.50e-6
SQS_STANDARD = 0.40e-6
DYNAMO_READ = 0.125e-6
DYNAMO_WRITE = 0.625e-6
LAMBDA_REQUEST = 0.20e-6
LAMBDA_ARM_GB_SECOND = 0.0000133334
DSQL_DPU = 8.00e-6
SECRET_MONTH = 0.40
ALARM_MONTH = 0.10
DASHBOARD_MONTH = 3.00
DSQL_GB_MONTH = 0.33

MEMORY_GB = 1.0
SECONDS_OF_WORK = 0.3
SECONDS_OF_MODEL = 4.0
DPU_A_SLICE = 2.5
KEEPER_SECONDS = 0.5
KEEPER_DPU = 0.5
POLLS_A_MONTH = 5 * 3 * 60 * 24 * 30
"""The event source of Lambda asks with five pollers, each for 20 seconds at a time."""
KEEPER_RUNS_A_MONTH = 12 * 24 * 30


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of a table: what is paid for, how often, and what one costs in dollars."""

    what: str
    count: float
    each: float

    @property
    def total(self) -> float:
        """Dollars."""
        return self.count * self.each


def a_thousand_slices() -> Sequence[Cost]:
    """Return what a thousand slices cost, each of which hears one message and has one effect: an output."""
    thousand = 1000
    seconds = thousand * (SECONDS_OF_WORK + SECONDS_OF_MODEL)
    return (
        Cost("input queue: a send, a receive, a change of visibility, a delete", 4 * thousand, SQS_FIFO),
        Cost("output queue: a send, a receive, a delete", 3 * thousand, SQS_STANDARD),
        Cost("state table: a consistent read", thousand, DYNAMO_READ),
        Cost("state table: a write", thousand, DYNAMO_WRITE),
        Cost("leader: invocations", thousand, LAMBDA_REQUEST),
        Cost("leader: GB-seconds", seconds * MEMORY_GB, LAMBDA_ARM_GB_SECOND),
        Cost("database: DPUs of a load and a commit", thousand * DPU_A_SLICE, DSQL_DPU),
    )


def an_idle_month() -> Sequence[Cost]:
    """Return what an agent costs in a month of 30 days in which nobody says anything."""
    return (
        Cost("input queue: looks of Lambda's pollers", POLLS_A_MONTH, SQS_FIFO),
        Cost("delay queue: looks of Lambda's pollers", POLLS_A_MONTH, SQS_STANDARD),
        Cost("keeper: invocations", KEEPER_RUNS_A_MONTH, LAMBDA_REQUEST),
        Cost("keeper: GB-seconds", KEEPER_RUNS_A_MONTH * KEEPER_SECONDS * MEMORY_GB, LAMBDA_ARM_GB_SECOND),
        Cost("keeper: looks at the dead letters, two queues", 2 * KEEPER_RUNS_A_MONTH, SQS_FIFO),
        Cost("database: DPUs of the keeper", KEEPER_RUNS_A_MONTH * KEEPER_DPU, DSQL_DPU),
        Cost("secret with the keys of callbacks", 1, SECRET_MONTH),
    )


def page() -> str:
    """Return the whole document."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# What it costs",
        "",
        "Computed by `bench/cost.py`, which writes this page; nothing was billed in an account.",
        "",
        f"- Prices are list prices of {REGION}, {PRICED_AT}, in dollars, without free tiers.",
        "- Those of Aurora DSQL, DynamoDB and Lambda were looked up, those of SQS, Secrets Manager, alarms and",
        "  dashboards were not. Look all of them up before you rely on them.",
        "- The model's tokens come on top, and are most of the bill.",
        "",
        "## A thousand slices",
        "",
        "A slice hears one message and says one thing. Its requests are those that the tests in `tests/aws/` count.",
        "What no test can count is assumed:",
        "",
        f"- {MEMORY_GB:g} GB of memory (Arm), {SECONDS_OF_WORK:g} s of work, {SECONDS_OF_MODEL:g} s of the model.",
        f"- {DPU_A_SLICE:g} DPUs for what the database does. It was never metered.",
        "",
        *_table(a_thousand_slices()),
        "",
        "A tool call is a slice more, and a request to the receiver.",
        "",
        "## A month in which nothing happens",
        "",
        "Waiting threads cost nothing, however many they are. What is left is the deployment's own. Assumed:",
        "",
        "- Five pollers for each queue, which ask every 20 seconds.",
        f"- A keeper that works {KEEPER_SECONDS:g} s every five minutes and uses {KEEPER_DPU:g} DPUs.",
        "",
        *_table(an_idle_month()),
        "",
        f"Not in it: storage ({DSQL_GB_MONTH:.2f} dollars for a GB in the database), alarms ({ALARM_MONTH:.2f} each),",
        f"a dashboard ({DASHBOARD_MONTH:.2f}), logs, and Slack, whose responder polls a queue as the relay does.",
    )


def _table(costs: Sequence[Cost]) -> Iterator[str]:
    yield "| what | count | dollars a million | dollars |"
    yield "|---|---:|---:|---:|"
    for cost in costs:
        yield f"| {cost.what} | {cost.count:,.0f} | {cost.each * 1e6:,.3f} | {cost.total:.4f} |"
    yield f"| **all** | | | **{sum(cost.total for cost in costs):.2f}** |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
