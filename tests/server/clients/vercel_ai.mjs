// Vercel's AI SDK: generateText and streamText over responses, its default, and over chat completions.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , url, folder] = process.argv;
const load = (name) => import(pathToFileURL(createRequire(`${folder}/`).resolve(name)));
const { embed, generateText, jsonSchema, Output, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const openai = createOpenAI({ baseURL: url, apiKey: "none" });
const schema = jsonSchema({
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
});

async function all(model) {
  const providerOptions = { openai: { store: false } };
  const ask = (prompt, more = {}) => generateText({ model, prompt, maxRetries: 0, providerOptions, ...more });
  const read = async (prompt) => {
    const faults = [];
    const stream = streamText({ model, prompt, maxRetries: 0, onError: ({ error }) => faults.push(error) });
    let text = "";
    for await (const part of stream.textStream) text += part;
    return [text, faults.length ? "fault" : await stream.finishReason];
  };
  const look = tool({ description: "Looks.", inputSchema: schema, execute: async () => "It is sunny." });
  const called = await ask("Where?", { tools: { look }, stopWhen: stepCountIs(2) });
  const again = { role: "user", content: "Hello?" };
  const next = await ask(undefined, { messages: [again, ...called.response.messages, again] });
  const placed = await ask("Where?", { output: Output.object({ schema }) });
  const blocked = await ask("Be rude.");
  return {
    plain: (await ask("Hello?")).text,
    stream: (await read("Hello?"))[0],
    structured: placed.output,
    call: [called.steps[0].toolCalls[0].toolName, called.steps[0].toolCalls[0].input],
    after_call: called.text,
    next: next.text,
    blocked: [blocked.finishReason, blocked.text],
    blocked_stream: (await read("Be rude."))[1],
    cut: (await read("Break off."))[1],
  };
}

const { embedding } = await embed({ model: openai.textEmbeddingModel("gpt-4o-mini"), value: "Hello?" });
console.log(
  JSON.stringify({
    responses: await all(openai("gpt-4o-mini")),
    chat: await all(openai.chat("gpt-4o-mini")),
    vector: embedding,
  }),
);
