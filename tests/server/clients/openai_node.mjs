// The openai package for Node: chat completions and responses.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , url, folder] = process.argv;
const load = (name) => import(pathToFileURL(createRequire(`${folder}/`).resolve(name)));
const { default: OpenAI } = await load("openai");
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const model = "gpt-4o-mini";
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const user = (content) => [{ role: "user", content }];
const failure = async (work) => {
  try {
    await work();
  } catch (error) {
    return error.constructor.name;
  }
  return "";
};

const chat = (content, more = {}) => client.chat.completions.create({ model, messages: user(content), ...more });
const respond = (input, more = {}) => client.responses.create({ model, input, ...more });

async function chatStream(content) {
  let text = "";
  for await (const chunk of await chat(content, { stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

async function responseStream(input) {
  const stream = client.responses.stream({ model, input });
  let text = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  const final = await stream.finalResponse();
  return [text, final.output_text];
}

const tools = [{ type: "function", function: { name: "look", parameters: schema } }];
const called = await chat("Where?", { tools });
const blocked = await chat("Be rude.");
const format = { type: "json_schema", name: "place", schema, strict: true };
const parsed = await client.responses.parse({ model, input: "Where?", text: { format } });
const call = (await respond("Where?", { tools: [{ type: "function", name: "look", parameters: schema, strict: true }] }))
  .output[0];
const withheld = await respond("Be rude.");
const vector = await client.embeddings.create({ model, input: "Hello?" });

console.log(
  JSON.stringify({
    chat: {
      plain: (await chat("Hello?")).choices[0].message.content,
      stream: await chatStream("Hello?"),
      structured: JSON.parse(called.choices[0].message.tool_calls[0].function.arguments),
      blocked: [blocked.choices[0].finish_reason, blocked.choices[0].message.content],
      cut: await failure(() => chatStream("Break off.")),
    },
    responses: {
      plain: (await respond("Hello?")).output_text,
      stream: (await responseStream("Hello?"))[0],
      structured: parsed.output_parsed,
      blocked: [withheld.incomplete_details.reason, withheld.output_text],
      cut: await failure(() => responseStream("Break off.")),
    },
    final: (await responseStream("Hello?"))[1],
    call: [call.name, JSON.parse(call.arguments)],
    vector: vector.data[0].embedding,
  }),
);
