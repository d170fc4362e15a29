// Use a server through an official TypeScript client, as an editor would, and print what it saw as JSON.
//
//     node client.mjs v1|v2 stdio palimpsest
//     node client.mjs v1|v2 http http://127.0.0.1:8765/mcp
//
// v1 is @modelcontextprotocol/sdk, which speaks protocols up to 2025-11-25; v2 is @modelcontextprotocol/client, which
// speaks the newest the server knows.

const [release, transport, ...target] = process.argv.slice(2);

const v1 = {
  client: "@modelcontextprotocol/sdk/client/index.js",
  stdio: "@modelcontextprotocol/sdk/client/stdio.js",
  http: "@modelcontextprotocol/sdk/client/streamableHttp.js",
};
const v2 = {
  client: "@modelcontextprotocol/client",
  stdio: "@modelcontextprotocol/client/stdio",
  http: "@modelcontextprotocol/client",
};
const from = release === "v1" ? v1 : v2;

const { Client } = await import(from.client);
const client = new Client(
  { name: "tests", version: "1.0.0" },
  release === "v1" ? {} : { versionNegotiation: { mode: "auto" } },
);

if (transport === "stdio") {
  const { StdioClientTransport } = await import(from.stdio);
  const [command, ...args] = target;
  await client.connect(new StdioClientTransport({ command, args, env: process.env }));
} else {
  const { StreamableHTTPClientTransport } = await import(from.http);
  await client.connect(new StreamableHTTPClientTransport(new URL(target[0])));
}

const call = async (name, given) => {
  const result = await client.callTool({ name, arguments: given });
  return { text: result.content[0].text, error: result.isError ?? false, structured: result.structuredContent };
};

const tools = (await client.listTools()).tools.map((tool) => tool.name);
const added = await call("add_memory", { text: "Alice plays the violin" });
const id = added.structured.results[0].id;
const seen = {
  version: client.getNegotiatedProtocolVersion?.(),
  tools,
  added,
  found: await call("search_memories", { query: "which instrument does she play?" }),
  wrong: await call("search_memories", { qery: "x" }),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  read: (await client.readResource({ uri: `memory://${id}` })).contents[0].text,
  prompt: (await client.getPrompt({ name: "recall", arguments: { topic: "music" } })).messages[0].content.text,
  completed: (
    await client.complete({
      ref: { type: "ref/resource", uri: "memory://{id}" },
      argument: { name: "id", value: id.slice(0, 4) },
    })
  ).completion.values,
  deleted: await call("delete_memory", { memory_ids: [id] }),
};
console.log(JSON.stringify(seen));
await client.close();
