"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

import mooring
from mooring import Host


async def Catalog(host: Host) -> None:
    catalog = host.catalog  # a value: it does not change while you use it
    print(list(catalog.tools))  # prints: ['mcp_shop_order', 'mcp_shop_price']
    print(catalog.route("mcp_shop_price").server)  # prints: shop


async def Tool(host: Host) -> None:
    tool = host.catalog.tools["mcp_shop_price"]
    print(tool.server, tool.remote_name, tool.description)  # prints: shop price What an item costs.
    print(tool.input_schema["required"])  # prints: ['item']


async def Group(host: Host) -> None:
    group = host.catalog.groups[0]
    print(group.id, group.members)  # prints: mcp:shop ('mcp_shop_order', 'mcp_shop_price')


async def Hit(host: Host) -> None:
    best = host.search("what does it cost", limit=1)[0]
    print(best.name, best.tool.server)  # prints: mcp_shop_price shop


async def Resource(reader: Host) -> None:
    for resource in reader.catalog.resources:
        print(resource.uri, resource.server)  # prints: memo://opening library


async def ResourceTemplate(reader: Host) -> None:
    for template in (await reader.resources()).templates:
        print(template.uri_template, template.server)
    print(len(reader.catalog.templates))  # prints: 0


async def ResourceList(reader: Host) -> None:
    found = await reader.resources()
    print(len(found.resources), dict(found.errors))  # prints: 1 {}


async def Prompt(reader: Host) -> None:
    prompt = reader.catalog.prompts[0]
    print(prompt.name, prompt.arguments[0]["name"])  # prints: greet name


async def PromptList(reader: Host) -> None:
    found = await reader.prompts()
    print([prompt.name for prompt in found.prompts], dict(found.errors))  # prints: ['greet'] {}


async def Skill(reader: Host) -> None:
    for skill in reader.skills():
        print(skill.name, "-", skill.description)  # prints: library/refunds - How to refund
    result = await reader.session("chat").read_skill("refunds")
    print("Check the order first." in result.text)  # prints: True


async def SkillFile(reader: Host) -> None:
    (file,) = reader.skills()[0].files or ()
    print(file.uri.endswith("SKILL.md"), file.size > 0, len(file.digest) > 32)  # prints: True True True


async def Extension(reader: Host) -> None:
    for extension in reader.catalog.extensions:
        print(extension.name, extension.server)  # prints: io.modelcontextprotocol/skills library


async def Snapshot(host: Host) -> None:
    snapshot = host.provider("shop").snapshot
    print(snapshot.server, len(snapshot.tools), snapshot.info.protocol)  # prints: shop 2 2026-07-28


async def SemanticRanker(host: Host) -> None:
    from collections.abc import Sequence

    def encode(texts: Sequence[str]) -> list[list[float]]:  # or SemanticRanker.load("path/of/a/model", host)
        return [[float("price" in text), float("order" in text), 0.1] for text in texts]

    host.ranker = mooring.SemanticRanker(encode, host)
    print(host.search("price", limit=1)[0].name)  # prints: mcp_shop_price


def build_tool_name() -> None:
    print(mooring.build_tool_name("github", "create_issue"))  # prints: mcp__github__create_issue
    print(mooring.build_tool_name("github", "create_issue", style="mcp"))  # prints: mcp_github_create_issue


def parse_tool_name() -> None:
    print(mooring.parse_tool_name("mcp__github__create_issue"))  # prints: ('github', 'create_issue')


def tool_name_prefix() -> None:
    print(mooring.tool_name_prefix("github"))  # prints: mcp__github__


def normalize_name() -> None:
    print(mooring.normalize_name("my server"))  # prints: my_server
