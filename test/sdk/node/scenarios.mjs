// Asks Millrace what customers ask, with the official clients, and prints what they saw: one JSON object per scenario.
//
// usage: node scenarios.mjs chat|responses|messages ASK, where ASK is a JSON object (see sdk_test.go)
import { play } from "./common.mjs";
import { scenarios as messages } from "./anthropic_messages.mjs";
import { scenarios as chat } from "./openai_chat.mjs";
import { scenarios as responses } from "./openai_responses.mjs";

await play({ chat, responses, messages }[process.argv[2]], JSON.parse(process.argv[3]));
