"""The real `openai` client against a server of the model of tests/it/model.rs.

python openai_client.py BASE_URL KEYED_BASE_URL KEY
"""

import asyncio
import sys

import openai

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
COUNT = "one two three four five"
QUESTION = [{"role": "user", "content": "Count."}]
WEATHER = [{"role": "user", "content": "How is Oslo?"}]


def rejected(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def chats(client):
    answer = client.chat.completions.create(model="learned", messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == COUNT, answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    stopped = client.chat.completions.create(
        model="learned", messages=QUESTION, temperature=0, stop=["three"], logprobs=True, top_logprobs=3, n=2
    )
    assert [choice.message.content for choice in stopped.choices] == ["one two "] * 2, stopped
    first = stopped.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 3 and first.logprob <= 0, first

    ids = client.chat.completions.create(
        model="learned", messages=QUESTION, temperature=0, extra_body={"return_token_ids": True}
    )
    assert len(ids.model_extra["prompt_token_ids"]) == ids.usage.prompt_tokens
    assert len(ids.choices[0].model_extra["token_ids"]) == ids.usage.completion_tokens

    seeded = lambda seed: client.chat.completions.create(
        model="learned", messages=QUESTION, temperature=1.9, seed=seed, max_tokens=40
    ).choices[0].message.content
    assert seeded(3) == seeded(3) and seeded(3) != seeded(4)


def streams(client):
    text, usage = "", None
    stream = client.chat.completions.create(
        model="learned", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert text == COUNT and usage.completion_tokens > 5, (text, usage)
    # A client that stops reading.
    with client.chat.completions.create(model="learned", messages=QUESTION, stream=True) as stream:
        next(iter(stream))
    # The client's own reader of streams, which joins chunks.
    with client.chat.completions.stream(model="learned", messages=WEATHER, temperature=0, tools=[TOOL]) as stream:
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Oslo"}'), final
    assert final.choices[0].finish_reason == "tool_calls"


def tools(client):
    answer = client.chat.completions.create(model="learned", messages=WEATHER, temperature=0, tools=[TOOL])
    message = answer.choices[0].message
    call = message.tool_calls[0]
    assert (message.content, call.type, call.function.name) == ("I ask.", "function", "weather"), answer
    # The message goes back as the client holds it.
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    for said in (message, message.model_dump()):
        more = client.chat.completions.create(
            model="learned", messages=[*WEATHER, said, result], tools=[TOOL], max_tokens=5
        )
        assert more.choices[0].finish_reason in ("length", "stop"), more


def texts(client):
    prompt = "<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\n"
    answer = client.completions.create(model="learned", prompt=[prompt, prompt], temperature=0, max_tokens=50, logprobs=2)
    assert [choice.text for choice in answer.choices] == [COUNT] * 2, answer
    assert len(answer.choices[0].logprobs.tokens) * 2 == answer.usage.completion_tokens
    stream = client.completions.create(model="learned", prompt=prompt, temperature=0, max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == COUNT


def errors(client, keyed, key):
    assert [model.id for model in client.models.list()][:1] == ["learned"]
    assert client.models.retrieve("learned").model_extra["max_model_len"] == 4096
    create = client.chat.completions.create
    error = rejected(openai.NotFoundError, lambda: create(model="other", messages=QUESTION))
    assert error.code == "model_not_found", error
    error = rejected(openai.BadRequestError, lambda: create(model="learned", messages=QUESTION, max_tokens=9999))
    assert (error.code, error.param) == ("context_length_exceeded", "messages"), error
    error = rejected(
        openai.BadRequestError,
        lambda: create(model="learned", messages=QUESTION, response_format={"type": "json_object"}),
    )
    assert error.param == "response_format", error
    rejected(openai.AuthenticationError, openai.OpenAI(base_url=keyed, api_key="wrong").models.list)
    assert list(openai.OpenAI(base_url=keyed, api_key=key).models.list())


async def concurrent(url):
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        ask = lambda: client.chat.completions.create(model="learned", messages=QUESTION, temperature=0)
        answers = await asyncio.gather(*(ask() for _ in range(32)))
    assert all(answer.choices[0].message.content == COUNT for answer in answers)


def main():
    url, keyed, key = sys.argv[1:]
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    chats(client)
    streams(client)
    tools(client)
    texts(client)
    errors(client, keyed, key)
    asyncio.run(concurrent(url))
    print(f"openai {openai.__version__}: all answers as expected")


main()
