"""What a loaded model can be asked for, and the errors that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headpond.errors import ContextLengthExceeded, InvalidRequest
from headpond_workloads.generation.items import GenerationItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on one sequence.

    Attributes:
        context_tokens: The most tokens of prompt and output together; the smaller of the
            model's context and what the KV memory holds.
        vocab_tokens: Token IDs are below this.
        adapters: The LoRA adapters, number by name.
    """

    context_tokens: int
    vocab_tokens: int
    adapters: Mapping[str, int] = field(default_factory=dict)

    def adapter(self, name: str | None) -> int | None:
        """Return the number of an adapter.

        Raises:
            InvalidRequest: There is none of this name.
        """
        if name is None:
            return None
        if name not in self.adapters:
            raise InvalidRequest(f"this model has no adapter {name!r}", param="adapter")
        return self.adapters[name]

    def check_length(self, least_tokens: int, param: str) -> None:
        """Refuse a prompt that is too long whatever its tokens are, before anybody counts.

        Raises:
            ContextLengthExceeded: It has at least so many tokens, and they don't fit.
        """
        if least_tokens > self.context_tokens:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {self.context_tokens} tokens. However, "
                f"your prompt has at least {least_tokens} tokens. Please reduce the length of the "
                "prompt.",
                param=param,
            )

    def output_tokens(self, item: GenerationItem, prompt_tokens: int) -> int:
        """Return the most tokens an item may generate.

        Raises:
            ContextLengthExceeded: The prompt, or the prompt and the output that was asked
                for, are longer than the context.
            InvalidRequest: It asks for less than one token, and not for its prompt either.
        """
        room = self.context_tokens - prompt_tokens
        limit = f"This model's maximum context length is {self.context_tokens} tokens."
        least = 0 if item.echo or item.prompt_logprobs is not None else 1
        if room < (least if item.max_output_tokens == 0 else 1):
            raise ContextLengthExceeded(
                f"{limit} However, your prompt has {prompt_tokens} tokens, which leaves none to "
                "generate. Please reduce the length of the prompt.",
                param=item.prompt.param,
            )
        asked = item.max_output_tokens
        if asked is None:
            return room
        if asked < least:
            raise InvalidRequest(
                f"{asked} output tokens are too few; ask for at least {least}",
                param=item.max_tokens_param,
            )
        if asked > room:
            raise ContextLengthExceeded(
                f"{limit} However, you requested {prompt_tokens + asked} tokens ({prompt_tokens} "
                f"in the prompt, {asked} in the completion). Please reduce the length of the "
                "prompt or the completion.",
                param=item.max_tokens_param,
            )
        return asked

    def kept_tokens(self, item: GenerationItem, prompt_tokens: int) -> int:
        """Return how many of the last tokens of a prompt are kept, at least one."""
        most = item.prompt.most_tokens
        if most is None:
            return prompt_tokens
        if most == "what fits":
            asked = item.max_output_tokens
            most = max(1, self.context_tokens - (1 if asked is None else asked))
        return min(most, prompt_tokens)

    def check_tokens(self, item: GenerationItem, max_output_tokens: int) -> None:
        """Refuse settings about tokens that the model does not have, or that can't all come.

        Raises:
            InvalidRequest: Names the token.
        """
        for param, token_ids in (
            ("logit_bias", item.sampling.logit_bias),
            ("stop_token_ids", item.stop_ids),
            ("allowed_token_ids", item.rules.allowed_ids),
        ):
            for token_id in token_ids:
                if not 0 <= token_id < self.vocab_tokens:
                    raise InvalidRequest(
                        f"token ID {token_id} is outside the vocabulary "
                        f"(0 to {self.vocab_tokens - 1})",
                        param=param,
                    )
        if item.rules.min_tokens > max_output_tokens:
            raise InvalidRequest(
                f"{item.rules.min_tokens} tokens are more than the {max_output_tokens} that may "
                "be generated",
                param="min_tokens",
            )
