"""Timers on AWS: near ones wait in the delay queue, far ones as schedules, under the services' rules."""

from datetime import timedelta, timezone

import pytest

from infinity_agents.adapters.scheduler import AwsTimers, schedule_name
from infinity_agents.aws_clients import AwsRefused
from infinity_agents.errors import Reject, StoreUnavailable
from infinity_agents.testing.aws import Fault, Firing, SqsPoller
from infinity_agents.testing.contracts.samples import after
from infinity_agents.testing.doubles import START, FrozenClock


@pytest.fixture
def clock(aws):
    clock = FrozenClock()
    aws.now = lambda: clock.now().timestamp()
    return clock


@pytest.fixture
def queue(clients, deployed, clock):
    return SqsPoller(clients, deployed.input_url)


@pytest.fixture
def firing(clients, deployed, clock, queue):
    return Firing(clients, deployed, clock, queue)


@pytest.fixture
def timers(clients, deployed, clock):
    return make(clients, deployed, clock)


def make(clients, deployed, clock, **changed):
    settings = {
        "delay_queue_url": deployed.delay_url,
        "delay_queue_arn": deployed.delay_arn,
        "dead_letter_queue_arn": deployed.delay_dead_letter_arn,
        "role_arn": deployed.role_arn,
        "group_name": deployed.schedule_group,
    }
    return AwsTimers(clients, clock, **{**settings, **changed})


async def scheduled(clients, deployed):
    listed = await clients.call("scheduler", "list_schedules", GroupName=deployed.schedule_group)
    return {
        schedule["Name"]: await clients.call(
            "scheduler", "get_schedule", GroupName=deployed.schedule_group, Name=schedule["Name"]
        )
        for schedule in listed["Schedules"]
    }


async def heard(queue):
    groups = await queue.receive(visibility=0)
    return [(item.body, item.group_id, item.dedup_id) for group in groups for item in group]


async def set_timer(timers, timer_id, due_at, body="ding", **ids):
    await timers.set(timer_id, due_at, body, **{"group_id": "g", "dedup_id": "d", **ids})


@pytest.mark.parametrize(("seconds", "delay"), [(-86_400, 0), (0, 0), (0.2, 1), (59.5, 60), (900, 900)])
async def test_what_is_near_waits_in_the_delay_queue(aws, clients, deployed, timers, firing, queue, seconds, delay):
    await set_timer(timers, "t", after(seconds))
    assert aws.calls == [("sqs", "SendMessage")]
    assert await firing.next_due_at() == after(delay)
    assert await firing.fire_due(after(delay)) == 1
    assert await heard(queue) == [("ding", "g", "d")]


async def test_what_is_far_is_a_schedule_that_goes_when_it_has_fired(aws, clients, deployed, timers, firing, queue):
    await set_timer(timers, "timer-1", after(900.5))
    assert aws.calls == [("scheduler", "CreateSchedule")]
    ((name, schedule),) = (await scheduled(clients, deployed)).items()
    assert name == "timer-1"
    assert schedule["ScheduleExpression"] == "at(2026-01-05T12:16:00)"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["Target"]["Arn"] == deployed.delay_arn
    assert schedule["Target"]["RoleArn"] == deployed.role_arn
    assert schedule["Target"]["DeadLetterConfig"] == {"Arn": deployed.delay_dead_letter_arn}
    assert await firing.fire_due(after(959)) == 0
    assert await firing.fire_due(after(960)) == 1
    assert await heard(queue) == [("ding", "g", "d")]
    assert await scheduled(clients, deployed) == {}


@pytest.mark.parametrize(
    ("due_at", "expression"),
    [
        (after(3600), "at(2026-01-05T13:00:00)"),
        (after(3600.000001), "at(2026-01-05T13:01:00)"),
        (after(43_199), "at(2026-01-06T00:00:00)"),
        (after(3600).astimezone(timezone(timedelta(hours=5, minutes=30))), "at(2026-01-05T13:00:00)"),
        (START.replace(year=2400), "at(2400-01-05T12:00:00)"),
    ],
)
async def test_the_time_is_utc_and_the_next_full_minute(clients, deployed, timers, due_at, expression):
    await set_timer(timers, "t", due_at)
    (schedule,) = (await scheduled(clients, deployed)).values()
    assert (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"]) == (expression, "UTC")


async def test_a_schedule_that_exists_is_left_alone(timers, firing, queue):
    await set_timer(timers, "t", after(3600), "first")
    await set_timer(timers, "t", after(7200), "second")
    assert await firing.fire_due(after(7200)) == 1
    assert await heard(queue) == [("first", "g", "d")]


async def test_a_near_timer_that_is_set_twice_is_heard_once(timers, firing, queue):
    await set_timer(timers, "t", after(60))
    await set_timer(timers, "t", after(60))
    assert await firing.fire_due(after(60)) == 2
    assert await heard(queue) == [("ding", "g", "d")]


async def test_a_cancelled_schedule_does_not_fire(clients, deployed, timers, firing):
    await set_timer(timers, "t", after(3600))
    for timer_id in ("t", "t", "never there", "ä \ud83d"):
        await timers.cancel(timer_id)
    assert await scheduled(clients, deployed) == {}
    assert await firing.fire_due(after(7200)) == 0


async def test_a_near_timer_fires_though_it_is_cancelled(timers, firing, queue):
    await set_timer(timers, "t", after(60))
    await timers.cancel("t")
    assert await firing.fire_due(after(60)) == 1
    assert await heard(queue) == [("ding", "g", "d")]


@pytest.mark.parametrize("timer_id", ["a" * 64, "A-z_0.9", "a" * 65, "ä", "", "a b", "\ud83d", "x/y", "\x00"])
async def test_every_id_has_a_name_of_its_own(clients, deployed, timers, timer_id):
    await set_timer(timers, timer_id, after(3600))
    assert list(await scheduled(clients, deployed)) == [schedule_name(timer_id)]
    assert schedule_name(timer_id) == schedule_name(timer_id) != schedule_name(timer_id + "x")
    await timers.cancel(timer_id)
    assert await scheduled(clients, deployed) == {}


async def test_odd_bodies_and_ids_come_as_they_were_set(timers, firing, queue):
    body, odd = '{"text": "\\u0000 \\ud83d \\" \\\\ <&>"}', "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    for number, due in enumerate((60, 3600)):
        await set_timer(timers, f"t{number}", after(due), body, group_id=odd, dedup_id=f"{odd}{number}")
    assert await firing.fire_due(after(3600)) == 2
    assert [(item[0], item[1]) for item in await heard(queue)] == [(body, odd)] * 2


@pytest.mark.parametrize(("due", "limit"), [(60, 1024 * 1024), (3600, 256 * 1024)])
async def test_a_message_that_is_too_long_to_wait_is_refused_before_the_call(aws, timers, due, limit):
    with pytest.raises(Reject, match=f"timer 't' has .* bytes, at most {limit} can wait"):
        await set_timer(timers, "t", after(due), "x" * limit)
    assert not aws.calls
    await set_timer(timers, "t", after(due), "x" * (limit - 100))


@pytest.mark.parametrize("fault", [Fault("scheduler", status=500), Fault("scheduler", status=429, code="Throttling")])
async def test_a_schedule_that_cannot_be_made_now_is_unavailable(aws, timers, fault):
    aws.faults = [fault] * 3
    with pytest.raises(StoreUnavailable, match="scheduler create_schedule"):
        await set_timer(timers, "t", after(3600))
    assert len(aws.calls) == 3
    await set_timer(timers, "t", after(3600))


async def test_a_schedule_that_was_made_and_not_answered_is_one(aws, clients, deployed, timers):
    aws.faults = [Fault("scheduler", "CreateSchedule", "hang up", after=True)]
    await set_timer(timers, "t", after(3600))
    assert len(await scheduled(clients, deployed)) == 1


async def test_a_wrong_setting_is_told_as_what_it_is(clients, deployed, clock):
    for changed, said in (({"group_name": "nobody"}, "ResourceNotFound"), ({"role_arn": "arn:x"}, "RoleArn")):
        with pytest.raises(AwsRefused, match=f"scheduler create_schedule is refused.*{said}"):
            await set_timer(make(clients, deployed, clock, **changed), "t", after(3600))
