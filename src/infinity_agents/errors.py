"""Every error that the runtime raises, by who must act on it.

* ``Redeliver``: nobody: the same message delivered again may succeed.
* ``Reject``: the sender: the message can never be processed and belongs in the dead-letter queue.
* ``TellModel``: the model: it reads the text as an error result and chooses what to do.
* ``Misconfigured``: the operator: nothing works until a setting is mended.
"""


def without_user(url: str) -> str:
    """Return a text that should be a URL, for an error to name: without the user name and the password in it."""
    before, _, host = url.rpartition("@")
    if ":" not in before:
        return url
    scheme, slashes, _ = before.partition("//")
    return f"{scheme}//…@{host}" if slashes else f"…@{host}"


class InfinityError(Exception):
    """The root of the tree. Its text says what was wrong, with which value, and what to do."""


class Redeliver(InfinityError):
    """The step wrote nothing; deliver its messages again.

    ``is_passing`` tells that the cause lies outside the messages and goes by itself: no number of failures like that
    says anything about the messages.
    """

    is_passing = True


class FenceLost(Redeliver):
    """Another step committed this version of the thread first; this one wrote nothing."""


class StoreUnavailable(Redeliver):
    """A store, a queue or the timers could not be reached, or asked us to slow down."""


class DeadlineReached(Redeliver):
    """The slice ran out of time before it had anything worth saving."""

    is_passing = False


class StepCancelled(Redeliver):
    """The step was cancelled before it had anything worth saving."""


class ModelError(Redeliver):
    """The model gave no usable turn. ``retryable`` tells whether the same request may succeed at once."""

    retryable = False
    is_passing = False


class ModelThrottled(ModelError):
    """Too many requests or tokens; slow down."""

    retryable = True
    is_passing = True


class ModelInterrupted(ModelError):
    """The stream broke, or its bytes made no sense, before the turn was whole."""

    retryable = True
    is_passing = True


class ModelOverloaded(ModelError):
    """The model's service is down or overloaded."""

    retryable = True
    is_passing = True


class ModelInvalid(ModelError):
    """The model's service refuses the request as it is; sending it again changes nothing."""


class ModelForbidden(ModelError):
    """The model may not be used with these credentials."""


class ContextTooLong(ModelError):
    """The history does not fit the model's window; it must be compacted first."""


class Reject(InfinityError):
    """The message can never be processed; ``reason`` is kept beside it in the dead-letter queue."""

    @property
    def reason(self) -> str:
        return str(self)


class Undecodable(Reject):
    """The message is not JSON, or not an ``InputMessage``."""


class Unproven(Reject):
    """The message needs the proof of one of our functions (``mac``) and does not carry a right one."""


class Deadly(Reject):
    """The process has died each time that it handled the message."""


class TellModel(InfinityError):
    """The call failed in a way that the model can read and act on."""


class ToolRefused(TellModel):
    """The tool server said no for good (4xx, an unknown tool, an answer that is not of the protocol)."""


class ToolUnreachable(TellModel):
    """The tool server may or may not have taken the call: no connection, no answer, or 5xx to the end."""


class Misconfigured(InfinityError):
    """A setting, a file or a manifest is wrong; the text names it and the remedy."""


class AlreadyHosted(Misconfigured):
    """Another process is the host of the file."""
