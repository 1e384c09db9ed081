"""AutoGen: an assistant with a name, over OpenAI's client."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from checks import URL, check, expect, version

version("autogen-agentchat")


@check("AssistantAgent.run")
def _() -> None:
    async def run() -> str:
        about = {"vision": False, "function_calling": False, "json_output": True, "structured_output": True,
                 "family": "unknown"}  # fmt: skip
        client = OpenAIChatCompletionClient(model="smollm", base_url=f"{URL}/v1", api_key="none", model_info=about,
                                            max_tokens=5, timeout=300)  # fmt: skip
        agent = AssistantAgent("helper", model_client=client, system_message="Be short.")
        result = await agent.run(task="Name a colour.")
        await client.close()
        return result.messages[-1].content

    expect(asyncio.run(run()), "no text")
