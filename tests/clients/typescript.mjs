// What a client of the TypeScript SDK sees of the gateway, as one JSON document:
// node typescript.mjs v1|v2 legacy|modern URL
import { pathToFileURL } from "node:url";
import path from "node:path";

const [version, era, url] = process.argv.slice(2);
const modules = path.resolve(process.env.CLIENTS, "node_modules", "@modelcontextprotocol");
const load = (file) => import(pathToFileURL(path.join(modules, file)));
const { Client } = await load(version === "v1" ? "sdk/dist/esm/client/index.js" : "client/dist/index.mjs");
const { StreamableHTTPClientTransport } = await load(
  version === "v1" ? "sdk/dist/esm/client/streamableHttp.js" : "client/dist/index.mjs",
);

const changed = Promise.withResolvers();
const info = { name: "real-client", version: "1" };
let client;
if (version === "v1") {
  const { ToolListChangedNotificationSchema } = await load("sdk/dist/esm/types.js");
  client = new Client(info);
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => changed.resolve(true));
} else {
  const mode = era === "modern" ? "auto" : "legacy";
  client = new Client(info, { versionNegotiation: { mode } });
  client.setNotificationHandler("notifications/tools/list_changed", () => changed.resolve(true));
}
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const call = (name, options) =>
  version === "v1"
    ? client.callTool({ name, arguments: {} }, undefined, options)
    : client.callTool({ name, arguments: {} }, options);

// The gateway's own figures say when a call is under way, and that it was cancelled there.
const figure = async (line) => {
  const text = await (await fetch(new URL("/metrics", url))).text();
  return Number(text.split("\n").find((one) => one.startsWith(line + " "))?.split(" ")[1] ?? 0);
};
const until = async (wanted) => {
  const end = Date.now() + 10000;
  while (Date.now() < end) {
    if (await wanted()) return true;
    await new Promise((done) => setTimeout(done, 50));
  }
  return false;
};
const CANCELLED = 'mooring_gateway_requests_total{method="tools/call",outcome="cancelled"}';

const seen = { protocol: client.getNegotiatedProtocolVersion?.() ?? null };
const before = (await client.listTools()).tools;
seen.tools = before.length;
seen.text = (await call("test_simple_text")).content[0].text;
seen.error = (await call("test_error_handling")).isError;
const image = (await call("test_image_content")).content[0];
seen.image = [image.type, image.mimeType];
seen.resource = (await client.readResource({ uri: "test://static-text" })).contents[0].text;
seen.prompt = (await client.getPrompt({ name: "test_simple_prompt" })).messages[0].content.text;
const cancelled = await figure(CANCELLED);
const abort = new AbortController();
const slow = call("test_slow", { signal: abort.signal }).then(
  () => false,
  () => true,
);
await until(async () => (await figure("mooring_gateway_under_way")) > 0);
abort.abort();
seen.cancelled = (await slow) && (await until(async () => (await figure(CANCELLED)) > cancelled));
if (era === "modern") await client.listen({ toolsListChanged: true });
await call("test_trigger_tool_change");
seen.changed = await Promise.race([changed.promise, new Promise((done) => setTimeout(() => done(false), 8000))]);
seen.grown = (await client.listTools()).tools.length - before.length;
console.log(JSON.stringify(seen));
await client.close();
process.exit(0);
