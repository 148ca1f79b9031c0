"""What a tool's function may know of its call, and say to the conversation while it works."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..wire import rap
from ..wire.callbacks import ChoiceCallback, OauthCallback, ViewCallback
from .asgi import Refused
from .posting import CallbackSender, Outgoing, handle_of, push_with
from .results import Event, succeeded

CHOICE_PATH = "/choice"
"""Below it, answers to choices come."""


class ToolContext:
    """A parameter annotated with this class receives it, and the model does not see that parameter."""

    def __init__(
        self,
        invocation: rap.Invocation,
        *,
        sender: CallbackSender,
        questions: "OpenQuestions | None",
        base_url: str,
        confirmed: asyncio.Event,
    ) -> None:
        self._invocation = invocation
        self._confirmed = confirmed
        self._sender = sender
        self._questions = questions
        self._base_url = base_url

    @property
    def call_id(self) -> str:
        """The runtime's id of the call: the same on every repeat."""
        return self._invocation.id

    @property
    def thread_id(self) -> str:
        """The conversation thread that made the call."""
        return self._invocation.group_id

    @property
    def thread_ancestors(self) -> tuple[str, ...]:
        """The threads above this one, from the root down."""
        return self._invocation.thread_ancestors

    @property
    def user_id(self) -> str | None:
        """The person for whom the call acts, where the runtime knows one."""
        return self._invocation.user_id

    @property
    def handle(self) -> str:
        """The text by which this call is found, from any process, at any time: by ``push`` and ``ToolServer.answer``.

        It is a secret: whoever has it can speak to the conversation.
        """
        return handle_of(self._invocation)

    async def ask(self, prompt: str, choices: Sequence[str], *, default: int = 0) -> str:
        """Ask the person to choose, and return the choice; ``default`` is the index of what counts if dismissed.

        Raises:
            Undelivered: the runtime did not take the question.
            ValueError: there are no choices, or ``default`` is none of them.
            RuntimeError: this server runs where an answer would not find it, as on Lambda.
        """
        if self._questions is None:
            raise RuntimeError("a tool cannot ask here, the answer would not find it; offer the choices as an argument")
        with self._questions.opened(self.call_id, len(choices), default) as question:
            await self._post(
                ChoiceCallback(
                    group_id=self.thread_id,
                    id=self.call_id,
                    call_id=self._invocation.call_id,
                    prompt=prompt,
                    choices=tuple(choices),
                    default=default,
                    response_url=f"{self._base_url}{CHOICE_PATH}/{question.key}",
                ),
            )
            return choices[await question.answer]

    async def authorize(self, url: str) -> None:
        """Send the person a link by which to authorize this tool; ``url`` is https.

        Raises:
            Undelivered: the runtime did not take it.
            ValueError: ``url`` is not https.
        """
        await self._post(
            OauthCallback(group_id=self.thread_id, id=self.call_id, call_id=self._invocation.call_id, auth_url=url),
        )

    async def subscribe(self, text: str) -> None:
        """Answer the call now, with ``text``, and go on as a subscription: what takes long need not keep its thread.

        ``tell`` sends its events, and what the function returns or raises is the last one. To call it twice is an
        error of the function's.

        Raises:
            Undelivered: the runtime did not take it.
            RuntimeError: the call is answered already.
        """
        if self._confirmed.is_set():
            raise RuntimeError("the call is answered already; send events with tell")
        await self._post(succeeded(self._invocation, text, subscription=True))
        self._confirmed.set()

    async def tell(self, text: str) -> None:
        """Send an event of the subscription that ``subscribe`` began, to the thread itself.

        Raises:
            Undelivered: the runtime did not take it.
            RuntimeError: the call has not become a subscription.
        """
        if not self._confirmed.is_set():
            raise RuntimeError("only a subscription has events; call subscribe first")
        await push_with(self._sender, self.handle, Event(text, associative=True))

    async def view(self, view_type: str, content: Any) -> None:
        """Show people ``content``, any JSON value, beside the conversation, in place of the last view of its type.

        Raises:
            Undelivered: the runtime did not take it.
        """
        await self._post(ViewCallback(group_id=self.thread_id, view_type=view_type, content=content))

    async def _post(self, callback: Outgoing) -> None:
        await self._sender.post(self._invocation.callback_url, callback)


@dataclass(frozen=True, slots=True)
class Question:
    """A choice that waits for its answer, an index; ``key`` is the secret part of its ``response_url``."""

    key: str
    call_id: str
    choices: int
    default: int
    answer: asyncio.Future[int]


class OpenQuestions:
    """Knows the questions that wait for an answer, so that each answer finds its way back."""

    def __init__(self) -> None:
        self._questions: dict[str, Question] = {}

    @contextlib.contextmanager
    def opened(self, call_id: str, choices: int, default: int) -> Iterator[Question]:
        """Keep a question open while the context is."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        question = Question(secrets.token_urlsafe(16), call_id, choices, default, answer)
        self._questions[question.key] = question
        try:
            yield question
        finally:
            del self._questions[question.key]

    def take(self, key: str, answer: rap.ChoiceAnswer) -> None:
        """Give the answer to whoever asked.

        Raises:
            Refused: nobody did, or this is no answer to it.
        """
        question = self._questions.get(key)
        if question is None:
            raise Refused(404, "the question is not open any more")
        if answer.id != question.call_id:
            raise Refused(403, "the question is of another call")
        selected = question.default if answer.selected is None else answer.selected
        if not 0 <= selected < question.choices:
            raise Refused(400, f"selected {selected} is not an index into {question.choices} choices")
        if not question.answer.done():
            question.answer.set_result(selected)
