"""The bare handlers that the cold start is measured beside make the calls that ours make."""

import pytest

from bench import cold_start


@pytest.mark.slow
def test_ours_and_bare_make_the_same_calls():
    for figures in cold_start.run(1):
        assert figures.calls == figures.bare_calls
        assert figures.calls
        assert min(figures.import_ms, figures.bare_import_ms, figures.first_event_ms, figures.bare_first_event_ms) > 0
