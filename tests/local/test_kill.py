"""P1: the host dies by SIGKILL at random moments, and nothing is lost or doubled. ``make torture`` is the long run."""

from tests.torture import torture


async def test_p1_a_sample_of_conversations_outlives_a_host_that_is_killed():
    assert await torture(conversations=10, kills=3, seed=1) == []
