"""The official Python client uses the tools by HTTP with a token, and by pipes."""

import asyncio
import json
import sys

import httpx2
import jsonschema
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

url, token, program, *arguments = sys.argv[1:]


async def use(read, write):
    async with ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == {"list", "search", "get", "similar", "explain"}, tools

        async def call(name, **arguments):
            tool = tools[name]
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            jsonschema.validate(arguments, tool.input_schema)
            result = await session.call_tool(name, arguments)
            if not result.is_error:
                jsonschema.validate(result.structured_content, tool.output_schema)
                assert json.loads(result.content[0].text) == result.structured_content
            return result

        indexes = (await call("list")).structured_content["indexes"]
        assert [x["documents"] for x in indexes if x["name"] == "notes"] == [3], indexes
        found = await call("search", index="notes", query="what do dogs do?", k=2)
        assert found.structured_content["hits"][0]["id"] == "dog", found
        read_again = await call("get", index="notes", ids=["dog", "none"])
        assert read_again.structured_content["documents"][0]["fields"]["year"] == 2021, read_again
        assert read_again.structured_content["missing"] == ["none"]
        assert (await call("similar", index="notes", id="dog", k=1)).structured_content["hits"][0]["id"] != "dog"
        assert (await call("explain", index="notes", query="dogs", id="dog")).structured_content["rank"] == 1
        wrong = await call("search", index="none", query="x")
        assert wrong.is_error and "INDEX_NOT_FOUND" in wrong.content[0].text, wrong
        templates = (await session.list_resource_templates()).resource_templates
        assert [x.uri_template for x in templates] == ["plaid://{index}/{id}{?passage,start}"], templates
        dog = await session.read_resource("plaid://notes/dog")
        assert json.loads(dog.contents[0].text)["title"] == "Dogs", dog


async def main():
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer " + token}) as client:
        async with streamable_http_client(url, http_client=client) as streams:
            await use(*streams[:2])
    async with stdio_client(StdioServerParameters(command=program, args=arguments)) as streams:
        await use(*streams)
    print("ok")


asyncio.run(main())
