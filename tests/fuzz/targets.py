"""Every target."""

from tests.fuzz import decoders, model_streams, queues, requests, showing

TARGETS = (*decoders.TARGETS, *requests.TARGETS, *queues.TARGETS, *model_streams.TARGETS, *showing.TARGETS)
